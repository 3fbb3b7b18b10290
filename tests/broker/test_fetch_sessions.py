"""Fetch sessions (KIP-227): what a client is asked to name, and what it is told."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from overrides import override
from patience import eventually
from raw_connection import fetch_fields
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.clock import ManualClock
from horolog.errors import ErrorCode
from horolog.record import LogRecord, build_batch, iter_headers
from horolog.wire import ApiKey

BATCH = build_batch([LogRecord(NOW_MS, None, bytes(100))])
LAST_EPOCH = (1 << 31) - 1

broker = a_broker("t", partitions=4)


class Session:
    """A client's side of a session; `said` is what the broker last said of each partition."""

    def __init__(self, broker: RunningBroker, *, version: int = 12, topic: Any = "t") -> None:
        self.broker, self.version, self.topic = broker, version, topic
        self.id = self.epoch = 0
        self.said: dict[int, Any] = {}

    def ask(
        self, offsets: Mapping[int, int] | None = None, forgotten: Iterable[int] = (), **more: Any
    ) -> Any:
        """One fetch, as the session stands."""
        name = "topic" if isinstance(self.topic, str) else "topic_id"
        fields = fetch_fields(self.topic, offsets or {}) if offsets else {"topics": []}
        if forgotten:
            gone = {name: self.topic, "partitions": list(forgotten)}
            fields["forgotten_topics_data"] = [gone]
        sent = {"session_id": self.id, "session_epoch": self.epoch, **fields, **more}
        return self.broker.ask(ApiKey.FETCH, self.version, **sent)

    def fetch(self, *args: Any, **more: Any) -> list[int]:
        """As `ask`, of a fetch that is taken; the partitions in the answer, in their order."""
        answer = self.ask(*args, **more)
        assert answer.error_code == 0, answer
        assert answer.session_id != 0
        self.id = answer.session_id
        self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1
        found = [each for topic in answer.responses for each in topic.partitions]
        self.said |= {each.partition_index: each for each in found}
        return [each.partition_index for each in found]


def sessions_of(broker: RunningBroker) -> Any:
    return broker.broker.fetch_sessions


def test_only_partitions_with_news_are_in_the_answers(broker: RunningBroker) -> None:
    session = Session(broker)
    broker.append("t", BATCH, 1)
    assert session.fetch({0: 0, 1: 0, 2: 0}) == [0, 1, 2]
    assert session.fetch({1: 1}) == []
    assert session.fetch() == []
    broker.append("t", BATCH, 2)
    assert session.fetch() == [2]
    assert session.said[2].high_watermark == 1
    assert session.fetch() == [2], "its records are there until it is fetched from behind them"
    assert session.fetch({2: 1}) == []
    broker.delete_records("t", 1, 1)
    assert session.fetch() == [1]
    assert session.said[1].log_start_offset == 1
    assert session.fetch() == []


def test_partitions_are_added_changed_and_forgotten(broker: RunningBroker) -> None:
    session = Session(broker)
    assert session.fetch({0: 0}) == [0]
    assert session.fetch({3: 0}) == [3]
    for partition in (0, 3):
        broker.append("t", BATCH, partition)
    assert session.fetch(None, [0]) == [3]
    assert session.fetch({0: 1}) == [3, 0], "the order is that in which they came"
    assert session.fetch({3: 0}, [3]) == [], "what is changed and forgotten is forgotten"


def test_a_session_that_has_forgotten_all_has_ended(broker: RunningBroker) -> None:
    session = Session(broker)
    session.fetch({0: 0, 1: 0})
    answer = session.ask(None, [0, 1])
    assert (answer.error_code, answer.session_id, list(answer.responses)) == (0, 0, [])
    assert session.ask().error_code == ErrorCode.fetch_session_id_not_found
    assert len(sessions_of(broker)) == 0 == sessions_of(broker).partitions


def test_sessions_and_epochs_that_are_not_there_are_refused(broker: RunningBroker) -> None:
    session = Session(broker)
    session.fetch({0: 0})
    session.fetch()
    for epoch in (1, 3, LAST_EPOCH, -2, -(1 << 31)):
        answer = session.ask(session_epoch=epoch)
        assert answer.error_code == ErrorCode.invalid_fetch_session_epoch
        assert (answer.session_id, list(answer.responses)) == (0, [])
    for id_ in (0, -1, session.id ^ 1):
        answer = session.ask(session_id=id_)
        assert answer.error_code == ErrorCode.fetch_session_id_not_found
    assert session.fetch() == [], "it continues all the same"


