"""Mirrors stretches of partitions to a cluster in one transaction; runs in a task (KIP-98).

Each attempt takes over the transactional id of its slot. This fences earlier attempts, and aborts
their transactions. It sends the batches of its partitions, commits their positions as offsets of
the mirror's group, and leaves the transaction open for the driver (`cluster`). So a position and
the records before it reach the target together, or neither does.

A refusal that no retry mends stops only its partition, and acknowledged batches before it are
committed. After any other error the state of sent batches is unknown: the transaction is aborted,
and the attempt begins again.
"""

import time
from collections import deque
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.client import Client, CommittedOffset, NoAnswer, Produced, Transaction
from horolog.client.appends import Appending
from horolog.errors import Damaged, ErrorCode, HorologError, RequestRefused, StorageFailed
from horolog.jobs.counting import count
from horolog.jobs.mirroring.batches import Made, Rule, made_of
from horolog.jobs.mirroring.ledger import Place
from horolog.jobs.mirroring.offset_map import Point
from horolog.jobs.mirroring.reading import source_batches
from horolog.jobs.selection import client_of
from horolog.offsets import SINK_GROUPS
from horolog.record.batch import BatchHeader, next_sequence
from horolog.record.identity import renamed
from horolog.record.joining import Joiner
from horolog.sources.ahead import ahead
from horolog.sources.location import Location
from horolog.sources.options import ReadOptions
from horolog.sources.plan import Stretch
from horolog.storage.names import TopicPartition

IN_FLIGHT: Final = 5
"""Largest number of requests under way: a broker remembers five batches of a producer (KIP-98)."""

MAX_BYTES: Final = 128 << 20
MAX_POINTS: Final = 200_000

