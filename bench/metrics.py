"""What do metrics cost that are scraped every second, and how long does a scrape take?

Small requests as in `bench.request_cost` to a broker with metrics, on connections that are counted
and on others that are not, in pairs of turns: CPU microseconds a request, and the ratio, with that
of a scrape a second. `--aa` compares two that are not: what this machine takes for a difference.

Then librdkafka as in `bench.produce`, to a broker without and to one with metrics that is scraped
every second, in pairs of turns, of brokers that are started anew several times: CPU seconds of the
broker for a gigabyte. Then a scrape of 10,000 partitions of a topic, and one of 1,000 topics, that
have just been written to, and the most processor time that the event loop took without a turn for
others. `--scrapes` measures these alone.
"""

import argparse
import asyncio
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import median

from bench import raw
from bench.clients import batch_of
from bench.companions import median_of
from bench.produce import librdkafka
from bench.request_cost import GROUPS, WORK, Client, served
from bench.request_cost import PARTITIONS as PARTITIONS_OF_COMMITS
from bench.sides import horolog

from horolog.broker.new_topics import NewTopic
from horolog.broker.service import Service

PARTITIONS = 10_000
TOPICS = 1_000
_BYTES = {100: 100_000_000, 1_000: 300_000_000}
"""That librdkafka sends in a turn, by the size of the records."""


async def _scrape(service: Service, query: str = "") -> int:
    """The bytes of a page."""
    assert service.metrics is not None
    host, _, port = service.metrics.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /metrics{query} HTTP/1.1\r\n\r\n".encode())
    page = await reader.read()
    writer.close()
    return len(page)


async def cost(work: str, requests: int, pairs: int, *, is_aa: bool) -> None:
    """Short turns in pairs whose order changes, on connections to one broker."""
    batch = batch_of(100, 1)
    partitions = PARTITIONS_OF_COMMITS if "commit" in work else 1
    settings = {"horolog.metrics.port": "0", "num.partitions": str(partitions)}
    async with served(**settings) as service:
        await service.broker.controller.ensure_topic("cost")
        clients = [
            [Client(service, counted=counted) for _ in range(GROUPS)]
            for counted in (False, not is_aa)
        ]
        for some in clients:
            await WORK["produce"](some, batch, 2_000)
        ratios, taken, scrapes = [], [0.0, 0.0], []
        for number in range(pairs):
            used = [0.0, 0.0]
            for which in (0, 1) if number % 2 else (1, 0):
                before = time.process_time()
                await WORK[work](clients[which], batch, requests)
                used[which] = time.process_time() - before
            ratios.append(used[1] / used[0])
            taken = [one + two for one, two in zip(taken, used, strict=True)]
        for _ in range(10):
            before = time.process_time()
            await _scrape(service)
            scrapes.append(time.process_time() - before)
        for some in clients:
            for client in some:
                client.close()
    off, on = (each / pairs / requests * 1e6 for each in taken)
    share = 0.0 if is_aa else median(scrapes)
    print(
        f"{work}: {off:.2f} us a request uncounted, {on:.2f} {'again' if is_aa else 'counted'}: "
        f"{median_of([each * (1 + share) for each in ratios])}; "
        f"{1000 * median(scrapes):.1f} ms a scrape",
        flush=True,
    )


@contextmanager
def _scraping(port: int) -> Iterator[None]:
    """A thread that scrapes every second."""
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(1):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
                page.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def produce(starts: int, pairs: int, *, is_aa: bool) -> None:
    """A client that sends as fast as it can, to both in turns."""
    ratios: dict[int, list[tuple[float, float]]] = {size: [] for size in _BYTES}
    for _ in range(starts):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = {} if is_aa else {"horolog.metrics.port": str(port)}
        scraping = nullcontext() if is_aa else _scraping(port)
        with horolog() as off, horolog(settings) as on, scraping:
            for size, its in ratios.items():
                measure = librdkafka(_BYTES[size] // size, size, "none")
                for number in range(-1, pairs):
                    turns = (off, on) if number % 2 else (on, off)
                    found = {each.pid: measure(each)["broker CPU-s/GB"] for each in turns}
                    if number >= 0:  # the first turns warm it
                        its.append((found[off.pid], found[on.pid]))
    for size, its in ratios.items():
        without, with_ = (sum(each) for each in zip(*its, strict=True))
        print(
            f"produce {size} B, librdkafka: {without / len(its):.2f} CPU-s/GB without, "
            f"{with_ / len(its):.2f} with metrics: "
            f"{median_of([on / off for off, on in its])}, of the sums {with_ / without:.3f}"
        )


async def scrape(runs: int, topics: int, partitions: int) -> None:
    """Scrape topics that have just been written to, each page several times."""
    names = [f"topic-{number:04}" for number in range(topics)]
    async with served(**{"horolog.metrics.port": "0"}) as service:
        for name in names:
            new = NewTopic(name=name, partitions=partitions)
            await service.broker.controller.create_topic(new)
        client, batch = Client(service), batch_of(100, 1)
        for query in ("", "?partitions=true"):
            taken, held = [], []
            for _ in range(runs):
                for name in names:
                    for partition in range(partitions):
                        request = raw.produce_request(name, batch, partition=partition)
                        client.send(raw.PRODUCE, request)
                        await client.answer()
                await asyncio.sleep(1)
                before = time.process_time()
                scraping = asyncio.create_task(_scrape(service, query))
                longest = 0.0
                while not scraping.done():
                    last = time.thread_time()
                    await asyncio.sleep(0)
                    longest = max(longest, time.thread_time() - last)
                taken.append(time.process_time() - before)
                held.append(longest)
            print(
                f"{topics:,} topics of {partitions:,} partitions{query}: "
                f"{scraping.result():,} bytes in {1000 * median(taken):.0f} ms of processor time, "
                f"the loop held for {1000 * median(held):.1f} ms at most",
                flush=True,
            )
        client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200, help="in each turn")
    parser.add_argument("--pairs", type=int, default=1_000, help="of turns")
    parser.add_argument("--starts", type=int, default=4, help="of the brokers that librdkafka uses")
    parser.add_argument("--scrapes", action="store_true", help="only these")
    parser.add_argument("--aa", action="store_true", help="compare what is the same")
    asked = parser.parse_args()
    if not asked.scrapes:
        for work in WORK:
            asyncio.run(cost(work, asked.requests, asked.pairs, is_aa=asked.aa))
        produce(asked.starts, 8, is_aa=asked.aa)
    asyncio.run(scrape(3, 1, PARTITIONS))
    asyncio.run(scrape(3, TOPICS, 1))


if __name__ == "__main__":
    main()
