"""What do append times and block maps cost what is produced? CPU, without sockets (no peer).

    python -m bench.companions [--turns N]

One broker in this process takes the same batch again and again, by turns with both files written
and with neither; the ratio of CPU times is that of a pair of turns. What the check of a batch
counts for the map is part of both. Reach: 1.05 for a request of one record, 1.03 for batches.
"""

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
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
# Records of 100 bytes in a request, requests of a turn, and the ratio to reach.
WORKS = ((1, 2000, 1.05), (150, 1000, 1.03), (5000, 60, 1.03))


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


async def turn(client: Client, body: bytes, count: int) -> float:
    """CPU microseconds of a request."""
    before = time.process_time()
    for _ in range(count):
        client.send(raw.PRODUCE, body)
        await client.answer()
    return (time.process_time() - before) / count * 1e6


async def measure(turns: int) -> None:
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
        print(
            "| records of a request | us without | us with | ratio, median | quartiles | to reach |"
        )
        print("|---|---|---|---|---|---|")
        client = Client(service)
        for records, count, reach in WORKS:
            topic = f"{TOPIC}-{records}"
            await service.broker.controller.ensure_topic(topic)
            body = raw.produce_request(topic, batch_of(100, records))
            await turn(client, body, count)
            offset = raw.produced(await client.answer())
            assert offset == (count - 1) * records, "every request was answered"
            pairs = []
            for number in range(turns):
                with neither() if number % 2 else contextlib.nullcontext():
                    first = await turn(client, body, count)
                with contextlib.nullcontext() if number % 2 else neither():
                    second = await turn(client, body, count)
                pairs.append((second, first) if number % 2 else (first, second))
            ratios = [both / none for both, none in pairs]
            low, middle, high = statistics.quantiles(ratios, n=4)
            both, none = (statistics.median(each) for each in zip(*pairs, strict=True))
            print(
                f"| {records:,} | {none:.1f} | {both:.1f} | {middle:.3f} | "
                f"{low:.3f}-{high:.3f} | {reach} |"
            )
        client.close()
        await service.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=40, help="pairs of turns")
    asyncio.run(measure(parser.parse_args().turns))


if __name__ == "__main__":
    main()
