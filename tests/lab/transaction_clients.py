"""Clients in processes of their own that write in transactions until they are killed.

    python transaction_clients.py '{"kind": "producer", "address": "...", ...}'

`producer` is librdkafka's, which speaks the first flow of KIP-890; `second` speaks the second flow
request by request; `transformer` consumes in a group, and produces and commits in transactions.

Each writes a journal, a line at once, so that what it did is known whenever it is killed:

    intent T    it is about to commit the transaction T, with these records
    ok T        the commit was answered
    aborted T   the abort was answered

A value is `T place`, and T is `name.life.number`: the name is the transactional id, and a life is
one process. What is not in the journal with an intent must never be read.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
from raw_connection import RawConnection, produce_fields

from horolog.clock import SystemClock
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

INPUT, OUTPUT, COMPACTED, TRIMMED = "in", "out", "compacted", "trimmed"
PARTITIONS = {INPUT: 3, OUTPUT: 3, COMPACTED: 2, TRIMMED: 2}
KEYS = 5
GROUP = "transformers"
STUCK_S = 5
FENCED = 3  # exit code of one that has to begin again

Sent = list[tuple[str, int, str | None]]
"""Topic, partition and key of the records of a transaction, in order."""


class Journal:
    """Lines that outlive a kill of this process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, event: str, transaction: str, sent: Sent | None = None) -> None:
        line = json.dumps({"event": event, "transaction": transaction, "sent": sent or []})
        os.write(self._file, line.encode() + b"\n")


class Work:
    """What all kinds have: an order, a journal, and when to stop."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.address: str = order["address"]
        self.name: str = order["name"]
        self.life: int = order["life"]
        self.timeout_ms: int = order["timeout_ms"]
        self.rng = random.Random(order["seed"])
        self.journal = Journal(order["journal"])
        self.is_over = False
        self._number = 0
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.is_over = True

    def transactions(self) -> Iterator[str]:
        while not self.is_over:
            # librdkafka waits for ever for the answer to a TxnOffsetCommit that a broker took with
            # it: whatever time its caller gives, and however often the next broker is asked.
            signal.alarm(STUCK_S)
            yield f"{self.name}.{self.life}.{self._number}"
            self._number += 1

    def draw(self) -> Sent:
        """The records of a transaction: over several partitions of several topics."""
        sent: Sent = []
        for topic, least, most in ((INPUT, 1, 6), (COMPACTED, 0, 3), (TRIMMED, 0, 3)):
            for _ in range(self.rng.randint(least, most)):
                key = self.rng.randrange(KEYS)
                partition = self.rng.randrange(PARTITIONS[topic])
                if topic == COMPACTED:
                    partition = key % PARTITIONS[topic]
                sent.append((topic, partition, f"{self.name}-{key}"))
        return sent

    def value(self, transaction: str, place: int) -> bytes:
        return b"%s %d %s" % (transaction.encode(), place, b"x" * self.rng.randrange(120))

    @property
    def commits(self) -> bool:
        return self.rng.random() < 0.75

    def pause(self) -> None:
        """Now and then a transaction is open for a while, and rarely for longer than it may be."""
        draw = self.rng.random()
        if draw < 0.02:
            time.sleep(self.timeout_ms / 1000 * 1.5)
        elif draw < 0.3:
            time.sleep(self.rng.random() * 0.05)


# --- the first flow: librdkafka ---------------------------------------------------------------


def quick(**more: Any) -> dict[str, Any]:
    return {
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 20,
        "log_level": 0,
        **more,
    }


class Transactional:
    """librdkafka's producer; an error that nothing but another producer helps ends the process."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._producer = confluent_kafka.Producer(
            quick(
                **{
                    "bootstrap.servers": work.address,
                    "transactional.id": work.name,
                    "transaction.timeout.ms": work.timeout_ms,
                    "linger.ms": 1,
                    "batch.num.messages": 4,
                }
            )
        )
        self._persist(lambda: self._producer.init_transactions(5))

    def _persist(self, call: Callable[[], object]) -> bool:
        """Call until it is answered; whether the transaction continues."""
        while True:
            try:
                call()
            except (confluent_kafka.KafkaException, SystemError) as failure:
                # `_stop` that a signal runs while an error is about to be raised hides it.
                cause = failure.__cause__ if isinstance(failure, SystemError) else failure
                if not isinstance(cause, confluent_kafka.KafkaException):
                    raise
                error = cause.args[0]
                if error.txn_requires_abort():
                    return False
                if not error.retriable():
                    sys.stderr.write(f"{self._work.name}: {error}\n")
                    os._exit(FENCED)
            else:
                return True

    def begin(self) -> None:
        if not self._persist(self._producer.begin_transaction):
            os._exit(FENCED)

    def send(self, topic: str, partition: int, key: str | None, value: bytes) -> None:
        try:
            self._producer.produce(topic, value, key, partition)
        except confluent_kafka.KafkaException as failure:
            # The transaction has failed already: its end says how.
            if failure.args[0].code() != confluent_kafka.KafkaError._STATE:
                raise

    def flush(self) -> None:
        self._producer.flush(1)

    def send_offsets(self, offsets: Any, metadata: Any) -> bool:
        return self._persist(
            lambda: self._producer.send_offsets_to_transaction(offsets, metadata, 5)
        )

    def end(self, transaction: str, sent: Sent, *, commit: bool) -> bool:
        """Commit or abort; whether it is committed."""
        journal = self._work.journal
        if commit:
            journal.note("intent", transaction, sent)
            if self._persist(lambda: self._producer.commit_transaction(5)):
                journal.note("ok", transaction)
                return True
        if not self._persist(lambda: self._producer.abort_transaction(5)):
            os._exit(FENCED)
        journal.note("aborted", transaction)
        return False


