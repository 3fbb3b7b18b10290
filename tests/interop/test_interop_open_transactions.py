"""A directory with open, committed and aborted transactions, at Apache Kafka and here in turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.sides import horolog
from confluent_kafka import Consumer, KafkaError, TopicPartition
from moving import strays
from patience import eventually
from raw_connection import RawConnection, produce_fields
from tools.golden.scenarios import QUIET
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST, Kafka

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

pytestmark = pytest.mark.timeout(1800)
TAKE_OVER = {"horolog.take.over": "true"}
_LATER = {14, 15, 16, 51}  # the coordinator is loading, elsewhere, or ends the former transaction


class Producer:
    """A producer of one flow, which continues at whichever broker has the directory."""

    def __init__(self, name: str, flow: int, commits: bool) -> None:
        self.name, self._flow, self._commits = name, flow, commits
        self._id, self._epoch, self._sequence = -1, -1, 0
        self.expected: list[bytes] = []
        """Values that are committed."""
        self._open: list[bytes] = []
        self._offset = 0
        self.committed = -1
        """The offset of its group."""

    def work(self, address: str, turn: str) -> None:
        """End what the broker before has left open; one more of each kind; leave one open."""
        with RawConnection(address) as broker:
            if self._id < 0:
                self._initialise(broker)
            else:
                self._write(broker, f"{turn}: goes on")
                self._end(broker, commit=self._commits)
            for commit in (True, False):
                self._write(broker, f"{turn}: {commit}")
                self._end(broker, commit=commit)
            self._write(broker, f"{turn}: open")

    def _initialise(self, broker: RawConnection) -> None:
        assert eventually(lambda: not self._coordinator(broker))
        answer = self._retried(
            broker,
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id=self.name,
            transaction_timeout_ms=900_000,
        )
        self._id, self._epoch = answer.producer_id, answer.producer_epoch

    def _coordinator(self, broker: RawConnection) -> int:
        codes = [
            broker.ask(ApiKey.FIND_COORDINATOR, 3, key=self.name, key_type=kind).error_code
            for kind in (0, 1)
        ]
        return sum(codes)

    def _retried(self, broker: RawConnection, key: ApiKey, version: int, **fields: Any) -> Any:
        answers: list[Any] = []

        def is_done() -> bool:
            answers.append(broker.ask(key, version, **fields))
            return answers[-1].error_code not in _LATER

        assert eventually(is_done), answers[-1]
        assert answers[-1].error_code == 0, answers[-1]
        return answers[-1]

    def _named(self, prefix: str = "") -> dict[str, Any]:
        named = {"transactional_id": self.name, "producer_id": self._id}
        return {prefix + name: its for name, its in named.items()} | {
            f"{prefix}producer_epoch": self._epoch
        }

    def _write(self, broker: RawConnection, value: str) -> None:
        record = LogRecord(SystemClock().now_ms(), None, f"{self.name}: {value}".encode())
        if self._flow == 1:
            topics = [{"name": self.name, "partitions": [0]}]
            fields = self._named("v3_and_below_") | {"v3_and_below_topics": topics}
            assert eventually(lambda: self._is_added(broker, fields))
        batch = build_batch(
            [record],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        fields = produce_fields(self.name, {0: batch}, acks=-1, transactional_id=self.name)
        assert eventually(lambda: self._is_written(broker, fields))
        self._sequence += 1
        self._open.append(record.value or b"")
        self._offset += 1
        self._commit_offset(broker)

    def _is_added(self, broker: RawConnection, fields: dict[str, Any]) -> bool:
        answer = broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **fields)
        (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert result.partition_error_code in {0, *_LATER}, answer
        return not result.partition_error_code

    def _is_written(self, broker: RawConnection, fields: dict[str, Any]) -> bool:
        answer = broker.ask(ApiKey.PRODUCE, 12 if self._flow == 2 else 11, **fields)
        code = answer.responses[0].partition_responses[0].error_code
        assert code in {0, 3, 6, 19, *_LATER}, answer
        return not code

    def _commit_offset(self, broker: RawConnection) -> None:
        if self._flow == 1:
            self._retried(broker, ApiKey.ADD_OFFSETS_TO_TXN, 3, **self._named(), group_id=self.name)
        offsets = [{"partition_index": 0, "committed_offset": self._offset}]
        fields = {
            **self._named(),
            "group_id": self.name,
            "topics": [{"name": self.name, "partitions": offsets}],
        }

        def is_done() -> bool:
            answer = broker.ask(ApiKey.TXN_OFFSET_COMMIT, 5 if self._flow == 2 else 3, **fields)
            code = answer.topics[0].partitions[0].error_code
            assert code in {0, *_LATER}, answer
            return not code

        assert eventually(is_done)

    def _end(self, broker: RawConnection, *, commit: bool) -> None:
        version = 5 if self._flow == 2 else 3
        answer = self._retried(broker, ApiKey.END_TXN, version, **self._named(), committed=commit)
        if self._flow == 2:
            self._id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0
        if commit:
            self.expected += self._open
            self.committed = self._offset
        self._open = []

    def check(self, address: str) -> None:
        """What is committed is there, and what is open is waited for."""
        with RawConnection(address) as broker:
            assert eventually(lambda: self._is_stable(broker)), self.name
            named = [self.name]
            assert eventually(lambda: self._state(broker, named)[0] == "Ongoing")
            _, partitions = self._state(broker, named)
            assert partitions[self.name] == [0]
            assert "__consumer_offsets" in partitions
            # A Kafka lists nothing while it loads any partition of its states.
            listed = self._retried(broker, ApiKey.LIST_TRANSACTIONS, 1, state_filters=["Ongoing"])
            assert self.name in {its.transactional_id for its in listed.transaction_states}
        with Client(address) as client:
            at = {(self.name, 0): -1}
            assert client.list_offsets(at) != client.list_offsets(at, read_committed=True)
        assert values(address, self.name) == self.expected

    def _is_stable(self, broker: RawConnection) -> bool:
        topics = [{"name": self.name, "partition_indexes": [0]}]
        stable = broker.ask(
            ApiKey.OFFSET_FETCH, 7, group_id=self.name, topics=topics, require_stable=True
        )
        committed = broker.ask(ApiKey.OFFSET_FETCH, 7, group_id=self.name, topics=topics)
        if committed.error_code or stable.error_code:
            return False
        (waits,), (found,) = stable.topics[0].partitions, committed.topics[0].partitions
        return (waits.error_code, found.committed_offset) == (88, self.committed)

    def _state(self, broker: RawConnection, named: list[str]) -> tuple[str, dict[str, list[int]]]:
        answer = broker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=named)
        (its,) = answer.transaction_states
        return its.transaction_state, {each.topic: [*each.partitions] for each in its.topics}


def values(address: str, topic: str) -> list[bytes]:
    """The values that readers of committed records are given, to the last stable offset."""
    settings = {
        "bootstrap.servers": address,
        "group.id": "readers",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        **QUIET,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, found
            if message.error() is None:
                found.append(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
    finally:
        consumer.close()


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize(
    ("peer", "is_made_here", "flows"),
    [
        (NEWEST, True, (1, 2)),
        (NEWEST, False, (1, 2)),
        (LAST_WITH_OLD_FORMATS, False, (1,)),  # it knows no other
    ],
    ids=["ours, 4.4", "4.4", "3.9"],
)
def test_transactions_go_on_at_the_other_broker(
    peer: str, is_made_here: bool, flows: tuple[int, ...], killed: bool, tmp_path: Path
) -> None:
    kafka = Kafka(tmp_path, peer=peer)
    producers = [
        Producer(f"flow{flow}-{'commits' if commits else 'aborts'}", flow, commits)
        for flow in flows
        for commits in (True, False)
    ]
    for turn in range(4):
        is_ours = (turn % 2 == 0) == is_made_here
        name = f"{turn}, {'horolog' if is_ours else 'Kafka'}"
        side = horolog(TAKE_OVER, tmp_path) if is_ours else kafka
        with side as broker:
            if not turn:
                with Client(broker.bootstrap) as client:
                    client.create_topics({each.name: 1 for each in producers})
            for each in producers:
                if turn:
                    each.check(broker.bootstrap)
                each.work(broker.bootstrap, name)
                each.check(broker.bootstrap)
            if killed:
                broker.kill()
        assert strays(kafka.log_dir) == []
