"""What does a week of commits cost? Disk, and the load at a start while the broker serves.

    python -m bench.commit_history [--rates 10,100] [--days 7] [--share 0.02] [--groups 16]
        [--offsets 1] [--segment-bytes 104857600]

A directory is made that has a share of the commits of some days, each a batch of its own as the
coordinator writes it, in `__consumer_offsets`; the broker is stopped then, and its log written
anew. Commits go round the groups, and within a group round ten partitions. Then the broker starts;
the time counts from `ready` until no group is answered with COORDINATOR_LOAD_IN_PROGRESS any more.
Meanwhile a client asks for offsets every 10 ms: its longest wait is what others notice. The sizes
and times of the whole are extrapolated from the share, which is said. Then the last 1,000 entries
of a group's history are asked for, and what was in force at the end, for which all is read.
"""

import argparse
import itertools
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from bench import harness, raw
from bench.sides import Side, create_topic, horolog

from horolog.client import Client, CommittedOffset
from horolog.clock import DAY_MS, SystemClock
from horolog.groups.replay import records_of
from horolog.groups.rows import GroupChange, OffsetRow
from horolog.history import AskGroupHistory
from horolog.record.builder import build_batch
from horolog.schemas.offsets import partition_for
from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.producers.states import Producers
from horolog.wire.questions import HISTORY_GROUP

TOPIC = "committed"
PARTITIONS = 10
SEGMENT_BYTES = 100 << 20
PAUSE_S = 0.01
GIVE_UP_S = 3600


def batches(
    group_id: str, count: int, offsets: int, topic_id: UUID | None, until_ms: int, every_ms: float
) -> Iterator[bytes]:
    """The commits of one group, the last at a time."""
    turns = itertools.cycle(range(PARTITIONS))
    for number in range(0, count, offsets):
        at_ms = until_ms - int((count - number) * every_ms)
        rows = [
            OffsetRow(group_id, TOPIC, next(turns), number, 0, "", at_ms, topic_id=topic_id)
            for _ in range(offsets)
        ]
        yield build_batch(records_of(GroupChange(offsets=rows), at_ms))


def write(directory: Path, made: Iterator[bytes], segment_bytes: int) -> int:
    """Write the log of a partition anew; its size."""
    for path in directory.glob("0*"):
        path.unlink()
    size, offset, log = 0, 0, None
    for batch in made:
        if log is None or log.tell() > segment_bytes:
            if log is not None:
                log.close()
                Producers().write(Files(), str(directory), offset)  # as a roll does
            log = (directory / names.segment_file(offset, names.LOG)).open("wb")
        log.write(offset.to_bytes(8, "big") + batch[8:])  # a base offset has no checksum
        offset += int.from_bytes(batch[57:61], "big")
        size += len(batch)
    assert log is not None
    log.close()
    return size


def fill(
    base: Path, groups: list[str], commits: int, offsets: int, days: float, segment_bytes: int
) -> int:
    """A directory with this many commits; the bytes of their log."""
    with horolog({"horolog.history.ms": str(7 * DAY_MS)}, base) as side:
        create_topic(side, TOPIC)
        with Client(side.bootstrap) as client:
            for group_id in groups:
                client.offset_commit(group_id, {(TOPIC, 0): CommittedOffset(1)})
            topic_id = client.metadata([TOPIC]).topics[TOPIC].topic_id
    now_ms, by_partition = SystemClock().now_ms(), dict[int, list[str]]()
    for group_id in groups:
        by_partition.setdefault(partition_for(group_id, 50), []).append(group_id)
    each, size = commits // len(groups), 0
    for partition, its in by_partition.items():
        made = [
            batches(group_id, each, offsets, topic_id, now_ms, days * DAY_MS / each)
            for group_id in its
        ]
        directory = base / "data" / f"{names.CONSUMER_OFFSETS}-{partition}"
        every = itertools.chain.from_iterable(zip(*made, strict=True))
        size += write(directory, every, segment_bytes)
    return size


def loading(side: Side, groups: list[str]) -> tuple[float, float]:
    """Seconds until all groups are answered, and the longest wait of another client meanwhile."""
    waits, loaded = [0.0], threading.Event()

    def ask() -> None:
        with raw.Connection(side.bootstrap) as other:
            while not loaded.wait(PAUSE_S):
                asked = time.perf_counter()
                raw.found(other.ask(raw.LIST_OFFSETS, raw.list_offsets_request(TOPIC, -1)))
                waits.append(time.perf_counter() - asked)

    asking = threading.Thread(target=ask, daemon=True)
    started = time.perf_counter()
    asking.start()
    with Client(side.bootstrap, timeout_ms=1000 * GIVE_UP_S) as client:
        for group_id in groups:  # asked again while it is being loaded
            assert client.offset_fetch(group_id)
    seconds = time.perf_counter() - started
    loaded.set()
    asking.join()
    return seconds, max(waits)


def history(side: Side, group_id: str, ask: AskGroupHistory) -> tuple[float, float]:
    """Seconds until it is answered, and of the broker's processor, without loading kernels."""
    with Client(side.bootstrap, timeout_ms=1000 * GIVE_UP_S) as client:
        client.ask(HISTORY_GROUP, group_id, ask._replace(most=1))
        used, started = side.cpu_s(), time.perf_counter()
        found = client.ask(HISTORY_GROUP, group_id, ask)
        assert found is not None
        assert found.events
        return time.perf_counter() - started, side.cpu_s() - used


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", default="10,100", help="commits a second (10,100)")
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--share", type=float, default=0.02, help="of the commits (0.02)")
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--offsets", type=int, default=1, help="that one commit has (1)")
    parser.add_argument("--segment-bytes", type=int, default=SEGMENT_BYTES)
    given = parser.parse_args()
    harness.machine()
    groups = [f"group-{number}" for number in range(given.groups)]
    for rate in (float(each) for each in given.rates.split(",")):
        whole = rate * given.days * DAY_MS / 1000 * given.offsets
        commits = int(whole * given.share) // (given.groups * given.offsets)
        commits *= given.groups * given.offsets
        with tempfile.TemporaryDirectory(prefix="horolog-bench-") as directory:
            base = Path(directory)
            size = fill(base, groups, commits, given.offsets, given.days, given.segment_bytes)
            with horolog({"horolog.history.ms": str(7 * DAY_MS)}, base) as side:
                used = side.cpu_s()
                seconds, longest_s = loading(side, groups)
                used = side.cpu_s() - used
                page = history(side, groups[0], AskGroupHistory())
                state = history(side, groups[0], AskGroupHistory(at=SystemClock().now_ms()))
        print(
            f"{rate:g} commits/s of {given.offsets}, {given.days:g} days, {whole:,.0f} offsets; "
            f"measured with {commits:,}: {size / 1e6:.0f} MB, {size / commits:.0f} bytes each, "
            f"loaded in {seconds:.1f} s ({1e6 * seconds / commits:.2f} us each), {used:.1f} s of "
            f"CPU, longest wait of another client {1000 * longest_s:.0f} ms; the whole: "
            f"{size / 1e9 * whole / commits:.1f} GB, {seconds * whole / commits:.0f} s; "
            f"the last entries of a group {page[0]:.2f} s, {page[1]:.2f} s of CPU; what was in "
            f"force, {state[0]:.2f} s, {state[1]:.2f} s of CPU",
            flush=True,
        )


if __name__ == "__main__":
    main()