def produce(work: Work) -> None:
    producer = Transactional(work)
    for transaction in work.transactions():
        sent = work.draw()
        producer.begin()
        for place, (topic, partition, key) in enumerate(sent):
            producer.send(topic, partition, key, work.value(transaction, place))
            if place == 1:
                producer.flush()
        work.pause()
        producer.end(transaction, sent, commit=work.commits)


def transform(work: Work) -> None:
    """Write a record for each one that is read, in the same partition, with its offset."""
    producer = Transactional(work)
    consumer = confluent_kafka.Consumer(
        quick(
            **{
                "bootstrap.servers": work.address,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 2000,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 50,
            }
        )
    )
    consumer.subscribe([INPUT])
    for transaction in work.transactions():
        try:
            messages = consumer.consume(work.rng.randint(1, 20), 0.2)
        except confluent_kafka.KafkaException:
            continue
        read = [message for message in messages if message.error() is None]
        if not read:
            continue
        producer.begin()
        sent: Sent = []
        offsets: dict[int, int] = {}
        for message in read:
            partition, offset = message.partition(), message.offset()
            value = b"%d %s" % (offset, message.value())
            producer.send(OUTPUT, partition, None, value)
            sent.append((OUTPUT, partition, None))
            offsets[partition] = offset + 1
        work.pause()
        positions = [confluent_kafka.TopicPartition(INPUT, p, o) for p, o in offsets.items()]
        is_sent = producer.send_offsets(positions, consumer.consumer_group_metadata())
        commit = is_sent and work.rng.random() < 0.85
        if producer.end(transaction, sent, commit=commit):
            continue
        # What was read is to be read again: from what the group has committed.
        assigned = consumer.assignment()
        while not work.is_over:
            try:
                committed = consumer.committed(assigned, 2)
                for each in committed:
                    each.offset = max(each.offset, 0)
                    consumer.seek(each)
            except confluent_kafka.KafkaException:
                if {*map(_key, consumer.assignment())} != {*map(_key, assigned)}:
                    break  # whoever has them now asks for what is committed
                consumer.poll(0)
            else:
                break
    consumer.close()


def _key(partition: Any) -> tuple[str, int]:
    return partition.topic, partition.partition


# --- the second flow, request by request --------------------------------------------------------

