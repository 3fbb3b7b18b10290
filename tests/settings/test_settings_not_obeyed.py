"""What becomes of settings that make no difference here: taken and shown, or refused by name.

And which of several values of a kind decides, on a broker that runs.
"""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from settings_lab import WHOLE_CLUSTER, Lab

from horolog.client import ResourceType
from horolog.clock import HOUR_MS, MINUTE_MS
from horolog.config import Setting, SettingKind, Settings, Status, broker_settings, topic_settings
from horolog.errors import ErrorCode, Misconfigured, RequestRefused
from horolog.record import LogRecord, build_batch

EVER = str((1 << 63) - 1)
BEFORE = "message.timestamp.before.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"
INVALID_TIMESTAMP = 32


def with_status(status: Status, *tables: dict[str, Setting]) -> list[Setting]:
    return [s for table in tables for s in table.values() if s.status is status]


def another_value(setting: Setting) -> str:
    """One that is allowed by its type and its rule, and is not the default."""
    default = setting.default or ""
    words = setting.rule.words.removeprefix("any of ") if setting.rule else ""
    choices = chain(
        ["0.25"] if setting.kind is SettingKind.DOUBLE else [],
        words.removesuffix(", in any case").replace(" or ", ", ").split(", "),
        re.findall("[0-9]+", words),
        ["true", "false"] if setting.kind is SettingKind.BOOLEAN else [],
        ["1", "2", "20000", "0:1", "SOMETHING"],
    )
    for choice in choices:
        if choice.lower() != default.lower() and choice and _is_allowed(setting, choice):
            return choice
    raise AssertionError(f"no other value for {setting.name}: {words}")


def _is_allowed(setting: Setting, text: str) -> bool:
    try:
        setting.read(text)
    except ValueError as refusal:
        return "is refused" in str(refusal)
    return True


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "lab") as lab:
        yield lab


def test_what_changes_nothing_is_taken_kept_and_shown_with_the_reason(tmp_path: Path) -> None:
    given = {
        setting.name: another_value(setting)
        for setting in with_status(Status.ACCEPTED, broker_settings())
    } | {"early.start.listeners": "PLAINTEXT"}
    assert len(given) > 150
    with Lab(tmp_path, given) as lab:
        lab.restart()
        shown = lab.client.describe_configs([(ResourceType.BROKER, "1")])
        for name, value in given.items():
            entry = shown[ResourceType.BROKER, "1"][name]
            is_hidden = broker_settings()[name].sensitive
            source = 3 if name == "min.insync.replicas" else 4  # as Kafka 4 stores it
            assert (entry.value, entry.source) == (None if is_hidden else value, source), name
            assert "Accepted without effect: " in (entry.documentation or ""), name


def test_what_changes_nothing_is_taken_by_topics_too(lab: Lab) -> None:
    given = {
        setting.name: another_value(setting)
        for setting in with_status(Status.ACCEPTED, topic_settings())
    }
    lab.topic("t", given)
    lab.restart()
    shown = lab.client.describe_configs([(ResourceType.TOPIC, "t")])[ResourceType.TOPIC, "t"]
    assert {name: shown[name].value for name in given} == given


@pytest.mark.parametrize(
    "setting", with_status(Status.REFUSED, broker_settings()), ids=lambda setting: setting.name
)
def test_a_broker_does_not_start_with_what_must_not_be_ignored(setting: Setting) -> None:
    with pytest.raises(Misconfigured) as refused:
        Settings({setting.name: another_value(setting)}).broker_config()
    assert setting.name in str(refused.value)
    assert setting.why in str(refused.value)
    if setting.default is not None:
        Settings({setting.name: setting.default}).broker_config()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("remote.storage.enable", "true", "there is no tiered storage"),
        ("retention.ms", "-2", "allowed is a long, at least -1"),
        ("retention.ms", "a week", "not a whole number"),
        ("segment.ms", str(1 << 63), "beyond 64 bits"),
        ("compression.type", "brotli", "zstd or lz4 or snappy or gzip"),
        ("retention", "1", r"Unknown topic config name: retention"),
        ("log.retention.ms", "1", r"Did you mean retention\.ms\?"),
    ],
)
def test_a_topic_is_refused_what_it_cannot_have(lab: Lab, name: str, value: str, why: str) -> None:
    with pytest.raises(RequestRefused, match=why) as refused:
        lab.topic("new", {name: value})
    assert refused.value.code is ErrorCode.invalid_config
    assert name in str(refused.value)
    trial = lab.topic("old")
    with pytest.raises(RequestRefused, match=why) as refused:
        trial.alter({name: value})
    assert refused.value.code is ErrorCode.invalid_config
    assert "new" not in lab.client.metadata().topics


