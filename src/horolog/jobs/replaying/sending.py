"""Sends records in batches when they are due, and commits the progress with them.

With a state directory records are sent in transactions (KIP-98), each with the number of its commit
as a committed offset. The progress that a commit reaches is written to the state before it. After a
kill the number at the target tells if that commit succeeded. An unfinished transaction is aborted,
and its records are sent again.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from horolog.client import Client, CommittedOffset, Transaction
from horolog.client.appends import ProducerId
from horolog.client.transactions import TRANSACTION_TIMEOUT_MS
from horolog.clock import HOUR_MS, Clock
from horolog.errors import HorologError, Misconfigured, StorageFailed
from horolog.jobs.replaying.source import Due, Extent, ReplayPlace
from horolog.jobs.state import DocumentsOnly
from horolog.offsets import SINK_GROUPS
from horolog.record.batch import next_sequence
from horolog.record.builder import LogRecord, build_batch
from horolog.record.compression import Codec
from horolog.record.partitioning import partition_of_key
from horolog.storage.names import TopicPartition

COMMIT_MS: Final = 1_000
"""Time between two commits."""
TICK_MS: Final = 10
"""Span of due times that is sent together."""
MAX_BYTES: Final = 500_000
"""Size of what is sent together, well below the default of max.message.bytes, 1 MiB."""
MAX_RECORDS: Final = 5_000
_PER_RECORD = 32
_PROGRESS = "progress"
_BY_PARTITION: Final = ("offsets", "starts", "ends")


class Pace:
    """Schedule of records: the first is due at once, the others after recorded intervals."""

    def __init__(self, clock: Clock, speed: float | None, max_gap_ms: int | None = None) -> None:
        """Start the schedule now.

        Args:
            speed: divisor of the recorded intervals; None to send without waiting.
            max_gap_ms: upper limit of recorded intervals without any record.
        """
        self._clock = clock
        self._speed = speed
        self._max_gap_ms = max_gap_ms
        self._origin_ms: int | None = None
        self._last_ms = 0
        self._started_ms = clock.monotonic_ms()
        self._started_at_ms = clock.now_ms()

    def wait_ms(self, ms: int | None) -> int:
        """Return the milliseconds until a record of this time is due; at most 0 if it is.

        A record without a time is due at once.
        """
        if self._speed is None or ms is None:
            return 0
        return self._after_ms(ms) - (self._clock.monotonic_ms() - self._started_ms)

    def now_for(self, ms: int | None) -> int:
        """Return the wall clock's time at which a record is due; now without waiting."""
        if self._speed is None or ms is None:
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
    """Progress of a replay: the place that it has reached in the order of times, and counts."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """Offset of each partition that no sent record is at or behind; unsent ones may be before."""
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    """First offset of each partition that is replayed; all before it was sent, or not asked for."""
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """Offset of each partition that the replay stops before; empty while none is under way."""
    place: ReplayPlace | None = None
    """Place of the last record that was sent; those before it in the order were sent."""
    records: int = 0
    last_ms: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    """Numbers of partitions of the target's topics, among which keys were spread."""
    commits: int = 0
    """Number of committed transactions."""

    @property
    def extent(self) -> Extent:
        """Offsets that are replayed."""
        return Extent(self.starts, self.ends)

    def begin(self, extent: Extent) -> None:
        """Begin to replay these offsets."""
        self.starts, self.ends, self.place = dict(extent.starts), dict(extent.ends), None

    def end(self) -> None:
        """Note that all of it was sent."""
        self.starts, self.ends, self.place = {**self.starts, **self.ends}, {}, None

    def to_json(self) -> dict[str, Any]:
        """Convert the progress to JSON; later changes do not alter it."""
        named = {name: _by_name(getattr(self, name)) for name in _BY_PARTITION}
        place = self.place
        if place is None:
            return asdict(self) | named
        return asdict(self) | named | {"place": [place.ms, str(place.partition), place.offset]}

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> "ReplayProgress":
        """Read progress from its JSON."""
        named: dict[str, Any] = {name: _by_partition(kept[name]) for name in _BY_PARTITION}
        if kept["place"] is not None:
            ms, name, offset = kept["place"]
            named["place"] = ReplayPlace(ms, _partition_of(name), offset)
        return cls(**{**kept, **named})


