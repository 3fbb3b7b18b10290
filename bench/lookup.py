"""What does an offset by timestamp cost, does it grow with the log, and inside compressed batches?

Logs of 1, 10 and 50 segments of 1 GB (with --quick 1 and 10), the same files on both sides (see
large_logs.py): random times, from the page cache, and with the page cache emptied before each run.
Then logs of a million records of 100 bytes in batches of 1,000, plain and compressed, which each
side has written itself. Needs 4 GB of disk; about four minutes a run of five, one with --quick, on
a quiet machine. `--sizes` and `--codecs` choose parts of it, none if nothing follows them. First,
and without a peer: what it costs to ask up to which time a partition is complete.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench import harness, large_logs
from bench.sides import KAFKA, SIDES, Side, create_topic

LOOKUPS, COLD_LOOKUPS = 3000, 300
SIZE, PER_BATCH, RECORDS = 100, 1000, 1_000_000
CODECS = ("none", "lz4", "zstd")
DETAILS = ("p99_ms", "lookups/s", "broker CPU-us/lookup")
REACH = "1.0x; cost flat in log size"


def lookups(
    topic: str, records: int, count: int, before: Callable[[], None] = lambda: None
) -> harness.Measure:
    def measure(side: Side) -> harness.Numbers:
        before()
        return harness.run_client("raw_lookup", side, topic=topic, lookups=count, records=records)

    return measure


def compare(
    work: str, measure: harness.Measure, sides: Sequence[Side], asked: harness.Options
) -> None:
    """Median and 99th percentile, each a row of its own from the same runs."""
    rows = [harness.Row(work, figure, REACH, DETAILS) for figure in ("p50_ms", "p99_ms")]
    harness.compare(measure, sides, asked, *rows)


def large(asked: harness.Options, base: Path, sizes: Sequence[int]) -> None:
    """Lookups in logs of many large segments."""
    for name in asked.names:
        with SIDES[name](directory=base / name) as side:
            for size in sizes:
                create_topic(side, f"large-{size}")
    large_logs.write_segments(
        {base / name / "data" / f"large-{size}-0": size for name in asked.names for size in sizes}
    )
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(SIDES[name](directory=base / name)) for name in asked.names]
        for size in sizes:
            topic, records = f"large-{size}", size * large_logs.RECORDS_OF_SEGMENT
            directories = [base / name / "data" / f"{topic}-0" for name in asked.names]
            for side in sides:
                started = time.perf_counter()
                lookups(topic, records, 1)(side)
                first_s = time.perf_counter() - started
                print(f"\n{topic}, {side.name}: the first lookup in new files took {first_s:.2f} s")
            warm = lookups(topic, records, LOOKUPS)
            compare(f"offset by timestamp, {size} x 1 GB", warm, sides, asked)

            empty = partial(large_logs.forget_cached, directories)
            cold = lookups(topic, records, COLD_LOOKUPS, empty)
            compare(f"offset by timestamp, {size} x 1 GB, page cache emptied", cold, sides, asked)


def compressed(asked: harness.Options, codecs: Sequence[str]) -> None:
    """Lookups inside batches, plain and compressed."""
    with harness.both_sides(asked) as sides:
        for codec in codecs:
            topic = f"lookup-{codec}"
            for side in sides:
                create_topic(side, topic)
                filling = {"records": RECORDS, "size": SIZE, "per_batch": PER_BATCH}
                harness.run_client("fill", side, topic=topic, codec=codec, **filling)
            work = f"offset by timestamp, batches of {PER_BATCH:,} records, {codec}"
            compare(work, lookups(topic, RECORDS, LOOKUPS), sides, asked)


def complete(asked: harness.Options) -> None:
    """Up to which time a partition is complete, beside offsets of random times in it."""
    with SIDES[harness.HOROLOG]() as side:
        topic = "complete"
        create_topic(side, topic, {"message.timestamp.before.max.ms": str(1 << 50)})
        filling = {"records": RECORDS, "size": SIZE, "per_batch": PER_BATCH, "codec": "none"}
        harness.run_client("fill", side, topic=topic, **filling)
        asks = {"topic": topic, "lookups": LOOKUPS}
        taken = harness.in_turns(
            {
                "complete until": lambda: harness.run_client("raw_complete", side, **asks),
                "ListOffsets": lambda: lookups(topic, RECORDS, LOOKUPS)(side),
            },
            asked,
        )
        work = f"complete until, beside an offset by timestamp, batches of {PER_BATCH:,} records"
        for figure in ("p50_ms", "p99_ms"):
            row = harness.Row(work, figure, "1.0x", DETAILS)
            harness.report(row, taken, dict.fromkeys(taken, ""), asked)


def main() -> None:
    parser = harness.parser_of(__doc__ or "")
    parser.add_argument("--sizes", type=int, nargs="*", help="segments of 1 GB of each large log")
    parser.add_argument("--codecs", nargs="*", choices=CODECS, default=CODECS)
    arguments = parser.parse_args()
    asked = harness.options_of(arguments)
    sizes = arguments.sizes
    if sizes is None:
        sizes = (1, 10) if asked.quick else (1, 10, 50)
    if asked.only != KAFKA:
        complete(asked)
    harness.require_peer()
    if sizes:
        with tempfile.TemporaryDirectory(prefix="horolog-bench-lookup-") as base:
            large(asked, Path(base), sizes)
    if arguments.codecs:
        compressed(asked, arguments.codecs)


if __name__ == "__main__":
    main()
