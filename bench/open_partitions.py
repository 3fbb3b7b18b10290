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
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import harness, raw
from bench.clients import batch_of
from bench.sides import SIDES, Side, cpu_s, start_command, stop
from bench.start import address, first_ack, not_running

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


@dataclass(frozen=True)
class Running:
    """A side that was started on what it holds."""

    bootstrap: str
    process: "subprocess.Popen[str]"
    opened: Mapping[str, float]


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
    _round_robin(side.bootstrap, partitions, SIZE, PER_BATCH, rounds)
    return made


def await_all(bootstrap: str, partitions: int) -> None:
    """Wait until every partition is served: Kafka loads one after the other."""
    with raw.Connection(bootstrap) as connection:
        for partition in range(partitions):
            request = raw.list_offsets_request(TOPIC, -1, partition=partition)
            while not _answers(connection, request):
                time.sleep(0.01)


def _answers(connection: raw.Connection, request: bytes) -> bool:
    with contextlib.suppress(raw.Refused):
        raw.found(connection.ask(raw.LIST_OFFSETS, request))
        return True
    return False


def _round_robin(
    bootstrap: str, partitions: int, size: int, per_batch: int, rounds: list[int]
) -> dict[str, float]:
    return harness.run_client(
        "round_robin",
        bootstrap=bootstrap,
        topic=TOPIC,
        partitions=partitions,
        size=size,
        per_batch=per_batch,
        rounds=rounds,
    )


@contextlib.contextmanager
def running(name: str, base: Path, partitions: int) -> Iterator[Running]:
    """Start a side; it is stopped at the end if it still runs."""
    request = raw.produce_request(TOPIC, batch_of(100, 1), partition=partitions - 1)
    started = time.perf_counter()
    process = subprocess.Popen(
        start_command(name, base),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        bootstrap = address(name, process, base)
        opened = {
            "first ack s": first_ack(bootstrap, request, started),
            "CPU s": cpu_s(process.pid),
        }
        yield Running(bootstrap, process, opened)
    finally:
        stop(process)


def held(side: str, base: Path, pid: int) -> Mapping[str, float]:
    """Memory and files of a process that has had nothing to do for a while."""
    _await_idle(pid)
    place = Side(side, "", pid, "")
    mapped, mapped_bytes = set(), 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(str(base)):
            start, _, end = fields[0].partition("-")
            mapped.add(fields[5])
            mapped_bytes += int(end, 16) - int(start, 16)
    opened = len(os.listdir(f"/proc/{pid}/fd"))
    return {
        "resident MB": place.resident_mb(),
        "open files": opened,
        "mapped files": len(mapped),
        "mapped MB": mapped_bytes / MB,
        "files held": opened + len(mapped),
    }


def _await_idle(pid: int) -> None:
    """Wait until it does next to nothing: a horolog that has started loads its kernels."""
    before = cpu_s(pid)
    for _ in range(int(MOST_IDLE_S / IDLE_S)):
        time.sleep(IDLE_S)
        used = cpu_s(pid)
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
    with running(name, base, partitions) as side:
        opened = _tell(name, "open", {**side.opened, **held(name, base, side.process.pid)})
        await_all(side.bootstrap, partitions)
        used = cpu_s(side.process.pid)
        _round_robin(side.bootstrap, partitions, SIZE, 1, [0])  # each is opened for writing
        done = _round_robin(side.bootstrap, partitions, SIZE, 1, [0, 0])
        cpu = cpu_s(side.process.pid) - used
        rate = done["requests"] / done["seconds"]
        produced = _tell(name, "produce", {**done, "requests/s": rate, "CPU s": cpu})
        started = time.perf_counter()
        stop(side.process)
        stopped = _tell(name, "stop", {"seconds": time.perf_counter() - started})
    with running(name, base, partitions) as side:
        await_all(side.bootstrap, partitions)
        _round_robin(side.bootstrap, partitions, SIZE, PER_BATCH, [0])
        side.process.kill()
        side.process.wait()
    with running(name, base, partitions) as side:
        killed = _tell(name, "killed", side.opened)
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
        row = harness.Row(
            f"make {partitions:,} partitions", not_running, "seconds", "", "1.0x", False, ("CPU s",)
        )
        harness.report(row, made, dict.fromkeys(made, ""), asked)


def main() -> None:
    parser = harness.parser_of(__doc__ or "")
    parser.add_argument("--directory", type=Path, help="keep what was made there")
    arguments = parser.parse_args()
    asked = harness.options_of(arguments)
    harness.require_peer()
    harness.machine()
    partitions = PARTITIONS // 7 if asked.quick else PARTITIONS
    base = arguments.directory or Path(tempfile.mkdtemp(prefix="horolog-bench-open-"))
    try:
        make(asked, base, partitions)
        taken: dict[str, list[Mapping[str, Mapping[str, float]]]] = {n: [] for n in asked.names}
        for _ in range(asked.runs):
            for name in asked.names:
                taken[name].append(measure(name, base / name, partitions))
        for part, figure, what, details in ROWS:
            row = harness.Row(
                f"{partitions:,} partitions, {what}",
                not_running,
                figure,
                "",
                REACH.get(figure, ""),
                figure == "requests/s",
                details,
            )
            numbers = {name: [run[part] for run in runs] for name, runs in taken.items()}
            harness.report(row, numbers, dict.fromkeys(asked.names, ""), asked)
    finally:
        if arguments.directory is None:
            shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
