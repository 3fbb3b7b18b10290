"""Transactions from request to log, and over restarts."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from raw_connection import RawConnection
from running_broker import NOW_MS, RunningBroker

from horolog.broker import LocalMarkers, NewTopic
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

EMPTY, ONGOING = "Empty", "Ongoing"


@pytest.fixture
def connection(broker: RunningBroker) -> Any:
    broker.create_topic("t", 2)
    with broker.connect() as connection:
        yield connection


def init(connection: RawConnection, version: int = 5, **fields: Any) -> Any:
    return connection.ask(
        ApiKey.INIT_PRODUCER_ID,
        version,
        **{"transactional_id": "x", "transaction_timeout_ms": 60_000, **fields},
    )


def add(connection: RawConnection, producer: Any, *indexes: int, version: int = 3) -> list[int]:
    answer = connection.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[{"name": "t", "partitions": list(indexes)}],
    )
    (topic,) = answer.results_by_topic_v3_and_below
    return [each.partition_error_code for each in topic.results_by_partition]


def write(connection: RawConnection, producer: Any, version: int, sequence: int = 0) -> int:
    (code,) = write_to(connection, producer, version, "t", sequence=sequence)
    return code


def write_to(
    connection: RawConnection, producer: Any, version: int, *topics: str, sequence: int = 0
) -> list[int]:
    """The code for the first partition of each topic, in one request."""
    batch = build_batch(
        [LogRecord(NOW_MS, None, b"v")],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    partitions = [{"index": 0, "records": batch}]
    answer = connection.ask(
        ApiKey.PRODUCE,
        version,
        transactional_id="x",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[{"name": topic, "partition_data": partitions} for topic in topics],
    )
    return [int(each.partition_responses[0].error_code) for each in answer.responses]


def end(connection: RawConnection, producer: Any, version: int, commit: bool = True) -> Any:
    return connection.ask(
        ApiKey.END_TXN,
        version,
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )


def described(connection: RawConnection) -> Any:
    return connection.ask(
        ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["x"]
    ).transaction_states[0]


def test_first_flow_writes_to_partitions_that_were_added(connection: RawConnection) -> None:
    producer = init(connection, 4)
    assert write(connection, producer, 10) == 48
    assert write(connection, producer, 11) == 120
    assert add(connection, producer, 0) == [0]
    assert write(connection, producer, 11) == 0
    state = described(connection)
    assert (state.transaction_state, state.transaction_start_time_ms > 0) == (ONGOING, True)
    assert [(topic.topic, list(topic.partitions)) for topic in state.topics] == [("t", [0])]
    assert end(connection, producer, 4).error_code == 0


def test_second_flow_adds_partitions_by_writing(
    connection: RawConnection, broker: RunningBroker
) -> None:
    producer = init(connection)
    for epoch in range(3):
        assert producer.producer_epoch == epoch
        assert write(connection, producer, 12) == 0
        producer = end(connection, producer, 5)
        assert producer.error_code == 0
    broker.run(broker.broker.transactions.settle())
    offsets = connection.ask(
        ApiKey.LIST_OFFSETS,
        7,
        replica_id=-1,
        isolation_level=1,
        topics=[
            {"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]},
        ],
    )
    assert offsets.topics[0].partitions[0].offset == 6


def test_partition_that_appears_while_the_coordinator_is_asked_is_to_be_sent_again(
    connection: RawConnection, broker: RunningBroker
) -> None:
    """It was refused with INVALID_TXN_STATE, after which franz-go gives the transaction up."""
    producer = init(connection)
    transactions = broker.broker.transactions
    admit = transactions.admit

    async def slow(*asked: Any) -> Any:
        codes = await admit(*asked)
        await broker.broker.controller.create_topic(NewTopic(name="new", partitions=1))
        return codes

    transactions.admit = slow
    assert write_to(connection, producer, 12, "t", "new") == [0, 3]
    transactions.admit = admit
    assert write_to(connection, producer, 12, "new") == [0]


def test_partitions_are_added_all_or_none(connection: RawConnection) -> None:
    producer = init(connection)
    assert add(connection, producer, 0, 9) == [55, 3]
    assert described(connection).transaction_state == EMPTY


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
@pytest.mark.parametrize("partitions", [[0], [0, 1]], ids=["decoded not", "decoded"])
@pytest.mark.parametrize("version", [2, 3])
def test_clients_add_no_partitions_that_coordinators_write(
    connection: RawConnection, version: int, partitions: list[int], topic: str
) -> None:
    """As Kafka: the marker of the transaction would be written there."""
    producer = init(connection)
    answer = connection.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[{"name": topic, "partitions": partitions}],
    )
    (results,) = answer.results_by_topic_v3_and_below
    assert {each.partition_error_code for each in results.results_by_partition} == {29}
    assert described(connection).transaction_state == EMPTY


def test_older_versions_know_no_fenced_producers(connection: RawConnection) -> None:
    stale = init(connection)
    init(connection)
    assert add(connection, stale, 0, version=1) == [47]
    assert add(connection, stale, 0, version=2) == [90]
    assert end(connection, stale, 1).error_code == 47
    assert end(connection, stale, 2).error_code == 90
    known = {"producer_id": stale.producer_id, "producer_epoch": 5}
    assert init(connection, 3, **known).error_code == 47
    assert init(connection, 4, **known).error_code == 90
    assert init(connection, 4, producer_id=7).error_code == 42


def test_partitions_of_several_transactions_are_verified(connection: RawConnection) -> None:
    producer = init(connection)
    add(connection, producer, 0)
    answer = connection.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        4,
        transactions=[
            {
                "transactional_id": name,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "verify_only": True,
                "topics": [{"name": "t", "partitions": [0, 1]}],
            }
            for name in ("x", "y")
        ],
    )
    assert [
        [each.partition_error_code for each in result.topic_results[0].results_by_partition]
        for result in answer.results_by_transaction
    ] == [[0, 120], [49, 49]]


def test_open_transaction_is_there_after_a_restart(broker: RunningBroker) -> None:
    broker.create_topic("t", 2)
    with broker.connect() as connection:
        producer = init(connection)
        assert write(connection, producer, 12) == 0
    broker.restart()
    broker.run(broker.broker.transactions.settle())
    with broker.connect() as connection:
        assert described(connection).transaction_state == ONGOING
        assert write(connection, producer, 12, sequence=1) == 0
        assert end(connection, producer, 5).error_code == 0
        broker.run(broker.broker.transactions.settle())
        assert described(connection).transaction_state == "CompleteCommit"


def test_list_is_filtered(connection: RawConnection, broker: RunningBroker) -> None:
    producer = init(connection)
    init(connection, transactional_id="y")
    add(connection, producer, 0)

    def names(version: int = 2, **filters: Any) -> list[str]:
        answer = connection.ask(ApiKey.LIST_TRANSACTIONS, version, **filters)
        assert answer.error_code == 0
        return [each.transactional_id for each in answer.transaction_states]

    assert names(0) == ["x", "y"]
    assert names(state_filters=[ONGOING]) == ["x"]
    assert names(producer_id_filters=[producer.producer_id]) == ["x"]
    assert names(transactional_id_pattern="[yz]") == ["y"]
    assert names(duration_filter=0) in ([], ["x"])
    assert names(duration_filter=3_600_000) == []
    unknown = connection.ask(ApiKey.LIST_TRANSACTIONS, 2, state_filters=["Nonsense"])
    assert (list(unknown.unknown_state_filters), list(unknown.transaction_states)) == (
        ["Nonsense"],
        [],
    )
    bad = connection.ask(ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern="(")
    assert bad.error_code == 128


def test_a_pattern_that_would_take_long_is_refused_and_a_hostile_one_takes_no_time(
    broker: RunningBroker,
) -> None:
    nested, ids = "(?:(?:a*){30}){20}b", ["a" * 30_000 + str(number) for number in range(20)]
    with broker.connect() as connection:
        for each in ids:
            assert init(connection, transactional_id=each).error_code == 0
        for pattern, code in (("(a+)+b", 0), ("(a|a)*[0-9]", 0), (nested, 128), ("(?=a)", 128)):
            begun_s = time.process_time()
            listed = connection.ask(ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern=pattern)
            assert listed.error_code == code
            assert time.process_time() - begun_s < 5
        few = {"producer_id_filters": [0], "transactional_id_pattern": nested}
        assert connection.ask(ApiKey.LIST_TRANSACTIONS, 2, **few).error_code == 0


def test_kill_between_prepare_and_complete_is_completed_by_the_next_start(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t", 2)

    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as without_markers:
        without_markers.setattr(LocalMarkers, "end", never)
        with broker.connect() as connection:
            producer = init(connection)
            assert write(connection, producer, 12) == 0
            assert end(connection, producer, 5).producer_epoch == 1
            assert described(connection).transaction_state == "PrepareCommit"
        broker.restart(crash=True)
        with broker.connect() as connection:
            assert end(connection, producer, 5).error_code in (14, 51)
    broker.restart(crash=True)
    broker.run(broker.broker.transactions.settle())
    with broker.connect() as connection:
        assert described(connection).transaction_state == "CompleteCommit"
        assert end(connection, producer, 5).producer_epoch == 1
