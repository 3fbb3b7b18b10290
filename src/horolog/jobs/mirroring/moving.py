"""Mirrors a stretch of one partition to a broker; runs in a task, and may run twice.

The batches carry the mirror's own producer id and continue its sequences, in every attempt. So a
broker takes each of them once, also from two attempts of a task at the same time: the second to
send a batch is answered as a repeat, or refused as out of sequence. A broker forgets producers,
though (Apache Kafka by the times of their records, so those of old records within minutes). So what
was sent by an attempt that did not end is never guessed: before it sends, each attempt reads the
target behind the place that is written down, and finds the mirror's batches there by their producer
id. It makes the same batches of the source again, compares, and continues after the last one
(`sent_before`). Small batches may be sent as one: two attempts need not agree about which.

A broker that knows nothing of a producer takes any sequence from it. So the first batch of an
attempt is sent alone: those behind it are refused if it is.
"""

import time
from collections import deque
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.client import Client, NoAnswer, Produced
from horolog.client.appends import Appending, ProducerId
from horolog.errors import Damaged, ErrorCode, HorologError, RequestRefused
from horolog.jobs.counting import count
from horolog.jobs.mirroring.batches import Made, Rule, made_of
from horolog.jobs.mirroring.ledger import Place
from horolog.jobs.mirroring.offset_map import Point
from horolog.jobs.mirroring.reading import source_batches
from horolog.jobs.mirroring.sent_before import TargetLog, find_sent
from horolog.jobs.selection import client_of
from horolog.record.batch import BatchHeader, next_sequence
from horolog.record.identity import renamed
from horolog.record.joining import Joiner
from horolog.sources.ahead import ahead
from horolog.sources.location import Location
from horolog.sources.options import ReadOptions
from horolog.sources.plan import Stretch
from horolog.storage.names import TopicPartition

IN_FLIGHT: Final = 5
"""Requests under way: a broker remembers five batches of a producer (KIP-98)."""

MAX_BYTES: Final = 128 << 20
MAX_POINTS: Final = 200_000

