"""How long from the command to the first acknowledged record, and how much memory when idle?

The directory was served and stopped cleanly before and holds one topic. Cold: no compiled kernel
is in the cache (horolog only; Kafka keeps none). Idle memory is read 45 seconds later: warm, with
the kernels loaded.
"""

import contextlib
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import harness, raw
from bench.clients import batch_of
from bench.sides import (
    HOROLOG,
    SIDES,
    Side,
    create_topic,
    start,
    start_command,
    stop,
    wait_until_ready,
)

TOPIC = "start"
IDLE_S = 45.0  # the kernels take that long to load where little time is left for them
TIMEOUT_S = 900.0  # only a start that hangs ever meets it


def prepare(name: str, base: Path) -> None:
    """Serve an empty directory once, so that it holds a topic and was stopped cleanly."""
    with SIDES[name](directory=base) as side:
        create_topic(side, TOPIC)
        with raw.Connection(side.bootstrap) as connection:
            raw.produced(connection.ask(raw.PRODUCE, raw.produce_request(TOPIC, batch_of(100, 1))))


class Started(NamedTuple):
    """A side that runs, and how long it took from the command to the first acknowledged record."""

    side: Side
    process: "subprocess.Popen[str]"
    first_ack_s: float


@contextlib.contextmanager
def started(
    name: str, base: Path, topic: str = TOPIC, partition: int = 0, cache: Path | None = None
) -> Iterator[Started]:
    """Start a side on what it holds; it is stopped at the end if it still runs."""
    request = raw.produce_request(topic, batch_of(100, 1), partition=partition)
    environment = {**os.environ, **({"XDG_CACHE_HOME": str(cache)} if cache else {})}
    began = time.perf_counter()
    process = start(start_command(name, base), base / f"{name}.err", environment)
    try:
        bootstrap = address(name, process, base)
        first_ack_s = first_ack(bootstrap, request, began)
        yield Started(Side(name, bootstrap, process.pid, ""), process, first_ack_s)
    finally:
        stop(process)


def address(name: str, process: "subprocess.Popen[str]", base: Path) -> str:
    """Where a side that was just started is going to listen."""
    if name == HOROLOG:
        return wait_until_ready(process, base / f"{name}.err")[0]
    assert process.stdout is not None
    threading.Thread(target=process.stdout.read, daemon=True).start()
    listeners = re.search(
        r"advertised.listeners=PLAINTEXT://(\S+)", (base / "server.properties").read_text()
    )
    assert listeners is not None
    return listeners[1]


def first_ack(bootstrap: str, request: bytes, started: float) -> float:
    """Ask until it is acknowledged; seconds since the start."""
    while time.perf_counter() - started < TIMEOUT_S:
        with contextlib.suppress(OSError, raw.Refused), raw.Connection(bootstrap) as connection:
            raw.produced(connection.ask(raw.PRODUCE, request))
            return time.perf_counter() - started
        time.sleep(0.002)
    raise RuntimeError(f"no record was acknowledged at {bootstrap}")


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    with tempfile.TemporaryDirectory(prefix="horolog-bench-start-") as directory:
        base = Path(directory)
        for name in asked.names:
            prepare(name, base / name)
        for kind in ("warm", "cold"):
            taken: dict[str, list[harness.Numbers]] = {name: [] for name in asked.names}
            for run in range(asked.runs):
                for name in asked.names:
                    cache = base / f"cache-{run}" if kind == "cold" else None
                    with started(name, base / name, cache=cache) as it:
                        time.sleep(IDLE_S)
                        numbers = {"first ack s": it.first_ack_s, "idle MB": it.side.resident_mb()}
                    taken[name].append(numbers)
            for figure, reach in (("first ack s", "10x faster"), ("idle MB", "3x less")):
                row = harness.Row(f"start, {kind}", figure, reach)
                harness.report(row, taken, dict.fromkeys(asked.names, ""), asked)


if __name__ == "__main__":
    main()
