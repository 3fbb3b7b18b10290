"""What does one small request cost the broker itself, and where? CPU microseconds, no sockets.

A connection is fed requests from memory, answers go nowhere; the log is written to a temporary
directory. CPU time says the same on a busy machine, nearly. `--profile` prints what takes it.
"""

import argparse
import asyncio
import contextlib
import cProfile
import pstats
import struct
import tempfile
import time
from collections.abc import Iterator
from typing import Any, cast

from bench import raw
from bench.clients import batch_of

from horolog.broker.service import Service
from horolog.config import Settings
from horolog.network.connection import ServerConnection
from horolog.record.scan import load_kernels


class _Nowhere(asyncio.Transport):
    """A transport that takes everything; keeps the last answer."""

    last: Any = b""

    def write(self, data: Any) -> None:
        self.last = data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default


@contextlib.contextmanager
def _profiling(wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    with cProfile.Profile() as profile:
        yield
    pstats.Stats(profile).sort_stats("tottime").print_stats(45)


async def measure(requests: int, runs: int, size: int, profile: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings({"log.dir": directory, "listeners": "PLAINTEXT://127.0.0.1:0"})
        service = await Service.start(settings, load_kernels=False)
        (endpoint, *_) = service.bound
        load_kernels()
        await service.broker.controller.ensure_topic("cost")
        connection = ServerConnection(service._server.shared, endpoint)
        transport = _Nowhere()
        connection.connection_made(transport)
        body = raw.produce_request("cost", batch_of(size, 1))
        head = struct.pack(">hhih", *raw.PRODUCE, 7, len(raw.CLIENT_ID)) + raw.CLIENT_ID
        request = struct.pack(">i", len(head) + len(body)) + head + body

        async def feed(count: int) -> None:
            for _ in range(count):
                connection.get_buffer(-1)[: len(request)] = request
                connection.buffer_updated(len(request))
                while connection._in_flight:  # what goes to a thread is part of the cost
                    await asyncio.sleep(0.001)

        await feed(requests // 5)
        raw.produced(memoryview(cast(bytes, transport.last))[8:])
        taken = []
        with _profiling(profile):
            for _ in range(runs):
                before = time.process_time()
                await feed(requests)
                taken.append((time.process_time() - before) / requests * 1e6)
        taken.sort()
        print(f"{taken[0]:.1f} us a request at best, {taken[len(taken) // 2]:.1f} in the median")
        connection.connection_lost(None)
        await service.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--size", type=int, default=100, help="bytes of the one record")
    parser.add_argument("--profile", action="store_true")
    asked = parser.parse_args()
    asyncio.run(measure(asked.requests, asked.runs, asked.size, asked.profile))


if __name__ == "__main__":
    main()
