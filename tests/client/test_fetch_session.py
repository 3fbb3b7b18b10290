"""What a session of fetches asks for, and what of an answer is taken."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest
from running_broker import RunningBroker, a_broker
from scripted_broker import HangUp, ScriptedBroker

from horolog.client import (
    Address,
    Brokers,
    ClientConfig,
    ClientFetchSession,
    Deadline,
    FetchLimits,
    FetchPosition,
    Link,
    NoAnswer,
    cluster_of,
    epoch_ends,
    log_bounds,
)
from horolog.errors import ErrorCode, RequestRefused
from horolog.record import LogRecord, build_batch, iter_headers, next_offset_of
from horolog.wire import ApiKey, Versions

ONE, OTHER = UUID(int=1), UUID(int=2)
LIMITS = FetchLimits(max_bytes=1 << 20, partition_max_bytes=1 << 16)


def soon() -> Deadline:
    return Deadline.after_ms(60_000)


def at(offset: int, topic_id: UUID | None = ONE) -> FetchPosition:
    return FetchPosition(offset, topic_id, 3, 2)


def answered(index: int, records: bytes = b"", **fields: Any) -> dict[str, Any]:
    usual = {"high_watermark": 9, "last_stable_offset": 9, "log_start_offset": 0}
    return {"partition_index": index, "records": records, **usual, **fields}


class Scripted:
    """A broker with sessions; `say` is what the next answers have, by default nothing."""

    def __init__(self) -> None:
        self.session_id = 7
        self.errors: list[ErrorCode] = []
        self.topics: list[Mapping[str, Any]] = []
        self.broker = ScriptedBroker({ApiKey.FETCH: self.answer})

    def answer(self, request: Any) -> Mapping[str, Any]:
        error = self.errors.pop(0) if self.errors else ErrorCode.none
        topics = [] if error else self.topics
        return {"error_code": error, "session_id": self.session_id, "responses": topics}

    @property
    def asked(self) -> list[Any]:
        return self.broker.asked(ApiKey.FETCH)

    def of_last(self) -> tuple[int, int, dict[tuple[Any, int], int], list[tuple[Any, int]]]:
        """Session id and epoch, offsets by partition, and what is forgotten."""
        last = self.asked[-1]
        offsets = {
            (topic.topic_id or topic.topic, each.partition): each.fetch_offset
            for topic in last.topics
            for each in topic.partitions
        }
        forgotten = [
            (topic.topic_id or topic.topic, index)
            for topic in last.forgotten_topics_data
            for index in topic.partitions
        ]
        return last.session_id, last.session_epoch, offsets, forgotten


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    scripted = Scripted()
    with scripted.broker:
        yield scripted


Fetch = Callable[[], Any]


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    brokers = Brokers(ClientConfig(bootstrap_servers="127.0.0.1:1"))
    yield brokers
    brokers.close()


@pytest.fixture
def link(scripted: Scripted, brokers: Brokers) -> Link:
    return brokers.at(Address("127.0.0.1", scripted.broker.port), soon())


@pytest.fixture
def session() -> ClientFetchSession:
    session = ClientFetchSession(LIMITS)
    session.want(("t", 0), at(5))
    session.want(("t", 1), at(6))
    return session


@pytest.fixture
def fetch(session: ClientFetchSession, link: Link) -> Fetch:
    return lambda: session.fetch(link, 0, soon())


def test_a_session_names_only_what_has_changed(
    scripted: Scripted, session: ClientFetchSession, fetch: Fetch
) -> None:
    fetch()
    assert scripted.of_last() == (0, 0, {(ONE, 0): 5, (ONE, 1): 6}, [])
    fetch()
    assert scripted.of_last() == (7, 1, {}, [])
    session.want(("t", 1), at(8))
    fetch()
    assert scripted.of_last() == (7, 2, {(ONE, 1): 8}, [])
    session.forget(("t", 0))
    session.want(("u", 0), at(1, OTHER))
    fetch()
    assert scripted.of_last() == (7, 3, {(OTHER, 0): 1}, [(ONE, 0)])
    fetch()
    assert scripted.of_last() == (7, 4, {}, [])


def test_epochs_and_limits_are_in_every_request(
    scripted: Scripted, session: ClientFetchSession, fetch: Fetch
) -> None:
    fetch()
    (topic,) = scripted.asked[-1].topics
    assert (topic.partitions[0].current_leader_epoch, topic.partitions[0].last_fetched_epoch) == (
        3,
        2,
    )
    assert topic.partitions[0].partition_max_bytes == LIMITS.partition_max_bytes
    assert scripted.asked[-1].max_bytes == LIMITS.max_bytes
    assert len(session) == 2


def test_what_is_forgotten_and_asked_for_again_is_not_forgotten(
    scripted: Scripted, session: ClientFetchSession, fetch: Fetch
) -> None:
    """A broker forgets after it has added: it would fetch the partition no more."""
    fetch()
    session.forget(("t", 0))
    session.want(("t", 0), at(9))
    fetch()
    assert scripted.of_last() == (7, 1, {(ONE, 0): 9}, [])


def test_a_topic_that_was_made_again_is_forgotten_under_its_former_id(
    scripted: Scripted, session: ClientFetchSession, fetch: Fetch
) -> None:
    fetch()
    session.want(("t", 0), at(0, OTHER))
    fetch()
    assert scripted.of_last() == (7, 1, {(OTHER, 0): 0}, [(ONE, 0)])


def test_what_the_broker_never_knew_is_not_forgotten(
    scripted: Scripted, session: ClientFetchSession, fetch: Fetch
) -> None:
    session.forget(("t", 0))
    fetch()
    session.want(("u", 0), at(1, OTHER))
    session.forget(("u", 0))
    fetch()
    assert scripted.of_last() == (7, 1, {}, [])


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.fetch_session_id_not_found, 0),
        (ErrorCode.invalid_fetch_session_epoch, 7),
        (ErrorCode.fetch_session_topic_id_error, 7),
    ],
)
def test_a_session_that_is_over_begins_anew(
    scripted: Scripted, fetch: Fetch, error: ErrorCode, session_id: int
) -> None:
    fetch()
    scripted.errors = [error]
    scripted.topics = [{"topic_id": ONE, "partitions": [answered(1)]}]
    assert set(fetch()) == {("t", 1)}
    assert scripted.of_last() == (session_id, 0, {(ONE, 0): 5, (ONE, 1): 6}, [])
    fetch()
    assert scripted.of_last()[1] == 1


def test_a_broker_that_ends_every_session_is_an_error(scripted: Scripted, fetch: Fetch) -> None:
    scripted.errors = [ErrorCode.invalid_fetch_session_epoch] * 2
    with pytest.raises(RequestRefused, match="INVALID_FETCH_SESSION_EPOCH"):
        fetch()


def test_a_broker_without_sessions_is_asked_for_all_each_time(
    scripted: Scripted, session: ClientFetchSession, fetch: Fetch
) -> None:
    scripted.session_id = 0
    for _ in range(2):
        fetch()
        assert scripted.of_last() == (0, 0, {(ONE, 0): 5, (ONE, 1): 6}, [])
    session.want(("t", 0), at(6))  # it gave records: the other one is first now
    fetch()
    assert list(scripted.of_last()[2]) == [(ONE, 1), (ONE, 0)]
    session.forget(("t", 1))
    fetch()
    assert scripted.of_last() == (0, 0, {(ONE, 0): 6}, [])


def test_after_a_lost_answer_everything_is_named_again(
    scripted: Scripted, session: ClientFetchSession, fetch: Fetch, brokers: Brokers
) -> None:
    fetch()
    session.want(("t", 0), at(8))
    usual, scripted.broker.answers = scripted.broker.answers, {ApiKey.FETCH: HangUp()}
    with pytest.raises(NoAnswer):
        fetch()
    scripted.broker.answers = usual
    session.fetch(brokers.at(Address("127.0.0.1", scripted.broker.port), soon()), 0, soon())
    assert scripted.of_last() == (0, 0, {(ONE, 1): 6, (ONE, 0): 8}, [])


@pytest.mark.parametrize(("highest", "by_id"), [(13, True), (12, False), (10, False), (9, False)])
def test_old_brokers_are_asked_by_name(
    scripted: Scripted, session: ClientFetchSession, brokers: Brokers, highest: int, by_id: bool
) -> None:
    scripted.broker.versions = {ApiKey.FETCH: Versions(0, highest)}
    topic = {"topic": "t", "topic_id": ONE}
    scripted.topics = [topic | {"partitions": [answered(0, log_start_offset=4)]}]
    link = brokers.at(Address("127.0.0.1", scripted.broker.port), soon())
    found = session.fetch(link, 0, soon())
    assert set(found) == {("t", 0)}
    assert found["t", 0].fetched.log_start_offset == 4
    assert list(scripted.of_last()[2]) == [(ONE if by_id else "t", 0), (ONE if by_id else "t", 1)]


def test_one_topic_without_id_has_all_asked_by_name(
    scripted: Scripted, session: ClientFetchSession, fetch: Fetch
) -> None:
    fetch()
    session.want(("u", 0), at(0, None))
    fetch()
    assert scripted.of_last() == (0, 0, {("t", 0): 5, ("t", 1): 6, ("u", 0): 0}, [])
    session.forget(("u", 0))
    fetch()
    assert scripted.of_last() == (0, 0, {(ONE, 0): 5, (ONE, 1): 6}, [])


def test_partitions_that_were_not_asked_for_are_named_and_left_out(
    scripted: Scripted, session: ClientFetchSession, fetch: Fetch
) -> None:
    scripted.topics = [
        {"topic_id": ONE, "partitions": [answered(0), answered(0), answered(7)]},
        {"topic_id": OTHER, "partitions": [answered(0)]},
        {"topic_id": None, "partitions": [answered(-1)]},
    ]
    assert set(fetch()) == {("t", 0)}
    assert len(session.unasked) == 4
    scripted.topics = []
    fetch()
    assert session.unasked == []


def test_errors_and_divergence_are_of_their_partition(scripted: Scripted, fetch: Fetch) -> None:
    diverging = {"epoch": 1, "end_offset": 4}
    parts = [
        answered(0, error_code=ErrorCode.offset_out_of_range),
        answered(1, diverging_epoch=diverging),
    ]
    scripted.topics = [{"topic_id": ONE, "partitions": parts}]
    found = fetch()
    assert found["t", 0].error == ErrorCode.offset_out_of_range
    assert [found["t", index].diverging for index in (0, 1)] == [None, (1, 4)]


# --- a broker of ours ---------------------------------------------------------------------

broker = a_broker("t", partitions=3)


@pytest.fixture
def ours(broker: RunningBroker, brokers: Brokers) -> Link:
    for number in range(6):
        broker.append("t", build_batch([LogRecord(number, None, bytes(100))] * 10))
    host, _, port = broker.address.rpartition(":")
    return brokers.at(Address(host, int(port)), soon())


def test_a_broker_gives_records_with_their_append_times(broker: RunningBroker, ours: Link) -> None:
    session = ClientFetchSession(FetchLimits(1 << 20, 2_000))
    topic_id = broker.broker.topics.named("t").topic_id
    read, asked = 0, 0
    while read < 60:
        session.want(("t", 0), FetchPosition(read, topic_id, 0, 0))
        session.want(("t", 1), FetchPosition(0, topic_id, 0, -1))
        found = session.fetch(ours, 0, soon())["t", 0]
        assert found.error == ErrorCode.none
        assert found.fetched.high_watermark == 60
        assert [each.ms for each in found.fetched.append_times] == [broker.clock.now_ms()]
        read += sum(header.records_count for _, header in iter_headers(found.fetched.records))
        asked += 1
    assert asked > 1


@pytest.mark.parametrize(("highest", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (17, 2)])
def test_a_leader_converts_down_for_a_follower_of_an_older_protocol(
    broker: RunningBroker, ours: Link, highest: int, magic: int
) -> None:
    """KIP-32, phase 2: before v4 a fetch has no place for append times either."""
    session = ClientFetchSession(FetchLimits(1 << 20, 2_000), highest=highest)
    topic_id = broker.broker.topics.named("t").topic_id
    read = 0
    while read < 60:
        session.want(("t", 0), FetchPosition(read, topic_id, 0, -1))
        found = session.fetch(ours, 0, soon())["t", 0]
        assert (found.error, found.fetched.high_watermark) == (ErrorCode.none, 60)
        records = found.fetched.records
        assert records[16] == magic
        before, read = read, next_offset_of(records, read, 60)
        assert read > before
        times = [each.ms for each in found.fetched.append_times]
        assert times == ([broker.clock.now_ms()] if highest >= 4 else [])


def test_memory_of_small_answers_is_used_again_and_of_large_ones_given_back(
    broker: RunningBroker, ours: Link
) -> None:
    topic_id = broker.broker.topics.named("t").topic_id
    for kept, is_reused in ((1 << 20, True), (1 << 10, False)):
        session = ClientFetchSession(FetchLimits(1 << 20, 1 << 20, kept_bytes=kept))
        session.want(("t", 0), FetchPosition(0, topic_id, 0, 0))
        first = session.fetch(ours, 0, soon())["t", 0].fetched.records
        before = bytes(first)
        session.want(("t", 0), FetchPosition(50, topic_id, 0, 0))
        session.fetch(ours, 0, soon())
        assert (bytes(first) != before) is (is_reused and isinstance(first, memoryview))


def test_ends_of_epochs_and_bounds_of_many_partitions(broker: RunningBroker, ours: Link) -> None:
    broker.delete_records("t", 20)
    ends = epoch_ends(ours, {("t", 0): (0, 0), ("t", 1): (5, 0), ("x", 0): (0, 0)}, soon())
    assert ends["t", 0] == (ErrorCode.none, 0, 60)
    assert ends["t", 1].error == ErrorCode.unknown_leader_epoch
    assert ends["x", 0].error == ErrorCode.unknown_topic_or_partition
    bounds = log_bounds(ours, {("t", 0): 0, ("t", 2): 0, ("x", 0): 0}, soon())
    assert bounds["t", 0] == (ErrorCode.none, 20, 60)
    assert bounds["t", 2] == (ErrorCode.none, 0, 0)
    assert bounds["x", 0].error == ErrorCode.unknown_topic_or_partition


def test_the_cluster_of_a_link(broker: RunningBroker, ours: Link) -> None:
    assert cluster_of(ours, soon()) == broker.broker.cluster_id


def test_a_wait_for_an_answer_can_be_interrupted(
    broker: RunningBroker, ours: Link, brokers: Brokers
) -> None:
    session = ClientFetchSession(LIMITS)
    session.want(("t", 1), FetchPosition(0, broker.broker.topics.named("t").topic_id, 0, -1))
    timer = threading.Timer(0.2, brokers.interrupt)
    timer.start()
    with pytest.raises(NoAnswer):
        session.fetch(ours, 600_000, soon())
    timer.join()
