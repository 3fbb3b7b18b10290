"""Mirrors a stretch of one partition to a broker; runs in a task, and may run twice.

The batches carry the mirror's own producer id and go on in its sequences, in every attempt. So a
broker takes each of them once, also from two attempts of a task at the same time: the second to
send a batch is answered as a repeat, or refused as out of sequence. A broker forgets producers,
though (Apache Kafka by the times of their records, so those of old records within minutes). So what
was sent by an attempt that did not end is never guessed: before it sends, each attempt reads the
target behind the place that is written down, and finds the mirror's batches there by their producer
id. It makes the same batches of the source again, compares, and goes on after the last one.

A broker that knows nothing of a producer takes any sequence from it. So the first batch of an
attempt is sent alone: those behind it are refused if it is.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import crc32c

from horolog.client import EARLIEST, LATEST, Client, NoAnswer, Produced
from horolog.client.appends import Appending, ProducerId
from horolog.errors import Damaged, ErrorCode, HorologError, RequestRefused, StorageFailed
from horolog.jobs.location import Location
from horolog.jobs.mirroring.batches import Made, Rule, made_of
from horolog.jobs.mirroring.ledger import Place
from horolog.jobs.mirroring.offset_map import Point
from horolog.jobs.mirroring.reading import Range, Stretch, stretches
from horolog.jobs.selection import client_of
from horolog.record.batch import (
    HEADER_SIZE,
    BatchHeader,
    codec_number_of,
    iter_headers,
    next_sequence,
)
from horolog.spark.ahead import ahead
from horolog.spark.options import ReadOptions
from horolog.storage.names import TopicPartition

IN_FLIGHT: Final = 5
"""Requests under way: a broker remembers five batches of a producer (KIP-98)."""

MAX_BYTES: Final = 128 << 20
MAX_POINTS: Final = 200_000

_PATIENCE_S = 60.0
_PAUSE_S = 0.5
_CHECK_AGAIN: Final = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.duplicate_sequence_number,
        ErrorCode.unknown_producer_id,
    }
)
_FETCH_BYTES = 8 << 20


class SourceChanged(StorageFailed):
    """Which records of the source are at the target already cannot be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cluster that is mirrored to."""

    location: Location
    settings: dict[str, str] = field(repr=False)
    producer: ProducerId

    def client(self) -> Client:
        """A client for one task."""
        return client_of(self.location, self.settings, "horolog-mirror")


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A stretch of a partition that one task mirrors: all up to `end` that is in the ranges."""

    partition: TopicPartition
    target_topic: str
    place: Place
    end: int
    ranges: tuple[Range, ...]
    options: ReadOptions
    target: Target
    rule: Rule
    max_bytes: int = MAX_BYTES
    """The task ends after so many, so that its place is written down."""
    max_points: int = MAX_POINTS
    """Or after so many points of the map: a compacted log may have one for each record."""
    target_compacts: bool = False
    """The target removes batches from the midst of its log."""
    patience_s: float = _PATIENCE_S


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


def move(unit: Move) -> Moved:
    """Mirror a stretch; an error that is not a bug is in the result, with what was done before."""
    moved = Moved(unit.partition, unit.place)
    give_up, before = time.monotonic() + unit.patience_s, moved.place
    while True:
        try:
            with closing(unit.target.client()) as client:
                _Attempt(unit, moved, client).run()
            return moved
        except (NoAnswer, RequestRefused) as error:
            if moved.place.offset != before.offset:
                give_up, before = time.monotonic() + unit.patience_s, moved.place
            moved.error = _sentence(error, unit)
            moved.may_pass = may_pass(error)
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


def _sentence(error: NoAnswer | RequestRefused, unit: Move) -> str:
    if isinstance(error, RequestRefused) and error.code in _CHECK_AGAIN:
        return (
            f"{error}. Batches of the mirror before it are not in {unit.target_topic}-"
            f"{unit.partition.partition}: the target has lost what it acknowledged (an unclean "
            "leader election), or another process writes with this --state"
        )
    return str(error)


