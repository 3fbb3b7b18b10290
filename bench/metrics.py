"""What do metrics cost that are scraped every second, and how long does a scrape take?

Small requests as in `bench.request_cost`, to a broker without and to one with metrics, in pairs of
turns: CPU microseconds a request, and the ratio. Then a scrape of 3,500 partitions that have just
been written to, and the longest that the event loop was busy meanwhile.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median

from bench import raw
from bench.clients import batch_of
from bench.companions import median_of
from bench.request_cost import WORK, Client

from horolog.broker.controller import NewTopic
from horolog.broker.service import Service
from horolog.config import Settings
from horolog.record.scan import load_kernels

PARTITIONS = 3_500


@asynccontextmanager
async def _served(**settings: str) -> AsyncIterator[Service]:
    with tempfile.TemporaryDirectory() as directory:
        given = {"log.dir": directory, "listeners": "PLAINTEXT://127.0.0.1:0", **settings}
        service = await Service.start(Settings(given), load_kernels=False)
        try:
            yield service
        finally:
            await service.stop()


async def _scrape(service: Service, query: str = "") -> int:
    """The bytes of a page."""
    assert service.metrics is not None
    host, _, port = service.metrics.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /metrics{query} HTTP/1.1\r\n\r\n".encode())
    page = await reader.read()
    writer.close()
    return len(page)


async def cost(work: str, requests: int, pairs: int) -> None:
    """Short turns in pairs whose order changes, and a scrape for each second of them."""
    batch = batch_of(100, 1)
    async with AsyncExitStack() as stack:
        clients = []
        for settings in ({}, {"horolog.metrics.port": "0"}):
            service = await stack.enter_async_context(_served(**settings))
            await service.broker.controller.ensure_topic("cost")
            clients.append((Client(service), Client(service)))
            await WORK["produce"](*clients[-1], batch, requests)
        ratios, taken, scrapes = [], [0.0, 0.0], []
        for number in range(pairs):
            used = [0.0, 0.0]
            for which in (0, 1) if number % 2 else (1, 0):
                before = time.process_time()
                await WORK[work](*clients[which], batch, requests)
                used[which] = time.process_time() - before
            before = time.process_time()
            await _scrape(service)
            scrapes.append(time.process_time() - before)
            used[1] *= 1 + scrapes[-1]
            ratios.append(used[1] / used[0])
            taken = [one + two for one, two in zip(taken, used, strict=True)]
        for pair in clients:
            for client in pair:
                client.close()
    off, on = (each / pairs / requests * 1e6 for each in taken)
    print(
        f"{work}: {off:.1f} us a request without, {on:.1f} with metrics: {median_of(ratios)}; "
        f"{1000 * median(scrapes):.1f} ms a scrape"
    )


async def scrape(runs: int) -> None:
    async with _served(**{"horolog.metrics.port": "0"}) as service:
        new = NewTopic(name="many", partitions=PARTITIONS)
        await service.broker.controller.create_topic(new)
        client, batch = Client(service), batch_of(100, 1)
        for query in ("", "?partitions=true"):
            taken, gaps = [], []
            for _ in range(runs):
                for partition in range(PARTITIONS):
                    client.send(
                        raw.PRODUCE, raw.produce_request("many", batch, partition=partition)
                    )
                    await client.answer()
                await asyncio.sleep(1)
                before = time.perf_counter()
                scraping = asyncio.create_task(_scrape(service, query))
                longest = 0.0
                while not scraping.done():
                    last = time.perf_counter()
                    await asyncio.sleep(0)
                    longest = max(longest, time.perf_counter() - last)
                taken.append(time.perf_counter() - before)
                gaps.append(longest)
            print(
                f"{PARTITIONS} partitions{query}: {scraping.result():,} bytes in "
                f"{1000 * median(taken):.0f} ms, the loop busy for {1000 * median(gaps):.1f} ms"
            )
        client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000, help="in each turn")
    parser.add_argument("--pairs", type=int, default=100, help="of turns")
    asked = parser.parse_args()
    load_kernels()
    for work in WORK:
        asyncio.run(cost(work, asked.requests, asked.pairs))
    asyncio.run(scrape(3))


if __name__ == "__main__":
    main()
