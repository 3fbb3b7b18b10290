"""What do metrics cost that are scraped every second, and how long does a scrape take?

Small requests as in `bench.request_cost`, to a broker without and to one with metrics, alternately:
CPU microseconds a request. Then a scrape of 3,500 partitions that have just been written to, and
the longest that the event loop was busy meanwhile.
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


async def cost(work: str, requests: int, runs: int) -> None:
    batch = batch_of(100, 1)
    async with AsyncExitStack() as stack:
        clients = []
        for settings in ({}, {"horolog.metrics.port": "0"}):
            service = await stack.enter_async_context(_served(**settings))
            await service.broker.controller.ensure_topic("cost")
            pair = Client(service), Client(service)
            await WORK["produce"](*pair, batch, requests // 5)
            clients.append(pair)
        taken: list[list[float]] = [[], []]
        for number in range(2 * runs):
            which = number % 2
            # A scrape for each second that the requests take, which is about what a run does.
            before, began = time.process_time(), time.perf_counter()
            await WORK[work](*clients[which], batch, requests)
            used = time.process_time() - before
            if which:
                seconds, before = time.perf_counter() - began, time.process_time()
                await _scrape(service)
                used += (time.process_time() - before) * seconds
            taken[which].append(used / requests * 1e6)
        for pair in clients:
            for client in pair:
                client.close()
    off, on = (min(each) for each in taken)
    ratio = median(two / one for one, two in zip(*taken, strict=True))
    print(
        f"{work}: {off:.1f} us without, {on:.1f} with metrics at best; {ratio:.3f}x in the median"
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
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=7)
    asked = parser.parse_args()
    load_kernels()
    for work in WORK:
        asyncio.run(cost(work, asked.requests, asked.runs))
    asyncio.run(scrape(3))


if __name__ == "__main__":
    main()
