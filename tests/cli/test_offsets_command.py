"""From a moment to an offset, and why."""

import json

import pytest
from command_runner import Run
from overrides import override

NINE = 1_795_165_200_000  # 2026-11-20T09:00:00Z


@pytest.fixture(scope="module")
def times() -> list[int]:
    return [NINE + delta for delta in (0, 500, 200, 1_000, 900, 3_000)]


@pytest.fixture
def topic(horolog: Run, times: list[int]) -> str:
    """Out of order in partition 0, nothing in 1, only records without a time in 2."""
    name = "o.moments"
    if name not in {row["topic"] for row in horolog("topics", "list", "--json").json}:
        horolog("topics", "create", name, "--partitions", 3)
        rows = [{"timestamp": time, "value": "x", "partition": 0} for time in times]
        rows += [{"timestamp": -1, "value": "x", "partition": 2}] * 2
        for start in range(0, len(rows), 3):
            lines = "".join(json.dumps(row) + "\n" for row in rows[start : start + 3])
            assert horolog("produce", name, "--format", "json", stdin=lines).code == 0
    return name


@pytest.mark.parametrize(
    ("delta", "offset"), [(-1, 0), (0, 0), (1, 1), (500, 1), (501, 3), (1_001, 5), (3_001, None)]
)
def test_the_first_offset_at_or_after_a_moment(
    horolog: Run, topic: str, times: list[int], delta: int, offset: int | None
) -> None:
    answers = horolog("offsets", topic, "--at", NINE + delta, "--json").json["partitions"]
    assert answers[0]["offset"] == offset
    assert answers[0]["timestamp"] == (None if offset is None else times[offset])
    assert answers[1]["offset"] is None
    assert answers[2]["offset"] is None


def test_none_is_distinguished_from_every_offset(horolog: Run, topic: str) -> None:
    lines = horolog("offsets", topic, "--at", "2026-11-20T09:00:00.501Z").lines
    rows = [line.split() for line in lines[4:]]
    assert rows == [["0", "3", "2026-11-20T09:00:01.000Z"], ["1", "none"], ["2", "none"]]


def test_an_answer_is_explained(horolog: Run, topic: str) -> None:
    said = horolog("offsets", topic, "--at", "2026-11-20T09:00:00.501Z", "--explain").out
    assert "partition 0: offset 3, of 2026-11-20T09:00:01.000Z, is the first at or after" in said
    assert "it is record 1 of 3 in the batch 3 to 5 (none, CreateTime" in said
    assert "the record before it, offset 2, is of 2026-11-20T09:00:00.200Z, 301 ms before" in said
    assert "segment 00000000000000000000 was looked into, from its start: 2 batches, " in said
    assert "bytes of them scanned" in said
    assert "partition 1: none" in said
    assert "the partition is empty: its next offset is 0" in said
    assert "offsets 0 up to 2 have no record with a timestamp" in said


def test_a_batch_that_decompresses_to_too_much_is_named_and_not_read(
    horolog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "o.packed"
    horolog("topics", "create", name)
    line = json.dumps({"timestamp": NINE, "value": "x" * 10_000}) + "\n"
    assert horolog("produce", name, "--format", "json", "--codec", "gzip", stdin=line).code == 0
    said = horolog("offsets", name, "--at", NINE, "--explain").out
    assert "it is record 1 of 1 in the batch 0 to 0 (gzip, CreateTime" in said
    override(monkeypatch, "horolog.report", MOST_BATCH_BYTES=5_000)
    said = horolog("offsets", name, "--at", NINE, "--explain").out
    assert "batch up to 0, of 1 records, which decompresses to more than 5000 bytes" in said


def test_why_there_is_none_is_explained(horolog: Run, topic: str) -> None:
    said = horolog("offsets", topic, "--at", "2027-01-01T00:00Z", "--explain", "-p", 0).out
    assert "every record is older: the latest time is 2026-11-20T09:00:03.000Z, at offset 5" in said


def test_a_time_before_1970_is_looked_up_too(horolog: Run, topic: str) -> None:
    for time in ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.998Z", "1900-01-01T00:00Z"):
        answers = horolog("offsets", topic, "--at", time, "--json").json["partitions"]
        assert [answer["offset"] for answer in answers] == [0, None, None]


def test_records_are_found_by_when_they_were_appended(horolog: Run, topic: str) -> None:
    def find(*args: str) -> list[int | None]:
        answers = horolog("offsets", topic, "--clock", "append", *args, "--json").json["partitions"]
        return [answer["offset"] for answer in answers]

    assert find("--at", "-1h") == [0, None, 0]
    assert find("--at", "+1h") == [None, None, None]
    assert find("--at", "+1h", "--skew", "2h") == [0, None, 0]
    said = horolog("offsets", topic, "--clock", "append", "--at", "-1h", "--explain").out
    assert "offset 0, appended 20" in said
    assert "no record is before it" in said
    assert "partition 1: none appended at or after" in said
    assert "the partition is empty" in said
    said = horolog("offsets", topic, "--clock", "append", "--at", "+1h", "--explain").out
    assert "offsets 0 up to 6; the last record was appended 20" in said


def test_without_a_moment_the_bounds_are_shown(horolog: Run, topic: str) -> None:
    shown = horolog("offsets", topic, "--json").json
    assert shown[0] == {
        "partition": 0,
        "earliest": 0,
        "latest": 6,
        "max_timestamp": NINE + 3_000,
        "max_timestamp_offset": 5,
        "offline": None,
    }
    assert shown[1]["max_timestamp"] is None
    assert "2026-11-20T09:00:03.000Z" in horolog("offsets", topic).out


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--at", "1795165200"], "looks like seconds"),
        (["--explain"], "give it with --at TIME"),
        (["--clock", "append"], "give it with --at TIME"),
        (["--skew", "5m"], "give it with --at TIME"),
        (["--at", "now", "--skew", "5"], "5 is not a duration"),
    ],
)
def test_misuse_is_explained(horolog: Run, topic: str, args: list[str], complaint: str) -> None:
    refused = horolog("offsets", topic, *args)
    assert refused.code == 2
    assert complaint in refused.err


def test_a_partition_that_is_not_there_is_a_finding(horolog: Run, topic: str) -> None:
    refused = horolog("offsets", topic, "--at", "now", "-p", 9)
    assert refused.code == 1
    assert f"topic {topic} has no partition 9: it has 0 to 2" in refused.err