class _Sent(NamedTuple):
    """A batch on its way; not appended anywhere if it holds nothing."""

    made: Made
    appending: Appending | None


class _Attempt:
    """One attempt with connections of its own."""

    def __init__(self, unit: Move, moved: Moved, client: Client) -> None:
        self._unit = unit
        self._moved = moved
        self._client = client
        self._to = (unit.target_topic, unit.partition.partition)
        self._under_way: deque[_Sent] = deque()
        self._is_known = False  # the broker has answered a batch of this attempt
        self._delta: int | None = None
        if moved.points:
            source, target = moved.points[-1]
            self._delta = target - source

    def run(self) -> None:
        """Go on where the target's log says that the last attempt ended."""
        unit, place = self._unit, self._moved.place
        found = self._sent_before(place)
        sequence = place.sequence
        coming = stretches(unit.ranges, place.offset, unit.options)
        with ahead(coming) as pieces:
            try:
                for made in self._made(pieces, sequence):
                    if found is not None and made.data is not None:
                        found = self._match(found, made)
                    else:
                        self._send(made)
                    is_full = (
                        self._moved.bytes >= unit.max_bytes
                        or len(self._moved.points) >= unit.max_points
                    )
                    if is_full and found is None:
                        self._settle(0)
                        return  # the rest is for the next wave
            except Damaged:
                self._settle(0)  # what came before is sound
                raise
        if found is not None:
            raise self._changed("it ends before what was mirrored of it")
        self._settle(0)
        if self._moved.place.offset < unit.end:
            self._moved.place = replace(self._moved.place, offset=unit.end)

    def _made(self, pieces: Iterator[Stretch], sequence: int) -> Iterator[Made]:
        unit = self._unit
        for piece in pieces:
            for made in made_of(
                piece.data,
                unit.rule,
                unit.target.producer,
                sequence,
                start=piece.start,
                end=piece.end,
                drop=piece.drop,
            ):
                sequence = next_sequence(sequence, made.records)
                yield made

    # What was sent before.

    def _sent_before(self, place: Place) -> "_Found | None":
        """The mirror's batches at the target behind the place; None if there are none.

        Raises:
            SourceChanged: it cannot be known.
        """
        ends = self._client.list_offsets({self._to: LATEST})[self._to]
        starts = self._client.list_offsets({self._to: EARLIEST})[self._to]
        end, start = (0 if each is None else each.offset for each in (ends, starts))
        name = f"{self._to[0]}-{self._to[1]}"
        if end < place.target_offset:
            raise SourceChanged(
                f"{name} of the target ends at offset {end}, and the mirror has written up to "
                f"{place.target_offset}: it was truncated, or deleted and created again. Mirror "
                "into another topic, with another --state"
            )
        own = []
        offset = max(start, place.target_offset)
        while offset < end:
            fetched = self._client.fetch(*self._to, offset, max_bytes=_FETCH_BYTES)
            view, following = memoryview(fetched.records), offset
            for position, header in iter_headers(view):
                if header.next_offset <= offset:
                    continue
                following = header.next_offset
                if (header.producer_id, header.producer_epoch) == self._unit.target.producer:
                    records = view[position + HEADER_SIZE : position + header.size]
                    own.append(_Own(header, crc32c.crc32c(records)))
            if following == offset:
                break  # compaction left nothing up to the end
            offset = following
        if own:
            has_lost = self._unit.target_compacts or start > place.target_offset
            return _Found(own, has_lost)
        if place.is_sent and start > place.target_offset:
            raise SourceChanged(
                f"{name} of the target begins at offset {start}, and a run that was killed may "
                f"have written there from {place.target_offset} on: retention or DeleteRecords "
                "has removed what it wrote, so that it is not known where to go on. Mirror with "
                "another --state and --from"
            )
        self._moved.place = replace(place, target_offset=max(end, place.target_offset))
        return None

    def _match(self, found: "_Found", made: Made) -> "_Found | None":
        """Take a batch as mirrored; what is left of those that are to be compared.

        Raises:
            SourceChanged: it is not the batch that was sent.
        """
        assert made.data is not None
        sequence = self._moved.place.sequence
        own = found.own[0]
        if own.header.base_sequence != sequence:
            ahead_by = (own.header.base_sequence - sequence) % (1 << 31)
            if not found.has_lost or ahead_by < made.records or ahead_by > 1 << 30:
                raise self._changed("its batches begin at other records now")
            self._advance(made, None)  # the target has removed it since
            return found
        if own.header.last_offset_delta + 1 != made.records:
            raise self._changed("its batches hold other records now")
        is_whole = own.header.records_count == made.records and not made.is_rewritten
        is_packed_alike = own.header.codec_number == codec_number_of(made.data)
        if (
            is_whole
            and is_packed_alike
            and own.crc != crc32c.crc32c(memoryview(made.data)[HEADER_SIZE:])
        ):
            raise self._changed("its records are others now")
        self._advance(made, own.header.base_offset)
        rest = found.own[1:]
        return _Found(rest, self._unit.target_compacts) if rest else None

    def _changed(self, what: str) -> SourceChanged:
        partition, place = self._unit.partition, self._moved.place
        return SourceChanged(
            f"{partition} of the source has changed from offset {place.offset} on since a run was "
            f"killed there: {what} (compacted, or truncated), so that it is not known which of its "
            "records are at the target. Mirror into another topic, with another --state"
        )

    # Sending.

    def _send(self, made: Made) -> None:
        if made.data is None:
            self._under_way.append(_Sent(made, None))
            self._settle(IN_FLIGHT)
            return
        self._settle(IN_FLIGHT - 1)
        appending = self._client.append_soon({self._to: made.data}, acks=-1)
        self._under_way.append(_Sent(made, appending))
        if not self._is_known:
            self._settle(0)
            self._is_known = True

    def _settle(self, left: int) -> None:
        """Wait until so many requests are under way."""
        under_way = self._under_way
        while under_way and (len(under_way) > left or under_way[0].appending is None):
            made, appending = under_way.popleft()
            if appending is None:
                self._advance(made, None)
                continue
            produced: dict[tuple[str, int], Produced] = {}
            self._client.finish_append(appending, produced)
            base_offset = produced[self._to].base_offset
            if base_offset is None:
                raise RequestRefused(
                    ErrorCode.duplicate_sequence_number,
                    f"{self._to[0]}-{self._to[1]} has the batch already, and does not say where",
                )
            self._advance(made, base_offset)

    def _advance(self, made: Made, base_offset: int | None) -> None:
        """All up to and including a batch of the source is at the target."""
        moved, place = self._moved, self._moved.place
        source = made.source
        following = place.target_offset
        if base_offset is not None:
            following = base_offset + made.records
            for offset, at in made.runs:
                delta = base_offset + at - offset
                if delta != self._delta:
                    moved.points.append((offset, base_offset + at))
                    self._delta = delta
        if made.data is not None:
            moved.records += made.records
            moved.bytes += len(made.data)
        moved.place = replace(
            place,
            offset=source.next_offset,
            sequence=next_sequence(place.sequence, made.records),
            target_offset=max(place.target_offset, following),
            last_ms=place.last_ms if made.data is None else source.max_timestamp,
            records=place.records + made.records,
        )


class _Own(NamedTuple):
    """A batch of the mirror at the target, and the checksum of its records alone."""

    header: BatchHeader
    crc: int


class _Found(NamedTuple):
    """Batches of the mirror at the target that no place accounts for yet."""

    own: Sequence[_Own]
    has_lost: bool
    """The target has removed the first of them, perhaps."""