def progress_of(state: DocumentsOnly | None) -> ReplayProgress:
    """Return the progress of a state up to its last commit; empty without a state."""
    kept = None if state is None else state.read(_PROGRESS)
    return ReplayProgress() if kept is None else ReplayProgress.of_json(kept["committed"])


class ReplayTarget(NamedTuple):
    """Target of a replay: its client, topics and partitions."""

    client: Client
    counts: Mapping[str, int]
    """Number of partitions of each topic of the target."""
    topics: Mapping[str, str]
    """Topics of the target by those of the source."""
    by_key: bool
    codec: Codec = Codec.NONE

    def partition_of(self, due: Due) -> TopicPartition:
        """Return the partition that a record goes to, by its own number or by its key."""
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
        state: DocumentsOnly | None = None,
        on_sent: Callable[[ReplayProgress], None] = lambda progress: None,
    ) -> None:
        """Begin a replay, or continue one from its state.

        Args:
            sleep: waits for a number of seconds.
            shifts_times: True to give records the time at which they are due.
            state: state directory for the progress; None to keep none.

        Raises:
            CorruptFile: the state is damaged.
            Misconfigured: a topic of the target has lost partitions since the replay began.
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
        self._committed = self.progress.to_json()
        self._prepared: dict[str, Any] | None = None if kept is None else kept["prepared"]
        self._group = f"{SINK_GROUPS}replay/{uuid.uuid4().hex}" if kept is None else kept["group"]
        self._place = (min(target.counts), 0) if kept is None else (kept["topic"], 0)
        """Partition of the target whose committed offset is the number of the last commit."""
        self._transaction: Transaction | None = None
        self._producer: ProducerId | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        """Partitions in the open transaction."""
        self._begun_ms = 0
        self._is_sound = True
        """True while the progress counts everything in the open transaction."""
        self.latest_ms = 0
        """Largest delay of a record behind its schedule."""

    def begin(self, extent: Extent) -> None:
        """Begin to send these offsets, unless an earlier run has begun."""
        if not self.progress.ends:
            self.progress.begin(extent)
            self._committed = self.progress.to_json()

    def resume(self) -> None:
        """Continue where the last commit ended, if progress is kept.

        Raises:
            StorageFailed: the last commit cannot be determined.
            RequestRefused: the target refuses a request.
            NoAnswer: the target does not answer.
        """
        if self._state is None:
            return
        client = self._target.client
        self._save(self._prepared)  # before the transactional id is used first
        self._transaction = client.init_transactions(
            self._group, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        self._producer = self._transaction.producer
        committed = client.offset_fetch(self._group, [self._place], require_stable=True)[
            self._place
        ]
        prepared = self._prepared
        if committed is None:
            if prepared is not None:
                raise StorageFailed(
                    "the target has forgotten the last commit (offsets.retention.minutes), and the "
                    "last run was killed while it committed: how many of its records are there is "
                    "not known. Begin with another --state and --from"
                )
            known = CommittedOffset(self.progress.commits)
            client.offset_commit(self._group, {self._place: known})
        elif prepared is not None and committed.offset == prepared["commits"]:
            self._committed, self.progress = prepared, ReplayProgress.of_json(prepared)
        elif committed.offset != self.progress.commits:
            raise StorageFailed(
                f"the target has commit {committed.offset} of the replay, and --state has "
                f"{self.progress.commits}: it is an earlier copy. Begin with another --state and "
                "--from"
            )
        self._prepared = None

    def run(self, dues: Iterator[Due]) -> None:
        """Send each record when it is due; they are all that was left.

        Raises:
            RequestRefused: the target refuses a batch.
            NoAnswer: the target does not answer.
        """
        waiting: list[Due] = []
        size = 0
        for due in dues:
            wait_ms = self._pace.wait_ms(due.ms)
            if wait_ms > 0:
                self._send(waiting)
                if wait_ms >= COMMIT_MS:
                    self.commit()
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
        self.progress.end()

    def _send(self, dues: list[Due]) -> None:
        if not dues:
            return
        now_ms = self._clock.monotonic_ms()
        if self._added and now_ms - self._begun_ms >= COMMIT_MS:
            self.commit()
        times = [self._pace.now_for(due.ms) for due in dues] if self._shifts_times else None
        by_partition: dict[TopicPartition, list[LogRecord]] = {}
        for place, due in enumerate(dues):
            record = due.read.record
            if times is not None:
                record = record._replace(timestamp=times[place])
            by_partition.setdefault(self._target.partition_of(due), []).append(record)
        if not self._added:
            self._begun_ms = now_ms
        self._is_sound = False
        self._append(by_partition)
        progress = self.progress
        for due in dues:
            before = progress.offsets.get(due.partition, 0)
            progress.offsets[due.partition] = max(before, due.read.offset + 1)
        progress.place = dues[-1].place
        progress.records += len(dues)
        known = [due.ms for due in dues if due.ms is not None]
        progress.last_ms = max(known, default=progress.last_ms)
        self._is_sound = True
        self._on_sent(progress)

    def _append(self, by_partition: Mapping[TopicPartition, list[LogRecord]]) -> None:
        client, transaction = self._target.client, self._transaction
        if self._producer is None:
            self._producer = client.init_producer_id()
        if transaction is not None and (missing := by_partition.keys() - self._added):
            client.transactions.add(transaction, missing)
            self._added |= missing
        batches: dict[tuple[str, int], bytes] = {
            partition: build_batch(
                records,
                codec=self._target.codec,
                producer_id=self._producer.id,
                producer_epoch=self._producer.epoch,
                base_sequence=self._sequences.get(partition, 0),
                is_transactional=transaction is not None,
            )
            for partition, records in by_partition.items()
        }
        transactional_id = None if transaction is None else transaction.id
        client.appends.append(batches, {}, is_idempotent=True, transactional_id=transactional_id)
        for partition, records in by_partition.items():
            before = self._sequences.get(partition, 0)
            self._sequences[partition] = next_sequence(before, len(records))

    def commit(self) -> None:
        """Commit the records sent since the last commit, with the progress that they reach.

        Raises:
            RequestRefused: the transaction has ended: another run has the state, or it took too
                long.
            NoAnswer: the target does not answer; the next run determines if the commit succeeded.
        """
        if self._transaction is None or not self._added:
            return
        self._is_sound = False
        transactions = self._target.client.transactions
        self.progress.commits += 1
        prepared = self.progress.to_json()
        self._save(prepared)
        place = {self._place: CommittedOffset(self.progress.commits)}
        transactions.commit_offsets(self._transaction, self._group, place)
        transactions.end(self._transaction, commit=True)
        self._committed = prepared
        self._added.clear()
        self._is_sound = True

    def finish(self) -> None:
        """Commit complete progress; after an error abort the transaction.

        Raises:
            RequestRefused, NoAnswer: the commit fails, as in `commit`.
        """
        if self._is_sound:
            self.commit()
            if self._transaction is not None:
                self._target.client.transactions.await_markers([self._transaction])
            if self._prepared is None:  # whether the last run's commit succeeded is known
                self._committed = self.progress.to_json()
            self._save(self._prepared)
        elif self._transaction is not None:
            with suppress(HorologError, OSError):
                self._target.client.end_transaction(self._transaction, commit=False)
            self.progress = ReplayProgress.of_json(self._committed)
            self._on_sent(self.progress)

    def _save(self, prepared: Mapping[str, Any] | None) -> None:
        """Write the committed progress, and the progress of a commit under way."""
        if self._state is not None:
            kept = {"group": self._group, "topic": self._place[0], "committed": self._committed}
            self._state.write(_PROGRESS, {**kept, "prepared": prepared})


def _weight(record: LogRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + _PER_RECORD


def _by_name(values: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(partition): value for partition, value in values.items()}


def _by_partition(values: Mapping[str, int]) -> dict[TopicPartition, int]:
    return {_partition_of(name): value for name, value in values.items()}


def _partition_of(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))
