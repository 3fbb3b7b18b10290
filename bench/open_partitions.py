"""What does a broker need for 3,500 partitions (KIP-33's example) of three segments each?

Making them; opening them after a clean stop and after a kill, timed from the command to an
acknowledged record in the last one; stopping; memory, open and mapped files when idle; and a batch
of 1 kB to every partition in turn. Each side writes its own data, through the same client: batches
of 16 kB, two a segment, which ends as record times are two hours apart. Before the kill one more
batch went to every partition. Needs 1 GB of disk; with --quick a seventh of the partitions.

The whole takes some four minutes a run. With `--directory` what was made stays there and is
measured again by the next call; each number is printed as soon as it is known.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench import harness, raw
from bench.sides import SIDES, Side, stop
from bench.start import Started, started

TOPIC = "many"
PARTITIONS = 3500
HOUR_MS = 3_600_000
SEGMENTS, BATCHES = 3, 2  # of a partition, of a segment
SIZE, PER_BATCH = 1000, 16
IDLE_S, IDLE_SHARE, MOST_IDLE_S = 5.0, 0.02, 90.0  # of a core, when it counts as idle
MB = 1 << 20

# What is reported: the work, the figure, and what is printed beside it.
ROWS = (
    ("open", "first ack s", "after a clean stop", ("CPU s",)),
    ("open", "resident MB", "when idle", ()),
    (
        "open",
        "files held",
        "when idle, open and mapped",
        ("open files", "mapped files", "mapped MB"),
    ),
    ("produce", "requests/s", "1 kB to each in turn", ("CPU s",)),
    ("stop", "seconds", "a clean stop after that", ()),
    ("killed", "first ack s", "after a kill", ("CPU s",)),
)
REACH = {"first ack s": "1.0x", "files held": "well below three a segment"}


def fill(side: Side, partitions: int) -> Mapping[str, float]:
    """One topic with that many partitions, and its segments; how long the partitions took."""
    from confluent_kafka.admin import AdminClient, NewTopic

    config = {"retention.ms": "-1", "segment.ms": str(HOUR_MS)}
    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 0})
    started, used = time.perf_counter(), side.cpu_s()
    topic = NewTopic(TOPIC, partitions, 1, config=config)
    admin.create_topics([topic], request_timeout=170, operation_timeout=170)[TOPIC].result()
    await_all(side.bootstrap, partitions)
    made = {"seconds": time.perf_counter() - started, "CPU s": side.cpu_s() - used}
    rounds = [segment * 2 * HOUR_MS for segment in range(SEGMENTS) for _ in range(BATCHES)]
    _round_robin(side, partitions, PER_BATCH, rounds)
    return made


def await_all(bootstrap: str, partitions: int) -> None:
    """Wait until every partition is served: Kafka loads one after the other."""
    with raw.Connection(bootstrap) as connection:
        for partition in range(partitions):
            request = raw.list_offsets_request(TOPIC, -1, partition)
            while not _answers(connection, request):
                time.sleep(0.01)


def _answers(connection: raw.Connection, request: bytes) -> bool:
    with contextlib.suppress(raw.Refused):
        raw.found(connection.ask(raw.LIST_OFFSETS, request))
        return True
    return False


def _round_robin(
    side: Side, partitions: int, per_batch: int, rounds: list[int]
) -> dict[str, float]:
    shape = {"partitions": partitions, "size": SIZE, "per_batch": per_batch, "rounds": rounds}
    return harness.run_client("round_robin", side, topic=TOPIC, **shape)


@contextlib.contextmanager
def running(name: str, base: Path, partitions: int) -> Iterator[tuple[Started, harness.Numbers]]:
    """Start a side on what it holds, and what that took until a record of the last partition."""
    with started(name, base, TOPIC, partitions - 1) as it:
        yield it, {"first ack s": it.first_ack_s, "CPU s": it.side.cpu_s()}


def held(side: Side, base: Path) -> Mapping[str, float]:
    """Memory and files of a process that has had nothing to do for a while."""
    await_idle(side)
    mapped, mapped_bytes = set(), 0
    for line in Path(f"/proc/{side.pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(str(base)):
            start, _, end = fields[0].partition("-")
            mapped.add(fields[5])
            mapped_bytes += int(end, 16) - int(start, 16)
    opened = len(os.listdir(f"/proc/{side.pid}/fd"))
    return {
        "resident MB": side.resident_mb(),
        "open files": opened,
        "mapped files": len(mapped),
        "mapped MB": mapped_bytes / MB,
        "files held": opened + len(mapped),
    }


def await_idle(side: Side, most_s: float = MOST_IDLE_S) -> None:
    """Wait until it does next to nothing: a horolog that has started loads its kernels."""
    before = side.cpu_s()
    for _ in range(int(most_s / IDLE_S)):
        time.sleep(IDLE_S)
        used = side.cpu_s()
        if used - before < IDLE_SHARE * IDLE_S:
            return
        before = used


def _tell(name: str, part: str, numbers: Mapping[str, float]) -> Mapping[str, float]:
    """Print the numbers of one run, and return them: a run that is cut off has said something."""
    said = ", ".join(f"{key} {number:.3g}" for key, number in numbers.items())
    print(f"  {name}, {part}: {said}", flush=True)
    return numbers


def measure(name: str, base: Path, partitions: int) -> Mapping[str, Mapping[str, float]]:
    """One run of everything but the making, from a clean stop to the next."""
    with running(name, base, partitions) as (it, first):
        side = it.side
        opened = _tell(name, "open", {**first, **held(side, base)})
        await_all(side.bootstrap, partitions)
        used = side.cpu_s()
        _round_robin(side, partitions, 1, [0])  # each is opened for writing
        done = _round_robin(side, partitions, 1, [0, 0])
        produced = _tell(name, "produce", {**done, "CPU s": side.cpu_s() - used})
        began = time.perf_counter()
        stop(it.process)
        stopped = _tell(name, "stop", {"seconds": time.perf_counter() - began})
    with running(name, base, partitions) as (it, _):
        await_all(it.side.bootstrap, partitions)
        _round_robin(it.side, partitions, PER_BATCH, [0])
        it.process.kill()
        it.process.wait()
    with running(name, base, partitions) as (_, first):
        killed = _tell(name, "killed", first)
    return {"open": opened, "produce": produced, "stop": stopped, "killed": killed}


def make(asked: harness.Options, base: Path, partitions: int) -> None:
    """Have each side write what it lacks, and report how long the partitions took."""
    made: dict[str, list[Mapping[str, float]]] = {}
    for name in asked.names:
        done = base / name / f"made-{partitions}"
        if done.exists():
            continue
        shutil.rmtree(base / name, ignore_errors=True)  # of a call that was cut off
        with SIDES[name](directory=base / name) as side:
            made[name] = [_tell(name, "make", fill(side, partitions))]
        done.touch()
    if made:
        row = harness.Row(f"make {partitions:,} partitions", "seconds", "1.0x", ("CPU s",))
        harness.report(row, made, dict.fromkeys(made, ""), asked)


def main() -> None:
    parser = harness.parser_of(__doc__ or "")
    parser.add_argument("--directory", type=Path, help="keep what was made there")
    arguments = parser.parse_args()
    asked = harness.options_of(arguments)
    harness.require_peer()
    partitions = PARTITIONS // 7 if asked.quick else PARTITIONS
    base = arguments.directory or Path(tempfile.mkdtemp(prefix="horolog-bench-open-"))
    try:
        make(asked, base, partitions)
        taken: dict[str, list[Mapping[str, Mapping[str, float]]]] = {n: [] for n in asked.names}
        for _ in range(asked.runs):
            for name in asked.names:
                taken[name].append(measure(name, base / name, partitions))
        for part, figure, what, details in ROWS:
            work = f"{partitions:,} partitions, {what}"
            row = harness.Row(work, figure, REACH.get(figure, ""), details)
            numbers = {name: [run[part] for run in runs] for name, runs in taken.items()}
            harness.report(row, numbers, dict.fromkeys(asked.names, ""), asked)
    finally:
        if arguments.directory is None:
            shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