# What a batch that cannot be compressed may grow by when it is: one byte in this many, and some.
_PART_FOR_CODEC: Final = 256
_BYTES_FOR_CODEC: Final = 64
_PATIENCE_S = 60.0
_PAUSE_S = 0.5
_LONGEST_S: Final = 60.0
"""Longest time that an attempt sends, since its transaction is open meanwhile."""
_TRANSACTION_TIMEOUT_MS: Final = 900_000  # the most that brokers allow, by default
_FENCED: Final = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
    }
)
_CHECK_AGAIN: Final = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.duplicate_sequence_number,
        ErrorCode.unknown_producer_id,
    }
)
_MOST_JOINED = 10_000
"""Most batches of the source in one, including those without mirrored records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Target cluster of a mirror, as tasks use it."""

    location: Location
    settings: dict[str, str] = field(repr=False)
    mirror_id: str
    batch_bytes: int
    """Size limit of joined batches before compression; 0 sends each batch as it is."""
    compresses: bool
    """True if compressed batches are joined, too: decompressed, and compressed again."""
    max_bytes: int = MAX_BYTES
    """Bytes of a partition after which its attempt ends, so that its position is recorded."""
    max_points: int = MAX_POINTS
    """Points after which an attempt ends: a compacted log may have one for each record."""

    @property
    def group(self) -> str:
        """Name of the group whose committed offsets are the positions of the mirror."""
        return f"{SINK_GROUPS}mirror/{self.mirror_id}"

    def begin(self, client: Client, slot: int) -> Transaction:
        """Take over the transactional id of a slot; this aborts an open transaction of that id."""
        return client.init_transactions(
            f"{self.group}/{slot}", transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
        )

    def join_bytes(self, topic_max_bytes: int | None) -> int:
        """Return the size limit of joined batches for a topic, in bytes; 0 for no joining."""
        if not topic_max_bytes:
            return self.batch_bytes
        room = topic_max_bytes - topic_max_bytes // _PART_FOR_CODEC - _BYTES_FOR_CODEC
        return max(0, min(self.batch_bytes, room))

    def client(self) -> Client:
        """Create a client for one task."""
        return client_of(self.location, self.settings, "horolog-mirror")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMove:
    """Work of one task on a partition."""

    partition: TopicPartition
    target_topic: str
    place: Place
    """Position at which the move begins."""
    end: int
    """Offset of the source before which the move ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchToMirror(PartitionMove):
    """Work on the stretches of a partition up to the offset `end`."""

    stretches: tuple[Stretch, ...]
    options: ReadOptions
    rule: Rule
    target_max_bytes: int | None

    @property
    def to(self) -> TopicPartition:
        """Partition of the target."""
        return TopicPartition(self.target_topic, self.partition.partition)


@dataclass(slots=True)
class Moved:
    """Result of a task for one partition; valid once `transaction` is committed."""

    partition: TopicPartition
    place: Place
    points: list[Point] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    error: str | None = None
    may_pass: bool = False
    """True if a retry of the move may succeed."""
    transaction: Transaction | None = None
    """The open transaction; None in a log directory, or if the position did not move."""


class TargetLost(StorageFailed):
    """The target lost records that the mirror wrote."""


def move(target: Target, slot: int, units: Iterable[StretchToMirror]) -> list[Moved]:
    """Mirror stretches in one transaction; an error is in the results that it concerns."""
    left, failed = list(units), list[Moved]()
    give_up = time.monotonic() + _PATIENCE_S
    while left:
        bundle = _Bundle(target, slot, left)
        try:
            return bundle.moved() + failed
        except (HorologError, OSError) as error:
            passes = may_pass(error)
            if passes and not _is_fenced(error) and time.monotonic() < give_up:
                time.sleep(_PAUSE_S)
                continue
            is_about_one = bundle.current is not None and not _is_fenced(error)
            stopped = [unit for unit in left if unit is bundle.current or not is_about_one]
            failed += [
                Moved(unit.partition, unit.place, error=_sentence(error, unit), may_pass=passes)
                for unit in stopped
            ]
            left = [unit for unit in left if is_about_one and unit is not bundle.current]
            give_up = 0.0  # where one has waited in vain, the others try once
    return failed


def may_pass(error: HorologError | OSError) -> bool:
    """True if a retry of the move may succeed."""
    if not isinstance(error, RequestRefused):
        return isinstance(error, NoAnswer)
    if error.code == ErrorCode.corrupt_message:
        return False  # Kafka calls it retriable
    return error.code.retriable or error.code in _CHECK_AGAIN or _is_fenced(error)


def _is_fenced(error: HorologError | OSError) -> bool:
    """True if another attempt took the transactional id, or the transaction timed out."""
    return isinstance(error, RequestRefused) and error.code in _FENCED


def _sentence(error: HorologError | OSError, unit: StretchToMirror) -> str:
    if isinstance(error, RequestRefused) and error.code in _CHECK_AGAIN:
        return (
            f"{error}. Batches of the mirror before it are not in {unit.to}: the target has lost "
            "what it acknowledged (an unclean leader election)"
        )
    if _is_fenced(error):
        return (
            f"{error}. Its transaction was ended by another attempt (switch spark.speculation off) "
            "or because it was open for too long; nothing of it counts"
        )
    return str(error)


class _Bundle:
    """One attempt at the stretches of a task, in one transaction."""

    def __init__(self, target: Target, slot: int, units: Iterable[StretchToMirror]) -> None:
        self._target = target
        self._slot = slot
        self._units = units
        self.current: StretchToMirror | None = None
        """The stretch that is being moved; None while the transaction begins or ends."""

    def moved(self) -> list[Moved]:
        """Send all stretches; the transaction with their positions stays open.

        Raises:
            HorologError, OSError: the transaction must not be committed.
        """
        with closing(self._target.client()) as client:
            transaction = self._target.begin(client, self._slot)
            try:
                return self._sent(client, transaction)
            except (HorologError, OSError) as error:
                if not isinstance(error, NoAnswer) and not _is_fenced(error):
                    _abort(client, transaction)
                raise

    def _sent(self, client: Client, transaction: Transaction) -> list[Moved]:
        done, places = [], dict[tuple[str, int], CommittedOffset]()
        until = time.monotonic() + _LONGEST_S
        for unit in self._units:
            self.current = unit
            moved = Attempt(unit, self._target, client, transaction, until).run()
            done.append(moved)
            if moved.place != unit.place:
                moved.transaction = transaction
                places[unit.to] = CommittedOffset(moved.place.offset)
        self.current = None
        if places:
            client.transactions.commit_offsets(transaction, self._target.group, places)
        else:
            _abort(client, transaction)  # a batch that was refused may have begun it
        return done


def _abort(client: Client, transaction: Transaction) -> None:
    """Abort a transaction that may not have begun, and ignore refusals."""
    with suppress(RequestRefused, NoAnswer):
        client.end_transaction(transaction, commit=False)


class _SentUnit(NamedTuple):
    """Batches of the source under way as one batch; `appending` is None if no record is sent."""

    mades: list[Made]
    appending: Appending | None


class Attempt:
    """Sends the batches of one stretch in a transaction."""

    def __init__(
        self,
        unit: StretchToMirror,
        target: Target,
        client: Client,
        transaction: Transaction,
        until: float,
    ) -> None:
        """Begin with nothing sent; `until` is the end of the attempt on the monotonic clock."""
        self._unit = unit
        self._target = target
        self._client = client
        self._transaction = transaction
        self._until = until
        self._moved = Moved(unit.partition, unit.place)
        join_bytes = target.join_bytes(unit.target_max_bytes)
        self._joiner = Joiner(join_bytes) if join_bytes else None
        self._taken: list[Made] = []
        self._under_way: deque[_SentUnit] = deque()
        self._sequence = 0  # of the next record to be sent
        self._acknowledged = 0  # the sequence of the next record to be acknowledged
        self._is_added = False  # the partition is in the transaction
        self._delta: int | None = None

    def run(self) -> Moved:
        """Send the stretch, or the records before an error that no retry mends.

        Raises:
            HorologError, OSError: the transaction must not be committed.
        """
        while True:
            try:
                self._run()
                return self._moved
            except (HorologError, OSError) as error:
                if may_pass(error) or isinstance(error, TargetLost):
                    raise
                self._drain()
                if self._joiner is None or not isinstance(error, RequestRefused):
                    self._moved.error = str(error)
                    return self._moved
                self._joiner = None  # what is sound before the batch at fault is sent

    def _run(self) -> None:
        unit, target, moved = self._unit, self._target, self._moved
        coming = source_batches(unit.stretches, moved.place.offset, unit.options)
        is_full = False
        with ahead(coming) as pieces:
            try:
                for made in (made for piece in pieces for made in made_of(piece, unit.rule)):
                    self._take(made)
                    is_full = (
                        moved.bytes >= target.max_bytes
                        or len(moved.points) >= target.max_points
                        or time.monotonic() >= self._until
                    )
                    if is_full:
                        break  # the rest is for the next wave
            except Damaged:
                self._send_taken()
                self._settle(0)  # what came before is sound
                raise
        self._send_taken()
        self._settle(0)
        if not is_full and moved.place.offset < unit.end:
            moved.place = replace(moved.place, offset=unit.end)

    def _drain(self) -> None:
        """Wait for all requests under way; batches behind a refused one are refused as well."""
        self._taken = []
        while self._under_way:
            if (appending := self._under_way.popleft().appending) is not None:
                with suppress(RequestRefused):
                    self._client.appends.finish_append(appending, {})
        self._sequence = self._acknowledged

    # Sending.

    def _take(self, made: Made) -> None:
        """Send a batch, or hold it back to join it with the next ones."""
        if self._joiner is None or (made.batch is None and not self._taken):
            self._send([made])
            return
        if made.batch is not None and not self._join(made.header, made.batch):
            self._send_taken()
            if not self._join(made.header, made.batch):
                self._send([made])
                return
        self._taken.append(made)
        if len(self._taken) >= _MOST_JOINED:
            self._send_taken()

    def _join(self, header: BatchHeader, batch: Buffer) -> bool:
        assert self._joiner is not None
        if header.codec_number and not self._target.compresses:
            return False
        return self._joiner.add(header, batch)

    def _send_taken(self) -> None:
        taken, self._taken = self._taken, []
        if taken:
            self._send(taken)

    def _send(self, mades: list[Made]) -> None:
        """Send converted batches of the source as one batch; send nothing if they are empty."""
        sent = [made for made in mades if made.batch is not None]
        if not sent:
            self._under_way.append(_SentUnit(mades, None))
            self._settle(IN_FLIGHT)
            return
        self._settle(IN_FLIGHT - 1)
        if not self._is_added:
            self._client.transactions.add(self._transaction, [self._unit.to])
            self._is_added = True
        producer, sequence = self._transaction.producer, self._sequence
        self._sequence = next_sequence(sequence, sum(made.records for made in sent))
        if len(sent) > 1:
            assert self._joiner is not None
            data = self._joiner.finish(producer, sequence)
        else:
            made = sent[0]
            assert made.batch is not None
            data = renamed(
                made.header, memoryview(made.batch), producer, sequence, is_transactional=True
            )
            if self._joiner is not None:
                self._joiner.clear()
        appending = self._client.appends.append_soon(
            {self._unit.to: data}, acks=-1, transactional_id=self._transaction.id
        )
        self._under_way.append(_SentUnit(mades, appending))
        if not sequence:
            # A broker that does not know the producer yet takes any sequence from it: the batches
            # behind the first one are refused only after that is acknowledged.
            self._settle(0)

    def _settle(self, left: int) -> None:
        """Wait until at most `left` requests are under way."""
        under_way = self._under_way
        while under_way and (len(under_way) > left or under_way[0].appending is None):
            mades, appending = under_way.popleft()
            self._advance(mades, None if appending is None else self._appended(appending))

    def _appended(self, appending: Appending) -> int:
        """Wait for the answer to a request, and return the base offset of its batch."""
        produced: dict[tuple[str, int], Produced] = {}
        self._client.appends.finish_append(appending, produced)
        base_offset = produced[self._unit.to].base_offset
        if base_offset is None:
            raise RequestRefused(
                ErrorCode.duplicate_sequence_number,
                f"{self._unit.to} has the batch already, and does not say where",
            )
        known = self._moved.place.target_offset
        if base_offset < known:
            raise TargetLost(
                f"{self._unit.to} of the target ends at offset {base_offset}, and the mirror has "
                f"written up to {known}: it was truncated, or deleted and created again. Mirror "
                "into another topic, with another --state"
            )
        return base_offset

    def _advance(self, mades: list[Made], base_offset: int | None) -> None:
        """Move the position past acknowledged batches of the source."""
        moved, place = self._moved, self._moved.place
        records, last_ms = 0, place.last_ms
        for made in mades:
            if base_offset is not None:
                for offset, at in made.runs:
                    to = base_offset + records + at
                    if to - offset != self._delta:
                        moved.points.append((offset, to))
                        self._delta = to - offset
            if made.batch is not None:
                records += made.records
                moved.bytes += len(made.batch)
                last_ms = made.source.max_timestamp
        moved.records += records
        count(records)
        self._acknowledged = next_sequence(self._acknowledged, records)
        following = 0 if base_offset is None else base_offset + records
        moved.place = replace(
            place,
            offset=mades[-1].source.next_offset,
            target_offset=max(place.target_offset, following),
            last_ms=last_ms,
            records=place.records + records,
        )
