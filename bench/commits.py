"""How fast does a broker commit offsets? One at a time, and from many groups at once.

Each commit is one request of one group; the group has no members. One at a time: the median and p99
of a connection that waits for each answer to a commit of one partition. Many: 16 connections, each
of a group of its own, each with one request under way, for 1 and for 100 partitions; offsets a
second of all of them.
"""

from functools import partial

from bench import harness
from bench.sides import Side, create_topic

from horolog.client import Client, CommittedOffset

TOPIC = "commits"
GROUPS = 16
PARTITIONS = 100
ONE_BY_ONE = 2_000
MANY = {1: 16_000, PARTITIONS: 1_600}  # commits of this many offsets
CPU = "broker CPU-us/offset"


def commit(side: Side, count: int, groups: int, offsets: int) -> harness.Numbers:
    """This many commits in turns by this many groups, one under way for each."""
    return harness.run_client(
        "raw_commits", side, topic=TOPIC, commits=count, groups=groups, offsets=offsets
    )


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    with harness.both_sides(asked) as sides:
        for side in sides:
            create_topic(side, TOPIC, partitions=PARTITIONS)
            with Client(side.bootstrap) as client:  # finds coordinators, which makes the topic
                for group in range(GROUPS):
                    client.offset_commit(f"group-{group}", {(TOPIC, 0): CommittedOffset(1)})
        one = partial(commit, count=ONE_BY_ONE, groups=1, offsets=1)
        rows = [
            harness.Row("one commit at a time", figure, "1.0x", ("p99_ms", CPU))
            for figure in ("p50_ms", "p99_ms")
        ]
        harness.compare(one, sides, asked, *rows)
        for offsets, count in MANY.items():
            many = partial(commit, count=count, groups=GROUPS, offsets=offsets)
            work = f"commits of {GROUPS} groups, {offsets} offsets each"
            harness.compare(many, sides, asked, harness.Row(work, "offsets/s", "1.0x", (CPU,)))


if __name__ == "__main__":
    main()
