"""Later fetches of replicas: what waits without a task, and what is looked at."""

import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from batches import batch
from led_partitions import EPOCH, LedPartitions
from patience import eventually
from raw_connection import RawConnection
from replica_session import ReplicaSession
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.broker.replica_watch import ReplicaWatch
from horolog.clock import ManualClock
from horolog.errors import ErrorCode
from horolog.record import iter_headers

broker = a_broker("t", partitions=3)


@pytest.fixture
def led(broker: RunningBroker) -> LedPartitions:
    return LedPartitions(broker)


@pytest.fixture
def session(led: LedPartitions) -> ReplicaSession:
    """A session of three partitions that has all of them."""
    session = ReplicaSession(led)
    session.fetch({0: 0, 1: 0, 2: 0})
    assert session.fetch() == {}
    return session


@pytest.fixture
def connection(led: LedPartitions) -> Iterator[RawConnection]:
    with led.broker.connect() as connection:
        yield connection


def watch_of(session: ReplicaSession) -> ReplicaWatch:
    parts = session.led.broker.broker
    found = session.led.broker.call(
        lambda: parts.fetch_sessions.expecting(session.id, session.epoch)
    )
    assert isinstance(found.watch, ReplicaWatch)
    return found.watch


def watchers(led: LedPartitions, index: int) -> int:
    return led.broker.call(lambda: len(led.partition(index).watchers))


def bases(found: Any) -> list[int]:
    return [header.base_offset for _, header in iter_headers(found.records)]


def waiting(led: LedPartitions, watch: ReplicaWatch) -> None:
    eventually(lambda: led.broker.call(lambda: watch.is_waiting))


def test_records_end_the_wait_and_nothing_else(
    led: LedPartitions, session: ReplicaSession, connection: RawConnection
) -> None:
    """KAFKA-9952."""
    led.broker.append("t", batch(NOW_MS))
    assert session.fetch()[0].high_watermark == 0
    watch = watch_of(session)
    session.send(connection, {0: 1})
    waiting(led, watch)
    led.reach(1, 3)
    assert led.partition().log.high_watermark == 1
    led.broker.append("t", batch(NOW_MS), 1)
    found = session.receive(connection)
    assert (found[0].high_watermark, found[0].records) == (1, b"")
    assert bases(found[1]) == [0]
    assert session.fetch({1: 1}) == {}
    assert led.fetched_by[-1] == ("t-1", 2, 1)


def test_a_fetch_of_few_bytes_waits_for_more(
    led: LedPartitions, session: ReplicaSession, connection: RawConnection
) -> None:
    led.broker.append("t", batch(NOW_MS))
    size = len(session.fetch()[0].records)
    watch = watch_of(session)
    session.send(connection, {0: 0}, min_bytes=size + 1)
    waiting(led, watch)
    led.broker.append("t", batch(NOW_MS), 2)
    found = session.receive(connection)
    assert (bases(found[0]), bases(found[2])) == ([0], [0])


def test_an_idle_fetch_looks_at_no_partition(led: LedPartitions, session: ReplicaSession) -> None:
    looked: list[int] = []
    led_here = led.broker.broker.led

    def counted(topic: str, index: int, leader_epoch: int = -1) -> Any:
        looked.append(index)
        return led_here(topic, index, leader_epoch)

    led.broker.broker.led = counted
    for _ in range(5):
        assert session.fetch() == {}
    assert looked == []
    led.broker.append("t", batch(NOW_MS), 1)
    looked.clear()
    assert list(session.fetch()) == [1]
    assert looked == [1]


def test_records_that_are_not_fetched_further_are_given_again(
    led: LedPartitions, session: ReplicaSession
) -> None:
    led.broker.append("t", batch(NOW_MS))
    assert bases(session.fetch()[0]) == [0]
    assert bases(session.fetch()[0]) == [0]
    led.broker.append("t", batch(NOW_MS))
    assert bases(session.fetch()[0]) == [0, 1]
    assert session.fetch({0: 2}) == {}


