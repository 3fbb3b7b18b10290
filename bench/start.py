"""How long from the command to the first acknowledged record, and how much memory when idle?

The directory was served and stopped cleanly before and holds one topic. Cold: no compiled kernel
is in the cache (horolog only; Kafka keeps none). Idle memory is read 45 seconds later: warm, with
the kernels loaded.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from bench import harness, raw
from bench.clients import batch_of
from bench.sides import HOROLOG, SIDES, create_topic, start_command, stop

TOPIC = "start"
IDLE_S = 45.0  # the kernels take that long to load where little time is left for them
TIMEOUT_S = 900.0  # only a start that hangs ever meets it


def prepare(name: str, base: Path) -> None:
    """Serve an empty directory once, so that it holds a topic and was stopped cleanly."""
    with SIDES[name](directory=base) as side:
        create_topic(side, TOPIC)
        with raw.Connection(side.bootstrap) as connection:
            raw.produced(connection.ask(raw.PRODUCE, raw.produce_request(TOPIC, batch_of(100, 1))))


def start(
    name: str,
    base: Path,
    *,
    cache: Path | None = None,
    topic: str = TOPIC,
    partition: int = 0,
    idle_s: float = IDLE_S,
) -> Mapping[str, float]:
    """Start it, get one record acknowledged, leave it idle, stop it."""
    request = raw.produce_request(topic, batch_of(100, 1), partition=partition)
    environment = {**os.environ, **({"XDG_CACHE_HOME": str(cache)} if cache else {})}
    started = time.perf_counter()
    process = subprocess.Popen(
        start_command(name, base),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    try:
        bootstrap = address(name, process, base)
        first_ack_s = first_ack(bootstrap, request, started)
        time.sleep(idle_s)
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert resident is not None
        return {"first ack s": first_ack_s, "idle MB": int(resident[1]) / 1024}
    finally:
        stop(process)


def address(name: str, process: "subprocess.Popen[str]", base: Path) -> str:
    """Where a side that was just started is going to listen."""
    assert process.stdout is not None
    if name == HOROLOG:
        for line in process.stdout:
            if line.startswith("ready"):
                found = re.search(r"(\S+:\d+)", line)
                assert found is not None, line
                return found[1]
        raise RuntimeError("horolog did not become ready")
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
    harness.machine()
    base = Path(tempfile.mkdtemp(prefix="horolog-bench-start-"))
    try:
        for name in asked.names:
            prepare(name, base / name)
        for kind in ("warm", "cold"):
            taken: dict[str, list[Mapping[str, float]]] = {name: [] for name in asked.names}
            for run in range(asked.runs):
                for name in asked.names:
                    cache = base / f"cache-{run}" if kind == "cold" else None
                    taken[name].append(start(name, base / name, cache=cache))
            for figure, reach in (("first ack s", "10x faster"), ("idle MB", "3x less")):
                row = harness.Row(f"start, {kind}", not_running, figure, "", reach, False)
                harness.report(row, taken, dict.fromkeys(asked.names, ""), asked)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def not_running(side: object) -> Mapping[str, float]:
    """What a row has for a measure when the broker is started by the measurement itself."""
    raise AssertionError("a start is not measured on a side that runs")


if __name__ == "__main__":
    main()
