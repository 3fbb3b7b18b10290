"""How fast is a log compacted? The cleaner of each broker, over the same batches.

Records of 100 B, ten for each key on average, are sent to a topic that is not due for compaction;
then it is made due. The time counts from there until the cleaner point is at the active segment, by
`cleaner-offset-checkpoint`. What is left of the log is compared, too. The work that the figure is
meant for is `--records 100000000 --loads plain --runs 1`: 10 million keys, 300 MB for the map of
each side, up to 30 GB of disk, and half an hour. How far it is goes to standard error; a run waits
for the files of the one before to be removed where the disk has no room for both, and what an
interrupt leaves is removed.
"""

import contextlib
import itertools
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench import harness, raw
from bench.sides import SETTINGS, SIDES, Side, create_topic, delete_topic

from horolog.client import Client, ResourceType
from horolog.clock import SystemClock
from horolog.record.batch import HEADER_SIZE, parse_header, with_records
from horolog.record.builder import LogRecord, build_batch
from horolog.record.compression import Codec, compress
from horolog.storage import names
from horolog.storage.directory.checkpoints import read_offsets
from horolog.storage.files import Files

RECORDS = 4_000_000
RECORDS_A_KEY = 10
VALUE_BYTES = 82  # 100 with the key and what frames a record
KEY = "{:010d}"
SLOT_BYTES, LOAD_FACTOR = 24, 0.9  # of both brokers' maps
LEAST_MAP_BYTES = 128 << 20  # the default
UNDER_WAY = 16
CLEAN_TIMEOUT_S = 3600
ROOM_TIMEOUT_S = 180  # beyond `file.delete.delay.ms`
SAY_EVERY_S = 10
CPU = "broker CPU-s"
DUE, NOT_DUE = {"min.cleanable.dirty.ratio": "0.01"}, {"min.cleanable.dirty.ratio": "1.0"}
SEGMENTS = 6