def test_after_the_last_epoch_comes_the_first(broker: RunningBroker) -> None:
    session = Session(broker)
    session.fetch({0: 0})
    sessions_of(broker)._sessions[session.id].epoch = session.epoch = LAST_EPOCH
    session.fetch()
    assert session.epoch == 1
    session.fetch()


def test_a_full_fetch_ends_the_session_that_it_names(broker: RunningBroker) -> None:
    first = Session(broker)
    first.fetch({0: 0})
    again = Session(broker)
    again.id = first.id
    assert again.fetch({1: 0}) == [1]
    assert again.id != first.id
    assert first.ask().error_code == ErrorCode.fetch_session_id_not_found
    closed = again.ask({1: 0}, session_epoch=-1)
    assert (closed.error_code, closed.session_id) == (0, 0)
    assert len(sessions_of(broker)) == 0


def test_a_fetch_without_a_session_has_none(broker: RunningBroker) -> None:
    for version in (4, 6, 7, 12):
        assert broker.fetch("t", version=version, session_epoch=-1).error_code == 0
    assert len(sessions_of(broker)) == 0


def test_a_session_of_ids_takes_no_names_nor_the_other_way_round(broker: RunningBroker) -> None:
    topic_id = broker.broker.topics.find("t").topic_id
    by_id, by_name = Session(broker, version=13, topic=topic_id), Session(broker, version=12)
    assert by_id.fetch({0: 0}) == by_name.fetch({0: 0}) == [0]
    by_id.version, by_name.version = 12, 18
    for each in (by_id, by_name):
        assert each.ask().error_code == ErrorCode.fetch_session_topic_id_error
    by_id.version, by_name.version = 18, 7
    assert by_id.fetch() == by_name.fetch() == []


def test_errors_are_told_each_time_and_their_end_too(broker: RunningBroker) -> None:
    unknown = Session(broker, topic="later")
    assert unknown.fetch({0: 0}) == [0]
    assert unknown.said[0].error_code == ErrorCode.unknown_topic_or_partition
    assert unknown.fetch() == [0]
    broker.create_topic("later")
    assert unknown.fetch() == [0]
    assert (unknown.said[0].error_code, unknown.said[0].high_watermark) == (0, 0)
    assert unknown.fetch() == []
    assert unknown.fetch({0: 5}) == [0]
    assert unknown.said[0].error_code == ErrorCode.offset_out_of_range
    by_id = Session(broker, version=13, topic=uuid.uuid4())
    by_id.fetch({0: 0})
    assert by_id.said[0].error_code == ErrorCode.unknown_topic_id


def test_a_topic_that_is_made_anew_is_told_apart(broker: RunningBroker) -> None:
    topic_id = broker.broker.topics.find("t").topic_id
    broker.append("t", BATCH)
    by_id, by_name = Session(broker, version=13, topic=topic_id), Session(broker)
    for each in (by_id, by_name):
        each.fetch({0: 1})
        assert each.fetch() == []
    broker.client.delete_topics(["t"])
    broker.create_topic("t", 4)
    assert by_id.fetch() == by_name.fetch() == [0]
    assert by_id.said[0].error_code == ErrorCode.unknown_topic_id
    assert by_name.said[0].error_code == ErrorCode.offset_out_of_range


def test_a_leader_epoch_that_is_not_the_brokers_is_told(broker: RunningBroker) -> None:
    session = Session(broker)
    session.fetch({0: 0})
    session.fetch()
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}
    topics = [{"topic": "t", "partitions": [asked | {"current_leader_epoch": 99}]}]
    assert session.fetch(topics=topics) == [0]
    assert session.said[0].error_code == ErrorCode.unknown_leader_epoch


def test_a_partition_that_gave_records_goes_behind_the_others(broker: RunningBroker) -> None:
    for partition in range(4):
        for _ in range(3):
            broker.append("t", BATCH, partition)
    session = Session(broker)
    order = session.fetch(dict.fromkeys(range(4), 0), max_bytes=1)
    assert [len(session.said[each].records) > 0 for each in order] == [True, False, False, False]
    given = []
    for _ in range(8):
        session.said.clear()
        session.fetch(max_bytes=1)
        given += [each for each, found in session.said.items() if len(found.records)]
    assert given == [0, 1, 2, 3] * 2


