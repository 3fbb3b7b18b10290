"""Offsets that groups commit in transactions, over a promotion: with their records, or not."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import pytest
from examples import some_pairs
from faulty_calls import failing
from following import is_caught_up
from overrides import override
from patience import eventually
from promotion import Start, committed_in, markers_held
from running_broker import RunningBroker
from transactional import Producer

from horolog.broker import Followed, FollowedTopics, LeaderFetcher, Promotions, Source
from horolog.client import CommittedOffset, TopicMetadata
from horolog.errors import ErrorCode, RequestRefused
from horolog.record import Codec, LogRecord, build_batch
from horolog.schemas.offsets import (
    CommittedValue,
    OffsetKey,
    committed_bytes,
    key_bytes,
    partition_for,
)
from horolog.storage import CONSUMER_OFFSETS, FOLLOWED_OFFSETS, TRANSACTION_STATE
from horolog.wire import FOLLOWING, ApiKey

THEIRS, OURS = 5, 3  # partitions of `__consumer_offsets`
GROUP = "g"
assert partition_for(GROUP, THEIRS) != partition_for(GROUP, OURS)


@pytest.fixture
def start(start: Start) -> Start:
    """Start a broker, which may follow another, with fewer partitions than its source."""
    return partial(start, offsets_topic_num_partitions=str(OURS))


@pytest.fixture
def source(start: Start) -> RunningBroker:
    """It has ten records to be transformed, of which a group has five."""
    broker = start(
        "a",
        transaction_state_log_num_partitions="2",
        offsets_topic_num_partitions=str(THEIRS),
    )
    for name in ("in", "out"):
        broker.create_topic(name)
    for number in range(10):
        broker.append("in", build_batch([LogRecord(0, None, b"%d" % number)]))
    broker.client.offset_commit(GROUP, {("in", 0): CommittedOffset(5)})
    return broker


def is_here(shadow: RunningBroker, source: RunningBroker) -> bool:
    """Whether all of the source is at the shadow."""
    states = [(TRANSACTION_STATE, index) for index in range(2)]
    of_groups = [(FOLLOWED_OFFSETS, index) for index in range(THEIRS)]
    assert is_caught_up(shadow, source, [("in", 0), ("out", 0), *states])
    following = shadow.broker.shadow.follower
    asked_ms = shadow.call(lambda: int(asyncio.get_running_loop().time() * 1000))

    def is_confirmed() -> bool:
        keys = [("in", 0), ("out", 0), *states, *of_groups]
        return bool(shadow.call(lambda: min(map(following.confirmed_ms, keys))) > asked_ms)

    return eventually(is_confirmed)


def write_offsets(source: RunningBroker, index: int, batch: bytes) -> None:
    """Append a batch to a partition of the source's `__consumer_offsets`."""
    topic = source.broker.offsets_topic
    source.call(lambda: topic.append(index, topic.prepared(index, batch)))


def transform(source: RunningBroker, flow: int = 2, offset: int = 7) -> Producer:
    """A result is written, and what it is of is committed, in an open transaction."""
    producer = Producer(source, flow=flow)
    assert [producer.send("out"), producer.commit_offset(GROUP, "in", offset)] == [0, 0]
    return producer


def results(broker: RunningBroker) -> int:
    """The number of batches that a consumer of committed records is given."""
    return len(committed_in(broker, "out"))


def lose_amid_markers(
    source: RunningBroker,
    shadow: RunningBroker,
    producer: Producer,
    *held: str,
    commit: bool = True,
) -> None:
    """End a transaction without markers in some topics; the source is gone once all is here."""
    with markers_held(source, *held):
        assert producer.end(commit=commit) == 0
        if "out" not in held:
            out = source.broker.led("out", 0)
            assert eventually(lambda: not out.log.has_open_transactions)
        assert is_here(shadow, source)
        source.stop()


def promote(shadow: RunningBroker) -> None:
    """Promote all topics, and wait until no transaction is open."""
    shadow.client.promote(None)
    assert is_settled(shadow)


def committed(broker: RunningBroker, group: str = GROUP) -> int:
    """What a group has committed of the input; minus the error code where that is not stable."""
    topics = [{"name": "in", "partition_indexes": [0]}]
    fields = {"group_id": group, "topics": topics, "require_stable": True}
    (found,) = broker.ask(ApiKey.OFFSET_FETCH, 7, **fields).topics[0].partitions
    return -found.error_code or int(found.committed_offset)