# What a batch that cannot be compressed may grow by when it is: one byte in this many, and some.
_PART_FOR_CODEC: Final = 256
_BYTES_FOR_CODEC: Final = 64
_PATIENCE_S = 60.0
_PAUSE_S = 0.5
_CHECK_AGAIN: Final = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.duplicate_sequence_number,
        ErrorCode.unknown_producer_id,
    }
)
_MOST_JOINED = 10_000
"""Batches of the source in one, those counted of which nothing is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cluster that is mirrored to."""

    location: Location
    settings: dict[str, str] = field(repr=False)
    producer: ProducerId
    batch_bytes: int
    """Successive batches are sent as one of up to this many bytes, uncompressed; 0 leaves each."""
    compresses: bool
    """Compressed batches are joined, too: decompressed, and compressed again."""
    max_bytes: int = MAX_BYTES
    """A task ends after this many, so that its place is written down."""
    max_points: int = MAX_POINTS
    """Or after this many points of the map: a compacted log may have one for each record."""

    def join_bytes(self, topic_max_bytes: int | None) -> int:
        """How large joined batches become, such that a topic takes them."""
        if not topic_max_bytes:
            return self.batch_bytes
        room = topic_max_bytes - topic_max_bytes // _PART_FOR_CODEC - _BYTES_FOR_CODEC
        return max(0, min(self.batch_bytes, room))

    def client(self) -> Client:
        """A client for one task."""
        return client_of(self.location, self.settings, "horolog-mirror")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMove:
    """What one task does for a partition."""

    partition: TopicPartition
    target_topic: str
    place: Place
    """From where on."""
    end: int
    """Up to before this offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchToMirror(PartitionMove):
    """What is to be mirrored next of a partition: all up to `end` that is in the stretches."""

    stretches: tuple[Stretch, ...]
    options: ReadOptions
    rule: Rule
    target_compacts: bool
    """The target removes batches from the midst of its log."""
    target_max_bytes: int | None


@dataclass(slots=True)
class Moved:
    """What a task did: all before `place` is at the target."""

    partition: TopicPartition
    place: Place
    points: list[Point] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    error: str | None = None
    may_pass: bool = False
    """The error may be over if the move is tried again."""


def move(unit: StretchToMirror, target: Target, *, is_patient: bool) -> Moved:
    """Mirror a stretch; an error that is not a bug is in the result, with what was done before."""
    moved = Moved(unit.partition, unit.place)
    join_bytes = target.join_bytes(unit.target_max_bytes)
    patience_s = _PATIENCE_S if is_patient else 0.0
    give_up, before = time.monotonic() + patience_s, moved.place
    while True:
        try:
            with closing(target.client()) as client:
                Attempt(unit, target, moved, client, join_bytes).run()
            return moved
        except (NoAnswer, RequestRefused) as error:
            if moved.place.offset != before.offset:
                give_up, before = time.monotonic() + patience_s, moved.place
            moved.error = _sentence(error, unit)
            moved.may_pass = may_pass(error)
            if join_bytes and isinstance(error, RequestRefused) and not moved.may_pass:
                join_bytes = 0  # what is sound before the one at fault is sent
                moved.error = None
                continue
            if not moved.may_pass or time.monotonic() >= give_up:
                return moved
            moved.error = None
            time.sleep(_PAUSE_S)
        except (HorologError, OSError) as error:
            moved.error, moved.may_pass = str(error), False
            return moved


def may_pass(error: HorologError | OSError) -> bool:
    """Whether it may be over if the move is tried again."""
    if not isinstance(error, RequestRefused):
        return isinstance(error, NoAnswer)
    if error.code == ErrorCode.corrupt_message:
        return False  # Kafka calls it retriable
    return error.code.retriable or error.code in _CHECK_AGAIN


def _sentence(error: NoAnswer | RequestRefused, unit: StretchToMirror) -> str:
    if isinstance(error, RequestRefused) and error.code in _CHECK_AGAIN:
        return (
            f"{error}. Batches of the mirror before it are not in {unit.target_topic}-"
            f"{unit.partition.partition}: the target has lost what it acknowledged (an unclean "
            "leader election), or another process writes with this --state"
        )
    return str(error)


class _Sent(NamedTuple):
    """What is on its way as one batch; not appended anywhere if it holds nothing."""

    mades: list[Made]
    appending: Appending | None


class Attempt:
    """One attempt with connections of its own."""

    def __init__(
        self,
        unit: StretchToMirror,
        target: Target,
        moved: Moved,
        client: Client,
        join_bytes: int,
    ) -> None:
        self._unit = unit
        self._target = target
        self._moved = moved
        self._client = client
        self._to = TopicPartition(unit.target_topic, unit.partition.partition)
        self._joiner = Joiner(join_bytes) if join_bytes else None
        self._taken: list[Made] = []
        self._under_way: deque[_Sent] = deque()
        self._sequence = 0  # of the next record to be sent
        self._is_known = False  # the broker has answered a batch of this attempt
        self._delta: int | None = None
        if moved.points:
            last, its_place = moved.points[-1]
            self._delta = its_place - last

    def run(self) -> None:
        """Continue where the target's log says that the last attempt ended."""
        unit, target, place = self._unit, self._target, self._moved.place
        log = TargetLog(
            source=unit.partition,
            partition=self._to,
            producer=target.producer,
            compacts=unit.target_compacts,
        )
        found, self._moved.place = find_sent(self._client, log, place)
        self._sequence = place.sequence
        coming = source_batches(unit.stretches, place.offset, unit.options)
        with ahead(coming) as pieces:
            try:
                for made in (made for piece in pieces for made in made_of(piece, unit.rule)):
                    if found is not None:
                        for known, base_offset in found.match(made, self._moved.place.sequence):
                            self._advance([known], base_offset)
                        self._sequence = self._moved.place.sequence
                        if found.is_over:
                            found = None
                        continue
                    self._take(made)
                    is_full = (
                        self._moved.bytes >= target.max_bytes
                        or len(self._moved.points) >= target.max_points
                    )
                    if is_full:
                        break  # the rest is for the next wave
                else:
                    is_full = False
            except Damaged:
                self._send_taken()
                self._settle(0)  # what came before is sound
                raise
        if found is not None:
            raise found.changed("it ends before what was mirrored of it")
        self._send_taken()
        self._settle(0)
        if not is_full and self._moved.place.offset < unit.end:
            self._moved.place = replace(self._moved.place, offset=unit.end)

    # Sending.

    def _take(self, made: Made) -> None:
        """Send a batch, or keep it for those that it can be sent with as one."""
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
        """Send what was made of some batches of the source as one batch, or as none."""
        sent = [made for made in mades if made.batch is not None]
        if not sent:
            self._under_way.append(_Sent(mades, None))
            self._settle(IN_FLIGHT)
            return
        self._settle(IN_FLIGHT - 1)
        producer, sequence = self._target.producer, self._sequence
        self._sequence = next_sequence(sequence, sum(made.records for made in sent))
        if len(sent) > 1:
            assert self._joiner is not None
            data = self._joiner.finish(producer, sequence)
        else:
            made = sent[0]
            assert made.batch is not None
            data = renamed(made.header, memoryview(made.batch), producer, sequence)
            if self._joiner is not None:
                self._joiner.clear()
        appending = self._client.appends.append_soon({self._to: data}, acks=-1)
        self._under_way.append(_Sent(mades, appending))
        if not self._is_known:
            self._settle(0)
            self._is_known = True

    def _settle(self, left: int) -> None:
        """Wait until no more than `left` requests are under way."""
        under_way = self._under_way
        while under_way and (len(under_way) > left or under_way[0].appending is None):
            mades, appending = under_way.popleft()
            self._advance(mades, None if appending is None else self._appended(appending))

    def _appended(self, appending: Appending) -> int:
        """Where a batch went, as soon as that is known."""
        produced: dict[tuple[str, int], Produced] = {}
        self._client.appends.finish_append(appending, produced)
        base_offset = produced[self._to].base_offset
        if base_offset is None:
            raise RequestRefused(
                ErrorCode.duplicate_sequence_number,
                f"{self._to[0]}-{self._to[1]} has the batch already, and does not say where",
            )
        return base_offset

    def _advance(self, mades: list[Made], base_offset: int | None) -> None:
        """All up to and including these batches of the source is at the target, from there on."""
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
        following = 0 if base_offset is None else base_offset + records
        moved.place = replace(
            place,
            offset=mades[-1].source.next_offset,
            sequence=next_sequence(place.sequence, records),
            target_offset=max(place.target_offset, following),
            last_ms=last_ms,
            records=place.records + records,
        )
