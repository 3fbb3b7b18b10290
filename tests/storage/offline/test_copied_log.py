"""A copy of a log, made in several goes: which transactions were aborted, and who wrote it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from batches import batch, marker
from examples import examples
from faultyfiles import ForgetfulFiles
from hypothesis import example, given
from hypothesis import strategies as st
from storelogs import NOW, UnsyncedFiles

from horolog.config import TopicConfig
from horolog.errors import Misconfigured, StorageFailed
from horolog.record import AppendTimeStretch, parse_header
from horolog.storage import (
    AbortedTxn,
    CopiedEnd,
    CopiedLog,
    Files,
    Producers,
    Segment,
    base_offsets,
    copying,
    names,
    read_aborted,
    replay,
)

PRODUCERS = (5, 6, 7)
IDEMPOTENT = (8, (1 << 63) - 1)


class Source:
    """Batches of several producers, in transactions and not; and what was aborted."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self.batches: list[bytes] = []
        self.aborted: list[AbortedTxn] = []
        self._next_offset = rng.choice((0, 40))
        self._open: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        for _ in range(count):
            kind = rng.choice(("plain", "idempotent", "part", "part", "end", "end"))
            if kind == "plain":
                self._put(-1)
            elif kind == "idempotent":
                self._put(rng.choice(IDEMPOTENT), epoch=1)
            elif kind == "part":
                producer = rng.choice(PRODUCERS)
                self._open.setdefault(producer, self._next_offset)
                self._put(producer, is_transactional=True)
            else:  # also of transactions of which nothing is here
                self._end(rng.choice(PRODUCERS), kind=rng.randrange(2))

    def _put(self, producer: int, *, epoch: int = 0, is_transactional: bool = False) -> None:
        sequence = self._sequences.get(producer, 0)
        self._sequences[producer] = sequence + 2
        is_producer = producer >= 0
        made = batch(
            NOW,
            NOW,
            base_offset=self._next_offset,
            producer_id=producer,
            producer_epoch=epoch if is_producer else -1,
            base_sequence=sequence if is_producer else -1,
            is_transactional=is_transactional,
        )
        self.batches.append(made)
        self._next_offset += 2

    def _end(self, producer: int, *, kind: int) -> None:
        offset = self._next_offset
        first = self._open.pop(producer, None)
        if first is not None and not kind:
            stable = min([offset + 1, *self._open.values()])
            self.aborted.append(AbortedTxn(producer, first, offset, stable))
        self.batches.append(marker(offset, producer, kind=kind))
        self._next_offset += 1


def append(log: CopiedLog, batches: Sequence[bytes]) -> None:
    for each in batches:
        header = parse_header(each)
        if header.base_offset >= log.next_offset:
            log.append(each, [AppendTimeStretch(header.base_offset, NOW)])


def aborted_of(directory: Path) -> list[AbortedTxn]:
    files = Files()
    paths = sorted(directory.glob("*.txnindex"))
    return [entry for path in paths for entry in read_aborted(files, str(path))]


def producers_of(directory: Path, *, with_snapshots: bool) -> object:
    """What a start finds out."""
    files, producers = Files(), Producers()
    present = sorted(path.name for path in directory.iterdir())
    segments = [
        Segment(
            files,
            str(directory),
            base,
            TopicConfig(),
            size=(directory / f"{base:020d}.log").stat().st_size,
        )
        for base in base_offsets(present, names.LOG)
    ]
    segments[-1].end = segments[-1].whole_end()
    snapshots = base_offsets(present, names.SNAPSHOT) if with_snapshots else []
    replay(files, str(directory), segments, producers, snapshots, 0)
    files.close()
    states = {producer: (state.epoch, state.batches) for producer, state in producers}
    return states, producers.unended()


def spoil(directory: Path, how: str, known: CopiedEnd) -> None:
    """Do what a kill, a power failure or an earlier release has left behind what is known."""
    logs = sorted(directory.glob("*.log"))
    if how == "torn" and logs and int(logs[-1].stem) != known.base_offset:
        logs[-1].write_bytes(logs[-1].read_bytes()[:-3])
    elif how == "no snapshots":
        for path in directory.glob("*.snapshot"):
            path.unlink()
    elif how == "earlier release":
        for suffix in ("snapshot", "batches", "txnindex"):
            for path in directory.glob(f"*.{suffix}"):
                path.unlink()
    elif how == "index ahead" and logs:
        with logs[-1].with_suffix(".txnindex").open("ab") as file:
            file.write(bytes(2) + b"".join(n.to_bytes(8, "big") for n in (5, 9000, 9001, 9000)))
    elif how == "index torn" and logs and int(logs[-1].stem) != known.base_offset:
        index = logs[-1].with_suffix(".txnindex")
        if index.exists():
            index.write_bytes(index.read_bytes()[:-3])


HOW = ("nothing", "torn", "no snapshots", "earlier release", "index ahead", "index torn")


