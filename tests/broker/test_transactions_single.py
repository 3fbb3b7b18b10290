"""Requests of transactions of one partition, with and without being decoded by their schema."""

from __future__ import annotations

import itertools
import struct
from typing import Any, NamedTuple

import pytest
from dispatched_client import DispatchedClient, without_decoding
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from raw_connection import encoded, produce_fields
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.network import Hangup, Peer
from horolog.record import LogRecord, build_batch
from horolog.record.scan import load_kernels
from horolog.wire import ApiKey, request_prefix

PRODUCE, END, ADD = ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.ADD_PARTITIONS_TO_TXN
_NUMBERS = itertools.count()


class Step(NamedTuple):
    """A request of a producer, who may have forgotten, or made up, where it is."""

    key: ApiKey
    version: int
    partition: int = 0
    is_transactional: bool = True
    commits: bool = True
    epoch: int = 0
    sequence: int = 0
    is_known: bool = True


steps = st.builds(
    Step,
    st.sampled_from([PRODUCE, PRODUCE, END, ADD]),
    st.sampled_from([0, 2, 5, 7, 9, 11, 12, 13]),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([True, True, False]),
    st.sampled_from([0, 0, 0, 1, -1]),
    st.sampled_from([0, 0, 0, 1, -1]),
    st.sampled_from([True, True, True, True, False]),
)


class Producer(DispatchedClient):
    """A transactional id of one letter at a broker, and the topic that it writes to."""

    def __init__(self, broker: RunningBroker, name: str, *, shortcut: bool = True) -> None:
        super().__init__(broker, shortcut=shortcut)
        self.name = name
        broker.create_topic(name, partitions=2)
        fields = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        answer = broker.ask(ApiKey.INIT_PRODUCER_ID, 4, **fields)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.first_id = self.producer_id
        self.sequences = {0: 0, 1: 0, 2: 0}
        self.forget()

    def forget(self) -> None:
        """Begin with sequence 0 again, as in a new epoch."""
        self.sequences = dict.fromkeys(self.sequences, 0)

    def take(self, step: Step) -> Any:
        """The answer without what differs between two producers."""
        answered = self.give(self.frame(step))
        if isinstance(answered, str):
            return answered.replace(self.name, "T")
        assert answered is not None
        if step.key is END and min(step.version, 5) == 5:
            _, error, producer_id, epoch, _ = struct.unpack_from(">ihqhB", answered, 9)
            if not error:
                self.forget()
                self.producer_id, self.epoch = producer_id, epoch
        topic = self.broker.broker.topics.named(self.name)
        for mine, common in (
            (self.name.encode(), b"T"),
            (topic.topic_id.bytes, b"I"),
            (struct.pack(">q", self.first_id), b"P"),
            (str(self.first_id).encode(), b"P"),
        ):
            answered = answered.replace(mine, common)
        return answered

    def frame(self, step: Step) -> bytes:
        """The request of a step, without its length."""
        name = self.name if step.is_known else "?" * len(self.name)
        producer = self.producer_id, self.epoch + step.epoch
        if step.key is END:
            version = min(step.version, 5)
            fields: dict[str, Any] = {
                "transactional_id": name,
                "producer_id": producer[0],
                "producer_epoch": producer[1],
                "committed": step.commits,
            }
        elif step.key is ADD:
            version = min(step.version, 2)
            fields = {
                "v3_and_below_transactional_id": name,
                "v3_and_below_producer_id": producer[0],
                "v3_and_below_producer_epoch": producer[1],
                "v3_and_below_topics": [{"name": self.name, "partitions": [step.partition]}],
            }
        else:
            version = max(step.version, 3)
            sequence = max(0, self.sequences[step.partition] + step.sequence)
            self.sequences[step.partition] += 1
            batch = build_batch(
                [LogRecord(NOW_MS, None, b"v")],
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=sequence,
                is_transactional=step.is_transactional,
            )
            topic = self.broker.broker.topics.named(self.name)
            fields = produce_fields(
                topic.topic_id if version >= 13 else self.name,
                {step.partition: batch},
                acks=-1,
                transactional_id=name,
            )
        body = encoded(step.key, version, fields)
        return request_prefix(step.key, version, 5, "me", len(body))[4:] + body

    def log(self) -> list[bytes]:
        """The logs of both partitions without the producer id."""
        found = []
        for index in (0, 1):
            log = self.broker.log(self.name, index)
            data = b"".join(
                self.broker.log_dir.joinpath(each.log.path).read_bytes() for each in log.segments
            )
            batches = []
            while data:
                (length,) = struct.unpack_from(">i", data, 8)
                batch, data = bytearray(data[: 12 + length]), data[12 + length :]
                batch[17:21] = bytes(4)  # the checksum, which the producer id is in
                batch[43:51] = bytes(8)
                batches.append(bytes(batch))
            found += batches
        return found


broker = a_broker(scope="module", prepare=lambda _: load_kernels())


@examples(1)
@given(asked=st.lists(steps, min_size=3, max_size=25))
def test_a_producer_with_the_shortcuts_gets_the_same_answers_and_leaves_the_same_logs(
    broker: RunningBroker, asked: list[Step]
) -> None:
    number = next(_NUMBERS)
    sides = (
        Producer(broker, f"x-{number:06}"),
        Producer(broker, f"y-{number:06}", shortcut=False),
    )
    for step in asked:
        one, other = (side.take(step) for side in sides)
        assert one == other, step
        broker.run(broker.broker.transactions.settle())
    assert sides[0].log() == sides[1].log()
    for side in sides:
        side.close()


@pytest.mark.parametrize("flow", [1, 2])
def test_a_transaction_of_one_partition_is_not_decoded(
    broker: RunningBroker, flow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(broker, f"flow-{flow}")
    without_decoding(monkeypatch)
    for _ in range(3):
        if flow == 1:
            assert producer.take(Step(ADD, 0)).endswith(b"\0\0")
        assert b"T" in producer.take(Step(PRODUCE, 12 if flow == 2 else 10))
        producer.take(Step(END, 5 if flow == 2 else 1))
    broker.run(broker.broker.transactions.settle())
    assert len(producer.log()) == 6  # each with its marker
    producer.close()


@pytest.mark.parametrize("key", [PRODUCE, END, ADD])
def test_they_are_authorised_as_any_other(broker: RunningBroker, key: ApiKey) -> None:
    def authorise(peer: Peer, asked: ApiKey) -> None:
        assert asked is key
        raise Hangup("You may not")

    producer = Producer(broker, f"refused-{key}")
    frame = producer.frame(Step(key, 5))
    refused = DispatchedClient(broker, authorise=authorise)
    assert refused.give(frame) == "Hangup: You may not"
    producer.close()
    refused.close()
