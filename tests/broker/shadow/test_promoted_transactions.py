"""Transactions of a source over a promotion: whole, and named where they cannot be."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from faulty_calls import failing
from following import is_caught_up
from patience import PATIENCE_S, eventually
from promotion import Start, committed_in, hold_markers
from running_broker import RunningBroker
from transactional import Producer, init

from horolog.broker import (
    Controller,
    Partitions,
    Promotions,
    SourcePartition,
    SourceTopics,
    StateTopic,
    TopicAtSource,
)
from horolog.errors import ErrorCode, RequestRefused
from horolog.storage import TRANSACTION_STATE
from horolog.wire import FOLLOWING, ApiKey

BOTH = [("t", 0), ("u", 0)]
STATES = [(TRANSACTION_STATE, index) for index in range(3)]


@pytest.fixture
def source(start: Start) -> RunningBroker:
    broker = start("a", transaction_state_log_num_partitions="3")
    broker.create_topic("t")
    broker.create_topic("u")
    return broker


def status_of(broker: RunningBroker, name: str = "x") -> str:
    fields = {"transactional_ids": [name]}
    (state,) = broker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, **fields).transaction_states
    return str(state.transaction_state)


def has_status(broker: RunningBroker, status: str) -> bool:
    return eventually(lambda: status_of(broker) == status)


def is_open(broker: RunningBroker, topic: str) -> bool:
    return bool(broker.broker.led(topic, 0).log.has_open_transactions)


def lose(source: RunningBroker, shadow: RunningBroker) -> None:
    """The source is gone, once the shadow has all of it."""
    assert is_caught_up(shadow, source, [*BOTH, *STATES])
    source.stop()


def commit_to_both(producer: Producer) -> None:
    assert [producer.send("t"), producer.send("u"), producer.end()] == [0, 0, 0]


def said(broker: RunningBroker, *topics: str) -> str:
    return " ".join(each.text for each in broker.client.promoted([*topics]) or ())


@pytest.mark.parametrize("flow", [1, 2])
def test_commit_whose_source_died_between_markers_is_completed(
    source: RunningBroker, start: Start, flow: int
) -> None:
    hold_markers(source, "u")
    shadow = start("b", source)
    producer = Producer(source, flow=flow)
    commit_to_both(producer)
    assert eventually(lambda: not is_open(source, "t"))
    assert is_open(source, "u")
    lose(source, shadow)
    shadow.client.promote(None)
    assert has_status(shadow, "CompleteCommit")
    assert committed_in(shadow, "t") == committed_in(shadow, "u") == [0]
    assert not is_open(shadow, "u")
    shadow.restart(crash=True)
    assert committed_in(shadow, "u") == [0]


def test_abort_whose_source_died_between_markers_is_completed(
    source: RunningBroker, start: Start
) -> None:
    hold_markers(source, "u")
    shadow = start("b", source)
    producer = Producer(source)
    assert [producer.send("t"), producer.send("u"), producer.end(commit=False)] == [0, 0, 0]
    assert eventually(lambda: not is_open(source, "t"))
    lose(source, shadow)
    shadow.client.promote(None)
    assert has_status(shadow, "CompleteAbort")
    assert committed_in(shadow, "t") == committed_in(shadow, "u") == []
    assert not is_open(shadow, "u")


def init_code(broker: RunningBroker, name: str | None) -> int:
    fields = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    return int(broker.ask(ApiKey.INIT_PRODUCER_ID, 4, **fields).error_code)


def test_no_client_of_a_shadow_keeps_out_what_is_decided_at_its_source(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)
    assert is_caught_up(shadow, source, BOTH)
    for name in ("stray", "x"):
        assert init_code(shadow, name) == ErrorCode.coordinator_load_in_progress
    shadow.restart()
    assert init_code(shadow, "stray") == ErrorCode.coordinator_load_in_progress
    assert init_code(shadow, None) == 0, "without an id it is served"
    assert not shadow.broker.transactions_topic.exists
    hold_markers(source, "u")
    producer = Producer(source)
    commit_to_both(producer)
    assert eventually(lambda: not is_open(source, "t"))
    lose(source, shadow)
    shadow.client.promote(None)
    assert has_status(shadow, "CompleteCommit")
    assert committed_in(shadow, "t") == committed_in(shadow, "u") == [0]
    assert Producer(shadow, "stray").send("t") == 0


@pytest.mark.parametrize("topics", [None, ["t"]])
def test_transactions_begin_at_a_promotion_where_the_source_has_none(
    source: RunningBroker, start: Start, topics: list[str] | None
) -> None:
    shadow = start("b", source)
    assert is_caught_up(shadow, source, BOTH)
    assert init_code(shadow, "x") == ErrorCode.coordinator_load_in_progress
    shadow.client.promote(topics)
    producer = Producer(shadow)
    assert [producer.send("t"), producer.end()] == [0, 0]
    assert has_status(shadow, "CompleteCommit")


def test_a_broker_with_transactions_of_its_own_serves_them_while_it_follows(
    source: RunningBroker, start: Start
) -> None:
    own = start("b")
    own.create_topic("own")
    producer = Producer(own)
    assert [producer.send("own"), producer.end()] == [0, 0]
    own.stop()
    shadow = start("b", source)
    assert is_caught_up(shadow, source, BOTH)
    producer = Producer(shadow)
    assert [producer.send("own"), producer.end()] == [0, 0]


async def _begin(producer: AIOKafkaProducer) -> None:
    await producer.start()
    try:
        async with producer.transaction():
            await producer.send_and_wait("t", b"v")
    finally:
        await producer.stop()


def _librdkafka(address: str) -> None:
    given = {"bootstrap.servers": address, "transactional.id": "x", "log_level": 0}
    producer = confluent_kafka.Producer(given)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("t", b"v")
    producer.commit_transaction(PATIENCE_S)


def _aiokafka(address: str) -> None:
    async def run() -> None:
        await _begin(AIOKafkaProducer(bootstrap_servers=address, transactional_id="x"))

    asyncio.run(run())


@pytest.mark.parametrize("client", [_librdkafka, _aiokafka])
def test_a_standby_that_begins_before_the_promotion_waits_for_it(
    source: RunningBroker, start: Start, client: Callable[[str], None]
) -> None:
    shadow = start("b", source)
    assert is_caught_up(shadow, source, BOTH)
    asked, plain = threading.Event(), shadow.broker.transactions.initialise

    async def initialise(*given: Any) -> Any:
        asked.set()
        return await plain(*given)

    shadow.broker.transactions.initialise = initialise  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        standby = pool.submit(client, shadow.address)
        assert asked.wait(PATIENCE_S)
        assert not standby.done()
        shadow.client.promote(None)
        standby.result(PATIENCE_S)
    assert eventually(lambda: committed_in(shadow, "t") == [0])


@pytest.mark.parametrize("flow", [1, 2])
@pytest.mark.parametrize("is_lost", [False, True])
def test_what_is_open_is_aborted_fenced_and_named(
    source: RunningBroker,
    start: Start,
    caplog: pytest.LogCaptureFixture,
    flow: int,
    is_lost: bool,
) -> None:
    caplog.set_level(logging.WARNING, "horolog")
    shadow = start("b", source)
    producer = Producer(source, flow=flow)
    assert [producer.send("t"), producer.send("u")] == [0, 0]
    assert is_caught_up(shadow, source, [*BOTH, *STATES])
    if is_lost:
        source.stop()
    shadow.client.promote(None)
    for topic in ("t", "u"):
        log = shadow.log(topic)
        assert log.last_stable_offset == log.log_end_offset, "nothing is open over it"
    assert has_status(shadow, "CompleteAbort")
    ends = [shadow.log(topic).log_end_offset for topic in ("t", "u")]
    producer.broker = shadow
    fenced = (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced)
    assert producer.send("t") in fenced
    assert producer.send("u") in fenced
    assert producer.end() in (*fenced, ErrorCode.invalid_txn_state)
    assert [shadow.log(topic).log_end_offset for topic in ("t", "u")] == ends
    assert committed_in(shadow, "t") == committed_in(shadow, "u") == []
    assert "a transaction of 'x' was open at the source, and aborted here" in said(shadow, "t")
    assert "t-0 was promoted: a transaction of 'x'" in caplog.text
    after = Producer(shadow, flow=flow)
    assert after.epoch > producer.epoch
    commit_to_both(after)
    assert has_status(shadow, "CompleteCommit")
    assert len(committed_in(shadow, "t")) == len(committed_in(shadow, "u")) == 1
    shadow.restart(crash=True)
    assert len(committed_in(shadow, "t")) == 1


def test_librdkafka_goes_on_after_its_transaction_was_aborted_by_a_promotion(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)

    def producer() -> confluent_kafka.Producer:
        given = {"bootstrap.servers": source.address, "transactional.id": "x", "log_level": 0}
        return confluent_kafka.Producer(given)

    former = producer()
    former.init_transactions(PATIENCE_S)
    former.begin_transaction()
    former.produce("t", b"open")
    assert former.flush(PATIENCE_S) == 0
    lose(source, shadow)
    shadow.client.promote(None)
    shadow.restart(listeners=f"PLAINTEXT://{source.address}")  # clients find it where that was
    former.produce("t", b"late")
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        former.commit_transaction(PATIENCE_S)
    error = refused.value.args[0]
    assert error.fatal() or error.txn_requires_abort(), error
    after = producer()
    after.init_transactions(PATIENCE_S)
    after.begin_transaction()
    after.produce("t", b"after")
    after.commit_transaction(PATIENCE_S)
    given = {
        "bootstrap.servers": source.address,
        "group.id": "g",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }
    consumer = confluent_kafka.Consumer(given)
    consumer.subscribe(["t"])
    try:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value() == b"after"
        written = [header for header in shadow.headers("t") if not header.is_control]
        assert len(written) == 2, "nothing of the former producer was appended"
    finally:
        consumer.close()


def test_decision_is_completed_though_nothing_is_confirmed_since_a_restart(
    source: RunningBroker, start: Start
) -> None:
    for topic in ("t", "u"):
        hold_markers(source, topic)
    shadow = start("b", source)
    producer = Producer(source)
    commit_to_both(producer)
    lose(source, shadow)
    shadow.restart(crash=True)
    shadow.client.promote(None)
    assert has_status(shadow, "CompleteCommit")
    assert committed_in(shadow, "t") == committed_in(shadow, "u") == [0]
    for topic in ("t", "u"):
        assert "'x' was committed at the source: records of it from offset 1" in said(shadow, topic)


@pytest.mark.parametrize("opens", [False, True])
def test_states_that_are_late_by_some_transactions_cut_none_and_fence_no_next_producer(
    source: RunningBroker, start: Start, opens: bool
) -> None:
    shadow = start("b", source)
    producer = Producer(source)
    commit_to_both(producer)
    assert eventually(lambda: not is_open(source, "t") and not is_open(source, "u"))
    if opens:
        assert producer.send("t") == 0
    assert is_caught_up(shadow, source, [*BOTH, *STATES])
    with shadow.broker.follow_state.promoting(TRANSACTION_STATE):  # it is not followed meanwhile
        shadow.call(lambda: shadow.broker.shadow.follower.release(TRANSACTION_STATE))
        for _ in range(3):
            commit_to_both(producer)
            assert eventually(lambda: not is_open(source, "t") and not is_open(source, "u"))
        hold_markers(source, "u")
        commit_to_both(producer)
        assert eventually(lambda: not is_open(source, "t"))
        assert is_caught_up(shadow, source, BOTH)
        source.stop()
    shadow.client.promote(None)
    assert eventually(lambda: not is_open(shadow, "u"))
    assert len(committed_in(shadow, "u")) == 5
    assert len(committed_in(shadow, "t")) == 5 + opens
    assert "'x' was ended at the source after its last state that came" in said(shadow, "t")
    assert "'x' was committed at the source" in said(shadow, "u")
    producer.broker = shadow
    assert producer.send("t") == ErrorCode.invalid_producer_epoch
    after = Producer(shadow)
    assert after.epoch > producer.epoch
    commit_to_both(after)
    assert has_status(shadow, "CompleteCommit")
    assert len(committed_in(shadow, "u")) == 6


def test_producer_ids_are_above_all_that_the_source_gave(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)
    producer = Producer(source)
    assert [producer.send("t"), producer.end()] == [0, 0]
    assert is_caught_up(shadow, source, [*BOTH, *STATES])
    for number in range(3):
        Producer(source, f"unseen{number}")
    shadow.client.promote(None)
    assert eventually(lambda: not shadow.broker.transactions.is_loading)
    assert Producer(shadow, "new").id > Producer(source, "later").id + 1_000


def test_a_topic_that_is_not_followed_is_left_out_of_its_transactions(
    source: RunningBroker, start: Start
) -> None:
    hold_markers(source, "u")
    shadow = start("b", source, horolog_follow_topics="u")
    producer = Producer(source)
    commit_to_both(producer)
    assert is_caught_up(shadow, source, [("u", 0), *STATES])
    assert "t" not in shadow.broker.topics
    # The source answers: all of `u` is known to be here.
    shadow.client.promote(None)
    assert has_status(shadow, "CompleteCommit")
    assert committed_in(shadow, "u") == [0]


def test_transactions_of_a_shadow_wait_for_its_promotion(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)
    Producer(source)
    assert is_caught_up(shadow, source, STATES)
    fields = {"transactional_id": "x", "transaction_timeout_ms": 60_000}
    for _ in range(2):
        answer = shadow.ask(ApiKey.INIT_PRODUCER_ID, 4, **fields)
        assert answer.error_code == ErrorCode.coordinator_load_in_progress
        shadow.restart(crash=True)
        assert is_caught_up(shadow, source, STATES)


def test_a_broker_that_leads_topics_keeps_its_own_transactions(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source, horolog_follow_topics="t")
    assert eventually(lambda: "t" in shadow.broker.topics)
    shadow.stop()
    other = start("c")
    other.create_topic("mine")
    other.restart(horolog_follow=source.address, horolog_follow_topics="t")
    Producer(source)
    assert is_caught_up(other, source, [("t", 0)])
    mine = Producer(other, "mine")
    assert [mine.send("mine"), mine.end()] == [0, 0]
    assert committed_in(other, "mine") == [0]
    assert not other.broker.topics.named(TRANSACTION_STATE).followed
    assert mine.send("mine") == 0
    other.client.promote(None)
    assert not other.broker.transactions.is_loading
    assert [mine.send("mine"), mine.end()] == [0, 0]
    assert eventually(lambda: len(committed_in(other, "mine")) == 3)


def test_promotion_of_some_topics_completes_their_transactions_and_the_others_go_on(
    source: RunningBroker, start: Start
) -> None:
    hold_markers(source, "u")
    shadow = start("b", source)
    producer = Producer(source)
    commit_to_both(producer)
    assert is_caught_up(shadow, source, [*BOTH, *STATES])
    shadow.client.promote(["u"])
    assert has_status(shadow, "CompleteCommit")
    assert committed_in(shadow, "u") == [0]
    other = Producer(source, "y")
    assert [other.send("t"), other.end()] == [0, 0]
    assert is_caught_up(shadow, source, [("t", 0)])
    assert eventually(lambda: not is_open(shadow, "t"))
    shadow.client.promote(None)
    assert len(committed_in(shadow, "t")) == 2
    shadow.client.promote(None)
    assert not is_open(shadow, "t")


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_open_in_a_topic_that_is_promoted_later_is_aborted(
    source: RunningBroker, start: Start, restarts: bool
) -> None:
    shadow = start("b", source)
    producer, other = Producer(source), Producer(source, "y")
    assert [producer.send("u"), other.send("t"), other.end()] == [0, 0, 0]
    assert is_caught_up(shadow, source, [*BOTH, *STATES])
    shadow.client.promote(["t"])
    assert has_status(shadow, "CompleteAbort")
    assert is_open(shadow, "u"), "it is followed still"
    source.stop()
    if restarts:
        shadow.restart(crash=True)
    shadow.client.promote(None)
    assert has_status(shadow, "CompleteAbort")
    producer.broker = shadow
    assert producer.send("t") == ErrorCode.invalid_producer_epoch
    assert eventually(lambda: not is_open(shadow, "u"))
    assert committed_in(shadow, "u") == []


@pytest.mark.parametrize("flow", [1, 2])
@pytest.mark.parametrize("commits", [True, False])
def test_marker_that_came_with_a_topic_that_is_promoted_later_is_not_turned(
    source: RunningBroker, start: Start, flow: int, commits: bool
) -> None:
    shadow = start("b", source)
    producer = Producer(source, flow=flow)
    assert producer.send("u") == 0
    assert is_caught_up(shadow, source, [*BOTH, *STATES])
    shadow.client.promote(["t"])
    assert has_status(shadow, "CompleteAbort")
    assert producer.end(commit=commits) == 0
    assert eventually(lambda: not is_open(source, "u"))
    assert is_caught_up(shadow, source, [("u", 0)])
    source.stop()
    shadow.client.promote(None)
    assert committed_in(shadow, "u") == ([0] if commits else [])
    after = Producer(shadow, flow=flow)
    assert [after.send("u"), after.end()] == [0, 0]
    assert eventually(lambda: len(committed_in(shadow, "u")) == 1 + commits)


def test_transactions_of_the_coordinator_here_go_on_over_a_later_promotion(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)
    assert is_caught_up(shadow, source, BOTH)
    Producer(source)
    assert is_caught_up(shadow, source, [*BOTH, *STATES])
    shadow.client.promote(["t"])
    own = Producer(shadow, "own")
    assert own.send("t") == 0
    shadow.client.promote(None)
    assert eventually(lambda: status_of(shadow, "own") == "Ongoing")
    assert [own.send("t"), own.send("u"), own.end()] == [0, 0, 0]
    assert eventually(lambda: len(committed_in(shadow, "t")) == 2)
    assert len(committed_in(shadow, "u")) == 1


@pytest.mark.parametrize("names", [None, ["t", "u"]])
@pytest.mark.parametrize("kills", [False, True])
def test_states_whose_decisions_could_not_be_written_are_not_led(
    source: RunningBroker,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str] | None,
    kills: bool,
) -> None:
    shadow = start("b", source)
    producer, other = Producer(source), Producer(source, "y")
    assert [producer.send("t"), producer.send("u"), other.send("t")] == [0, 0, 0]
    lose(source, shadow)
    full = RequestRefused(ErrorCode.unknown_server_error, "the disk is full")
    written: list[str] = []

    def is_second(topic: StateTopic, key: str, record: Any) -> bool:
        if written:
            return True
        written.append(key)
        return False

    with monkeypatch.context() as patched:
        failing(patched, StateTopic, "append_record", full, when=is_second)
        with pytest.raises(RequestRefused, match="the disk is full"):
            shadow.client.promote(names)
    if kills:
        shadow.restart(crash=True)
    assert shadow.broker.transactions.is_loading
    assert init(shadow).error_code == ErrorCode.coordinator_load_in_progress
    found = shadow.client.ask(FOLLOWING)
    assert any("its promotion was interrupted" in each.text for each in found.entries)
    shadow.client.promote(names)
    for each, name in ((producer, "x"), (other, "y")):
        assert eventually(lambda name=name: status_of(shadow, name) == "CompleteAbort")
        each.broker = shadow
        assert each.send("t") == ErrorCode.invalid_producer_epoch
    assert committed_in(shadow, "t") == committed_in(shadow, "u") == []
    assert not is_open(shadow, "t")
    assert not is_open(shadow, "u")


def test_topics_go_on_following_after_a_promotion_that_failed_until_another_completes_it(
    source: RunningBroker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow = start("b", source)
    producer = Producer(source)
    assert producer.send("t") == 0
    asked = {"transactional_id": "x", "producer_id": producer.id, "producer_epoch": producer.epoch}
    added = source.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **asked, group_id="g")  # it is to be aborted
    assert added.error_code == 0
    assert is_caught_up(shadow, source, [*BOTH, *STATES])
    full = RequestRefused(ErrorCode.unknown_server_error, "the disk is full")
    with monkeypatch.context() as patched:
        failing(patched, StateTopic, "append_record", full)
        with pytest.raises(RequestRefused, match="the disk is full"):
            shadow.client.promote(["t"])
    with pytest.raises(RequestRefused, match="was interrupted: complete it first"):
        shadow.demote(source, ".*")
    assert producer.end() == 0
    assert eventually(lambda: not is_open(source, "t"))
    assert is_caught_up(shadow, source, BOTH)
    shadow.client.promote(["t"])
    assert has_status(shadow, "CompleteCommit")
    assert eventually(lambda: committed_in(shadow, "t") == [0])


@pytest.mark.parametrize("step", ["promote", "_promote", "start"])
def test_killed_promotion_is_completed_by_the_next_one(
    source: RunningBroker, start: Start, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    hold_markers(source, "u")
    shadow = start("b", source)
    producer = Producer(source)
    commit_to_both(producer)
    assert eventually(lambda: not is_open(source, "t"))
    lose(source, shadow)
    places = {"start": shadow.broker.transactions, "promote": Controller}
    killed = RequestRefused(ErrorCode.unknown_server_error, "killed")
    with monkeypatch.context() as patched:
        failing(patched, places.get(step, Promotions), step, killed)
        with pytest.raises(RequestRefused):
            shadow.client.promote(None)
    shadow.restart(crash=True)
    shadow.client.promote(None)
    assert has_status(shadow, "CompleteCommit")
    assert committed_in(shadow, "t") == committed_in(shadow, "u") == [0]


@pytest.mark.parametrize("flow", [1, 2])
@pytest.mark.parametrize("commits", [True, False])
def test_start_ends_what_a_killed_promotion_has_decided_of_former_transactions(
    source: RunningBroker, start: Start, monkeypatch: pytest.MonkeyPatch, commits: bool, flow: int
) -> None:
    """Where the first transaction is open, the coordinator here has the second one to end."""
    shadow = start("b", source)
    producer = Producer(source, flow=flow)
    commit_to_both(producer)
    assert eventually(lambda: not is_open(source, "t") and not is_open(source, "u"))
    assert [producer.send("t"), producer.send("u")] == [0, 0]
    assert is_caught_up(shadow, source, [*BOTH, *STATES])
    with shadow.broker.follow_state.promoting("u"):  # it is not followed meanwhile
        shadow.call(lambda: shadow.broker.shadow.follower.release("u"))
        assert producer.end(commit=commits) == 0
        assert eventually(lambda: not is_open(source, "t") and not is_open(source, "u"))
        hold_markers(source, "u")
        assert [producer.send("t"), producer.send("u")] == [0, 0]
        assert producer.end(commit=not commits) == 0
        assert eventually(lambda: not is_open(source, "t"))
        assert is_caught_up(shadow, source, [("t", 0), *STATES])
        source.stop()
    killed = RequestRefused(ErrorCode.unknown_server_error, "killed")
    with monkeypatch.context() as patched:
        failing(patched, Partitions, "lead", killed, when=lambda _, topic, *__: topic.name == "u")
        with pytest.raises(RequestRefused, match="killed"):
            shadow.client.promote(None)
    shadow.restart(crash=True)
    assert has_status(shadow, "CompleteAbort" if commits else "CompleteCommit")
    assert not is_open(shadow, "u")
    assert committed_in(shadow, "u") == ([0, 2] if commits else [0])


@pytest.mark.parametrize("before", [0, 1])
def test_restarted_shadow_does_not_take_what_is_open_for_the_next_transaction(
    source: RunningBroker, start: Start, before: int
) -> None:
    """In the first flow both have one epoch; the last marker is in front of what is replayed."""
    shadow = start("b", source)
    producer = Producer(source, flow=1)
    for _ in range(before):
        commit_to_both(producer)
        assert eventually(lambda: not is_open(source, "t") and not is_open(source, "u"))
    assert [producer.send("t"), producer.send("u")] == [0, 0]
    assert is_caught_up(shadow, source, [*BOTH, *STATES])
    with shadow.broker.follow_state.promoting("u"):  # it is not followed meanwhile
        shadow.call(lambda: shadow.broker.shadow.follower.release("u"))
        assert producer.end() == 0
        assert eventually(lambda: not is_open(source, "t") and not is_open(source, "u"))
        assert [producer.send("t"), producer.send("u")] == [0, 0]
        assert is_caught_up(shadow, source, [("t", 0), *STATES])
        source.stop()
    shadow.restart()
    shadow.client.promote(None)
    assert committed_in(shadow, "t") == committed_in(shadow, "u") == [0, 2][: 1 + before]
    assert "committed at the source: records of it from offset" in said(shadow, "u")
    assert "open at the source, and aborted here" in said(shadow, "t")


def test_states_of_a_topic_that_the_source_has_made_again_are_those_of_the_new_one(
    start: Start,
) -> None:
    shadow = start("b", None, horolog_follow="127.0.0.1:1")
    topics = shadow.broker.shadow.followed_topics

    def seen(id_: int, count: int) -> SourceTopics:
        partitions = tuple(SourcePartition(n, 5, 0) for n in range(count))
        settings = {"cleanup.policy": "compact"}
        topic = TopicAtSource(TRANSACTION_STATE, UUID(int=id_), partitions, settings)
        return SourceTopics("source-id", {}, {TRANSACTION_STATE: topic})

    for id_, count in [(1, 2), (1, 4), (2, 3)]:
        shadow.run(topics.apply(seen(id_, count)))
        here = shadow.broker.topics.named(TRANSACTION_STATE)
        assert here.followed
        assert (here.topic_id, len(here.partitions)) == (UUID(int=id_), count)
    shadow.client.promote(None)
    assert eventually(lambda: not shadow.broker.transactions.is_loading)
    assert Producer(shadow).epoch == 0


def test_demoted_broker_follows_the_transactions_of_the_new_leader_again(
    source: RunningBroker, start: Start
) -> None:
    shadow = start("b", source)
    producer = Producer(source)
    assert [producer.send("t"), producer.end()] == [0, 0]
    assert is_caught_up(shadow, source, [*BOTH, *STATES])
    shadow.client.promote(None)
    producer.broker = shadow
    assert eventually(lambda: producer.send("u") == 0)
    assert producer.end() == 0
    assert has_status(shadow, "CompleteCommit")
    source.demote(shadow, ".*")
    assert is_caught_up(source, shadow, [*BOTH, *STATES])
    answer = source.ask(
        ApiKey.INIT_PRODUCER_ID, 4, transactional_id="x", transaction_timeout_ms=60_000
    )
    assert answer.error_code == ErrorCode.coordinator_load_in_progress
    source.client.promote(None)
    producer.broker = source
    assert has_status(source, "CompleteCommit")
    assert [producer.send("t"), producer.end()] == [0, 0]
    assert has_status(source, "CompleteCommit")