def test_a_cluster_wide_value_that_a_broker_could_not_start_with_is_refused(lab: Lab) -> None:
    for name, value in (
        ("log_cleanup_policy", "keep"),
        ("log_retention_ms", "0"),
        ("max_connections_per_ip_overrides", "localhost:5"),
        ("nonsense", "1"),
    ):
        with pytest.raises(RequestRefused, match=name.replace("_", r"\.")):
            lab.alter(WHOLE_CLUSTER, **{name: value})
    lab.restart()
    assert lab.topic("t").refusal(one(lab.clock.now_ms())) == 0


# --- which of several decides ---------------------------------------------------------------


def one(timestamp_ms: int) -> bytes:
    return build_batch([LogRecord(timestamp_ms, b"k", b"v")])


@pytest.mark.parametrize(
    ("static", "topic", "accepted"),
    [
        # KIP-937: a bound of its own wins over the difference, wherever each is given ...
        ({}, {DIFFERENCE: "5000", BEFORE: "7000"}, (True, False)),
        ({f"log.{BEFORE}": "7000"}, {DIFFERENCE: "5000"}, (True, False)),
        ({f"log.{DIFFERENCE}": "5000"}, {BEFORE: "7000"}, (True, False)),
        # ... unless it is what Kafka 3.6 cannot tell from its default.
        ({}, {DIFFERENCE: "5000", BEFORE: EVER}, (False, False)),
        # The difference wins over Kafka 4's default of one hour ahead, also where it is wider.
        ({}, {DIFFERENCE: str(3 * HOUR_MS)}, (True, True)),
        ({}, {}, (True, False)),
        # Append time knows no bounds.
        ({f"log.{BEFORE}": "1"}, {"message.timestamp.type": "LogAppendTime"}, (True, True)),
    ],
)
def test_bounds_on_time_are_taken_in_kafkas_order(
    static: dict[str, str], topic: dict[str, str], accepted: tuple[bool, bool], tmp_path: Path
) -> None:
    """Of a record six seconds old, and one two hours ahead."""
    with Lab(tmp_path, static) as lab:
        trial = lab.topic("t", topic)
        now_ms = lab.clock.now_ms()
        refusals = (trial.refusal(one(now_ms - 6_000)), trial.refusal(one(now_ms + 2 * HOUR_MS)))
    assert refusals == tuple(0 if each else INVALID_TIMESTAMP for each in accepted)


def test_milliseconds_decide_before_minutes_and_minutes_before_hours(tmp_path: Path) -> None:
    given = {"log.retention.hours": "1"}
    for name, value, lasts_ms in (
        ("log.retention.hours", "1", HOUR_MS),
        ("log.retention.minutes", "30", 30 * MINUTE_MS),
        ("log.retention.ms", "60000", MINUTE_MS),
    ):
        given[name] = value
        with Lab(tmp_path / name, given) as lab:
            trial = lab.topic("t")
            trial.put_at(trial.now_ms)
            trial.advance(lasts_ms)
            assert trial.look_for_expired() == 0, name
            trial.advance(1)
            assert trial.look_for_expired() == 1, name
            if name != "log.retention.ms":
                # What is set while running takes precedence over the file.
                trial.put_at(trial.now_ms)
                trial.advance(1_001)
                lab.alter(WHOLE_CLUSTER, log_retention_ms="1000")
                assert trial.look_for_expired() == 1, name
