"""Random histories of a topic with the list of records that every reader must give.

`History(broker, rng)` creates the topics `t` (deletes) and `c` (compacts), each with three
partitions of which the last stays empty, and `steps` changes them: batches of every codec,
transactions, DeleteRecords inside batches, rolls, compaction, clocks set back, append times reset,
topics deleted and created again, restarts and kills.
The list is made from what was sent and from what the broker answered, never from a reader.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from batches import ODD_TIMES
from pyspark.sql.datasource import Filter
from raw_connection import produce_fields
from running_broker import ANY_TIME, Asked
from spark_filters import satisfies, shown, some_filters
from storelogs import records_in

from horolog.clock import ManualClock
from horolog.errors import ErrorCode
from horolog.record import (
    INT64_MAX,
    INT64_MIN,
    NO_TIMESTAMP,
    Codec,
    LogRecord,
    build_batch,
    iter_headers,
    read_records,
)
from horolog.sources import columns
from horolog.storage import LogDir
from horolog.wire import ApiKey

HOUR_MS = 3_600_000
PARTITIONS = 3
EMPTY = 2
"""The partition that nothing is sent to."""

RETRIED = (
    ErrorCode.not_enough_replicas,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.concurrent_transactions,
)

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass
class Transaction:
    """A transaction of one producer; `is_committed` is None while it is open."""

    is_committed: bool | None = None
    first_offsets: dict[tuple[str, int], int] = field(default_factory=dict)


class Row(NamedTuple):
    """A record as every reader must give it."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    append_ms: int


class Question(NamedTuple):
    """What a read asks for: ranges of both clocks, of offsets, the isolation level, filters."""

    topic: str = "t"
    read_committed: bool = False
    from_ms: int | None = None
    to_ms: int | None = None
    from_append_ms: int | None = None
    to_append_ms: int | None = None
    starts: tuple[tuple[int, int], ...] = ()
    ends: tuple[tuple[int, int], ...] = ()
    filters: tuple[Filter, ...] = ()


class _Producer:
    """A transactional producer that is driven request by request."""

    def __init__(self, broker: Asked, name: str) -> None:
        fields = {"transactional_id": name, "transaction_timeout_ms": 900_000}
        answer = _loaded(broker, ApiKey.INIT_PRODUCER_ID, 4, fields)
        assert answer.error_code == 0, answer
        self.name, self.id, self.epoch = name, answer.producer_id, answer.producer_epoch
        self.sequences: dict[tuple[str, int], int] = {}
        self.transaction = Transaction()


