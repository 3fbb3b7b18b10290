from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import Misconfigured
from horolog.times import format_moment, format_time, parse_duration, parse_time, parse_zone

NOW_MS = 1_795_165_200_000  # 2026-11-20T09:00:00Z
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("2026-11-20T09:00:00Z", NOW_MS),
        ("2026-11-20T09:00Z", NOW_MS),
        ("2026-11-20 10:00:00+01:00", NOW_MS),
        ("20261120T090000Z", NOW_MS),
        ("2026-11-20T09:00:00.123456Z", NOW_MS + 123),
        ("1957-10-04T19:28:34Z", -386_310_686_000),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("0001-01-01T00:00Z", -62_135_596_800_000),
        ("1795165200000", NOW_MS),
        (" 1795165200000 ", NOW_MS),
        ("0", 0),
        ("-5000", -5000),
        ("5ms", 5),
        ("1795165200ms", 1_795_165_200),
        ("9223372036854775807ms", (1 << 63) - 1),
        ("now", NOW_MS),
        ("-15m", NOW_MS - 900_000),
        ("-2h", NOW_MS - 2 * HOUR_MS),
        ("-7d", NOW_MS - 168 * HOUR_MS),
        ("-1w", NOW_MS - 168 * HOUR_MS),
        ("+90s", NOW_MS + 90_000),
        ("-1h30m", NOW_MS - 5_400_000),
        ("-5ms", NOW_MS - 5),
        ("+0s", NOW_MS),
    ],
)
def test_a_time_is_read_in_every_form(text: str, time_ms: int) -> None:
    assert parse_time(text, now_ms=NOW_MS) == time_ms


def test_a_time_without_a_zone_needs_one() -> None:
    with pytest.raises(
        Misconfigured, match=r"has no zone: write 2026-11-20T09:00Z for UTC, or add"
    ):
        parse_time("2026-11-20T09:00", now_ms=NOW_MS)
    with pytest.raises(Misconfigured, match=r"write 2026-11-20T00:00Z for UTC"):
        parse_time("2026-11-20", now_ms=NOW_MS)
    berlin = parse_zone("Europe/Berlin")
    assert parse_time("2026-11-20T10:00", now_ms=0, zone=berlin) == NOW_MS
    assert parse_time("2026-07-20", now_ms=0, zone=berlin) == parse_time(
        "2026-07-19T22:00Z", now_ms=0
    )


def test_the_time_s_own_zone_wins_over_the_given_one() -> None:
    assert parse_time("2026-11-20T09:00Z", now_ms=0, zone=parse_zone("+05:30")) == NOW_MS


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("1795165200", "looks like seconds"),
        ("1795165200000000", "looks like microseconds"),
        ("1795165200000000000", "looks like nanoseconds"),
    ],
)
def test_another_unit_is_named_and_refused(text: str, hint: str) -> None:
    with pytest.raises(Misconfigured, match=hint) as refusal:
        parse_time(text, now_ms=NOW_MS)
    assert "2026-11-20 09:00:00" in str(refusal.value)
    assert f"write {text}ms" in str(refusal.value)
    assert parse_time(f"{text}ms", now_ms=NOW_MS) == int(text)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-02-30T00:00Z", "12:00", "-", "-5x", "15 m", "1.5", "٣", "0x10"]
)
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(Misconfigured, match=r"write it as 2026-11-20T09:00:00Z"):
        parse_time(text, now_ms=NOW_MS)


def test_a_number_beyond_64_bits_is_refused() -> None:
    for text in ("9223372036854775808", "1" * 6000):
        with pytest.raises(Misconfigured, match="beyond 64 bits"):
            parse_time(text, now_ms=NOW_MS)


@pytest.mark.parametrize("text", ["+99999999999999w", "-" + "9" * 5000 + "ms"])
def test_a_relative_time_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured, match="64 bits"):
        parse_time(text, now_ms=NOW_MS)
    with pytest.raises(Misconfigured, match="64 bits"):
        parse_duration(text[1:])


def test_a_time_that_comes_twice_or_never_is_refused_with_the_two() -> None:
    berlin = parse_zone("Europe/Berlin")
    with pytest.raises(Misconfigured, match=r"comes twice, as .*02:30:00\+02:00 and .*\+01:00"):
        parse_time("2026-10-25T02:30", now_ms=0, zone=berlin)
    with pytest.raises(Misconfigured, match="does not exist"):
        parse_time("2026-03-29T02:30", now_ms=0, zone=berlin)


def test_zones_have_names_and_offsets() -> None:
    moment = datetime(2026, 11, 20)  # noqa: DTZ001 - the zone is what is asked
    assert parse_zone("UTC") is UTC
    assert parse_zone("-03:30").utcoffset(moment) == -timedelta(hours=3, minutes=30)
    assert parse_zone("+0200").utcoffset(moment) == timedelta(hours=2)
    assert parse_zone("local").utcoffset(moment) is not None
    for text in ("Atlantis/Capital", "+99:00", "../etc/passwd", ""):
        with pytest.raises(Misconfigured, match="no such zone"):
            parse_zone(text)


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (NOW_MS, "2026-11-20T09:00:00.000Z"),
        (-5, "1969-12-31T23:59:59.995Z"),
        (-1, "none"),
        (None, "none"),
        ((1 << 63) - 1, "9223372036854775807 ms"),
        (-(1 << 63), "-9223372036854775808 ms"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000 ms"),
    ],
)
def test_every_time_can_be_shown(time_ms: int | None, text: str) -> None:
    assert format_time(time_ms) == text


def test_a_moment_that_is_asked_for_is_shown_also_where_a_record_would_have_none() -> None:
    assert format_moment(-1) == "1969-12-31T23:59:59.999Z"
    assert format_moment(NOW_MS) == format_time(NOW_MS)


def test_times_are_shown_in_a_zone() -> None:
    assert format_time(NOW_MS, parse_zone("Europe/Berlin")) == "2026-11-20T10:00:00.000+01:00"


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999).filter(lambda ms: ms != -1))
def test_what_is_shown_can_be_given(time_ms: int) -> None:
    assert parse_time(format_time(time_ms), now_ms=0) == time_ms


def test_a_bound_is_rounded_up_to_the_next_millisecond() -> None:
    for text, down, up in (
        ("1970-01-01T00:00:00.0005Z", 0, 1),
        ("1969-12-31T23:59:59.9995Z", -1, 0),
        ("1970-01-01T00:00:00.001Z", 1, 1),
    ):
        assert parse_time(text, now_ms=0) == down
        assert parse_time(text, now_ms=0, rounds_up=True) == up
