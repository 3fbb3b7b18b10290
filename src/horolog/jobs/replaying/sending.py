"""Sends what is due in batches, and keeps how far it is.

A batch of what is due is written to the state before it is sent, and carries a producer id and
sequences of the replay. After a kill it is read and sent again as it was: a target that has it
drops the repeat (KIP-98).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from horolog.client import Client, Produced
from horolog.client.appends import ProducerId
from horolog.clock import HOUR_MS, Clock
from horolog.errors import Misconfigured, StorageFailed
from horolog.jobs.replaying.merging import BEFORE_ALL, Due
from horolog.jobs.state import DocumentsOnly, JobState
from horolog.record.batch import next_sequence
from horolog.record.builder import Record, build_batch
from horolog.record.compression import Codec
from horolog.record.partitioning import partition_of_key
from horolog.storage.names import TopicPartition

TICK_MS: Final = 10
"""What is due within it is sent together."""
MAX_BYTES: Final = 500_000
"""Of what is sent together: well below max.message.bytes, 1 MiB by default."""
MAX_RECORDS: Final = 5_000
_PER_RECORD = 32
_PROGRESS = "progress"


class Pace:
    """When records are due: their first one now, the others after their recorded intervals."""

    def __init__(self, clock: Clock, speed: float | None, max_gap_ms: int | None = None) -> None:
        """At a speed.

        Args:
            clock: the time that passes.
            speed: intervals are divided by it; None for no waiting.
            max_gap_ms: longer intervals without any record are cut to this, as recorded.
        """
        self._clock = clock
        self._speed = speed
        self._max_gap_ms = max_gap_ms
        self._origin_ms: int | None = None
        self._last_ms = 0
        self._started_ms = clock.monotonic_ms()
        self._started_at_ms = clock.now_ms()

    def wait_ms(self, ms: int) -> int:
        """How long until a record of this time is due; 0 or less if it is."""
        if self._speed is None or ms == BEFORE_ALL:
            return 0
        return self._after_ms(ms) - (self._clock.monotonic_ms() - self._started_ms)

    def now_for(self, ms: int) -> int:
        """The wall clock's time at which it is due, or now if nothing is waited for."""
        if self._speed is None or ms == BEFORE_ALL:
            return self._clock.now_ms()
        return self._started_at_ms + self._after_ms(ms)

    def _after_ms(self, ms: int) -> int:
        if self._origin_ms is None:
            self._origin_ms = self._last_ms = ms
        gap = ms - self._last_ms
        if self._max_gap_ms is not None and gap > self._max_gap_ms:
            self._origin_ms += gap - self._max_gap_ms
        self._last_ms = max(self._last_ms, ms)
        assert self._speed is not None
        return round((ms - self._origin_ms) / self._speed)


