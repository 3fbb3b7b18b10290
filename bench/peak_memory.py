"""How much resident memory does a broker need at most, under each load?

Each load has brokers of its own, which have started, served a few records and become idle (kernels
loaded) before; the figure is the most that the process had since its start. Kafka has the heap that
its start script sets, 1 GB, which it fills as far as it is let. The whole takes some eight minutes
a run.
"""

from collections.abc import Callable, Mapping

from bench import harness, raw, steady
from bench.clients import batch_of
from bench.open_partitions import await_idle, fill
from bench.sides import SIDES, Side, create_topic

from horolog.client import Client, CommittedOffset

TOPIC = "memory"
SIZE, PER_BATCH = 1000, 500
RECORDS = 2_000_000
PARTITIONS = 3_500
GROUPS, OFFSETS, ROUNDS = 10_000, 10, 3
FIRST_GROUPS = 500  # enough to reach all 50 coordinators
STEADY_S = 60  # a JVM fills its heap meanwhile
MOST_IDLE_S = 20.0  # a JVM never quite is

Load = Callable[[Side, int], object]


def idle(side: Side, share: int) -> None:
    """Nothing."""


def at_steady_rate(side: Side, share: int) -> None:
    """20,000 records of 1 kB a second, produced and consumed."""
    steady.run(side, STEADY_S // share, steady.RATE)


def produce(side: Side, share: int) -> None:
    """Records of 1 kB as fast as librdkafka sends them."""
    records = RECORDS // share
    harness.run_client(
        "librdkafka_produce", side, topic=TOPIC, records=records, size=SIZE, settings={}
    )


def fetch(side: Side, share: int) -> None:
    """The same read three times, by librdkafka and by headers only."""
    records = RECORDS // share
    shape = {"topic": TOPIC, "size": SIZE}
    harness.run_client("fill", side, records=records, per_batch=PER_BATCH, codec="none", **shape)
    for _ in range(3):
        harness.run_client("librdkafka_fetch", side, records=records, **shape)
        harness.run_client("raw_fetch", side, end=records, **shape)


def partitions(side: Side, share: int) -> None:
    """Partitions are made, and get three segments each."""
    fill(side, PARTITIONS // share)


def groups(side: Side, share: int) -> None:
    """Groups commit the offsets of ten partitions each, three times."""
    topic = "committed"
    create_topic(side, topic, partitions=OFFSETS)
    with Client(side.bootstrap) as client:  # waits until the coordinators are loaded
        for group in range(FIRST_GROUPS):
            client.offset_commit(f"group-{group}", {(topic, 0): CommittedOffset(0)})
    harness.run_client(
        "commits_of_groups",
        side,
        topic=topic,
        groups=GROUPS // share,
        offsets=OFFSETS,
        rounds=ROUNDS,
    )


LOADS: Mapping[str, Load] = {
    "idle": idle,
    "steady": at_steady_rate,
    "produce": produce,
    "fetch": fetch,
    "partitions": partitions,
    "groups": groups,
}
REACH = {"idle": "3x", "steady": "5.9x"}  # the others 4x


def work_of(name: str, share: int) -> str:
    """A load as the table names it."""
    sizes = {
        "steady": f"{steady.RATE:,} records/s of 1 kB",
        "produce": f"produce {RECORDS // share:,} records of 1 kB",
        "fetch": f"fetch {RECORDS // share:,} records of 1 kB",
        "partitions": f"{PARTITIONS // share:,} partitions",
        "groups": f"offsets of {GROUPS // share:,} groups",
    }
    return f"peak memory, {sizes.get(name, name)}"


def peak(side: Side, load: Load, share: int) -> harness.Numbers:
    """Peak memory of a new broker that serves a load, and what it has after that."""
    create_topic(side, TOPIC)
    with raw.Connection(side.bootstrap) as connection:
        request = raw.produce_request(TOPIC, batch_of(SIZE, PER_BATCH))
        raw.produced(connection.ask(raw.PRODUCE, request))
    await_idle(side, MOST_IDLE_S)
    load(side, share)
    return {"peak MB": side.peak_mb(), "resident MB": side.resident_mb()}


def main() -> None:
    parser = harness.parser_of(__doc__ or "")
    parser.add_argument("--loads", nargs="*", choices=LOADS, default=list(LOADS))
    parser.set_defaults(runs=1)
    arguments = parser.parse_args()
    asked = harness.options_of(arguments)
    harness.require_peer()
    share = 7 if asked.quick else 1
    for load in arguments.loads:
        taken: dict[str, list[harness.Numbers]] = {name: [] for name in asked.names}
        versions = {}
        for _ in range(asked.runs):
            for name in asked.names:
                with SIDES[name]() as side:
                    taken[name].append(peak(side, LOADS[load], share))
                    versions[name] = side.version
        row = harness.Row(work_of(load, share), "peak MB", REACH.get(load, "4x"), ("resident MB",))
        harness.report(row, taken, versions, asked)


if __name__ == "__main__":
    main()
