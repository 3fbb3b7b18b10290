"""What do append times and block maps cost what is produced? CPU and time, no sockets, no peer.

    python -m bench.companions [--pairs N]

One broker in this process takes the same batch again and again, in short turns, with both files
written and with neither. Turns come in pairs, whose order changes; the ratio is that of a pair, so
that what else the machine does falls on both. Printed are the median of the ratios and where the
true one is with a probability of 95 % (from their order alone, whatever their distribution), of
CPU time and of time. What the check of a batch counts for the map, in the pass over the records
that it makes anyway, is part of both. Reach: 1.05 for a request of one record, 1.03 for batches.
"""

import argparse
import asyncio
import contextlib
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from unittest import mock

from bench import raw
from bench.clients import batch_of
from bench.request_cost import Client

from horolog.broker.service import Service
from horolog.config import Settings
from horolog.record.scan import load_kernels
from horolog.storage.append_times.file import AppendTimeFile
from horolog.storage.index.block_writer import BlockWriter
from horolog.storage.index.blocks import Met

TOPIC = "cost"
# Records of 100 bytes in a request, requests of a turn (tens of milliseconds), the ratio to reach.
WORKS = ((1, 300, 1.05), (150, 160, 1.03), (5000, 24, 1.03))
SETTLING = 8  # a turn begins with so many-th of it, not counted: methods were replaced


@contextlib.contextmanager
def neither() -> Iterator[None]:
    """Nothing is written to either file."""

    def is_now(self: AppendTimeFile, offset: int, ms: int, batch: bytes) -> None:
        self.last_ms = ms

    def is_nothing(self: BlockWriter, met: Met) -> None:
        pass

    with (
        mock.patch.object(AppendTimeFile, "add", is_now),
        mock.patch.object(BlockWriter, "add", is_nothing),
    ):
        yield


class Turn(NamedTuple):
    """What one turn took, in microseconds a request."""

    cpu: float
    wall: float


async def turn(client: Client, body: bytes, count: int) -> Turn:
    await send(client, body, max(2, count // SETTLING))
    cpu, wall = time.process_time(), time.perf_counter()
    await send(client, body, count)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Turn(cpu / count * 1e6, wall / count * 1e6)


async def send(client: Client, body: bytes, count: int) -> None:
    for _ in range(count):
        client.send(raw.PRODUCE, body)
        await client.answer()


def median_of(ratios: list[float]) -> str:
    """The median, and the interval of 95 % that the order of the ratios gives."""
    ratios = sorted(ratios)
    reach = 0.98 * math.sqrt(len(ratios))
    low = max(0, math.floor(len(ratios) / 2 - reach))
    high = min(len(ratios) - 1, math.ceil(len(ratios) / 2 + reach))
    return f"{statistics.median(ratios):.3f} ({ratios[low]:.3f}-{ratios[high]:.3f})"


async def measure(pairs: int, works: Sequence[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(
            {
                "log.dir": directory,
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.retention.ms": "-1",
            }
        )
        service = await Service.start(settings, load_kernels=False)
        load_kernels()
        print("| records | us of CPU without | with | ratio of CPU | ratio of time | to reach |")
        print("|---|---|---|---|---|---|")
        client = Client(service)
        for records, count, reach in WORKS:
            if records not in works:
                continue
            topic = f"{TOPIC}-{records}"
            await service.broker.controller.ensure_topic(topic)
            body = raw.produce_request(topic, batch_of(100, records))
            await send(client, body, count)
            offset = raw.produced(await client.answer())
            assert offset == (count - 1) * records, "every request was answered"
            taken = []
            for number in range(pairs):
                with neither() if number % 2 else contextlib.nullcontext():
                    first = await turn(client, body, count)
                with contextlib.nullcontext() if number % 2 else neither():
                    second = await turn(client, body, count)
                taken.append((second, first) if number % 2 else (first, second))
            both, none = (
                statistics.median(each.cpu for each in side) for side in zip(*taken, strict=True)
            )
            cpu = median_of([both.cpu / none.cpu for both, none in taken])
            wall = median_of([both.wall / none.wall for both, none in taken])
            print(
                f"| {records:,} | {none:.1f} | {both:.1f} | {cpu} | {wall} | {reach} |", flush=True
            )
        client.close()
        await service.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200, help="of turns, for each size")
    parser.add_argument(
        "--records", type=int, nargs="*", default=[work[0] for work in WORKS], help="of a request"
    )
    asked = parser.parse_args()
    asyncio.run(measure(asked.pairs, asked.records))


if __name__ == "__main__":
    main()
