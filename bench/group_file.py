"""What does the rewrite of `horolog-groups.log` cost those who are served meanwhile?

    python -m bench.group_file [--offsets 100000] [--times 5]

Beside another Kafka's logs groups are in that one file, which is replaced by what counts when it
has grown. Here a file has a number of committed offsets, each of a group of its own, which are
committed again, in the thread and the batches of the broker's, until the file has been replaced so
many times. Printed are the bytes that were written for each byte of commits; the time that a
replacement holds up commits; and the longest gap of an event loop that beats every 5 ms, while the
file is replaced and while it is only appended to: what both have is the machine's.
"""

import argparse
import asyncio
import gc
import itertools
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import harness

from horolog.broker.scheduling.garbage import FullCollections
from horolog.broker.service import SWITCH_SECONDS, new_event_loop
from horolog.clock import SystemClock
from horolog.groups.rows import GroupChange, OffsetRow
from horolog.metadata.group_file import GroupFile
from horolog.storage import names
from horolog.storage.files import Files

TOPIC = "committed"
TOGETHER = 16  # commits that arrive during a write
BEAT_S = 0.005


class Gaps:
    """Beats on the event loop, and notes the gaps."""

    def __init__(self) -> None:
        self._beating = asyncio.create_task(self._beat())
        self._longest_s = 0.0

    async def _beat(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(BEAT_S)
            now = time.perf_counter()
            self._longest_s = max(self._longest_s, now - last - BEAT_S)
            last = now

    def longest_s(self) -> float:
        """The longest since this was last asked."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s

    def end(self) -> None:
        """Beat no more."""
        self._beating.cancel()


def changes(offsets: int) -> "itertools.cycle[GroupChange]":
    """The commits, again and again."""
    now_ms = SystemClock().now_ms()
    rows = (OffsetRow(f"group-{each}", TOPIC, 0, 1, -1, "", now_ms) for each in range(offsets))
    return itertools.cycle([GroupChange(offsets=[row]) for row in rows])


async def measure(path: Path, offsets: int, times: int) -> None:
    loop, executor, clock = asyncio.get_running_loop(), ThreadPoolExecutor(1), SystemClock()
    file = GroupFile(Files(), str(path), now_ms=clock.now_ms)
    made = changes(offsets)
    first = list(itertools.islice(made, offsets))
    await loop.run_in_executor(executor, file.write_groups, first)
    await loop.run_in_executor(executor, file.load, lambda topic: None)
    gc.collect()
    gc.freeze()
    garbage = FullCollections(lambda: False)
    garbage.start()
    appended, written, last = 0, 0, path.stat().st_size
    gaps, appends, replaces, held = Gaps(), [0.0], [0.0], [0.0]
    await asyncio.sleep(1)
    gaps.longest_s()
    while len(replaces) <= times:
        some = list(itertools.islice(made, TOGETHER))
        started = time.perf_counter()
        outcomes = await loop.run_in_executor(executor, file.write_groups, some)
        took_s = time.perf_counter() - started
        assert not any(outcomes)
        size = path.stat().st_size
        if size < last:
            await asyncio.sleep(2 * BEAT_S)
            held.append(took_s)
            replaces.append(gaps.longest_s())
            written += size
            print(f"  {last / 1e6:.1f} MB replaced by {size / 1e6:.1f} MB in {took_s:.1f} s")
            appends.append(0.0)
        else:
            appended += size - last
            appends[-1] = max(appends[-1], gaps.longest_s())
        last = size
    gaps.end()
    garbage.stop()
    await loop.run_in_executor(executor, file.close)
    executor.shutdown()
    print(
        f"{offsets:,} offsets: {(appended + written) / appended:.2f} bytes written for each of the "
        f"commits'; a replacement holds commits up for {statistics.median(held[1:]):.1f} s;\n"
        f"longest gap of the loop {_ms(replaces[1:])} ms while it is replaced, "
        f"{_ms(appends[:times])} ms while it grows"
    )


def _ms(gaps_s: list[float]) -> str:
    return " ".join(f"{1000 * each:.0f}" for each in gaps_s)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--offsets", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=5, help="that it is replaced (5)")
    given = parser.parse_args()
    harness.machine()
    sys.setswitchinterval(SWITCH_SECONDS)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / names.GROUPS_FILE
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(measure(path, given.offsets, given.times))


if __name__ == "__main__":
    main()