def test_a_fetch_waits_for_partitions_that_it_does_not_name(broker: RunningBroker) -> None:
    session = Session(broker)
    session.fetch({0: 0, 1: 0})
    sent = {"session_id": session.id, "session_epoch": session.epoch, "topics": []}
    with broker.connect() as connection:
        connection.send(ApiKey.FETCH, 12, max_wait_ms=60_000, min_bytes=1, **sent)
        listeners = broker.broker.partitions["t", 1].listeners
        assert eventually(lambda: broker.call(lambda: len(listeners)) > 0)
        broker.append("t", BATCH, 1)
        _, answer = connection.receive()
    (topic,) = answer.responses
    assert [each.partition_index for each in topic.partitions] == [1]


@pytest.mark.parametrize(
    "later", ["goes on", "forgets all", "is too large", "ends it", "evicts it"]
)
def test_of_two_fetches_at_once_the_earlier_is_refused(
    broker: RunningBroker, later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(broker)
    session.fetch({0: 0})
    sent = {"session_id": session.id, "session_epoch": session.epoch, "topics": []}
    with broker.connect() as connection:
        connection.send(ApiKey.FETCH, 12, max_wait_ms=60_000, min_bytes=1, **sent)
        listeners = broker.broker.partitions["t", 0].listeners
        assert eventually(lambda: broker.call(lambda: len(listeners)) > 0)
        session.epoch += 1
        match later:
            case "goes on":
                session.fetch()
            case "forgets all":
                assert session.ask(None, [0]).session_id == 0
            case "is too large":
                override(monkeypatch, "horolog.broker", MOST_PARTITIONS=1)
                refused = session.ask({1: 0})
                assert refused.error_code == ErrorCode.fetch_session_id_not_found
            case "ends it":
                assert session.ask({1: 0}, session_epoch=-1).error_code == 0
            case "evicts it":
                broker.call(lambda: sessions_of(broker).end(session.id))
        broker.append("t", BATCH)
        _, answer = connection.receive()
    if later in ("ends it", "evicts it"):
        assert answer.error_code == 0, "it has what it asked for, as in Kafka"
        assert len(answer.responses) == 1
    else:
        assert answer.error_code == ErrorCode.invalid_fetch_session_epoch
    if later == "goes on":
        assert session.fetch() == [0], "nothing of it was lost"
    else:
        assert session.ask().error_code == ErrorCode.fetch_session_id_not_found
        assert sessions_of(broker).partitions == 0


# Room.


@pytest.fixture
def small(make_broker: MakeBroker) -> RunningBroker:
    """A broker with room for two sessions."""
    broker = make_broker(clock=ManualClock(NOW_MS), max_incremental_fetch_session_cache_slots="2")
    broker.create_topic("t", 4)
    return broker


def begun(broker: RunningBroker, *partitions: int, **more: Any) -> int:
    answer = Session(broker).ask(dict.fromkeys(partitions, 0), **more)
    assert answer.error_code == 0
    assert [len(topic.partitions) for topic in answer.responses] == [len(partitions)]
    return int(answer.session_id)


def is_there(broker: RunningBroker, session_id: int) -> bool:
    code = Session(broker).ask(session_id=session_id, session_epoch=7).error_code
    return code == ErrorCode.invalid_fetch_session_epoch


def test_a_full_cache_declines_sessions(small: RunningBroker) -> None:
    first, second = begun(small, 0), begun(small, 1)
    assert begun(small, 0, 1, 2) == 0
    assert is_there(small, first)
    assert is_there(small, second)


def test_a_session_that_was_not_used_for_two_minutes_makes_room(small: RunningBroker) -> None:
    first = begun(small, 0, 1)
    small.clock.advance("120s")
    second = begun(small, 0)
    assert begun(small, 0, 1, 2, 3) == 0
    small.clock.advance("1ms")
    third = begun(small, 0)
    assert third
    assert sessions_of(small).evictions == 1
    assert [is_there(small, each) for each in (first, second, third)] == [False, True, True]


def test_an_old_session_makes_room_for_a_larger_one(small: RunningBroker) -> None:
    of_two, of_three = Session(small), Session(small)
    of_two.fetch(dict.fromkeys(range(2), 0))
    of_three.fetch(dict.fromkeys(range(3), 0))
    for _ in range(3):
        small.clock.advance("60s")
        of_two.fetch()
        of_three.fetch()
    assert begun(small, 0) == begun(small, 0, 1) == 0
    assert begun(small, 0, 1, 2) != 0
    assert is_there(small, of_three.id)
    assert not is_there(small, of_two.id)


def test_a_follower_comes_before_consumers(small: RunningBroker) -> None:
    consumers = [begun(small, 0, 1, 2), begun(small, 0, 1)]
    follower = begun(small, 0, replica_id=3)
    assert [is_there(small, each) for each in consumers] == [True, False]
    assert begun(small, 0, replica_id=4) != 0
    assert not is_there(small, consumers[0])
    assert begun(small, 0, 1, 2, 3) == begun(small, 0, replica_id=5) == 0
    assert is_there(small, follower)


def test_no_slots_are_no_sessions(make_broker: MakeBroker) -> None:
    broker = make_broker(max_incremental_fetch_session_cache_slots="0")
    broker.create_topic("t")
    assert begun(broker, 0) == 0


def test_memory_for_sessions_is_bounded(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", MOST_PARTITIONS=10, MOST_PARTITIONS_OF_ALL=25)
    assert begun(broker, *range(11)) == 0
    kept = [begun(broker, *range(10)), begun(broker, *range(10))]
    assert all(kept)
    assert begun(broker, *range(6)) == 0
    session = Session(broker)
    session.fetch({0: 0})
    session.fetch(dict.fromkeys(range(1, 5), 0))
    assert session.ask({9: 0}).error_code == ErrorCode.fetch_session_id_not_found
    assert sessions_of(broker).partitions == 20
    too_many = Session(broker)
    too_many.fetch({0: 0})
    refused = too_many.ask(dict.fromkeys(range(11), 0))
    assert refused.error_code == ErrorCode.fetch_session_id_not_found
    long = Session(broker, topic="x" * 250)
    assert long.ask({0: 0}).session_id == 0
    assert sessions_of(broker).partitions == 20
    assert len(sessions_of(broker)) == 2


# A client that only hears news knows what one knows that asks for everything.

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "delete", "fetch", "fetch", "forget", "seek"]),
        st.integers(0, 3),
    ),
    max_size=40,
)
sessions_broker = a_broker(scope="module")