def test_a_partition_that_was_given_records_comes_behind_the_others(
    led: LedPartitions, session: ReplicaSession
) -> None:
    for index in range(3):
        led.broker.append("t", batch(NOW_MS), index)
    order = [list(session.fetch(max_bytes=1)) for _ in range(3)]
    assert [one[0] for one in order] == [0, 1, 2]
    assert len(session.fetch()) == 3


@pytest.mark.parametrize("is_won", [False, True])
def test_a_lost_leadership_ends_the_wait_and_is_told_next(
    led: LedPartitions, session: ReplicaSession, connection: RawConnection, is_won: bool
) -> None:
    led.broker.append("t", batch(NOW_MS), 1)
    session.fetch()
    watch = watch_of(session)
    session.send(connection, {1: 1})
    waiting(led, watch)
    led.lose()
    if is_won:
        led.win()
    assert session.receive(connection) == {}
    assert session.fetch()[0].error_code == ErrorCode.fenced_leader_epoch
    if is_won:
        assert session.fetch({0: 0}, epoch=EPOCH + 2)[0].error_code == 0
        assert session.fetch() == {}


def test_a_deleted_topic_ends_the_wait(
    led: LedPartitions, session: ReplicaSession, connection: RawConnection
) -> None:
    watch = watch_of(session)
    session.send(connection)
    waiting(led, watch)
    parts = led.broker.broker
    led.broker.run(parts.controller.delete_topic(parts.topics.find("t")))
    assert session.receive(connection) == {}
    assert session.fetch()[0].error_code == ErrorCode.unknown_topic_id


def test_another_fetch_of_the_session_refuses_the_one_that_waits(
    led: LedPartitions, session: ReplicaSession, connection: RawConnection
) -> None:
    watch = watch_of(session)
    for forgotten in ([], [{"topic_id": led.topic_id, "topic": "", "partitions": [2]}]):
        session.send(connection)
        waiting(led, watch)
        session.epoch += 1
        assert session.fetch(forgotten_topics_data=forgotten) == {}
        answer = connection.receive()[1]
        assert answer.error_code == ErrorCode.invalid_fetch_session_epoch
    assert [watchers(led, index) for index in range(3)] == [1, 1, 0]


def test_the_end_of_the_session_refuses_the_one_that_waits(
    led: LedPartitions, session: ReplicaSession, connection: RawConnection
) -> None:
    watch = watch_of(session)
    session.send(connection)
    waiting(led, watch)
    led.broker.call(lambda: led.broker.broker.fetch_sessions.end(session.id))
    assert connection.receive()[1].error_code == ErrorCode.fetch_session_id_not_found
    assert [watchers(led, index) for index in range(3)] == [0, 0, 0]


def test_a_session_that_ended_during_its_fetch_is_not_watched(
    led: LedPartitions, session: ReplicaSession, connection: RawConnection
) -> None:
    fetching = ReplicaSession(led)
    fetching.fetch({0: 0})
    fetching.send(connection)  # the first one of this session that is a later one
    eventually(lambda: led.broker.call(lambda: sum(map(len, led.partition().listeners))))
    led.broker.call(lambda: led.broker.broker.fetch_sessions.end(fetching.id))
    led.broker.append("t", batch(NOW_MS))
    assert list(fetching.receive(connection)) == [0]
    assert watchers(led, 0) == 0, "that of the other session was told of the change"


def test_a_replica_that_has_gone_leaves_nothing_waiting(
    led: LedPartitions, session: ReplicaSession, connection: RawConnection
) -> None:
    watch = watch_of(session)
    session.send(connection)
    waiting(led, watch)
    connection.socket.close()
    eventually(lambda: not led.broker.call(lambda: watch.is_waiting))
    led.broker.append("t", batch(NOW_MS))
    assert watchers(led, 0) == 0, "it is told of one change"
    session.epoch += 1
    assert bases(session.fetch()[0]) == [0], "a session belongs to no connection"


