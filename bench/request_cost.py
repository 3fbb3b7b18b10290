"""What does one small request cost the broker itself, and where? CPU microseconds, no sockets.

`--work poll` is a fetch that waits together with the produce request that ends its wait;
`--work lookup` an offset by timestamp; `--work complete` and `complete-many` ask up to which time 1
and 100 partitions are complete; `--work commit` and `commits` commit 1 and 100 offsets, of
16 groups in turn, each over a connection of its own; `heartbeat` and `heartbeats` are those of
members of consumer groups to whom nothing happens: 16 groups of one member, and one of 1,000.

A connection is fed requests from memory, answers go nowhere; the log is written to a temporary
directory. CPU time says the same on a busy machine, nearly. `--profile` prints what takes it.
"""

import argparse
import asyncio
import contextlib
import cProfile
import pstats
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, cast

from bench import raw
from bench.clients import batch_of

from horolog.broker.service import Service
from horolog.config import Settings
from horolog.network.connection import ServerConnection
from horolog.record.scan import load_kernels

GROUPS, PARTITIONS = 16, 100


class _Nowhere(asyncio.Transport):
    """A transport that takes everything; keeps the last answer."""

    last: Any = b""

    def write(self, data: Any) -> None:
        self.last = data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default


@contextlib.asynccontextmanager
async def served(*, owns_process: bool = False, **settings: str) -> AsyncIterator[Service]:
    """A broker in this process that keeps every record, with its kernels.

    Args:
        owns_process: it collects garbage as in a process of its own.
    """
    with tempfile.TemporaryDirectory() as directory:
        given = {
            "log.dir": directory,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.retention.ms": "-1",
            **settings,
        }
        load_kernels()
        service = await Service.start(
            Settings(given), load_kernels=False, owns_process=owns_process
        )
        try:
            yield service
        finally:
            await service.stop()


async def print_cost(
    what: str, count: int, work: Callable[[], Awaitable[object]], asked: argparse.Namespace
) -> None:
    """What one of so many takes that the work consists of, in several runs."""
    taken = []
    with cProfile.Profile() if asked.profile else contextlib.nullcontext() as profile:
        for _ in range(asked.runs):
            before = time.process_time()
            await work()
            taken.append((time.process_time() - before) / count * 1e6)
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    taken.sort()
    print(f"{taken[0]:.1f} us a {what} at best, {taken[len(taken) // 2]:.1f} in the median")


class Client:
    """One connection to the broker, without a socket; `counted` by metrics, where these are on."""

    def __init__(self, service: Service, *, counted: bool = True) -> None:
        (endpoint, *_) = service.bound
        shared = service.server.shared
        if not counted:
            shared = replace(shared, times=None)
        self.connection = ServerConnection(shared, endpoint)
        self.transport = _Nowhere()
        self.connection.connection_made(self.transport)

    def send(self, api: tuple[int, int], body: bytes) -> None:
        """Hand over a request as a socket would."""
        head = struct.pack(">hhih", *api, 7, len(raw.CLIENT_ID)) + raw.CLIENT_ID
        request = struct.pack(">i", len(head) + len(body)) + head + body
        self.transport.last = b""
        rest = memoryview(request)
        while rest:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            self.connection.buffer_updated(size)
            rest = rest[size:]

    async def answer(self) -> memoryview:
        """The body of the answer to what was sent last."""
        self.connection._shared.sends.flush()
        # What goes to a thread is part of the cost; a large request waits for its turn.
        while self.connection._in_flight or not self.transport.last:
            await asyncio.sleep(0)
        return memoryview(cast(bytes, self.transport.last))[8:]

    def close(self) -> None:
        """Disconnect."""
        self.connection.connection_lost(None)


Clients = Sequence[Client]


async def _produce(clients: Clients, batch: bytes, count: int) -> None:
    """One record to one partition."""
    client, *_ = clients
    body = raw.produce_request("cost", batch)
    for _ in range(count):
        client.send(raw.PRODUCE, body)
        await client.answer()