def comes(broker: RunningBroker, offset: int) -> bool:
    return eventually(lambda: committed(broker) == offset)


def is_settled(broker: RunningBroker) -> bool:
    return eventually(
        lambda: (
            not broker.broker.transactions.is_loading
            and not broker.broker.led("out", 0).log.has_open_transactions
            and committed(broker) != -ErrorCode.unstable_offset_commit
        )
    )


def has_no_copy(broker: RunningBroker) -> bool:
    """What was followed of the source's `__consumer_offsets` is gone."""
    return FOLLOWED_OFFSETS not in broker.broker.topics


@pytest.mark.parametrize(
    ("without", "flow"),
    some_pairs([[CONSUMER_OFFSETS], ["out"], ["out", CONSUMER_OFFSETS], []], [1, 2]),
)
def test_commit_is_whole_whatever_marker_the_source_could_write(
    source: RunningBroker, start: Start, flow: int, without: list[str]
) -> None:
    shadow = start("b", source)
    assert comes(shadow, 5)
    lose_amid_markers(source, shadow, transform(source, flow), *without)
    promote(shadow)
    assert (results(shadow), committed(shadow)) == (1, 7)
    assert has_no_copy(shadow)
    shadow.restart(crash=True)
    assert (results(shadow), committed(shadow)) == (1, 7)


def test_abort_whose_source_died_between_markers_is_one_for_the_group_too(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)
    lose_amid_markers(source, shadow, transform(source), CONSUMER_OFFSETS, commit=False)
    promote(shadow)
    assert (results(shadow), committed(shadow)) == (0, 5)


@pytest.mark.parametrize("held_topics", [[CONSUMER_OFFSETS], ["out", CONSUMER_OFFSETS]])
@pytest.mark.parametrize("restarts", [False, True])
def test_commit_of_which_the_offset_did_not_come_is_named(
    source: RunningBroker, start: Start, restarts: bool, held_topics: list[str]
) -> None:
    """The state of a commit came, its records too, and the group's offset did not."""
    shadow = start("b", source)
    assert comes(shadow, 5)
    with shadow.broker.follow_state.promoting(FOLLOWED_OFFSETS):  # it is not followed meanwhile
        shadow.call(lambda: shadow.broker.shadow.follower.release(FOLLOWED_OFFSETS))
        with markers_held(source, *held_topics):
            assert transform(source).end() == 0
            if "out" not in held_topics:
                out = source.broker.led("out", 0)
                assert eventually(lambda: not out.log.has_open_transactions)
            states = [(TRANSACTION_STATE, index) for index in range(2)]
            assert is_caught_up(shadow, source, [("out", 0), *states])
            source.stop()
    if restarts:
        shadow.restart(crash=True)
    promote(shadow)
    assert (results(shadow), committed(shadow)) == (1, 5), "it was decided"
    named = [each for each in shadow.client.promoted(["in"]) or () if each.topic[0] == "_"]
    assert [each.topic for each in named] == [CONSUMER_OFFSETS]
    assert "a transaction of 'x' was committed at the source: records of it" in named[0].text


@pytest.mark.parametrize("flow", [1, 2])
def test_planned_promotion_aborts_a_transaction_with_offsets(
    source: RunningBroker, start: Start, flow: int
) -> None:
    shadow = start("b", source)
    producer = transform(source, flow)
    assert is_here(shadow, source)
    promote(shadow)
    producer.broker = shadow
    fenced = (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced)
    assert producer.commit_offset("h", "in", 8) in fenced
    assert producer.send("out") in fenced
    assert (results(shadow), committed(shadow), committed(shadow, "h")) == (0, 5, -1)
    shadow.restart(crash=True)
    assert is_settled(shadow)
    again = transform(shadow, flow)
    assert again.end() == 0
    assert is_settled(shadow)
    assert (results(shadow), committed(shadow)) == (1, 7)


def test_what_is_open_when_the_source_is_lost_is_aborted(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)
    transform(source)
    assert is_here(shadow, source)
    source.stop()
    promote(shadow)
    assert (results(shadow), committed(shadow)) == (0, 5)