@examples(1)
@given(
    seed=st.integers(0, 1 << 40),
    count=st.integers(1, 40),
    goes=st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.sampled_from(HOW)), max_size=4),
    segment_bytes=st.sampled_from([300, 1000, 1 << 30]),
)
@example(seed=1, count=40, goes=[(30, True, "earlier release")], segment_bytes=300)
@example(seed=1, count=40, goes=[(30, True, "index ahead")], segment_bytes=1000)
@example(seed=1, count=40, goes=[(30, False, "index torn")], segment_bytes=1000)
def test_aborted_transactions_and_producers_are_known_however_often_a_copy_was_killed(
    seed: int, count: int, goes: list[tuple[int, bool, str]], segment_bytes: int
) -> None:
    source = Source(random.Random(seed), count)
    known = CopiedEnd(parse_header(source.batches[0]).base_offset)
    with tempfile.TemporaryDirectory() as path:
        directory = Path(path, "t-0")
        end = 0
        for some, is_synced, how in [*goes, (count, True, "nothing")]:
            files = UnsyncedFiles()
            end += some
            with copying(str(directory)):
                log = CopiedLog(files, str(directory), known, segment_bytes=segment_bytes)
                append(log, source.batches[:end])
                if is_synced:
                    log.sync()
                    known = log.end
            files.close()
            spoil(directory, how, known)
        logs = sorted(directory.glob("*.log"))
        assert b"".join(each.read_bytes() for each in logs) == b"".join(source.batches)
        assert aborted_of(directory) == source.aborted
        whole = producers_of(directory, with_snapshots=False)
        assert producers_of(directory, with_snapshots=True) == whole


def test_what_a_sync_may_have_lost_is_written_again_by_the_next_attempt(tmp_path: Path) -> None:
    source, directory = Source(random.Random(3), 9), tmp_path / "t-0"
    known = CopiedEnd(parse_header(source.batches[0]).base_offset)
    files = ForgetfulFiles()
    with copying(str(directory)):
        log = CopiedLog(files, str(directory), known, segment_bytes=1 << 30)
        append(log, source.batches)
        files.fails = True
        with pytest.raises(StorageFailed, match="sync"):
            log.sync()
        files.fails = False
        log = CopiedLog(files, str(directory), known, segment_bytes=1 << 30)
        log.sync()
    (path,) = directory.glob("*.log")
    assert files.on_disk(str(path)) == b"".join(source.batches)


@pytest.mark.parametrize("segment_bytes", [1000, 1 << 30])
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_copy_that_is_damaged_before_its_known_place_is_refused_as_it_is(
    tmp_path: Path, segment_bytes: int, *, is_closed: bool
) -> None:
    """Also if there is more behind that place, which recovery would take out of the log."""
    source, directory, files = Source(random.Random(3), 20), tmp_path / "t-0", UnsyncedFiles()
    known = CopiedEnd(parse_header(source.batches[0]).base_offset)
    with copying(str(directory)):
        log = CopiedLog(files, str(directory), known, segment_bytes=segment_bytes)
        append(log, source.batches[:4])
        log.sync()
        known = log.end
        log = CopiedLog(files, str(directory), known, segment_bytes=segment_bytes)
        append(log, source.batches)
        if is_closed:
            log.sync()
    files.close()
    path = directory / f"{known.base_offset:020d}.log"
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[known.size - 3] ^= 1
    path.write_bytes(damaged)
    before = {each.name: each.read_bytes() for each in directory.iterdir()}
    with copying(str(directory)), pytest.raises(Misconfigured, match="is damaged"):
        CopiedLog(UnsyncedFiles(), str(directory), known, segment_bytes=segment_bytes)
    assert {each.name: each.read_bytes() for each in directory.iterdir()} == before
    path.write_bytes(content)
    with copying(str(directory)):
        log = CopiedLog(UnsyncedFiles(), str(directory), known, segment_bytes=segment_bytes)
        append(log, source.batches)
        log.sync()
    logs = sorted(directory.glob("*.log"))
    assert b"".join(each.read_bytes() for each in logs) == b"".join(source.batches)


def test_a_copy_without_a_batch_may_begin_before_the_offset_that_was_asked_for(
    tmp_path: Path,
) -> None:
    """The source starts within its first batch, and each attempt is killed before it is noted."""
    directory, first = tmp_path / "t-0", batch(NOW, NOW, NOW)
    known = CopiedEnd(2)
    for batches in ([], [first], [first]):
        with copying(str(directory)):
            log = CopiedLog(UnsyncedFiles(), str(directory), known, segment_bytes=1 << 30)
            for each in batches if log.next_offset == 2 else ():
                log.append(each, [AppendTimeStretch(0, NOW)])
            log.sync()
            if not batches:
                known = log.end
    assert log.next_offset == 3
    assert [path.name for path in directory.glob("*.log")] == [f"{0:020d}.log"]
    assert (directory / f"{0:020d}.log").read_bytes() == first


@pytest.mark.parametrize("is_known", [True, False])
def test_a_copy_goes_on_behind_segments_that_a_compaction_has_yet_to_give_their_names(
    tmp_path: Path, *, is_known: bool
) -> None:
    source, directory = Source(random.Random(3), 20), tmp_path / "t-0"
    first = CopiedEnd(parse_header(source.batches[0]).base_offset)
    with copying(str(directory)):
        log = CopiedLog(UnsyncedFiles(), str(directory), first, segment_bytes=1 << 30)
        append(log, source.batches[:10])
        log.sync()
        known = log.end if is_known else first
    (base,) = base_offsets((each.name for each in directory.iterdir()), names.LOG)
    for path in directory.iterdir():
        if path.name.startswith(f"{base:020d}.") and not path.name.endswith(names.SNAPSHOT):
            path.rename(f"{path}{names.SWAP}")
    with copying(str(directory)):
        log = CopiedLog(UnsyncedFiles(), str(directory), known, segment_bytes=1 << 30)
        append(log, source.batches)
        log.sync()
    (path,) = directory.glob("*.log")
    assert path.read_bytes() == b"".join(source.batches)
    assert not [*directory.glob("*.cut"), *directory.glob("*.swap")]