def test_a_stop_and_a_timeout_answer_what_waits(
    led: LedPartitions, session: ReplicaSession, connection: RawConnection
) -> None:
    led.broker.append("t", batch(NOW_MS))
    session.fetch()
    assert session.fetch({0: 1}) == {}
    led.reach(1, 3)
    assert session.fetch(max_wait_ms=20)[0].high_watermark == 1
    session.send(connection)
    waiting(led, watch := watch_of_sent(session))
    led.broker.call(led.broker.broker.end_waits)
    assert session.receive(connection) == {}
    assert not watch.is_waiting
    session.send(connection)
    assert session.receive(connection) == {}


def watch_of_sent(session: ReplicaSession) -> ReplicaWatch:
    session.epoch += 1
    eventually(
        lambda: session.led.broker.call(
            lambda: session.led.broker.broker.fetch_sessions.expecting(session.id, session.epoch)
        )
    )
    try:
        return watch_of(session)
    finally:
        session.epoch -= 1


def test_another_registration_is_looked_at_as_a_whole(
    led: LedPartitions, session: ReplicaSession
) -> None:
    led.fetched_by.clear()
    found = session.fetch(broker_epoch=7)
    assert {one.error_code for one in found.values()} in (
        {ErrorCode.not_leader_or_follower},
        set(),
    )
    led.broker.append("t", batch(NOW_MS))
    assert session.fetch(broker_epoch=7)[0].error_code == ErrorCode.not_leader_or_follower
    assert led.fetched_by == []


def test_a_partition_of_no_session_is_left_to_the_whole_look(
    led: LedPartitions, session: ReplicaSession
) -> None:
    asked = {0: 0}
    found = session.fetch(asked, topic_id=UUID(int=77))
    assert [one.error_code for one in found.values()] == [ErrorCode.unknown_topic_id]
    led.broker.append("t", batch(NOW_MS), 2)
    assert bases(session.fetch()[2]) == [0]


@pytest.mark.parametrize("seed", range(6))
def test_the_shortcut_gives_what_a_whole_look_gives(tmp_path_factory: Any, seed: int) -> None:
    chance = random.Random(seed)
    sides = []
    for has_shortcuts in (True, False):
        broker = RunningBroker(tmp_path_factory.mktemp("twin"), clock=ManualClock(NOW_MS))
        broker.create_topic("t", 3)
        sides.append(ReplicaSession(LedPartitions(broker, has_shortcuts=has_shortcuts)))
    told: list[dict[int, tuple[int, int]]] = [{}, {}]
    ends, at = [0, 0, 0], {0: 0, 1: 0, 2: 0}

    def fetch(asked: dict[int, int]) -> None:
        answers = [side.fetch(asked, last_epoch=EPOCH if asked else -1) for side in sides]
        records = [{i: one.records for i, one in it.items() if one.records} for it in answers]
        assert records[0] == records[1]
        assert [{one.error_code for one in it.values()} <= {0} for it in answers] == [True, True]
        for known, answer in zip(told, answers, strict=True):
            for index, one in answer.items():
                known[index] = one.high_watermark, one.log_start_offset

    try:
        fetch(dict(at))
        for _ in range(60):
            index = chance.randrange(3)
            match chance.randrange(4):
                case 0:
                    count = chance.randrange(1, 4)
                    for side in sides:
                        side.led.broker.append("t", batch(*([NOW_MS] * count)), index)
                    ends[index] += count
                case 1:
                    for side in sides:
                        side.led.reach(ends[index], 3, index=index)
                case 2:
                    at[index] = ends[index]
                    fetch({index: at[index]})
                case 3:
                    fetch({})
            if chance.randrange(10) == 0:
                for side in sides:
                    side.led.broker.clock.advance(2_100)
        for _ in range(3):
            fetch({})
        assert told[0] == told[1]
        marks = [
            [side.led.partition(index).log.high_watermark for index in range(3)] for side in sides
        ]
        assert marks[0] == marks[1]
        assert [told[0][index][0] for index in range(3)] == marks[0]
    finally:
        for side in sides:
            side.led.broker.stop()
