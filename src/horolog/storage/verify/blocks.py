"""The block map of a segment, compared with its log while that is read."""

from collections.abc import Iterator

from horolog.buffers import Buffer
from horolog.errors import StorageFailed
from horolog.record.batch import BatchHeader
from horolog.record.scan import RecordFacts
from horolog.storage.files import Files
from horolog.storage.index.block_map import LONGEST_MAP, met_with
from horolog.storage.index.blocks import (
    ENTRY_SIZE,
    HEADER_SIZE,
    OF_CREATE_TIME,
    Block,
    Met,
    MetSet,
    fold,
    sound,
    unpack,
)
from horolog.storage.verify.entries import REINDEX
from horolog.storage.verify.findings import Finding, fault, note

_NEVER = 1 << 63


class BlockEntries:
    """The entries of a block map; created before the log is read, which may be growing."""

    def __init__(self, files: Files, path: str, base_offset: int, log_path: str) -> None:
        self.next_position = _NEVER
        """Batches before it need not be shown."""
        self._path = path
        self._mend = REINDEX.format(path=log_path)
        self._content = b""
        self._failure: str | None = None
        try:
            self._content = files.read_whole(path, LONGEST_MAP) or b""
        except StorageFailed as error:
            self._failure = str(error)
        self._entries = sound(self._content, base_offset)
        self._number = -1
        self._block: Block | None = None
        self._met: list[Met | MetSet] = []
        self._wrong: list[tuple[int, str]] = []
        self._foreign = 0
        self._advance()

    def meet(
        self, position: int, header: BatchHeader, batch: Buffer | None, facts: RecordFacts | None
    ) -> None:
        """Compare the entries up to the end of a batch with it."""
        while self._block is not None and self._block.end <= position:
            self._foreign += 1  # it ends within what is no batch
            self._advance()
        block = self._block
        if block is None or position < block.position:
            return
        self._met.append(met_with(position, header, batch, facts, None))
        if position + header.size >= block.end:
            self._compare(block, fold(self._met))
            self._advance()

    def meet_set(self, met: MetSet) -> None:
        """The same for messages of v0 or v1 that were taken as one; see `edges`."""
        position, size = met.met[:2]
        while self._block is not None and self._block.end <= position:
            self._foreign += 1
            self._advance()
        block = self._block
        if block is None or position < block.position:
            return
        self._met.append(met)
        if position + size >= block.end:
            self._compare(block, fold(self._met))
            self._advance()

    def edges(self, start: int, end: int) -> list[int]:
        """Where blocks begin and end in a stretch of the log: no set goes beyond."""
        found: list[int] = []
        for at in range(max(0, self._number) * ENTRY_SIZE, len(self._entries), ENTRY_SIZE):
            block = unpack(self._entries, at)
            if block.position >= end:
                break
            found += (edge for edge in (block.position, block.end) if start < edge < end)
        return found

    def _compare(self, block: Block, found: Block) -> None:
        if (block.position, block.size, block.headers_crc, block.last_header_crc) != (
            found.position,
            found.size,
            found.headers_crc,
            found.last_header_crc,
        ):
            self._foreign += 1
            return
        block, found = block._replace(latencies=()), found._replace(latencies=())
        if block.flags & OF_CREATE_TIME:
            block, found = _without_appending(block), _without_appending(found)
        if block != found._replace(base_offset=block.base_offset):
            self._wrong.append((self._number, _difference(block, found)))

    def faults(self, *, size: int, is_live: bool) -> Iterator[Finding]:
        """What is wrong with it, when all batches have been read.

        Args:
            size: of the log that was read.
            is_live: a broker may have written the last entry meanwhile.
        """
        whole = HEADER_SIZE + len(self._entries)
        if self._failure is not None:
            yield fault(self._path, f"It cannot be read: {self._failure}", self._mend)
        elif not is_live and (len(self._content) > whole or 0 < len(self._content) < HEADER_SIZE):
            yield fault(
                self._path,
                f"It is damaged after {len(self._entries) // ENTRY_SIZE} entries, and is not "
                "used from there on",
                self._mend,
                position=whole,
            )
        if self._wrong:
            number, what = self._wrong[0]
            more = f"; {len(self._wrong) - 1} more are wrong" if len(self._wrong) > 1 else ""
            yield fault(
                self._path,
                f"Entry {number} {what}{more}: reads by time would miss records",
                self._mend,
                position=HEADER_SIZE + number * ENTRY_SIZE,
            )
        beyond = 0
        while self._block is not None:
            beyond += self._block.end > size or not is_live
            self._advance()
        if self._foreign or (beyond and not is_live):
            yield note(
                self._path,
                f"{self._foreign + beyond} entries are of other batches than the log has, and are "
                "not used",
                self._mend,
            )

    def _advance(self) -> None:
        self._number += 1
        self._met.clear()
        at = self._number * ENTRY_SIZE
        self._block = unpack(self._entries, at) if at < len(self._entries) else None
        self.next_position = _NEVER if self._block is None else self._block.position


def _without_appending(block: Block) -> Block:
    """Without what only the broker that appended knows of records with create times."""
    return block._replace(append_min_ms=0, append_max_ms=0, flags=0)


def _difference(block: Block, found: Block) -> str:
    for name, mine, true in zip(block._fields, block, found, strict=True):
        if mine != true:
            return f"says {mine} for {name}, and the records {true}"
    return "differs"
