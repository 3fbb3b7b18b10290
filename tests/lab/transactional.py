"""Transactions of producers that a test drives request by request."""

from __future__ import annotations

from typing import Any

from raw_connection import produce_fields
from running_broker import RunningBroker

from horolog.record.builder import Record, build_batch
from horolog.wire.api import ApiKey


def init(broker: RunningBroker, transactional_id: str = "x") -> Any:
    """The producer of a transactional id: its id and epoch."""
    fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    return broker.ask(ApiKey.INIT_PRODUCER_ID, 4, **fields)


def write(
    broker: RunningBroker,
    producer: Any,
    *,
    sequence: int = 0,
    partition: int = 0,
    version: int = 11,
    topic: str = "t",
    count: int = 1,
    time_ms: int | None = None,
) -> int:
    """Write records of a transaction; the error code.

    From version 12 on the partition is added to the transaction of "x". Before it is not: without
    `transaction.partition.verification.enable` the records are written, and nothing ends them.
    """
    now_ms = broker.clock.now_ms() if time_ms is None else time_ms
    batch = build_batch(
        [Record(now_ms, None, b"v")] * count,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    fields = produce_fields(topic, {partition: batch}, acks=-1, transactional_id="x")
    (answer,) = broker.ask(ApiKey.PRODUCE, version, **fields).responses
    return int(answer.partition_responses[0].error_code)


def end(broker: RunningBroker, producer: Any, *, commit: bool = True) -> int:
    """End the transaction of "x", and wait for the markers; the error code."""
    fields = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    answer = broker.ask(ApiKey.END_TXN, 5, transactional_id="x", committed=commit, **fields)
    broker.run(broker.broker.transactions.settle())
    return int(answer.error_code)


def abort(broker: RunningBroker, producer: Any) -> None:
    """Abort what is open of a producer in the first partition, as a tool does."""
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": "t", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    broker.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
