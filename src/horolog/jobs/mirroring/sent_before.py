"""What a run that was killed has sent and not written down: found in the target's log.

The mirror's batches are known by their producer id. They are compared with the batches of the
source, one by one, where several were sent as one: as that one.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import crc32c

from horolog.buffers import Buffer
from horolog.client import EARLIEST, LATEST, Client
from horolog.client.appends import ProducerId
from horolog.errors import CorruptBatch, RequestRefused, StorageFailed
from horolog.jobs.mirroring.batches import Made
from horolog.jobs.mirroring.ledger import Place
from horolog.record.batch import HEADER_SIZE, BatchHeader, iter_headers
from horolog.record.compression import fleeting_chunks
from horolog.record.joining import Joiner
from horolog.storage.names import TopicPartition

_FETCH_BYTES: Final = 8 << 20
_MAX_BATCH_BYTES: Final = 1 << 30
_SPARE_BYTES: Final = 8 << 10


class SourceChanged(StorageFailed):
    """Which records of the source are at the target already cannot be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLog:
    """A partition that is mirrored into."""

    source: TopicPartition
    partition: TopicPartition
    producer: ProducerId
    """The mirror's."""
    compacts: bool
    """Batches are removed from its midst."""


class _Own(NamedTuple):
    """A batch of the mirror at the target, and the checksum of its records as they are there."""

    header: BatchHeader
    crc: int
    plain: "_Plain | None"
    """Its records decompressed; None if they cannot be."""


class _Plain(NamedTuple):
    crc: int
    bytes: int


def find_sent(client: Client, log: TargetLog, place: Place) -> "tuple[SentBefore | None, Place]":
    """The mirror's batches at the target behind a place; the place itself if there are none.

    Raises:
        SourceChanged: it cannot be known.
        RequestRefused, NoAnswer: the target refuses, or does not answer.
    """
    to = log.partition
    ends, starts = (client.list_offsets({to: which})[to] for which in (LATEST, EARLIEST))
    end, start = (0 if each is None else each.offset for each in (ends, starts))
    if end < place.target_offset:
        raise SourceChanged(
            f"{to} of the target ends at offset {end}, and the mirror has written up to "
            f"{place.target_offset}: it was truncated, or deleted and created again. Mirror "
            "into another topic, with another --state"
        )
    own = deque(_own_batches(client, log, max(start, place.target_offset), end))
    if own:
        return SentBefore(
            log, place, own, has_lost=log.compacts or start > place.target_offset
        ), place
    if place.is_sent and start > place.target_offset:
        raise SourceChanged(
            f"{to} of the target begins at offset {start}, and a run that was killed may "
            f"have written there from {place.target_offset} on: retention or DeleteRecords "
            "has removed what it wrote, so that it is not known where to continue. Mirror with "
            "another --state and --from"
        )
    return None, replace(place, target_offset=max(end, place.target_offset))


def _own_batches(client: Client, log: TargetLog, offset: int, end: int) -> Iterable[_Own]:
    while offset < end:
        fetched = client.fetch(*log.partition, offset, max_bytes=_FETCH_BYTES)
        view, following = memoryview(fetched.records), offset
        for position, header in iter_headers(view):
            if header.next_offset <= offset:
                continue
            following = header.next_offset
            if (header.producer_id, header.producer_epoch) == log.producer:
                records = view[position + HEADER_SIZE : position + header.size]
                yield _Own(header, crc32c.crc32c(records), _plain(header, records))
        if following == offset:
            return  # compaction left nothing up to the end
        offset = following


def _plain(header: BatchHeader, records: Buffer) -> _Plain | None:
    crc = size = 0
    try:
        for chunk in fleeting_chunks(header.codec, records, max_bytes=_MAX_BATCH_BYTES):
            crc = crc32c.crc32c(chunk, crc)
            size += len(chunk)
    except (CorruptBatch, RequestRefused):
        return None
    return _Plain(crc, size)


class SentBefore:
    """Batches of the mirror at the target that no place accounts for yet."""

    def __init__(self, log: TargetLog, place: Place, own: deque[_Own], *, has_lost: bool) -> None:
        """Those behind a place.

        Args:
            log: where they are.
            place: at the source, for sentences of errors.
            own: in their order.
            has_lost: the target has removed the first of them, perhaps.
        """
        self._log = log
        self._offset = place.offset
        self._own = own
        self._has_lost = has_lost
        self._part: list[Made] = []
        """What was made of the source and is in the first batch, which holds more."""
        self._part_records = 0

    @property
    def is_over(self) -> bool:
        """All of them were found at the source."""
        return not self._own

    def match(self, made: Made, sequence: int) -> list[tuple[Made, int | None]]:
        """What is known to be mirrored with this next batch of the source.

        Args:
            made: what becomes of the batch.
            sequence: of the first record that is not known to be mirrored.

        Returns:
            Batches of the source in order, with the offset of their first record at the target;
            None where there is none, or it is not there any more.

        Raises:
            SourceChanged: these are not the records that were sent.
        """
        if made.batch is None:
            if self._part:
                self._part.append(made)
                return []
            return [(made, None)]
        own = self._own[0]
        if not self._part and own.header.base_sequence != sequence:
            ahead_by = (own.header.base_sequence - sequence) % (1 << 31)
            if not self._has_lost or ahead_by < made.records or ahead_by > 1 << 30:
                raise self.changed("its batches begin at other records now")
            return [(made, None)]  # the target has removed it since
        self._part.append(made)
        self._part_records += made.records
        count = own.header.last_offset_delta + 1
        if self._part_records < count:
            return []
        if self._part_records > count:
            raise self.changed("its batches hold other records now")
        if not self._is_same(own):
            raise self.changed("its records are others now")
        mirrored: list[tuple[Made, int | None]] = []
        offset = own.header.base_offset
        for each in self._part:
            mirrored.append((each, None if each.batch is None else offset))
            offset += each.records
        self._own.popleft()
        self._has_lost, self._part, self._part_records = self._log.compacts, [], 0
        self._offset = made.source.next_offset
        return mirrored

    def _is_same(self, own: _Own) -> bool:
        """Whether a batch holds what was made of the source, as far as that can be compared."""
        sent = [made for made in self._part if made.batch is not None]
        is_whole = own.header.records_count == self._part_records
        if not is_whole or any(
            made.header.codec_number != own.header.codec_number for made in sent
        ):
            return True  # compacted there, or compressed otherwise
        if len(sent) == 1:
            made = sent[0]
            assert made.batch is not None
            # Another version may compress what is written anew otherwise.
            return made.is_rewritten or own.crc == crc32c.crc32c(
                memoryview(made.batch)[HEADER_SIZE:]
            )
        return own.plain is not None and own.plain == _joined(sent, own.plain.bytes)

    def changed(self, what: str) -> SourceChanged:
        """The error that says what is different at the source."""
        return SourceChanged(
            f"{self._log.source} of the source has changed from offset {self._offset} on since a "
            f"run was killed there: {what} (compacted, or truncated), so that it is not known "
            "which of its records are at the target. Mirror into another topic, with another "
            "--state"
        )


def _joined(mades: list[Made], size: int) -> _Plain | None:
    """Their records as those of one batch of about a size; None if they cannot be that."""
    joiner = Joiner(2 * size + _SPARE_BYTES)
    for made in mades:
        assert made.batch is not None
        if not joiner.add(made.header, made.batch):
            return None
    records = joiner.records
    return _Plain(crc32c.crc32c(records), len(records))
