"""What do append times and block maps cost what is produced? CPU and time, no peer.

    python -m bench.companions [--pairs N] [--client memory|raw|librdkafka]

By default requests come from memory, which leaves out what a request costs any broker: the event
loop's and the kernel's part. `raw` is a client in a process of its own that does next to nothing:
one record at a time, of batches five under way. `librdkafka` is what a Python user has.

One broker in this process takes the same batch again and again, in short turns, with both files
written and with neither. Turns come in pairs, whose order changes; the ratio is that of a pair, so
that what else the machine does falls on both. Printed are the median of the ratios and where the
true one is with a probability of 95 % (from their order alone, whatever their distribution), of
CPU time and of time. What the check of a batch counts for the map, in the pass over the records
that it makes anyway, is part of both. Reach, of time: 1.05 for a request of one record, 1.03 for
batches.
"""

import argparse
import asyncio
import contextlib
import json
import math
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol, TypeAlias
from unittest import mock

from bench import raw
from bench.clients import batch_of
from bench.harness import ROOT
from bench.request_cost import Client, served

from horolog.broker.service import Service, new_event_loop
from horolog.storage.companion.append_times import AppendTimeFile
from horolog.storage.companion.block_writer import BlockWriter

TOPIC = "cost"


class Work(NamedTuple):
    """What a turn sends, in tens of milliseconds."""

    name: str
    records: int
    """In a request."""
    size: int
    """Bytes of a record."""
    count: int
    """Requests of a turn."""
    reach: float


WORKS = (
    Work("1 record", 1, 100, 300, 1.05),
    Work("150 records", 150, 100, 160, 1.03),
    Work("5,000 records", 5000, 100, 24, 1.03),
)
# Its requests have as many records as librdkafka packs into them; one counts as a request here.
LIBRDKAFKA_WORKS = (
    Work("100 B", 1, 100, 100_000, 1.03),
    Work("1,000 B", 1, 1000, 40_000, 1.03),
)
SETTLING = 8  # a turn begins with so many-th of it, not counted: methods were replaced


@contextlib.contextmanager
def neither() -> Iterator[None]:
    """Nothing is written to either file."""

    def is_now(self: AppendTimeFile, offset: int, ms: int, batch: bytes) -> None:
        self.last_ms = ms

    def is_nothing(self: BlockWriter, row: bytes, size: int) -> None:
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


class Send(Protocol):
    """Sends the batch so often, and waits for the answers."""

    async def __call__(self, count: int, /) -> None:
        """Return when the last one is answered."""


Connect: TypeAlias = Callable[[Service, str, Work], AbstractAsyncContextManager[Send]]


def settling(count: int) -> int:
    """How many requests a turn begins with that are not counted."""
    return max(2, count // SETTLING)


async def turn(send: Send, count: int) -> Turn:
    await send(settling(count))
    cpu, wall = time.process_time(), time.perf_counter()
    await send(count)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Turn(cpu / count * 1e6, wall / count * 1e6)


@contextlib.asynccontextmanager
async def from_memory(service: Service, topic: str, work: Work) -> AsyncIterator[Send]:
    """A connection without a socket."""
    body = raw.produce_request(topic, batch_of(work.size, work.records))
    client = Client(service)

    async def send(count: int, /) -> None:
        for _ in range(count):
            client.send(raw.PRODUCE, body)
            answer = await client.answer()
        raw.produced(answer)

    yield send
    client.close()


def from_raw(service: Service, topic: str, work: Work) -> AbstractAsyncContextManager[Send]:
    """A client that does next to nothing."""
    under_way = 1 if work.records == 1 else raw.PIPELINE
    more = {"records": work.records, "under_way": under_way}
    return from_a_process(service, "raw_on_demand", {"topic": topic, "size": work.size, **more})


def from_librdkafka(service: Service, topic: str, work: Work) -> AbstractAsyncContextManager[Send]:
    """A client that users have."""
    return from_a_process(service, "librdkafka_on_demand", {"topic": topic, "size": work.size})


@contextlib.asynccontextmanager
async def from_a_process(
    service: Service, client: str, asked: Mapping[str, object]
) -> AsyncIterator[Send]:
    """A client in a process of its own."""
    (endpoint, *_) = service.bound
    asked = {"bootstrap": f"{endpoint.host}:{endpoint.port}", **asked}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.clients", client, json.dumps(asked)),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    to_client, from_client = process.stdin, process.stdout

    async def send(count: int, /) -> None:
        to_client.write(b"%d\n" % count)
        if not await from_client.readline():
            raise RuntimeError("the client has ended")

    yield send
    to_client.close()
    await process.wait()


CLIENTS: Mapping[str, tuple[Connect, Sequence[Work]]] = {
    "memory": (from_memory, WORKS),
    "raw": (from_raw, WORKS),
    "librdkafka": (from_librdkafka, LIBRDKAFKA_WORKS),
}


def median_of(ratios: list[float]) -> str:
    """The median, and the interval of 95 % that the order of the ratios gives."""
    ratios = sorted(ratios)
    reach = 0.98 * math.sqrt(len(ratios))
    low = max(0, math.floor(len(ratios) / 2 - reach))
    high = min(len(ratios) - 1, math.ceil(len(ratios) / 2 + reach))
    return f"{statistics.median(ratios):.3f} ({ratios[low]:.3f}-{ratios[high]:.3f})"


async def measure(pairs: int, connect: Connect, works: Sequence[Work]) -> None:
    async with served() as service:
        print("| work | us of CPU without | with | ratio of CPU | ratio of time | to reach |")
        print("|---|---|---|---|---|---|")
        for number, work in enumerate(works):
            topic = f"{TOPIC}-{number}"
            await service.broker.controller.ensure_topic(topic)
            async with connect(service, topic, work) as send:
                await send(work.count)
                taken = [await pair(send, work.count, number) for number in range(pairs)]
            requests = work.count + 2 * pairs * (settling(work.count) + work.count)
            end_offset = service.broker.led(topic, 0).log.high_watermark
            assert end_offset == requests * work.records, "every request was appended"
            both, none = (
                statistics.median(each.cpu for each in side) for side in zip(*taken, strict=True)
            )
            cpu = median_of([both.cpu / none.cpu for both, none in taken])
            wall = median_of([both.wall / none.wall for both, none in taken])
            print(
                f"| {work.name} | {none:.1f} | {both:.1f} | {cpu} | {wall} | {work.reach} |",
                flush=True,
            )


async def pair(send: Send, count: int, number: int) -> tuple[Turn, Turn]:
    """A turn with both files and one with neither, whichever comes first."""
    with neither() if number % 2 else contextlib.nullcontext():
        first = await turn(send, count)
    with contextlib.nullcontext() if number % 2 else neither():
        second = await turn(send, count)
    return (second, first) if number % 2 else (first, second)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200, help="of turns, for each size")
    parser.add_argument("--client", choices=CLIENTS, default="memory")
    parser.add_argument("--work", nargs="*", help="only these, by their first word")
    asked = parser.parse_args()
    connect, works = CLIENTS[asked.client]
    if asked.work:
        works = [work for work in works if work.name.split()[0] in asked.work]
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(measure(asked.pairs, connect, works))


if __name__ == "__main__":
    main()
