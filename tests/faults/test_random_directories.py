"""Random directories: a broker, Spark, `consume` and `archive` find the same records in them.

A reader of files sees a directory before a broker has recovered it, so it may refuse what is
damaged; it never gives fewer records than the broker serves without an error.
"""

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from archive_reading import records_of
from command_runner import run_command
from examples import examples, some_of
from hypothesis import given, settings
from hypothesis import strategies as st
from in_process_spark import InProcessSpark
from log_reading import Read
from running_broker import RunningBroker

from horolog.errors import HorologError
from horolog.jobs import archive
from horolog.record import Codec, LogRecord, build_batch, convert_all
from horolog.sources import scan

TOPIC = "t"
AROUND_MS = 1_700_000_000_000
CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.SNAPPY)
KEEP = {"log.retention.ms": "-1"}


class Directory:
    """A log directory of one partition in several segments, made of random batches."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self._rng = rng
        self._open_producer: int | None = None
        self._open_from = 0
        self.next_offset = rng.choice([0, 0, 7, 1_000])
        self.start = self.next_offset
        formats = rng.choice([(2,), (2,), (1, 2), (0, 2), (0, 1, 2)])
        partition = root / f"{TOPIC}-0"
        partition.mkdir(parents=True)
        self.segments: list[tuple[Path, list[bytes]]] = []
        for magic in formats:
            for _ in range(rng.randrange(1, 4)):
                path = partition / f"{self.next_offset:020d}.log"
                batches = [self._batch(magic) for _ in range(rng.randrange(1, 6))]
                self.segments.append((path, batches))
        if self._open_producer is not None and rng.random() < 0.5:
            self.segments[-1][1].append(self._marker(self._open_producer, is_commit=True))
            self._open_producer = None
        for path, batches in self.segments:
            path.write_bytes(b"".join(batches))

    def _batch(self, magic: int) -> bytes:
        rng = self._rng
        if magic == 2 and rng.random() < 0.2:
            self.next_offset += rng.randrange(1, 4)  # compaction took what was there
        if magic == 2 and self._open_producer is not None and rng.random() < 0.4:
            producer, self._open_producer = self._open_producer, None
            return self._marker(producer, is_commit=rng.random() < 0.5)
        base, count = self.next_offset, rng.randrange(1, 8)
        records = [
            LogRecord(
                AROUND_MS + rng.randrange(10_000), b"k%d" % (base + n), b"x" * rng.randrange(90)
            )
            for n in range(count)
        ]
        more = {}
        if magic == 2 and rng.random() < 0.3:
            if self._open_producer is None:
                self._open_producer, self._open_from = 4_000 + base, base
            more = {
                "producer_id": self._open_producer,
                "producer_epoch": 0,
                "base_sequence": base,
                "is_transactional": True,
            }
        codec = rng.choice(CODECS[:3] if magic < 2 else CODECS)
        data = build_batch(records, base_offset=base, codec=codec, **more)
        self.next_offset += count
        return data if magic == 2 else b"".join(bytes(p.data) for p in convert_all(data, magic))

    def _marker(self, producer: int, *, is_commit: bool) -> bytes:
        record = LogRecord(AROUND_MS, struct.pack(">hh", 0, is_commit), struct.pack(">hi", 0, 0))
        data = build_batch(
            [record],
            base_offset=self.next_offset,
            producer_id=producer,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
        self.next_offset += 1
        return data

    def decided(self, offsets: "Offsets") -> "Offsets":
        """Those before an open transaction: its Kafka might still end it."""
        if self._open_producer is None:
            return offsets
        return [offset for offset in offsets if offset < self._open_from]


Offsets = list[int]


def from_spark(root: Path, *, committed: bool) -> Offsets:
    level = "read_committed" if committed else "read_uncommitted"
    return Read(root, **{"kafka.isolation.level": level}).offsets()


def from_consume(root: Path) -> Offsets:
    ran = run_command("consume", root / f"{TOPIC}-0")
    if ran.code:
        raise Refused(ran.err)
    return [int(line.split("\t")[1].partition("@")[2]) for line in ran.lines]


def from_archive(root: Path, work: Path) -> Offsets:
    done = archive(
        InProcessSpark(), source=root, topics=TOPIC, archive=work / "archive", state=work / "state"
    )
    if done.refused:
        raise Refused(str(dict(done.refused)))
    return [row["offset"] for row in records_of(work / "archive")]


class Refused(Exception):
    """A reader of files says that it cannot read all."""


def from_broker(root: Path) -> tuple[Offsets, Offsets]:
    """What the broker serves, uncommitted and committed."""
    with RunningBroker(root, KEEP) as broker:
        return tuple(  # type: ignore[return-value]
            scan(broker.client, TOPIC, columns=("offset",), read_committed=committed)
            .read_all()
            .column("offset")
            .to_pylist()
            for committed in (False, True)
        )


def copied(root: Path, target: Path) -> Path:
    return Path(shutil.copytree(root, target))


@pytest.fixture
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    return lambda: tmp_path_factory.mktemp("agree")


@settings(examples(1 / 3), derandomize=True)
@given(seed=st.integers(0, 1 << 32))
def test_all_readers_find_the_same_records_in_a_sound_directory(
    fresh: Callable[[], Path], seed: int
) -> None:
    rng, work = random.Random(seed), fresh()
    made = Directory(work / "log", rng)
    if rng.random() < 0.5:
        start = rng.choice([made.start, made.start + 3, made.next_offset, made.next_offset + 9])
        line = f"0\n1\n{TOPIC} 0 {start}\n"
        (made.root / "log-start-offset-checkpoint").write_text(line)
    served = copied(made.root, work / "served")
    uncommitted, committed = from_broker(served)
    for root, stable in (made.root, made.decided(committed)), (served, committed):
        assert from_spark(root, committed=False) == uncommitted
        assert from_consume(root) == uncommitted
        assert from_spark(root, committed=True) == stable
        assert from_archive(root, work / f"archived {root.name}") == stable


def _flip_base_offset(made: Directory, rng: random.Random) -> None:
    path, batches = rng.choice(made.segments)
    at = sum(map(len, batches[: rng.randrange(len(batches))]))
    _flip(path, at + rng.choice([5, 6, 7]), rng)


def _flip_last_batch(made: Directory, rng: random.Random) -> None:
    path, batches = made.segments[-1]
    _flip(path, path.stat().st_size - rng.randrange(1, len(batches[-1]) // 2), rng)


def _cut_tail(made: Directory, rng: random.Random) -> None:
    path, batches = made.segments[-1]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - rng.randrange(1, len(batches[-1])))


def _zero_tail(made: Directory, rng: random.Random) -> None:
    path, _ = made.segments[-1]
    with path.open("ab") as file:
        file.write(bytes(rng.choice([11, 100, 5_000])))


def _flip(path: Path, at: int, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


DAMAGES = (_flip_base_offset, _flip_last_batch, _cut_tail, _zero_tail)


@pytest.mark.parametrize("damage", some_of(DAMAGES, 2))
@settings(examples(1 / 3), derandomize=True)
@given(seed=st.integers(0, 1 << 32))
def test_readers_of_a_damaged_directory_find_no_less_than_the_broker_serves_or_refuse(
    fresh: Callable[[], Path], damage: Callable[[Directory, random.Random], None], seed: int
) -> None:
    rng, work = random.Random(seed), fresh()
    made = Directory(work / "log", rng)
    damage(made, rng)
    recovered = copied(made.root, work / "served")
    try:
        uncommitted, committed = from_broker(recovered)
    except HorologError:  # what it does not recover, its clients refuse
        assert unless_refused(from_spark, made.root, committed=False) is None
        assert unless_refused(from_consume, made.root) is None
        return
    for root in (made.root, recovered):
        found = unless_refused(from_spark, root, committed=False)
        # Behind a damaged marker, which holds no record, it reads on where recovery cuts.
        assert found in (None, uncommitted) or (
            root == made.root and set(found or ()) >= set(uncommitted)
        )
        assert unless_refused(from_consume, root) in (None, uncommitted)
        stable = unless_refused(from_spark, root, committed=True)
        if stable is not None:  # a marker that was cut off leaves a transaction open
            assert stable == committed[: len(stable)]
        archived = unless_refused(from_archive, root, work / f"archived {root.name}")
        assert archived in (None, stable)


def unless_refused(read: Callable[..., Offsets], *args: Path, **more: bool) -> Offsets | None:
    try:
        return read(*args, **more)
    except (HorologError, Refused):
        return None
