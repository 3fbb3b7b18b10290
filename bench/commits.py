"""How fast does a broker commit offsets? One at a time, and from many groups at once.

Each commit is one request of one group; the group has no members. One at a time: the median and p99
of a connection that waits for each answer to a commit of one partition. Many: 16 connections, each
of a group of its own, each with one request under way, for 1 and for 100 partitions; offsets a
second of all of them.
"""

from collections.abc import Callable, Mapping

from bench import harness
from bench.sides import Side, create_topic

from horolog.client import Client, CommittedOffset

TOPIC = "commits"
GROUPS = 16
PARTITIONS = 100
ONE_BY_ONE = 2_000
MANY = {1: 16_000, PARTITIONS: 1_600}  # commits of this many offsets
CPU = "broker CPU-us/offset"


def commits(count: int, groups: int, offsets: int = 1) -> Callable[[Side], Mapping[str, float]]:
    """This many commits in turns by this many groups, one under way for each."""

    def measure(side: Side) -> Mapping[str, float]:
        used = side.cpu_s()
        numbers = harness.run_client(
            "raw_commits",
            bootstrap=side.bootstrap,
            topic=TOPIC,
            commits=count,
            groups=groups,
            offsets=offsets,
        )
        used = side.cpu_s() - used
        return {
            **numbers,
            "offsets/s": count * offsets / numbers["seconds"],
            CPU: 1e6 * used / (count * offsets),
        }

    return measure


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    harness.machine()
    with harness.both_sides(asked) as sides:
        versions = {side.name: side.version for side in sides}
        for side in sides:
            create_topic(side, TOPIC, partitions=PARTITIONS)
            with Client(side.bootstrap) as client:  # finds coordinators, which makes the topic
                for group in range(GROUPS):
                    client.offset_commit(f"group-{group}", {(TOPIC, 0): CommittedOffset(1)})
        taken = harness.take(commits(ONE_BY_ONE, 1), sides, asked)
        for figure in ("p50_ms", "p99_ms"):
            row = harness.Row(
                "one commit at a time",
                commits(ONE_BY_ONE, 1),
                figure,
                "",
                "1.0x",
                higher_is_better=False,
                details=("p99_ms", CPU),
            )
            harness.report(row, taken, versions, asked)
        for offsets, count in MANY.items():
            many = harness.Row(
                f"commits of {GROUPS} groups, {offsets} offsets each",
                commits(count, GROUPS, offsets),
                "offsets/s",
                "",
                "1.0x",
                details=(CPU,),
            )
            harness.compare(many, sides, asked)


if __name__ == "__main__":
    main()