_AGAIN = frozenset({3, 5, 6, 7, 13, 14, 15, 16, 19, 20, 28, 51, 56})
_LOST = frozenset({47, 48, 49, 59, 67, 90})


class Fenced(Exception):
    """Only another producer continues."""


class Aborted(Exception):
    """The transaction can only be aborted."""


class SecondFlow:
    """The second flow of KIP-890: partitions are added by writing, and each end bumps the epoch."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._clock = SystemClock()
        self._link: RawConnection | None = None
        self._sequences: dict[tuple[str, int], int] = {}
        answer = self._ask(
            "INIT_PRODUCER_ID",
            5,
            transactional_id=work.name,
            transaction_timeout_ms=work.timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        self._id, self._epoch = answer.producer_id, answer.producer_epoch

    def _ask(
        self, name: str, version: int, code: Callable[[Any], int] = lambda a: a.error_code, **f: Any
    ) -> Any:
        """Ask until there is an answer that is one."""
        while True:
            try:
                if self._link is None:
                    self._link = RawConnection(self._work.address, 10)
                answer = self._link.ask(ApiKey[name], version, **f)
            except OSError:
                if self._link is not None:
                    self._link.socket.close()
                    self._link = None
                time.sleep(0.02)
                continue
            found = int(code(answer))
            if not found:
                return answer
            if found in _AGAIN:
                time.sleep(0.01)
                continue
            if found in _LOST:
                raise Fenced(f"{name}: error {found}")
            if found == 120:
                raise Aborted
            raise AssertionError(f"{name}: error {found}")

    def send(self, topic: str, partition: int, records: list[tuple[str | None, bytes]]) -> None:
        sequence = self._sequences.get((topic, partition), 0)
        batch = build_batch(
            [
                LogRecord(self._clock.now_ms(), None if key is None else key.encode(), value)
                for key, value in records
            ],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        self._ask(
            "PRODUCE",
            12,
            lambda a: a.responses[0].partition_responses[0].error_code,
            **produce_fields(topic, {partition: batch}, acks=-1, transactional_id=self._work.name),
        )
        self._sequences[topic, partition] = sequence + len(records)

    def commit_offset(self, group: str, offset: int) -> None:
        offsets = [{"partition_index": 0, "committed_offset": offset}]
        self._ask(
            "TXN_OFFSET_COMMIT",
            5,
            lambda a: a.topics[0].partitions[0].error_code,
            transactional_id=self._work.name,
            group_id=group,
            producer_id=self._id,
            producer_epoch=self._epoch,
            topics=[{"name": INPUT, "partitions": offsets}],
        )

    def end(self, *, commit: bool) -> None:
        answer = self._ask(
            "END_TXN",
            5,
            transactional_id=self._work.name,
            producer_id=self._id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()


def group_of(name: str) -> str:
    """Where a producer of the second flow commits the number of its last transaction."""
    return f"of-{name}"


def produce_in_second_flow(work: Work) -> None:
    producer = SecondFlow(work)
    for transaction in work.transactions():
        sent = work.draw()
        try:
            for place, (topic, partition, key) in enumerate(sent):
                producer.send(topic, partition, [(key, work.value(transaction, place))])
            _, life, number = transaction.split(".")
            producer.commit_offset(group_of(work.name), int(life) * 1_000_000 + int(number))
            work.pause()
            if work.commits:
                work.journal.note("intent", transaction, sent)
                producer.end(commit=True)
                work.journal.note("ok", transaction)
            else:
                producer.end(commit=False)
                work.journal.note("aborted", transaction)
        except Aborted:
            producer.end(commit=False)
            work.journal.note("aborted", transaction)


KINDS = {"producer": produce, "second": produce_in_second_flow, "transformer": transform}


def main() -> None:
    """Work as the first argument says."""
    order = json.loads(sys.argv[1])
    try:
        KINDS[order["kind"]](Work(order))
    except Fenced as error:
        sys.stderr.write(f"{order['name']}: {error}\n")
        sys.exit(FENCED)


if __name__ == "__main__":
    main()