class Load(NamedTuple):
    """What is compacted."""

    name: str
    records: int
    a_batch: int
    codec: Codec = Codec.NONE

    @property
    def settings(self) -> dict[str, str]:
        """Of its topic: at most this many segments, the active one included."""
        segment_bytes = min(max(1 << 20, 100 * self.records // (SEGMENTS - 1)), 1 << 30)
        return {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes), **NOT_DUE}

    @property
    def disk_bytes(self) -> int:
        """What it takes, beside what is left of it: with the frames of its batches, twice."""
        framed = 100 * self.records + HEADER_SIZE * (self.records // self.a_batch)
        return int(2.2 * framed)


class Progress:
    """Says how far something is, every now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started = self._said = time.monotonic()

    def say(self, how_far: str) -> None:
        """Say it, if it is time."""
        now = time.monotonic()
        if now - self._said >= SAY_EVERY_S:
            self._said = now
            print(f"  {self._what}: {how_far}, {now - self._started:.0f} s", file=sys.stderr)


def wait_for_room(directory: Path, size: int, timeout_s: float) -> None:
    """Wait until the disk has room for this many bytes: what was deleted is removed later."""
    started, progress = time.monotonic(), Progress("waiting for room on the disk")
    while (free := shutil.disk_usage(directory).free) < size:
        if time.monotonic() - started >= timeout_s:
            raise SystemExit(f"{directory} needs {size / 1e9:.0f} GB, and has {free / 1e9:.0f} GB")
        progress.say(f"{free / 1e9:.0f} of {size / 1e9:.0f} GB")
        time.sleep(1)


def batches(load: Load, seed: int) -> Iterator[bytes]:
    """Batches of records whose keys are drawn alike, the same for each side."""
    chance = random.Random(seed)
    draw = np.random.default_rng(seed)
    values = [chance.randbytes(VALUE_BYTES // 2).hex().encode() for _ in range(load.a_batch)]
    placeholder = b"?" * len(KEY.format(0))
    now_ms = SystemClock().now_ms()
    template = build_batch([LogRecord(now_ms, placeholder, value) for value in values])
    header = parse_header(template)
    body = np.frombuffer(template, np.uint8)[HEADER_SIZE:].copy()
    text, positions, at = body.tobytes(), [], 0
    while (at := text.find(placeholder, at)) >= 0:
        positions.append(at)
        at += len(placeholder)
    where = np.array(positions)[:, None] + np.arange(len(placeholder))
    tens = 10 ** np.arange(len(placeholder))[::-1]
    for _ in range(load.records // load.a_batch):
        keys = draw.integers(0, max(1, load.records // RECORDS_A_KEY), load.a_batch)
        body[where] = keys[:, None] // tens % 10 + ord("0")
        records = body.tobytes()
        if load.codec is not Codec.NONE:
            records = compress(load.codec, records)
        yield with_records(header._replace(attributes=load.codec.value), records)


def send(side: Side, topic: str, load: Load, seed: int) -> None:
    """Append all of it, several requests under way."""
    progress = Progress(f"{side.name}, {load.name}, sending")

    def bodies() -> Iterator[bytes]:
        for number, batch in enumerate(batches(load, seed)):
            progress.say(f"{number * load.a_batch:,} of {load.records:,} records")
            yield raw.produce_request(topic, batch)

    with raw.Connection(side.bootstrap, timeout_s=300) as connection:
        connection.send_all(raw.PRODUCE, bodies(), raw.produced, UNDER_WAY)


class Cleaners:
    """Two brokers whose cleaners are compared, each with its directory."""

    def __init__(self, sides: Mapping[str, Side], directories: Mapping[str, Path]) -> None:
        self.sides = sides
        self._directories = directories
        self._runs = itertools.count()

    def measure(self, side: Side, load: Load) -> Mapping[str, float]:
        """Send, compact, look at what is left, delete."""
        topic = f"cleaned-{next(self._runs)}"
        log_dir = self._directories[side.name] / "data"
        wait_for_room(self._directories[side.name], load.disk_bytes, ROOM_TIMEOUT_S)
        create_topic(side, topic, load.settings)
        send(side, topic, load, seed=7)
        logs = sorted((log_dir / f"{topic}-0").glob("*.log"))
        size = sum(log.stat().st_size for log in logs[:-1])
        end = int(logs[-1].stem)
        assert end, "one segment is not compacted: more records are needed"
        used, started = side.cpu_s(), time.perf_counter()
        with Client(side.bootstrap) as client:
            client.alter_configs({(ResourceType.TOPIC, topic): DUE})
        progress = Progress(f"{side.name}, {load.name}, cleaning")
        while (point := cleaner_point(log_dir, topic)) < end:
            progress.say(f"clean up to {point:,} of {end:,}")
            time.sleep(0.01)
            assert time.perf_counter() - started < CLEAN_TIMEOUT_S, f"{side.name} does not clean"
        seconds, used = time.perf_counter() - started, side.cpu_s() - used
        left = sum(
            log.stat().st_size
            for log in (log_dir / f"{topic}-0").glob("*.log")
            if int(log.stem) < end
        )
        delete_topic(side, topic)
        return {
            "seconds": seconds,
            "records/s": end / seconds,
            "MB/s": size / seconds / 1e6,
            CPU: used,
            "MB left": left / 1e6,
        }


def cleaner_point(log_dir: Path, topic: str) -> int:
    """Up to where a topic's only partition is compacted."""
    path = log_dir / names.CLEANER_OFFSETS
    found = read_offsets(Files(read_only=True), str(path)) if path.exists() else {}
    return found.get(names.TopicPartition(topic, 0), 0)


def main() -> None:
    parser = harness.parser_of(__doc__ or "")
    parser.add_argument("--records", type=int, default=RECORDS, help=f"of 100 B ({RECORDS:,})")
    parser.add_argument(
        "--loads", default="plain,lz4,single", help="some of them (plain,lz4,single)"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # leaves nothing behind
    asked = harness.options_of(given)
    harness.require_peer()
    records = given.records // 3 if asked.quick else given.records
    known = {
        "plain": Load("batches of 150 records", records, 150),
        "lz4": Load("batches of 150 records, lz4", records, 150, Codec.LZ4),
        "single": Load("batches of one record", records // 16, 1),
    }
    if unknown := set(given.loads.split(",")) - known.keys():
        parser.error(f"no such loads: {', '.join(sorted(unknown))}")
    loads = [known[name] for name in given.loads.split(",")]
    for load in loads:  # nothing is removed later that would make room
        wait_for_room(Path(tempfile.gettempdir()), load.disk_bytes, 0)
    slots = records // RECORDS_A_KEY / LOAD_FACTOR * 1.1
    settings = {
        **SETTINGS,
        "log.cleaner.backoff.ms": "50",
        "log.cleaner.dedupe.buffer.size": str(max(LEAST_MAP_BYTES, int(slots) * SLOT_BYTES)),
    }
    with contextlib.ExitStack() as stack:
        sides, directories = {}, {}
        for name in asked.names:
            directories[name] = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            sides[name] = stack.enter_context(SIDES[name](settings, directories[name]))
        cleaners = Cleaners(sides, directories)
        versions = {name: side.version for name, side in sides.items()}
        for load in loads:
            taken: dict[str, list[harness.Numbers]] = {name: [] for name in sides}
            warm_up = load._replace(records=min(load.records, RECORDS))  # it is not counted
            for run in range(asked.runs + 1):
                for name in sides if run % 2 else reversed(sides):
                    numbers = cleaners.measure(sides[name], load if run else warm_up)
                    if run:
                        taken[name].append(numbers)
            work = f"compact {load.records:,} records, ten a key, {load.name}"
            row = harness.Row(work, "records/s", "1.0x", ("MB/s", "seconds", CPU, "MB left"))
            harness.report(row, taken, versions, asked)


if __name__ == "__main__":
    main()
