"""`horolog topics history` and `horolog groups history`: of a broker, and of its directory."""

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from command_runner import Ran, run_command
from examples import stride
from overrides import override
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker

from golden import GOLDEN
from horolog.broker import history
from horolog.client import CommittedOffset
from horolog.clock import DAY_MS, ManualClock
from horolog.groups import GroupChange
from horolog.history import AskGroupHistory, AskTopicHistory
from horolog.schemas.group_records import (
    AssignedTopic,
    CurrentKey,
    CurrentValue,
    GroupEpochKey,
    GroupEpochValue,
    MemberKey,
    MemberMetadataValue,
)
from horolog.schemas.offsets import partition_for
from horolog.times import format_time
from horolog.wire import HISTORY_GROUP, HISTORY_TOPIC, ResourceType

broker = a_broker()


def ask(broker: RunningBroker, *args: object, offline: bool = False) -> Ran:
    where = ("--log-dir", broker.log_dir) if offline else ("-b", broker.address)
    return run_command(*args, *where)


def same(broker: RunningBroker, *args: object) -> Any:
    """What a broker answers, which is what its directory says."""
    found, of_files = (ask(broker, *args, "--json", offline=each) for each in (False, True))
    assert (found.code, of_files.code) == (0, 0)
    assert found.json == of_files.json
    return found.json


def shown(found: Any) -> list[tuple[Any, ...]]:
    return [
        (each["time"] - NOW_MS, each["aspect"], each["name"], each["before"], each["after"])
        for each in found["changes"]
    ]


def test_every_change_of_a_topic_has_its_time(broker: RunningBroker, clock: ManualClock) -> None:
    broker.create_topic("t", 2, retention_ms="5000")
    broker.create_topic("t2", 1, retention_ms="6000")
    clock.advance("1d")
    broker.alter("t", retention_ms="7000", horolog_retention_by="append-time")
    clock.advance("1d")
    broker.client.create_partitions({"t": 5})
    clock.advance("1d")
    broker.alter("t", ("retention.ms", 1, None))
    broker.client.delete_topics(["t"])
    broker.create_topic("t", 1)
    found = same(broker, "topics", "history", "t")
    assert shown(found) == [
        (0, "created", None, None, None),
        (0, "partitions", None, None, "2"),
        (0, "setting", "retention.ms", None, "5000"),
        (DAY_MS, "setting", "retention.ms", "5000", "7000"),
        (DAY_MS, "setting", "horolog.retention.by", None, "append-time"),
        (2 * DAY_MS, "partitions", None, "2", "5"),
        (3 * DAY_MS, "setting", "retention.ms", "7000", None),
        (3 * DAY_MS, "deleted", None, None, None),
        (3 * DAY_MS, "created", None, None, None),
        (3 * DAY_MS, "partitions", None, None, "1"),
    ]
    ids = [each["topic_id"] for each in found["changes"]]
    assert ids[:-2] == ids[:1] * 8
    assert ids[-2:] == ids[-1:] * 2
    assert ids[0] != ids[-1]
    assert found["logs"] == [{"name": "__cluster_metadata-0", "whole_from": None, "damage": []}]
    last = same(broker, "topics", "history", "t", "--last", 2)
    assert (last["changes"], last["total"]) == (found["changes"][-2:], 10)
    text = ask(broker, "topics", "history", "t", "--last", 2).out
    assert "8 more came before these" in text


@pytest.mark.parametrize(
    ("days", "settings", "partitions"),
    [
        (0.5, {"retention.ms": "5000"}, "2"),
        (1.0, {"retention.ms": "7000"}, "2"),
        (2.5, {"retention.ms": "7000"}, "5"),
    ],
)
def test_what_was_in_force_between_two_changes(
    broker: RunningBroker,
    clock: ManualClock,
    days: float,
    settings: dict[str, str],
    partitions: str,
) -> None:
    broker.create_topic("t", 2, retention_ms="5000")
    clock.advance("1d")
    broker.alter("t", retention_ms="7000")
    clock.advance("1d")
    broker.client.create_partitions({"t": 5})
    clock.advance("1d")
    broker.client.delete_topics(["t"])
    at = format_time(NOW_MS + int(days * DAY_MS))
    found = same(broker, "topics", "history", "t", "--at", at)
    of_settings = [each for each in found["changes"] if each["aspect"] == "setting"]
    assert {each["name"]: each["after"] for each in of_settings} == settings
    (count,) = (each["after"] for each in found["changes"] if each["aspect"] == "partitions")
    assert count == partitions
    assert "retention.ms" in ask(broker, "topics", "history", "t", "--at", at).out
    after = ask(broker, "topics", "history", "t", "--at", NOW_MS + 3 * DAY_MS)
    assert (after.code, after.out) == (
        0,
        f"there was no topic t at {format_time(clock.now_ms())}\n",
    )