class History:
    """A broker, what was done to it, and the records that are left. See the module."""

    def __init__(self, broker: Any, rng: random.Random) -> None:
        """`broker` is a `RunningBroker`; or another that has of it what the steps need."""
        self.broker, self.rng = broker, rng
        self.sent: dict[tuple[str, int], list[tuple[Row, Transaction | None]]] = {}
        self.log_starts: dict[tuple[str, int], int] = {}
        self._floors: dict[tuple[str, int], int] = {}
        self._producers: list[_Producer] = []
        stamps = rng.choice(("CreateTime", "CreateTime", "LogAppendTime"))
        self._stamps = {"t": stamps == "LogAppendTime", "c": False}
        size = str(rng.choice((12_000, 12_000, 1 << 20)))
        interval = str(rng.choice((0, 300, 4096)))
        common = {**ANY_TIME, "segment_bytes": size, "index_interval_bytes": interval}
        compacts = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
        self._settings = {
            "t": {**common, "message_timestamp_type": stamps},
            "c": {**common, **compacts, "delete_retention_ms": "0"},
        }
        for topic in "tc":
            self._create(topic)

    # What happens.

    def steps(self, count: int) -> None:
        """Let this many things happen."""
        chances = {
            self.send: 10,
            self.send_in_transaction: 8,
            self.end_transaction: 4,
            self.delete_records: 1,
            self.roll: 4,
            self.pass_time: 4,
            self.compact: 1,
            self.restart: 0.4,
            self.create_again: 0.3,
            self.reset_append_times: 0.5,
        }
        for step in self.rng.choices(list(chances), list(chances.values()), k=count):
            step()
        self.compact()  # what a start has begun is then done
        self._write_starts()

    def send(self) -> None:
        """Send one batch without a producer id."""
        at, records = self._place(), self._records()
        data = build_batch(records, codec=self.rng.choice(tuple(Codec)))
        answer = self.broker.produce(at[0], data, at[1])
        assert answer.error_code == 0, answer
        self._sent(at, answer, records, None)

    def send_in_transaction(self) -> None:
        """Send one batch of a transaction of one of three producers."""
        if len(self._producers) < 3:
            self._producers.append(_Producer(self.broker, f"x{len(self._producers)}"))
        producer = self.rng.choice(self._producers)
        at, records = self._place(), self._records()
        data = build_batch(
            records,
            codec=self.rng.choice(tuple(Codec)),
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequences.get(at, 0),
            is_transactional=True,
        )
        more = {"acks": -1, "transactional_id": producer.name}
        fields = produce_fields(at[0], {at[1]: data}, **more)
        appended = None
        while appended is None or appended.error_code in RETRIED:
            (answer,) = self.broker.ask(ApiKey.PRODUCE, 12, **fields).responses
            appended = answer.partition_responses[0]
        assert appended.error_code == 0, appended
        producer.sequences[at] = producer.sequences.get(at, 0) + len(records)
        producer.transaction.first_offsets.setdefault(at, appended.base_offset)
        self._sent(at, appended, records, producer.transaction)

    def end_transaction(self) -> None:
        """Commit or abort what is open of one producer."""
        open_ones = [each for each in self._producers if each.transaction.first_offsets]
        if not open_ones:
            return
        producer = self.rng.choice(open_ones)
        is_committed = self.rng.random() < 0.5
        fields = {
            "transactional_id": producer.name,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "committed": is_committed,
        }
        answer = _loaded(self.broker, ApiKey.END_TXN, 5, fields)
        assert answer.error_code == 0, answer
        producer.id, producer.epoch, producer.sequences = (
            answer.producer_id,
            answer.producer_epoch,
            {},
        )
        ended, producer.transaction = producer.transaction, Transaction()
        ended.is_committed = is_committed
        self._settle()
        for at in ended.first_offsets:
            self._append_time(at)  # of the marker

    def delete_records(self) -> None:
        """Move a log start forward, often into a batch, or behind an open transaction's begin."""
        topic, partition = at = "t", self.rng.randrange(EMPTY)
        rows = [row for row, _ in self.sent[at]]
        if rows:
            offset = max(self.rng.choice(rows).offset, self.log_starts[at])
            self.broker.delete_records(topic, offset, partition)
            self.log_starts[at] = offset

    def roll(self, topic: str | None = None) -> None:
        """Begin a segment."""
        name, partition = self._place()
        topic = topic or name
        if self.broker.log(topic, partition).segments[-1].size:
            self.broker.roll(topic, partition)

    def pass_time(self) -> None:
        """Move the clock: mostly forward, sometimes back."""
        step = self.rng.choice((1, 7, 1_000, HOUR_MS, -5_000))
        assert isinstance(self.broker.clock, ManualClock)
        self.broker.clock.step(step)

    def compact(self) -> None:
        """Clean the compacted topic; what is left is the list from then on."""
        self.broker.run(self.broker.broker.cleaner.clean_all())
        for partition in range(PARTITIONS):
            records = records_in(self.broker.log("c", partition))
            self._take_left(("c", partition), {each.offset for each in records})

    def create_again(self) -> None:
        """Delete a topic, perhaps beneath open transactions, and create one of the same name."""
        topic = self.rng.choice("tc")
        self.broker.client.delete_topics([topic])
        self._create(topic)

    def reset_append_times(self) -> None:
        """Let append times of a topic go on from the clock, where it was set back."""
        topic = self.rng.choice("tc")
        self.broker.client.topics.reset_append_times(topic)
        for partition in range(PARTITIONS):
            at = (topic, partition)
            if at in self._floors:
                self._floors[at] = min(self._floors[at], self._now_ms())

    def take_compacted(self, log_dir: Path) -> None:
        """What is left in a copy whose partitions were all compacted is the list from then on."""
        for (topic, partition), start in self.log_starts.items():
            logs = sorted((log_dir / f"{topic}-{partition}").glob("*.log"))
            data = b"".join(path.read_bytes() for path in logs)
            batches = [data[at : at + each.size] for at, each in iter_headers(data)]
            left = {
                record.offset
                for batch in batches
                for record in read_records(batch)
                if (record.offset or 0) >= start
            }
            self._take_left((topic, partition), left)

    def restart(self) -> None:
        """Stop and start again, cleanly or not."""
        self._write_starts()
        self.broker.restart(crash=self.rng.random() < 0.5)

    def _settle(self) -> None:
        """Wait for the markers of a transaction."""
        self.broker.run(self.broker.broker.transactions.settle())

    def _write_starts(self) -> None:
        """Write down log starts, as each minute: a kill loses others, and files lack them."""
        self.broker.run(self.broker.broker.partitions.run(LogDir.checkpoint_starts))

    def _take_left(self, at: tuple[str, int], left: set[int | None]) -> None:
        """Take these offsets to be left: among them the last committed record of each key."""
        last: dict[bytes | None, Row] = {}
        for row, transaction in self.sent[at]:
            if transaction is None or transaction.is_committed:
                last[row.key] = row
        kept = [row.offset for row in last.values() if row.value is not None]
        missing = [each for each in kept if each not in left and each >= self.log_starts[at]]
        assert not missing, missing
        self.sent[at] = [pair for pair in self.sent[at] if pair[0].offset in left]

    def _create(self, topic: str) -> None:
        self.broker.create_topic(topic, PARTITIONS, **self._settings[topic])
        for partition in range(PARTITIONS):
            at = (topic, partition)
            self.sent[at], self.log_starts[at] = [], 0
            self._floors.pop(at, None)
            for producer in self._producers:
                producer.sequences.pop(at, None)
                producer.transaction.first_offsets.pop(at, None)

    # What was sent.

    def _place(self) -> tuple[str, int]:
        return self.rng.choice("ttc"), self.rng.randrange(EMPTY)

    def _records(self) -> list[LogRecord]:
        rng, now_ms = self.rng, self._now_ms()

        def created() -> int:
            if rng.random() < 0.05:
                return rng.choice(ODD_TIMES)
            return now_ms - rng.choice((0, 0, 1, 500, 3 * HOUR_MS)) + rng.randrange(3)

        return [
            LogRecord(
                created(),
                b"key-%d" % rng.randrange(6),
                None if rng.random() < 0.05 else rng.randbytes(rng.choice((0, 5, 40, 300))),
                (("trace", b"1"), ("trace", None)) if rng.random() < 0.1 else (),
            )
            for _ in range(rng.choice((1, 1, 2, 7, 30)))
        ]

    def _append_time(self, at: tuple[str, int]) -> int:
        now_ms = self._now_ms()
        self._floors[at] = max(now_ms, self._floors.get(at, now_ms))
        return self._floors[at]

    def _now_ms(self) -> int:
        now_ms: int = self.broker.clock.now_ms()
        return now_ms

    def _sent(
        self,
        at: tuple[str, int],
        answer: Any,
        records: list[LogRecord],
        transaction: Transaction | None,
    ) -> None:
        append_ms, stamps = self._append_time(at), self._stamps[at[0]]
        if stamps and not isinstance(self.broker.clock, ManualClock):
            append_ms = answer.log_append_time_ms
        for offset, record in enumerate(records, answer.base_offset):
            time_ms = append_ms if stamps else record.timestamp
            row = Row(
                at[1],
                offset,
                time_ms,
                int(stamps),
                record.key,
                record.value,
                record.headers,
                append_ms,
            )
            self.sent[at].append((row, transaction))

    def _open_first_offset(self, at: tuple[str, int]) -> int | None:
        offsets = [
            each.transaction.first_offsets[at]
            for each in self._producers
            if at in each.transaction.first_offsets
        ]
        return min(offsets, default=None)

    def _open_first_offset_of_copy(self, at: tuple[str, int]) -> int | None:
        offsets = [
            row.offset
            for row, transaction in self.sent[at]
            if transaction is not None and transaction.is_committed is None
        ]
        return min((each for each in offsets if each >= self.log_starts[at]), default=None)

    # What readers must give.

    def expected(
        self, question: Question, *, stable: bool = True, of_copy: bool = False
    ) -> list[Row]:
        """The records that answer a question, in order of partition and offset.

        Unless only `stable`, also what is committed behind the begin of an open transaction.

        A copy has the log from its start on (`of_copy`). So a transaction that began before begins
        there with its first record in the copy, and holds up no committed read if it has none.
        """
        found = []
        starts, ends = dict(question.starts), dict(question.ends)
        for partition in range(PARTITIONS):
            at = (question.topic, partition)
            is_limited = question.read_committed and stable
            begin = self._open_first_offset_of_copy if of_copy else self._open_first_offset
            stable_end = begin(at) if is_limited else None
            first = max(self.log_starts[at], starts.get(partition, 0))
            limits = [each for each in (stable_end, ends.get(partition)) if each is not None]
            end = min(limits, default=INT64_MAX)
            for row, transaction in self.sent[at]:
                is_shown = (
                    not question.read_committed or transaction is None or transaction.is_committed
                )
                is_in_time = _within(
                    row.timestamp_ms, question.from_ms, question.to_ms, none=NO_TIMESTAMP
                ) and _within(row.append_ms, question.from_append_ms, question.to_append_ms)
                is_kept = is_shown and is_in_time and _is_left(question, row)
                if first <= row.offset < end and is_kept:
                    found.append(row)
        return found

    def question(self, topic: str | None = None) -> Question:
        """A random question whose bounds are near what is there."""
        rng = self.rng
        topic = topic or rng.choice("ttc")
        rows = [row for (name, _), each in self.sent.items() for row, _ in each if name == topic]
        asked: dict[str, Any] = {"topic": topic, "read_committed": rng.random() < 0.5}
        for first, last, times in (
            ("from_ms", "to_ms", [row.timestamp_ms for row in rows]),
            ("from_append_ms", "to_append_ms", [row.append_ms for row in rows]),
        ):
            if times and rng.random() < 0.4:
                near = [rng.choice(times) + rng.choice((0, 0, 1)) for _ in range(2)]
                bounds = sorted(min(INT64_MAX, max(INT64_MIN + 1, each)) for each in near)
                asked |= {first: bounds[0]} if rng.random() < 0.8 else {}
                asked |= {last: bounds[1]} if rng.random() < 0.8 else {}
        for name in ("starts", "ends"):
            if rng.random() < 0.3:
                asked[name] = tuple(self._bounds(topic, read_committed=asked["read_committed"]))
        starts, ends = dict(asked.get("starts", ())), dict(asked.get("ends", ()))
        if any(starts.get(partition, 0) > end for partition, end in ends.items()):
            asked.pop("starts")
        if rows:
            asked["filters"] = some_filters(rng, [_columns_of(topic, row) for row in rows])
        return Question(**asked)

    def _bounds(self, topic: str, *, read_committed: bool) -> Iterable[tuple[int, int]]:
        """An offset for each partition: of a record that can be read, or the log start."""
        for partition in range(PARTITIONS):
            at = (topic, partition)
            start, stable_end = self.log_starts[at], self._open_first_offset(at)
            rows = [row.offset for row, _ in self.sent[at] if row.offset >= start]
            if read_committed and stable_end is not None:
                rows = [offset for offset in rows if offset < stable_end]
            yield partition, self.rng.choice(rows or [start])


def _is_left(question: Question, row: Row) -> bool:
    if not question.filters:
        return True
    shown_row = _columns_of(question.topic, row)
    return all(satisfies(shown_row, condition) for condition in question.filters)


def _columns_of(topic: str, row: Row) -> dict[str, Any]:
    """The columns that filters can be on."""
    return {
        columns.TOPIC: topic,
        columns.PARTITION: row.partition,
        columns.OFFSET: row.offset,
        columns.KEY: row.key,
        columns.VALUE: row.value,
        columns.TIMESTAMP: shown(row.timestamp_ms),
        columns.TIMESTAMP_MS: row.timestamp_ms,
        columns.TIMESTAMP_TYPE: row.timestamp_type,
        columns.APPEND_TIME: shown(row.append_ms),
        columns.APPEND_TIME_MS: row.append_ms,
    }


def _loaded(broker: Asked, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
    """The answer of a coordinator once it has loaded its partition; clients retry as well."""
    while True:
        answer = broker.ask(key, version, **fields)
        if answer.error_code not in RETRIED:
            return answer


def _within(ms: int, first: int | None, end: int | None, none: int | None = None) -> bool:
    if first is None and end is None:
        return True
    return ms != none and (first is None or ms >= first) and (end is None or ms < end)
