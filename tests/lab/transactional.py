"""Transactions of producers that a test drives request by request."""

from __future__ import annotations

from typing import Any, Protocol

from patience import eventually
from raw_connection import produce_fields
from running_broker import RunningBroker

from horolog.clock import Clock
from horolog.errors import ErrorCode
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey


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
        [LogRecord(now_ms, None, b"v")] * count,
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


class Asked(Protocol):
    """A broker, of whichever product."""

    @property
    def clock(self) -> Clock: ...

    def ask(self, key: ApiKey, version: int, /, **fields: Any) -> Any: ...


_LOADING = (ErrorCode.coordinator_load_in_progress, ErrorCode.not_enough_replicas)
_RETRIED = (ErrorCode.coordinator_load_in_progress, ErrorCode.concurrent_transactions)


class Producer:
    """A producer of one flow, request by request."""

    def __init__(self, broker: Asked, name: str = "x", flow: int = 2) -> None:
        self.broker, self._name, self._flow = broker, name, flow
        fields = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        answer: Any = None

        def is_answered() -> bool:
            nonlocal answer
            answer = broker.ask(ApiKey.INIT_PRODUCER_ID, 4, **fields)
            return answer.error_code not in _RETRIED  # as clients do

        eventually(is_answered)
        assert answer.error_code == 0, answer
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences: dict[str, int] = {}

    def send(self, topic: str) -> int:
        """Write a record; the error code."""
        code = 0

        def is_taken() -> bool:
            nonlocal code
            code = self._send(topic)
            return code not in _LOADING

        eventually(is_taken)
        return code

    def _send(self, topic: str) -> int:
        if self._flow == 1:
            code = self._add(topic)
            if code:
                return code
        sequence = self._sequences.get(topic, 0)
        record = LogRecord(self.broker.clock.now_ms(), None, b"v")
        batch = build_batch(
            [record],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        fields = produce_fields(topic, {0: batch}, acks=-1, transactional_id=self._name)
        version = 12 if self._flow == 2 else 11
        (answer,) = self.broker.ask(ApiKey.PRODUCE, version, **fields).responses
        code = int(answer.partition_responses[0].error_code)
        self._sequences[topic] = sequence + (not code)
        return code

    def _add(self, topic: str) -> int:
        answer = self.broker.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": [0]}],
        )
        (found,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        return int(found.partition_error_code)

    def commit_offset(self, group: str, topic: str, offset: int) -> int:
        """Commit an offset of a group in the transaction; the error code."""
        of_producer = {
            "transactional_id": self._name,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "group_id": group,
        }
        if self._flow == 1:
            code = int(self.broker.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **of_producer).error_code)
            if code:
                return code
        partitions = [{"partition_index": 0, "committed_offset": offset}]
        answer = self.broker.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            5 if self._flow == 2 else 3,
            **of_producer,
            topics=[{"name": topic, "partitions": partitions}],
        )
        return int(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool = True) -> int:
        answer = self.broker.ask(
            ApiKey.END_TXN,
            5 if self._flow == 2 else 3,
            transactional_id=self._name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        if not answer.error_code and self._flow == 2:
            self.id, self.epoch, self._sequences = answer.producer_id, answer.producer_epoch, {}
        return int(answer.error_code)