@dataclass(slots=True)
class ReplayProgress:
    """How far a replay is."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """The next offset of each partition: all before it was acknowledged."""
    reached: dict[TopicPartition, int] = field(default_factory=dict)
    """The largest time of each partition before that."""
    sequences: dict[str, int] = field(default_factory=dict)
    producer: ProducerId | None = None
    records: int = 0
    last_ms: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    """The partitions of each topic of the target, among which keys were spread."""

    def to_json(self) -> dict[str, Any]:
        """For the state."""
        return {
            "offsets": {str(each): offset for each, offset in self.offsets.items()},
            "reached": {str(each): ms for each, ms in self.reached.items()},
            "sequences": self.sequences,
            "producer": None if self.producer is None else list(self.producer),
            "records": self.records,
            "last_ms": self.last_ms,
            "counts": self.counts,
        }

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> "ReplayProgress":
        """What the state has."""
        producer = kept["producer"]
        return cls(
            {_partition(each): offset for each, offset in kept["offsets"].items()},
            {_partition(each): ms for each, ms in kept["reached"].items()},
            dict(kept["sequences"]),
            None if producer is None else ProducerId(*producer),
            kept["records"],
            kept["last_ms"],
            dict(kept.get("counts", {})),
        )


def progress_of(state: JobState | DocumentsOnly | None) -> ReplayProgress:
    """How far the runs with a state are."""
    kept = None if state is None else state.read(_PROGRESS)
    return ReplayProgress() if kept is None else ReplayProgress.of_json(kept)


class ReplayTarget(NamedTuple):
    """Where records go."""

    client: Client
    counts: Mapping[str, int]
    """The partitions of each topic of the target."""
    topics: Mapping[str, str]
    """Its names by those of the source."""
    by_key: bool
    codec: Codec = Codec.NONE

    def partition_of(self, due: Due) -> TopicPartition:
        """The partition that a record goes to: its own, or that of its key."""
        topic, number = self.topics[due.partition.topic], due.partition.partition
        if not self.by_key:
            return TopicPartition(topic, number)
        key, count = due.read.record.key, self.counts[topic]
        number = number % count if key is None else partition_of_key(key, count)
        return TopicPartition(topic, number)


class Sending:
    """Sends records when they are due."""

    def __init__(
        self,
        target: ReplayTarget,
        clock: Clock,
        sleep: Callable[[float], None],
        pace: Pace,
        *,
        shifts_times: bool = False,
        state: JobState | None = None,
        on_sent: Callable[[ReplayProgress], None] = lambda progress: None,
    ) -> None:
        """A replay, or the rest of one.

        Args:
            target: where records go.
            clock: the time that passes.
            sleep: waits for a number of seconds.
            pace: when they are due.
            shifts_times: records get the time at which they are due, instead of their own.
            state: where progress is kept; None to keep none.
            on_sent: called after each batch.

        Raises:
            CorruptFile: the state is damaged.
            Misconfigured: a topic of the target has fewer partitions than when the replay began.
        """
        self._clock = clock
        self._sleep = sleep
        self._pace = pace
        self._shifts_times = shifts_times
        self._state = state
        self._on_sent = on_sent
        kept = None if state is None else state.read(_PROGRESS)
        self.progress = progress_of(state)
        self.progress.counts = {**target.counts, **self.progress.counts}
        for name, count in target.counts.items():
            if count < self.progress.counts[name]:
                raise Misconfigured(
                    f"{name} of the target has {count} partitions, and had "
                    f"{self.progress.counts[name]} when the replay began: it was created again. "
                    "Begin with another --state and --from"
                )
        # Where partitions were added, a key still goes where the records before it went.
        self._target = target._replace(counts=self.progress.counts)
        self._pending = None if kept is None else kept.get("pending")
        self._is_sending = self._pending is not None
        """What the state has of it stays, until all of it was acknowledged."""
        self.latest_ms = 0
        """How late a record was sent at most."""

    def repeat(
        self, read: Callable[[Mapping[TopicPartition, tuple[int, int]]], Iterator[Due]]
    ) -> None:
        """Send again what was being sent when the last run was killed.

        Args:
            read: the records of these partitions between two offsets, merged.

        Raises:
            StorageFailed: the source has not all of it any more.
            RequestRefused: the target refuses it.
            NoAnswer: it does not answer.
        """
        pending = self._pending
        if pending is None:
            return
        until = {_partition(each): end for each, end in pending["until"].items()}
        places = {
            partition: (self.progress.offsets.get(partition, pending["from"][str(partition)]), end)
            for partition, end in until.items()
        }
        dues = list(read(places))
        if len(dues) != pending["records"]:
            raise StorageFailed(
                f"the source has {len(dues)} of {pending['records']} records that were being sent "
                "when the last run was killed: how many of them are at the target is not known. "
                "Begin with another --state and --from"
            )
        self._append(dues, pending["times"])
        self._is_sending = False
        self.save()

    def run(self, dues: Iterator[Due]) -> None:
        """Send all, each when it is due.

        Raises:
            RequestRefused: the target refuses a batch.
            NoAnswer: it does not answer.
        """
        waiting: list[Due] = []
        size = 0
        for due in dues:
            wait_ms = self._pace.wait_ms(due.ms)
            if wait_ms > 0:
                self._send(waiting)
                waiting, size = [], 0
                while (wait_ms := self._pace.wait_ms(due.ms)) > 0:
                    self._sleep(min(max(wait_ms, TICK_MS), HOUR_MS) / 1_000)
            self.latest_ms = max(self.latest_ms, -wait_ms)
            weight = _weight(due.read.record)
            if waiting and (size + weight > MAX_BYTES or len(waiting) >= MAX_RECORDS):
                self._send(waiting)
                waiting, size = [], 0
            waiting.append(due)
            size += weight
        self._send(waiting)

    def _send(self, dues: list[Due]) -> None:
        if not dues:
            return
        times = [self._pace.now_for(due.ms) for due in dues] if self._shifts_times else None
        if self.progress.producer is None:
            self.progress.producer = self._target.client.init_producer_id()
        if self._state is not None:
            first: dict[str, int] = {}
            until: dict[str, int] = {}
            for due in dues:
                first.setdefault(str(due.partition), due.read.offset)
                until[str(due.partition)] = due.read.offset + 1
            pending = {"from": first, "until": until, "times": times, "records": len(dues)}
            self._is_sending = True
            self._state.write(_PROGRESS, {**self.progress.to_json(), "pending": pending})
        self._append(dues, times)
        self._is_sending = False

    def _append(self, dues: list[Due], times: list[int] | None) -> None:
        """Send records that are due, and write down that they were."""
        progress, target = self.progress, self._target
        by_partition: dict[TopicPartition, list[Record]] = {}
        for place, due in enumerate(dues):
            record = due.read.record
            if times is not None:
                record = record._replace(timestamp=times[place])
            by_partition.setdefault(target.partition_of(due), []).append(record)
        assert progress.producer is not None
        batches: dict[tuple[str, int], bytes] = {
            partition: build_batch(
                records,
                codec=target.codec,
                producer_id=progress.producer.id,
                producer_epoch=progress.producer.epoch,
                base_sequence=progress.sequences.get(str(partition), 0),
            )
            for partition, records in by_partition.items()
        }
        produced: dict[tuple[str, int], Produced] = {}
        target.client.appends.append(batches, produced, is_idempotent=True)
        for partition, records in by_partition.items():
            before = progress.sequences.get(str(partition), 0)
            progress.sequences[str(partition)] = next_sequence(before, len(records))
        for due in dues:
            progress.offsets[due.partition] = due.read.offset + 1
            progress.reached[due.partition] = due.ms
        progress.records += len(dues)
        known = [due.ms for due in dues if due.ms != BEFORE_ALL]
        progress.last_ms = max(known, default=progress.last_ms)
        self._on_sent(progress)

    def save(self) -> None:
        """Write down what was sent, unless some of it may yet have to be repeated."""
        if self._state is not None and not self._is_sending:
            self._state.write(_PROGRESS, self.progress.to_json())


def _weight(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + _PER_RECORD


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))