def test_a_topic_that_never_was_is_said_to_be_unknown(broker: RunningBroker) -> None:
    for offline in (False, True):
        found = ask(broker, "topics", "history", "none", offline=offline)
        assert (found.code, found.lines[0]) == (1, "nothing is known of a topic none")
        found = ask(broker, "groups", "history", "none", offline=offline)
        assert (found.code, found.lines[0]) == (1, "nothing is known of a group none")
        assert found.lines[1] == "history is off: set horolog.history.ms (docs/history.md)"
        found = ask(broker, "groups", "history", "none", "--at", "-1", offline=offline)
        assert found.lines[0] == "none had committed nothing at 1969-12-31T23:59:59.999Z"


def test_many_changes_come_in_pages(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", MOST_LIST_BYTES=1_500)
    broker.create_topic("t")
    for number in range(40):
        clock.advance(1)
        broker.alter("t", retention_ms=str(number))
    found = same(broker, "topics", "history", "t")
    assert [each["after"] for each in found["changes"][2:]] == list(map(str, range(40)))
    found = same(broker, "topics", "history", "t", "--last", 30)
    assert [each["after"] for each in found["changes"]] == list(map(str, range(10, 40)))


def commit(broker: RunningBroker, group: str, topic: str, offset: int, partition: int = 0) -> None:
    committed = CommittedOffset(offset, f"note {offset}")
    broker.client.offset_commit(group, {(topic, partition): committed})


def committed(found: Any) -> list[tuple[Any, ...]]:
    return [
        (each["time"] - NOW_MS, each["topic"], each["partition"], each["committed"])
        for each in found["events"]
        if each["topic"] is not None
    ]


@pytest.mark.parametrize("name", ["horolog_history_ms", "log_cleaner_min_compaction_lag_ms"])
def test_a_broker_that_keeps_history_does_not_say_it_is_off(
    make_broker: MakeBroker, name: str
) -> None:
    broker = make_broker(**{name: "5000"})
    assert "history is off" not in ask(broker, "groups", "history", "none").out
    broker.create_topic("t")
    commit(broker, "g", "t", 1)
    assert ask(broker, "groups", "history", "g", "--json").json["is_off"] is False
    assert "history is off" not in ask(broker, "groups", "history", "none").out


def test_every_commit_of_a_group_has_its_time(broker: RunningBroker, clock: ManualClock) -> None:
    broker.create_topic("t", 2)
    broker.create_topic("u")
    commit(broker, "g", "t", 1)
    clock.advance("1h")
    commit(broker, "g", "t", 5)
    commit(broker, "g", "t", 3, partition=1)
    commit(broker, "gg", "t", 77)
    clock.advance("1h")
    commit(broker, "g", "u", 9)
    clock.advance("1h")
    broker.client.delete_topics(["t"])
    found = same(broker, "groups", "history", "g")
    hour = DAY_MS // 24
    events = committed(found)
    assert events[:4] == [
        (0, "t", 0, 1),
        (hour, "t", 0, 5),
        (hour, "t", 1, 3),
        (2 * hour, "u", 0, 9),
    ]
    assert events[4:] == [(3 * hour, "t", 0, None), (3 * hour, "t", 1, None)]
    assert {each["metadata"] for each in found["events"]} >= {"note 1", "note 5"}
    at = same(broker, "groups", "history", "g", "--at", NOW_MS + hour + 1)
    assert committed(at) == [(hour, "t", 0, 5), (hour, "t", 1, 3)]
    only = same(broker, "groups", "history", "g", "--topic", "u")
    assert committed(only) == [(2 * hour, "u", 0, 9)]
    at = same(broker, "groups", "history", "g", "--at", clock.now_ms())
    assert committed(at) == [(2 * hour, "u", 0, 9)]


def test_members_of_a_consumer_group_are_shown_with_what_they_have(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("t")
    commit(broker, "g", "t", 1)
    topic_id = broker.broker.topics.find("t").topic_id
    subscribed = MemberMetadataValue("i", None, "c", "/h", ("t",), "", 300, None, None)
    assigned = (AssignedTopic(topic_id, (0,), (2,)),)
    joined = GroupChange(
        records=[
            (MemberKey("g", "m"), subscribed),
            (GroupEpochKey("g"), GroupEpochValue(2)),
            (CurrentKey("g", "m"), CurrentValue(2, 0, 0, assigned)),
        ]
    )
    clock.advance(5)

    async def write() -> None:
        written = broker.broker.offsets_log.write_groups([joined])
        assert (written if isinstance(written, list) else await written) == [None]

    broker.run(write())
    found = same(broker, "groups", "history", "g")
    events = [each for each in found["events"] if each["time"] == NOW_MS + 5]
    assert [each["aspect"] for each in events] == ["member", "group", "assigned", "assigned"]
    assert (events[-1]["member"], events[-1]["topic"], events[-1]["partitions"]) == ("m", "t", "0")
    at = same(broker, "groups", "history", "g", "--at", NOW_MS + 5)
    assert [each["aspect"] for each in at["events"]][:4] == ["group", "member", *["assigned"] * 2]
    lines = ask(broker, "groups", "history", "g").lines
    assert lines[0].split()[:4] == ["time", "what", "member", "topic"]
    assert any("m" in line and "t; instance i" in line for line in lines)
    assert any("epoch 2, stable" in line for line in lines)
    assert "member" not in ask(broker, "groups", "history", "g", "--topic", "t").lines[0]


def page(broker: RunningBroker, ask: AskGroupHistory) -> str | None:
    """One page of an answer about group g, as the broker gives it."""
    key, resource = HISTORY_GROUP.key(ask), (ResourceType.GROUP, "g")
    return broker.client.describe_configs([resource], names=[key])[resource][key].value


def test_further_pages_about_a_group_are_of_what_was_read_for_the_first(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", MOST_LIST_BYTES=1_500)
    reads = Mock(side_effect=history.read_group_history)
    override(monkeypatch, "horolog.broker", read_group_history=reads)
    broker.create_topic("t")
    for number in range(40):
        clock.advance(1)
        commit(broker, "g", "t", number)
    for last in (40, 25):
        reads.reset_mock()
        found = same(broker, "groups", "history", "g", "--last", last, "--topic", "t")
        assert [each["committed"] for each in found["events"]] == list(range(40 - last, 40))
        assert reads.call_count == 1
        assert not broker.broker.recent_histories.following("g", AskGroupHistory(start=1, end=40))
    commit(broker, "g", "t", 40)
    found = same(broker, "groups", "history", "g", "--topic", "t")
    assert [each["committed"] for each in found["events"]] == list(range(41))


def test_any_page_is_the_same_whether_the_answer_is_kept_or_read(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", MOST_LIST_BYTES=1_500)
    broker.create_topic("t")
    for number in range(40):
        clock.advance(1)
        commit(broker, "g", "t", number)

    starts, ends = (-1, 0, 1, 10, 15, 16, 38, 39, 40, 99), (None, 0, 30, 39, 40, 41)
    for most, start, end in list(product((40, 25), starts, ends))[:: stride(7)]:
        asked = AskGroupHistory(topic="t", most=most, start=start, end=end)
        alone = page(broker, asked)
        page(broker, AskGroupHistory(topic="t", most=most))
        assert page(broker, asked) == alone


def test_answers_whose_pages_nobody_asks_for_are_few(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", MOST_LIST_BYTES=1_000)
    broker.create_topic("t")
    for number in range(20):
        commit(broker, "g", "t", number)
    asks = [AskGroupHistory(topic="t", most=most) for most in range(15, 21)]
    for ask in asks:
        assert '"next":null' not in (page(broker, ask) or "")
    kept = [
        broker.broker.recent_histories.following("g", ask._replace(start=1, end=20)) for ask in asks
    ]
    assert [each is not None for each in kept] == [False] * 2 + [True] * 4


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    refused = run_command("topics", "history", "t", "--log-dir", tmp_path)
    assert refused.code == 2
    assert "is not a log directory" in refused.err


def test_beside_a_kafkas_logs_both_are_told(make_broker: MakeBroker, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    shutil.copytree(GOLDEN / "clean", directory)
    broker = make_broker(log_dir=directory)
    commit(broker, "golden", "several", 4321)
    broker.alter("several", retention_ms="99000")
    found = same(broker, "groups", "history", "golden", "--topic", "several")
    assert {each["log"] for each in found["events"]} == {
        "__consumer_offsets-0",
        f"data.horolog/__consumer_offsets-{partition_for('golden', 50)}",
    }
    assert found["events"][-1]["committed"] == 4321
    found = same(broker, "topics", "history", "several")
    assert {each["log"] for each in found["changes"]} == {
        "__cluster_metadata-0",
        "data.horolog/__cluster_metadata-0",
    }
    last = found["changes"][-1]
    assert (last["name"], last["after"]) == ("retention.ms", "99000")
    assert "data.horolog/__cluster_metadata-0" in ask(broker, "topics", "history", "several").out


def test_long_texts_are_cut_so_that_each_entry_fits_a_page(broker: RunningBroker) -> None:
    broker.create_topic("t")
    broker.client.offset_commit("g", {("t", 0): CommittedOffset(1, "\U0001f600" * 1_000)})
    (event, *_) = [
        each for each in same(broker, "groups", "history", "g")["events"] if each["metadata"]
    ]
    assert event["metadata"] == "\U0001f600" * 299 + "…"


@pytest.mark.parametrize(
    ("start", "end", "count"), [(-5, None, 2), (1, None, 1), (9, None, 0), (0, 1, 1), (0, -1, 0)]
)
def test_a_question_may_begin_and_end_anywhere(
    broker: RunningBroker, start: int, end: int | None, count: int
) -> None:
    broker.create_topic("t")
    found = broker.client.ask(HISTORY_TOPIC, "", AskTopicHistory("t", start=start, end=end))
    assert found is not None
    assert (len(found.changes), found.next) == (count, None)


def test_kafkas_brokers_cannot_be_asked(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.cli", HISTORY_TOPIC=replace(HISTORY_TOPIC, name="horolog.none"))
    refused = ask(broker, "topics", "history", "t")
    assert refused.code == 2
    assert "--log-dir" in refused.err
