"""What does a fixed load cost, and how long is a record under way? 20,000 records of 1 kB a second.

One client produces to six partitions in turn, another consumes them, both librdkafka with its
defaults and each in a process of its own. Percentiles are from the time at which a record was due
until the consumer has it, so that a client that falls behind counts. Each side first serves two
whole runs: a JVM that has just started needs twice the CPU.
"""

import itertools

from bench import harness
from bench.sides import Side, create_topic, delete_topic

PARTITIONS, RATE, SIZE = 6, 20_000, 1000
WARM_RUNS = 2
CPU = "broker CPU-us/record"
_numbers = itertools.count()


def run(side: Side, seconds: int, rate: int) -> harness.Numbers:
    """Serve the load for so many seconds."""
    topic = f"steady-{next(_numbers)}"
    create_topic(side, topic, partitions=PARTITIONS)
    shape = {"partitions": PARTITIONS, "seconds": seconds, "rate": rate, "size": SIZE}
    numbers = harness.run_client("steady", side, topic=topic, **shape)
    delete_topic(side, topic)
    return numbers


def main() -> None:
    parser = harness.parser_of(__doc__ or "")
    parser.add_argument("--rate", type=int, default=RATE, help=f"records a second ({RATE:,})")
    parser.add_argument("--seconds", type=int, help="of a run (20; with --quick 10)")
    arguments = parser.parse_args()
    asked = harness.options_of(arguments)
    harness.require_peer()
    seconds = arguments.seconds or (10 if asked.quick else 20)
    work = f"{arguments.rate:,} records/s of 1 kB, produce to consume"
    rows = [
        harness.Row(work, "p99_ms", "1.0x", ("p50_ms",)),
        harness.Row(work, CPU, "1.25x", ("clients' CPU-us/record", "records/s")),
    ]
    with harness.both_sides(asked) as sides:
        harness.compare(
            lambda side: run(side, seconds, arguments.rate),
            sides,
            asked,
            *rows,
            warm_s=WARM_RUNS * seconds,
        )


if __name__ == "__main__":
    main()
