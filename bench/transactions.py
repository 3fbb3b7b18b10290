"""How fast are transactions, small and large, of one producer and of several?

librdkafka's producers (confluent-kafka), each in a thread, write transactions of 1, 100 and 10,000
records of 100 bytes to a topic of four partitions: records a second of all together, and the median
and p99 of a commit. The records of a transaction are acknowledged before it is committed, so that
the latter is one EndTxn, and what the next begin waits for is in the records a second.

librdkafka adds partitions itself (the first flow of KIP-890). `--flow 2` is the second flow, which
Java's client uses, by a client that does next to nothing: the records are packed beforehand.

A broker that takes more transactions a second is asked for more by clients that wait for nothing
else, and each of them waits longer. `--rate` asks both for as many a second, which is how long a
commit takes at the same load.
"""

from functools import partial

from bench import harness
from bench.clients import PARTITIONS

TOPIC = "transactions"
SIZE = 100
# Records of a transaction, producers, and transactions of each.
WORK = ((1, 1, 400), (100, 1, 300), (10_000, 1, 30), (1, 8, 150), (100, 8, 100), (10_000, 8, 8))


def main() -> None:
    parser = harness.parser_of(__doc__ or "")
    parser.add_argument("--records", type=int, help="only transactions of this many records")
    parser.add_argument("--producers", type=int, help="only of this many producers")
    parser.add_argument("--flow", type=int, choices=(1, 2), default=1, help="of KIP-890")
    parser.add_argument("--rate", type=float, default=0, help="transactions a second; 0: no limit")
    given = parser.parse_args()
    asked = harness.options_of(given)
    harness.require_peer()
    with harness.both_sides(asked, {"num.partitions": str(PARTITIONS)}) as sides:
        for records, producers, each in WORK:
            if given.records not in (None, records) or given.producers not in (None, producers):
                continue
            measure = partial(
                harness.run_client,
                "raw_transactions" if given.flow == 2 else "transactions",
                topic=TOPIC,
                each=max(1, each // 3) if asked.quick else each,
                records=records,
                size=SIZE,
                producers=producers,
                rate=given.rate,
            )
            flow = "second flow: " if given.flow == 2 else ""
            name = (
                f"{flow}{records:,} records a commit, {producers} producer{'s' * (producers > 1)}"
            )
            if given.rate:
                name += f", {given.rate:g} a second"
            rows = [
                harness.Row(name, "records/s", "1.0x", ("commits/s", "broker CPU-us/commit")),
                harness.Row(f"{name}: a commit", "p50_ms", "1.0x"),
                harness.Row(f"{name}: a commit", "p99_ms", "1.0x"),
            ]
            harness.compare(measure, sides, asked, *rows)


if __name__ == "__main__":
    main()
