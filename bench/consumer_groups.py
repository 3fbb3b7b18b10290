"""How long is a consumer group (KIP-848) under way, and what do its heartbeats cost the broker?

`rebalance`: a group of 100 members over 1,000 partitions, whose members send a heartbeat every
200 ms and at once when they have to give up partitions: seconds until it is stable (every member at
the target's epoch, every partition owned), after a join, a kill (the session takes 1 s), a leave
and a new topic. `keep`: heartbeats of 5,000 members to whom nothing happens, one group or 50,
as fast as they are answered, and 1,000 a second, as they come by default. `steps` has a broker in
this process: the longest time that its event loop was away, of a tick every millisecond, while
1,000 members over 10,000 partitions join, leave and get a new topic.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from functools import partial

from bench import harness
from bench.request_cost import served
from bench.sides import Side, create_topic

from horolog.broker.service import new_event_loop
from horolog.client import Client, CommittedOffset

EACH = 100  # partitions of a topic
MEMBERS, TOPICS, MORE = 100, 10, 10
KEPT, RATE = 5_000, 1_000
LARGE_MEMBERS, LARGE_TOPICS = 1_000, 100
QUICK_SESSIONS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
}
LARGE_SESSIONS = {**QUICK_SESSIONS, "group.consumer.session.timeout.ms": "10000"}
LONG_SESSIONS = {
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
}
CPU, SHARE = "CPU us/heartbeat", "CPU, % of a core"


def topics(count: int) -> list[str]:
    """Names of topics."""
    return [f"topic-{number}" for number in range(count)]


def rebalance(side: Side, members: int = MEMBERS, count: int = TOPICS) -> harness.Numbers:
    """Let a group of members rebalance."""
    sizes = {"members": members, "partitions": EACH * count, "more": MORE}
    return harness.run_client("rebalances", side, topics=topics(count), interval_s=0.2, **sizes)


def keep(side: Side, groups: int, rounds: int, rate: float) -> harness.Numbers:
    """Send heartbeats that change nothing."""
    given = {"groups": groups, "rounds": rounds, "rate": rate, "members": KEPT}
    return harness.run_client("keep_alives", side, pid=side.pid, topics=topics(TOPICS), **given)


def prepared(sides: Sequence[Side], count: int = TOPICS) -> None:
    """Make the topics of the groups."""
    for side in sides:
        for name in topics(count):
            create_topic(side, name, partitions=EACH)
        with Client(
            side.bootstrap, timeout_ms=300_000
        ) as client:  # finds coordinators, which makes the topic
            client.offset_commit("first", {(topics(1)[0], 0): CommittedOffset(1)})


def rebalances(asked: harness.Options) -> None:
    """Print how long groups take until they are stable."""
    with harness.both_sides(asked, QUICK_SESSIONS) as sides:
        prepared(sides)
        work = f"{MEMBERS} members over {EACH * TOPICS:,} partitions, until stable after a"
        rows = [
            harness.Row(
                f"{work} {what.partition(',')[0]}",
                what,
                "1.0x",
                ("fenced", "broker CPU-us/heartbeat"),
            )
            for what in ("join, s", "kill, s", "leave, s", "new topic, s")
        ]
        harness.compare(rebalance, sides, asked, *rows)


def keeps(asked: harness.Options) -> None:
    """Print what heartbeats cost that change nothing."""
    with harness.both_sides(asked, LONG_SESSIONS) as sides:
        prepared(sides)
        for groups in (1, 50):
            work = f"heartbeats of {KEPT:,} members in {groups} group(s)"
            rounds = 1 if asked.quick else 3
            row = harness.Row(work, CPU, "1.0x", ("heartbeats/s",))
            fast = partial(keep, groups=groups, rounds=2 * rounds, rate=0)
            harness.compare(fast, sides, asked, row, warm_s=3)
            row = harness.Row(f"{work}, {RATE:,} a second", SHARE, "1.0x", (CPU,))
            paced = partial(keep, groups=groups, rounds=rounds, rate=RATE)
            harness.compare(paced, sides, asked, row, warm_s=0)


async def _steps() -> harness.Numbers:
    """Let a large group rebalance beside a tick, at a broker in this process."""
    async with served(owns_process=True, **LARGE_SESSIONS) as service:
        side = Side("", f"127.0.0.1:{service.bound[0].port}", os.getpid(), "")
        await asyncio.to_thread(prepared, [side], LARGE_TOPICS)
        work = asyncio.create_task(
            asyncio.to_thread(rebalance, side, members=LARGE_MEMBERS, count=LARGE_TOPICS)
        )
        longest = busiest = 0.0
        while not work.done():
            before, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before - 0.001)
            busiest = max(busiest, time.thread_time() - used)
        return {**work.result(), "longest_ms": 1000 * longest, "its CPU ms": 1000 * busiest}


def steps(runs: int) -> None:
    """Print the longest steps of several runs, each with a broker of its own."""
    taken = []
    for _ in range(runs):
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            taken.append(runner.run(_steps()))
    large = f"{LARGE_MEMBERS:,} members over {EACH * LARGE_TOPICS:,} partitions"
    print(f"\n{large} join, are killed, leave, and get a new topic   (reach: 100 ms)")
    figures = ("longest_ms", "its CPU ms", "join, s", "kill, s", "new topic, s")
    for figure in figures:
        ordered = sorted(run[figure] for run in taken)
        low, middle, high = (harness.said(ordered[at]) for at in (0, runs // 2, -1))
        print(f"  {figure:14}{middle:>24}{f'{low}-{high}':>22}")


def main() -> None:
    kinds = ("rebalance", "keep", "steps")
    parser = harness.parser_of(__doc__ or "")
    parser.add_argument("--work", choices=kinds, action="append", help="all of them if absent")
    options: argparse.Namespace = parser.parse_args()
    asked, works = harness.options_of(options), options.work or list(kinds)
    if set(works) != {"steps"}:
        harness.require_peer()
    if "rebalance" in works:
        rebalances(asked)
    if "keep" in works:
        keeps(asked)
    if "steps" in works:
        steps(asked.runs)


if __name__ == "__main__":
    main()