async def _poll(clients: Clients, batch: bytes, count: int) -> None:
    """A fetch that waits at the end of the log, and the record that another client sends."""
    client, other, *_ = clients
    body = raw.produce_request("cost", batch)
    client.send(raw.PRODUCE, body)
    offset = raw.produced(await client.answer()) + 1
    for at in range(offset, offset + count):
        other.send(raw.FETCH, raw.fetch_request("cost", at))
        client.send(raw.PRODUCE, body)
        await other.answer()


async def _lookup(clients: Clients, batch: bytes, count: int) -> None:
    """An offset by timestamp, somewhere in a log of small batches."""
    client, *_ = clients
    (base_ms,) = struct.unpack_from(">q", batch, 27)
    body = raw.list_offsets_request("cost", base_ms)
    for _ in range(count):
        client.send(raw.LIST_OFFSETS, body)
        raw.found(await client.answer())


async def _complete(clients: Clients, batch: bytes, count: int, partitions: int = 1) -> None:
    """Up to which time partitions are complete."""
    client, *_ = clients
    body = raw.complete_request("cost", *range(partitions))
    for _ in range(count):
        client.send(raw.DESCRIBE_CONFIGS, body)
        assert bytes(await client.answer()).count(b"complete_until_ms") == 2 * partitions


async def _commit(clients: Clients, batch: bytes, count: int, offsets: int = 1) -> None:
    """Offsets of one of sixteen groups, each of which has a client."""
    bodies = [
        raw.commit_request(f"group-{number}", "cost", offsets, number) for number in range(GROUPS)
    ]
    client, *_ = clients
    client.send(raw.OFFSET_COMMIT, bodies[0])
    raw.check_committed(expected := memoryview(bytes(await client.answer())))
    for number in range(count):
        client = clients[number % GROUPS]
        client.send(raw.OFFSET_COMMIT, bodies[number % GROUPS])
        assert await client.answer() == expected


class _Heartbeats:
    """Members of consumer groups to whom nothing happens, once they have their partitions."""

    def __init__(self, members: Sequence[tuple[str, str]]) -> None:
        self._members = [
            (group, member, raw.joining_request(group, member, ["cost"]))
            for group, member in members
        ]
        self._epochs = [0] * len(members)

    async def __call__(self, clients: Clients, batch: bytes, count: int) -> None:
        """Send heartbeats of the members in turn."""
        rounds = 1 if all(self._epochs) else 3
        for number in range(rounds * count):
            at = number % len(self._members)
            group, member, body = self._members[at]
            client = clients[number % GROUPS]
            client.send(raw.CONSUMER_HEARTBEAT, body)
            epoch = raw.beaten(await client.answer()).epoch
            if epoch != self._epochs[at]:
                self._epochs[at] = epoch
                body = raw.heartbeat_request(group, member, epoch, {})
                self._members[at] = group, member, body


Work: TypeAlias = Callable[[Clients, bytes, int], Awaitable[object]]
WORK: dict[str, Work] = {
    "produce": _produce,
    "poll": _poll,
    "lookup": _lookup,
    "complete": _complete,
    "complete-many": partial(_complete, partitions=PARTITIONS),
    "commit": _commit,
    "commits": partial(_commit, offsets=PARTITIONS),
    "heartbeat": _Heartbeats([(f"group-{number}", "member") for number in range(GROUPS)]),
    "heartbeats": _Heartbeats([("group", f"member-{number}") for number in range(1_000)]),
}


async def measure(asked: argparse.Namespace) -> None:
    partitions = 1 if asked.work in ("produce", "poll", "lookup", "complete") else PARTITIONS
    settings = {"num.partitions": str(partitions)}
    async with served(owns_process=False, **settings) as service:
        await service.broker.controller.ensure_topic("cost")
        clients = [Client(service) for _ in range(GROUPS)]
        batch = batch_of(asked.size, 1)
        await _produce(clients, batch, asked.requests // 5)
        raw.produced(await clients[0].answer())
        work = partial(WORK[asked.work], clients, batch)
        await work(asked.requests // 10)
        await print_cost("request", asked.requests, partial(work, asked.requests), asked)
        for each in clients:
            each.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=WORK, default="produce")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--size", type=int, default=100, help="bytes of the one record")
    parser.add_argument("--profile", action="store_true")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