@examples(4)
@given(steps=STEPS, max_bytes=st.sampled_from([1, 400, 1 << 20]))
def test_what_a_session_says_adds_up_to_the_log(
    sessions_broker: RunningBroker, steps: list[tuple[str, int]], max_bytes: int
) -> None:
    broker, name = sessions_broker, uuid.uuid4().hex
    broker.create_topic(name, 4)
    session = Session(broker, topic=name)
    ends, starts = [0] * 4, [0] * 4
    at: dict[int, int] = {}  # where the client is
    read: dict[int, list[int]] = {}
    changed: dict[int, int] = {}
    gone: set[int] = set()

    def fetch() -> None:
        named = dict(changed)
        forgotten = gone - named.keys()
        changed.clear()
        gone.clear()
        session.said.clear()
        for each in session.fetch(named, forgotten, max_bytes=max_bytes):
            said = session.said[each]
            if said.error_code:
                changed[each] = at[each] = starts[each]
                continue
            for _, header in iter_headers(bytes(said.records or b"")):
                if header.base_offset >= at[each]:
                    read[each].append(header.base_offset)
                    changed[each] = at[each] = header.next_offset

    for partition in range(2):
        at[partition] = changed[partition] = 0
        read[partition] = []
    fetch()
    for what, partition in steps:
        if what == "append":
            broker.append(name, BATCH, partition)
            ends[partition] += 1
        elif what == "delete":
            broker.delete_records(name, ends[partition], partition)
            starts[partition] = ends[partition]
        elif what == "forget" and len(at) > 1 and partition in at:
            del at[partition], read[partition]
            changed.pop(partition, None)
            gone.add(partition)
        elif what == "seek":
            at[partition] = changed[partition] = starts[partition]
            read[partition] = []
            gone.discard(partition)
        else:
            fetch()
    for _ in range(8 * (2 + sum(ends))):
        fetch()
    assert at == {partition: ends[partition] for partition in at}
    for offsets in read.values():
        assert offsets == sorted(set(offsets))
    assert session.fetch(changed or None) in ([], *([each] for each in range(4)))