def test_an_offset_counts_here_once_its_transaction_is_committed(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)
    producer = transform(source)
    source.client.offset_commit("other", {("in", 0): CommittedOffset(9)})
    assert eventually(lambda: committed(shadow, "other") == 9), "an open one holds no others up"
    assert comes(shadow, 5)
    assert producer.end() == 0
    assert comes(shadow, 7)
    source.client.offset_commit(GROUP, {("in", 0): CommittedOffset(3)})
    assert comes(shadow, 3), "back, as at the source"


def test_offset_that_another_commit_has_superseded_at_the_source_does_not_come_back(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)
    producer = transform(source)
    source.client.offset_commit(GROUP, {("in", 0): CommittedOffset(9)})
    lose_amid_markers(source, shadow, producer, CONSUMER_OFFSETS)
    promote(shadow)
    assert (results(shadow), committed(shadow)) == (1, 9)


def test_offset_beyond_what_came_of_its_topic_is_set_to_the_end(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)
    lose_amid_markers(source, shadow, transform(source, offset=900), "out", CONSUMER_OFFSETS)
    promote(shadow)
    assert (results(shadow), committed(shadow)) == (1, 10)


@pytest.mark.parametrize("dies", [False, True])
def test_promotion_that_failed_with_offsets_written_decides_again(
    source: RunningBroker, start: Start, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    shadow = start("b", source)
    assert comes(shadow, 5)
    lose_amid_markers(source, shadow, transform(source), "out", CONSUMER_OFFSETS)
    full = RequestRefused(ErrorCode.unknown_server_error, "the disk is full")
    with monkeypatch.context() as patch:
        failing(patch, Promotions, "_write", full)
        with pytest.raises(RequestRefused, match="the disk is full"):
            shadow.client.promote(None)
    if dies:
        shadow.restart(crash=True)
    promote(shadow)
    assert (results(shadow), committed(shadow)) == (1, 7)
    assert has_no_copy(shadow)


def test_promotion_that_was_killed_once_states_were_written_is_continued(
    source: RunningBroker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow = start("b", source)
    lose_amid_markers(source, shadow, transform(source), CONSUMER_OFFSETS)
    plain = Promotions._write

    async def written(promotions: Promotions, changed: Any) -> None:
        await plain(promotions, changed)
        raise RequestRefused(ErrorCode.unknown_server_error, "killed")

    with monkeypatch.context() as patch:
        patch.setattr(Promotions, "_write", written)
        with pytest.raises(RequestRefused, match="killed"):
            shadow.client.promote(None)
    shadow.restart(crash=True)
    promote(shadow)
    assert (results(shadow), committed(shadow)) == (1, 7)


def test_a_copy_that_a_kill_has_left_is_deleted_by_the_next_start(
    source: RunningBroker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow = start("b", source)
    assert transform(source).end() == 0
    assert is_here(shadow, source)

    async def nothing(_: FollowedTopics) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(FollowedTopics, "drop_offsets", nothing)
        shadow.client.promote(None)
    assert not has_no_copy(shadow)
    shadow.client.offset_commit(GROUP, {("in", 0): CommittedOffset(8)})
    shadow.restart(crash=True)
    assert has_no_copy(shadow)
    assert is_settled(shadow)
    shadow.client.promote(None)
    assert committed(shadow) == 8


def test_after_a_promotion_of_some_topics_groups_of_the_others_are_asked(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)
    assert transform(source).end() == 0
    assert is_here(shadow, source)
    shadow.client.promote(["out"])
    assert has_no_copy(shadow)
    assert committed(shadow) == 7
    source.client.offset_commit(GROUP, {("in", 0): CommittedOffset(9)})
    assert comes(shadow, 9)
    assert has_no_copy(shadow)
    shadow.client.promote(None)
    assert committed(shadow) == 9


def test_a_group_with_members_here_keeps_its_offsets(source: RunningBroker, start: Start) -> None:
    shadow = start("b", source)
    assert comes(shadow, 5)
    fields = {
        "group_id": GROUP,
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    shadow.ask(ApiKey.JOIN_GROUP, 3, **fields)
    lose_amid_markers(source, shadow, transform(source), CONSUMER_OFFSETS)
    promote(shadow)
    assert (results(shadow), committed(shadow)) == (1, 5)


def test_offsets_that_take_too_much_memory_are_asked_for(
    source: RunningBroker,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "horolog")
    override(monkeypatch, "horolog.broker", MOST_BYTES=300)
    shadow = start("b", source)
    assert comes(shadow, 5)
    why = "of the source is not read: the offsets of all groups take more than"
    assert eventually(lambda: why in caplog.text)
    lose_amid_markers(source, shadow, transform(source), "out", CONSUMER_OFFSETS)
    promote(shadow)
    assert (results(shadow), committed(shadow)) == (1, 5), (
        "the commit was decided, and the offset not seen"
    )


def test_groups_are_asked_where_the_source_does_not_let_their_topic_be_read(
    source: RunningBroker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = LeaderFetcher._on_records

    def on_records(self: LeaderFetcher, followed: Followed, records: Any) -> None:
        if followed.key[0] == FOLLOWED_OFFSETS:
            self._refused(followed, ErrorCode.topic_authorization_failed, "fetch")
        else:
            given(self, followed, records)

    monkeypatch.setattr(LeaderFetcher, "_on_records", on_records)
    shadow = start("b", source)
    assert comes(shadow, 5)
    text = "the source does not let it be read: groups are asked for their offsets"

    def denied() -> list[tuple[str, str]]:
        said = [each for its in [shadow.client.ask(FOLLOWING)] if its for each in its.entries]
        return [(each.state, each.text) for each in said if each.topic == FOLLOWED_OFFSETS]

    assert eventually(lambda: denied() == [("following", text)] * THEIRS)
    assert is_caught_up(shadow, source, [("in", 0), ("out", 0)])
    # A promotion does not wait for it to be confirmed.
    override(monkeypatch, "horolog.broker", CONFIRM_MS=3_600_000)
    shadow.client.promote(None)
    assert committed(shadow) == 5


def test_groups_are_not_asked_while_their_topic_is_followed(
    source: RunningBroker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they answer may be ahead of what is here of the transaction that it is of."""
    shadow = start("b", source)
    assert comes(shadow, 5)
    override(
        monkeypatch,
        "horolog.broker.shadow.shadow",
        committed_at=lambda _: pytest.fail("it was asked"),
    )
    source.client.offset_commit(GROUP, {("in", 0): CommittedOffset(6)})
    assert comes(shadow, 6)
    shadow.restart(crash=True)
    source.client.offset_commit(GROUP, {("in", 0): CommittedOffset(8)})
    assert comes(shadow, 8)


def test_records_that_cannot_be_read_leave_the_others(
    source: RunningBroker, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    shadow = start("b", source)
    assert comes(shadow, 5)
    key, index = key_bytes(OffsetKey(GROUP, "in", 0)), partition_for(GROUP, THEIRS)
    records = [
        LogRecord(0, None, b"without a key"),
        LogRecord(0, b"", b"v"),
        LogRecord(0, b"\0\1\xff\xff", b"v"),
        LogRecord(0, b"\0\1\0\1g\0\2in\0\0", b"v"),
        LogRecord(0, b"\x7f\xff of another type", b"v"),
        LogRecord(0, key_bytes(OffsetKey("", "in", 0)), committed_bytes(CommittedValue(1))),
        LogRecord(0, key_bytes(OffsetKey("far", "in", (1 << 31) - 1)), b"\0\3"),
        LogRecord(0, key, b"\0\3short"),
        LogRecord(0, key, b""),
    ]
    transactional: dict[str, Any] = {
        "producer_id": 9,
        "producer_epoch": 0,
        "is_transactional": True,
    }
    for each in records:
        for batch in (build_batch([each]), build_batch([each], **transactional)):
            write_offsets(source, index, batch)
    beyond = committed_bytes(CommittedValue(-(1 << 63)))
    batch = build_batch([LogRecord(0, key_bytes(OffsetKey("low", "in", 0)), beyond)])
    write_offsets(source, index, batch)
    lose_amid_markers(source, shadow, transform(source), CONSUMER_OFFSETS)
    promote(shadow)
    assert (results(shadow), committed(shadow)) == (1, 7)
    assert (committed(shadow, "low"), committed(shadow, "far")) == (-1, -1)
    assert "a bug" not in caplog.text


def test_offsets_that_are_deleted_at_the_source_stay_here_and_come_again(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)
    assert comes(shadow, 5)
    source.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[GROUP])
    source.client.offset_commit("other", {("in", 0): CommittedOffset(1)})
    assert eventually(lambda: committed(shadow, "other") == 1)
    assert committed(shadow) == 5
    source.client.offset_commit(GROUP, {("in", 0): CommittedOffset(6)})
    assert comes(shadow, 6)


def test_a_former_leader_drops_what_is_pending_there(source: RunningBroker, start: Start) -> None:
    shadow = start("b", source)
    transform(source)
    assert is_here(shadow, source)
    shadow.client.promote(None)
    assert transform(shadow).end() == 0
    assert is_settled(shadow)
    assert committed(source) == -ErrorCode.unstable_offset_commit
    source.demote(shadow)
    assert comes(source, 7)
    assert transform(shadow, offset=8).end() == 0
    assert comes(source, 8)
    states = [(TRANSACTION_STATE, index) for index in range(2)]
    assert is_caught_up(source, shadow, [("out", 0), *states])
    source.client.promote(None)
    assert is_settled(source)
    assert (results(source), committed(source)) == (2, 8)


def test_a_shadow_of_a_shadow_asks_groups(source: RunningBroker, start: Start) -> None:
    shadow = start("b", source)
    other = start("c", shadow)
    assert comes(other, 5)
    assert has_no_copy(other)
    assert transform(source).end() == 0
    assert comes(other, 7)


def test_an_offset_that_has_expired_here_alone_comes_again(
    source: RunningBroker, start: Start
) -> None:
    """The group is alive at the source, and has nothing new to commit."""
    shadow = start("b", source)
    assert comes(shadow, 5)
    assert shadow.run(shadow.broker.groups.expire(0)) == 1
    assert comes(shadow, 5)


def test_an_offset_of_another_topic_that_is_led_here_is_left_alone(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source, horolog_follow_topics="in|out")
    producer = transform(source)
    assert eventually(lambda: TRANSACTION_STATE in shadow.broker.topics)
    for broker in (source, shadow):
        broker.create_topic("other")
    shadow.client.offset_commit("h", {("other", 0): CommittedOffset(1)})
    assert producer.commit_offset("h", "in", 3) == 0
    key, value = key_bytes(OffsetKey("h", "other", 0)), committed_bytes(CommittedValue(77))
    of_producer = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    # Without a topic id, as most releases of Kafka write it.
    batch = build_batch([LogRecord(0, key, value)], is_transactional=True, **of_producer)
    write_offsets(source, partition_for("h", THEIRS), batch)
    lose_amid_markers(source, shadow, producer, CONSUMER_OFFSETS)
    promote(shadow)
    found = shadow.client.offset_fetch("h")
    assert found == {("other", 0): CommittedOffset(1), ("in", 0): CommittedOffset(3)}


def test_offsets_have_the_topic_ids_that_the_source_has_got_since(
    source: RunningBroker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Kafka before 2.8 has none; what is followed of it keeps the id that it was given here."""
    plain = Source._read
    with monkeypatch.context() as patch:
        without = partial(TopicMetadata._replace, topic_id=None)
        patch.setattr(Source, "_read", lambda it, topic, known: plain(it, without(topic), known))
        shadow = start("b", source)
        assert eventually(lambda: "in" in shadow.broker.follow_state.rows)
    assert comes(shadow, 5)
    here, there = (each.broker.topics.named("in").topic_id for each in (shadow, source))
    assert here != there


def test_a_batch_that_claims_more_records_than_memory_has_room_for_is_not_read(
    source: RunningBroker,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Few bytes that are compressed may be millions of records, though of one key."""
    override(monkeypatch, "horolog.broker", MOST_BYTES=100 * 300)
    batch = build_batch([LogRecord(0, b"k", None)] * 200, codec=Codec.GZIP)
    write_offsets(source, 0, batch)
    shadow = start("b", source)
    assert eventually(lambda: "__consumer_offsets-0 of the source is not read" in caplog.text)
    assert comes(shadow, 5), "groups are asked"


def test_a_shadow_of_what_is_a_shadow_by_now_asks_groups(
    source: RunningBroker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's transactions are another cluster's by then, and its groups' offsets are not."""
    override(monkeypatch, "horolog.broker", LOOKS_FOR_SETTINGS=2)
    shadow, leader = start("b", source), start("c", source)
    assert comes(shadow, 5)
    assert comes(leader, 5)
    assert not has_no_copy(shadow)
    leader.client.promote(None)
    source.demote(leader)
    assert eventually(lambda: has_no_copy(shadow))
    leader.client.offset_commit(GROUP, {("in", 0): CommittedOffset(6)})
    assert comes(shadow, 6)
