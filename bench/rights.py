"""What do rights cost a request? CPU microseconds, no sockets, as in `bench.request_cost`.

Two brokers in this process take turns: one that lets everyone do everything, and one with an
authorizer and 1,000 access control entries, of which a few are about the client. A request that
changes nothing of the rights is decided from memory; `first` asks for another topic each time.

Turns are short, and come in pairs whose order changes: the second of two is not as fast as the
first. `--aa` compares two brokers without rights: what this machine takes for a difference.
"""

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import Awaitable, Callable
from functools import partial

from bench import raw
from bench.clients import batch_of
from bench.companions import median_of
from bench.request_cost import GROUPS, WORK, Client, Clients, Work, served

from horolog.broker.service import Service
from horolog.rights import AclEntry
from horolog.wire import AclOperation, AclPattern, AclPermission, AclResource

ENTRIES = 1_000
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLIENT = "User:ANONYMOUS"
TOPICS = 500


def _entry(kind: AclResource, name: str, principal: str, *, is_prefix: bool = False) -> AclEntry:
    pattern = AclPattern.PREFIXED if is_prefix else AclPattern.LITERAL
    return AclEntry(kind, name, pattern, principal, "*", AclOperation.ALL, AclPermission.ALLOW)


def entries() -> list[AclEntry]:
    """Return entries that let the client do its work, among many about others."""
    own = [
        _entry(AclResource.TOPIC, "cost", CLIENT, is_prefix=True),
        _entry(AclResource.GROUP, "group-", CLIENT, is_prefix=True),
    ]
    others = [
        _entry(AclResource.TOPIC, f"{'cost' if number % 2 else 'other'}-{number}", f"User:{number}")
        for number in range(ENTRIES - len(own))
    ]
    return own + others


async def _first(clients: Clients, batch: bytes, count: int) -> None:
    """One record to another topic each time; as many decisions as there are topics."""
    client, *_ = clients
    bodies = [raw.produce_request(f"cost-{number}", batch) for number in range(TOPICS)]
    for number in range(count):
        client.send(raw.PRODUCE, bodies[number % TOPICS])
        await client.answer()


KINDS: dict[str, Work] = {**{name: WORK[name] for name in ("produce", "commit")}, "first": _first}


async def _prepared(service: Service, work: str) -> list[Client]:
    names = [f"cost-{number}" for number in range(TOPICS)] if work == "first" else ["cost"]
    for name in names:
        await service.broker.controller.ensure_topic(name)
    return [Client(service) for _ in range(GROUPS)]


async def _cost(work: Callable[[int], Awaitable[object]], count: int) -> float:
    before = time.process_time()
    await work(count)
    return (time.process_time() - before) / count * 1e6


async def compare(work: str, asked: argparse.Namespace) -> None:
    """Print what a request costs without and with rights, and their ratio."""
    closed = {} if asked.aa else {"authorizer.class.name": AUTHORIZER}
    async with contextlib.AsyncExitStack() as stack:
        sides: list[Callable[[int], Awaitable[object]]] = []
        for settings in ({}, closed):
            service = await stack.enter_async_context(served(**settings))
            clients = await _prepared(service, work)
            for client in clients:
                stack.callback(client.close)
            if settings:
                await service.broker.controller.create_entries(entries())
            sides.append(partial(KINDS[work], clients, batch_of(asked.size, 1)))
        costs: list[list[float]] = [[], []]
        for pair in range(-asked.pairs // 10, asked.pairs):  # the first warm up
            taken = [0.0, 0.0]
            for side in (0, 1) if pair % 2 else (1, 0):
                taken[side] = await _cost(sides[side], asked.requests)
            if pair >= 0:
                for cost, its in zip(taken, costs, strict=True):
                    its.append(cost)
    ratios = [without / with_rights for without, with_rights in zip(*costs, strict=True)]
    what = "none again" if asked.aa else f"{ENTRIES:,} entries"
    print(
        f"{work}: {statistics.median(costs[0]):.1f} us a request without rights, "
        f"{statistics.median(costs[1]):.1f} with {what}; {median_of(ratios)}",
        flush=True,
    )


async def _compare_all(asked: argparse.Namespace) -> None:
    for work in asked.work or KINDS:
        await compare(work, asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=KINDS, action="append", help="all of them if absent")
    parser.add_argument("--requests", type=int, default=200, help="in each turn")
    parser.add_argument("--pairs", type=int, default=500, help="of turns")
    parser.add_argument("--aa", action="store_true", help="compare what is the same")
    parser.add_argument("--size", type=int, default=100, help="bytes of the one record")
    asyncio.run(_compare_all(parser.parse_args()))


if __name__ == "__main__":
    main()
