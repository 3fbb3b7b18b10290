"""Comparison of a segment's block map with its log."""

from collections.abc import Iterator

from horolog.errors import StorageFailed
from horolog.record.time_stats import NO_RECORDS, OF_CREATE_TIME, TimeStats
from horolog.storage.batches.log_file import LogFile
from horolog.storage.companion.blocks import ENTRY_SIZE, Block, blocks_of, possible_entries, unpack
from horolog.storage.companion.file import Companion
from horolog.storage.companion.folding import NO_BLOCK, folded, place_of
from horolog.storage.files import Files
from horolog.storage.scan.entries import reindex
from horolog.storage.scan.findings import Finding, fault, note

_NEVER = (1 << 63) - 1


class BlockEntries:
    """Entries of a block map, compared with the log. Created before the log is read."""

    def __init__(self, files: Files, base_offset: int, log_path: str) -> None:
        self.next_position = _NEVER
        """Position of the next entry. Earlier batches need no `meet`."""
        companion = Companion(LogFile(files, log_path, base_offset), base_offset)
        self._path = companion.path
        self._mend = reindex(log_path)
        self._content = b""
        self._start = 0  # of them in the companion
        self._failure: str | None = None
        try:
            self._content, self._start = companion.map(), companion.times_end() or 0
            if not self._content:
                self._content = companion.marker.map()
        except StorageFailed as error:
            self._failure = str(error)
        self._entries = possible_entries(self._content, base_offset)
        self._blocks = enumerate(blocks_of(self._entries))
        self._number = -1
        self._block: Block | None = None
        self._rows: list[bytes] = []
        self._wrong: list[tuple[int, str]] = []
        self._foreign = 0
        self._advance()

    def meet(self, row: bytes) -> None:
        """Compare the next batch of the log with the entries up to its end."""
        position, size = place_of(row)
        while self._block is not None and self._block.end <= position:
            self._foreign += 1  # it ends within what is no batch
            self._advance()
        block = self._block
        if block is None or position < block.position:
            return
        self._rows.append(row)
        if position + size >= block.end:
            entry, _ = folded(NO_BLOCK, self._rows, _NEVER, closing=True)
            self._compare(block, unpack(entry, 0))
            self._advance()

    def _compare(self, block: Block, actual: Block) -> None:
        """Compare an entry with the block that the log has there."""
        if block[:3] != actual[:3] or block.identity != actual.identity:
            self._foreign += 1
        elif (difference := _difference(block, actual)) is not None:
            self._wrong.append((self._number, difference))

    def faults(self, *, size: int, is_live: bool) -> Iterator[Finding]:
        """Yield all findings, after the last batch.

        Args:
            size: of the log that was read.
            is_live: a broker may have written the last entry meanwhile.
        """
        whole = len(self._entries)
        if self._failure is not None:
            yield fault(self._path, f"It cannot be read: {self._failure}", self._mend)
        elif not is_live and len(self._content) > whole:
            yield fault(
                self._path,
                f"It is damaged after {len(self._entries) // ENTRY_SIZE} entries, and is not "
                "used from there on",
                self._mend,
                position=self._start + whole,
            )
        if self._wrong:
            number, what = self._wrong[0]
            more = f"; {len(self._wrong) - 1} more are wrong" if len(self._wrong) > 1 else ""
            yield fault(
                self._path,
                f"Entry {number} {what}{more}: reads by time would miss records",
                self._mend,
                position=self._start + number * ENTRY_SIZE,
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
        self._rows.clear()
        self._number, self._block = next(self._blocks, (-1, None))
        self.next_position = _NEVER if self._block is None else self._block.position


def _from_records(block: Block) -> TimeStats:
    """Return the statistics that records prove. Append times of CreateTime records are left out."""
    times = block.times._replace(latencies=NO_RECORDS.latencies)
    if times.flags & OF_CREATE_TIME:
        times = times._replace(append_min_ms=None, append_max_ms=None, flags=0)
    return times


def _difference(block: Block, actual: Block) -> str | None:
    """Describe the first field in which an entry differs from the records; None if none does."""
    fields = (*Block._fields[:-1], *TimeStats._fields)
    claims = (*block[:-1], *_from_records(block))
    facts = (*actual[:-1], *_from_records(actual))
    for name, claim, fact in zip(fields, claims, facts, strict=True):
        if claim != fact and name != "base_offset":
            return f"says {claim} for {name}, and the records {fact}"
    return None
