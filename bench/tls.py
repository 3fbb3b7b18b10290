"""What does TLS cost: records, connections, and others while handshakes stall or come in floods?

Both sides have the same RSA certificate of 2,048 bits and speak TLS 1.3 alone. Then horolog over
TLS beside itself without. `steps` has a broker in this process: the longest time that its event
loop was away, of a tick every millisecond, beside handshakes that stall and whole ones.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import harness
from bench.produce import measured
from bench.request_cost import served
from bench.sides import Side, create_topic

from horolog.broker.service import new_event_loop

SIZE, PER_BATCH = 1000, 500
STALLED, RATE = 1_000, 300
REQUESTS = 30_000  # some seconds, beside them
CPU = "broker CPU-s/GB"
TOPIC = "tls"


@contextlib.contextmanager
def certificate() -> Iterator[Path]:
    """A file with a key of RSA-2048 and its certificate, which clients trust, too."""
    with tempfile.TemporaryDirectory(prefix="horolog-bench-") as directory:
        file, key = Path(directory, "broker.pem"), Path(directory, "key.pem")
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
                *("-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", str(key), "-out", str(file)),
            ],
            check=True,
            capture_output=True,
        )
        file.write_text(key.read_text() + file.read_text())
        yield file


def settings(file: Path) -> dict[str, str]:
    """Of a broker of either side."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(file),
        "ssl.enabled.protocols": "TLSv1.3",
    }


def over_tls(side: Side, file: Path) -> dict[str, object]:
    """Arguments of a client of librdkafka."""
    trusting = {"security.protocol": "ssl", "ssl.ca.location": str(file)}
    return {"bootstrap": side.listeners["SSL"], "settings": trusting}


def produce(records: int, file: Path, side: Side) -> harness.Numbers:
    """Send records to a new topic, by TLS if the side has a listener for it."""
    client = {"settings": {}, **(over_tls(side, file) if side.listeners else {})}
    return measured(side, "librdkafka_produce", records=records, size=SIZE, **client)


def fetch(records: int, file: Path, side: Side) -> harness.Numbers:
    """Read a whole topic once, by TLS if the side has a listener for it."""
    client = over_tls(side, file) if side.listeners else {}
    return harness.run_client(
        "librdkafka_fetch", side, topic=TOPIC, records=records, size=SIZE, **client
    )


def connections(count: int, file: Path, side: Side) -> harness.Numbers:
    """Connect as fast as a few clients can."""
    address = side.listeners["SSL"]
    return harness.run_client(
        "connections", side, bootstrap=address, authority=str(file), count=count
    )


@contextlib.contextmanager
def flooded(address: str, file: Path, counted: dict[str, float]) -> Iterator[None]:
    """A client with handshakes that stall, and whole ones; then how many these were."""
    given = {"bootstrap": address, "authority": str(file), "stalled": STALLED, "rate": RATE}
    client = subprocess.Popen(
        [sys.executable, "-m", "bench.clients", "flood", json.dumps(given)],
        cwd=harness.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None
    try:
        assert client.stdout.readline()
        yield
        said, _ = client.communicate("", timeout=60)
        counted |= json.loads(said)
    finally:
        client.kill()
        client.wait()


def beside_flood(requests: int, file: Path, side: Side) -> harness.Numbers:
    """One request at a time, without TLS, beside the flood."""
    counted: dict[str, float] = {}
    with flooded(side.listeners["SSL"], file, counted):
        numbers = measured(side, "raw_latency", requests=requests, size=100)
    return {**numbers, "handshakes/s": counted["connections"] / counted["seconds"]}


async def _steps(requests: int, file: Path) -> dict[str, float]:
    """The same with a broker in this process, and how long its loop is away at most."""
    given = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **settings(file)}
    async with served(owns_process=True, **given) as service:
        plain, secure = (f"127.0.0.1:{endpoint.port}" for endpoint in service.bound)
        work = asyncio.create_task(
            asyncio.to_thread(
                beside_flood, requests, file, Side("", plain, os.getpid(), "", {"SSL": secure})
            )
        )
        longest = busiest = 0.0
        while not work.done():
            before, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before - 0.001)
            busiest = max(busiest, time.thread_time() - used)
        return {**work.result(), "longest_ms": 1000 * longest, "its CPU ms": 1000 * busiest}


def steps(runs: int, requests: int, file: Path) -> None:
    """Print the longest steps of several runs, each with a broker of its own."""
    taken = []
    for _ in range(runs):
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            taken.append(runner.run(_steps(requests, file)))
    print(f"\n{STALLED:,} handshakes that stall, {RATE} whole ones a second   (reach: 100 ms)")
    for figure in ("longest_ms", "its CPU ms", "p99_ms", "handshakes/s"):
        ordered = sorted(run[figure] for run in taken)
        low, middle, high = (harness.said(ordered[at]) for at in (0, runs // 2, -1))
        print(f"  {figure:14}{middle:>24}{f'{low}-{high}':>22}")


def compare(
    work: str,
    measure: harness.Measure,
    sides: Sequence[Side],
    asked: harness.Options,
    of_plain: str,
) -> None:
    """Print rows beside the peer, and beside the same broker without TLS."""
    details = "records/s", CPU
    rows = harness.Row(work, "MB/s", "1.0x", details), harness.Row(work, CPU, "1.25x")
    harness.compare(measure, sides, asked, *rows)
    side = sides[0]
    pair = replace(side, name="TLS"), replace(side, name="without", listeners={})
    row = harness.Row(f"{work}, {side.name} alone", "MB/s", of_plain, details)
    harness.compare(measure, pair, asked, row, warm_s=0)


def run(work: str, sides: Sequence[Side], asked: harness.Options, file: Path) -> None:
    """Take one kind of figures."""
    share = 3 if asked.quick else 1
    if work == "produce":
        measure = partial(produce, 900_000 // share, file)
        compare("produce 1000 B over TLS, librdkafka", measure, sides, asked, "0.6x")
    elif work == "fetch":
        records = 900_000 // share
        for side in sides:
            create_topic(side, TOPIC)
            filling = {"topic": TOPIC, "records": records, "size": SIZE, "per_batch": PER_BATCH}
            harness.run_client("fill", side, codec="none", **filling)
        measure = partial(fetch, records, file)
        compare("fetch 1000 B over TLS, librdkafka", measure, sides, asked, "0.4x")
    elif work == "connections":
        cost = ("broker CPU-us/connection",)
        row = harness.Row("new connections over TLS", "connections/s", "1.0x", cost)
        harness.compare(partial(connections, 3_000 // share, file), sides, asked, row)
    else:
        what = f"produce, beside {STALLED:,} handshakes that stall, {RATE} whole ones a second"
        row = harness.Row(what, "p99_ms", "1.0x", ("p50_ms", "handshakes/s"))
        harness.compare(partial(beside_flood, REQUESTS // share, file), sides, asked, row)


def main() -> None:
    kinds = ("produce", "fetch", "connections", "flood", "steps")
    parser = harness.parser_of(__doc__ or "")
    parser.add_argument("--work", choices=kinds, action="append", help="all of them if absent")
    options: argparse.Namespace = parser.parse_args()
    asked, works = harness.options_of(options), options.work or list(kinds)
    with certificate() as file:
        if set(works) != {"steps"}:
            harness.require_peer()
            with harness.both_sides(asked, settings(file), ["SSL"]) as sides:
                for work in works:
                    if work != "steps":
                        run(work, sides, asked, file)
        if "steps" in works:
            steps(asked.runs, REQUESTS, file)


if __name__ == "__main__":
    main()
