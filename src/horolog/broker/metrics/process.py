"""Metrics of the process, the event loop, connections and disk: what a broker may run out of."""

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from horolog.broker.broker import BrokerParts
from horolog.broker.metrics import families as of
from horolog.broker.metrics.exposition import Exposition
from horolog.broker.metrics.families import Family
from horolog.broker.scheduling.loop_delay import BOUNDS_MS, LoopDelay
from horolog.config.listeners import INT_MAX
from horolog.network.server import Server
from horolog.network.tls.handshakes import HANDSHAKE_BOUNDS_MS
from horolog.quotas.entities import QuotaKey

_DELAY_LABELS: Final = (*map(str, BOUNDS_MS), "+Inf")
_HANDSHAKE_LABELS: Final = (*map(str, HANDSHAKE_BOUNDS_MS), "+Inf")
_SELF: Final = Path("/proc/self")


class ProcessNumbers:
    """Metrics of one broker's process. Only the event loop's thread uses it."""

    def __init__(self, broker: BrokerParts, server: Server) -> None:
        """Begin to measure how late the event loop is."""
        self._broker = broker
        self._server = server
        self._delay = LoopDelay()
        self._started_ms = broker.clock.now_ms()

    def close(self) -> None:
        """Stop measuring."""
        self._delay.close()

    async def add(self, found: Exposition) -> None:
        """Add the metrics of the process."""
        server, broker = self._server, self._broker
        found.add_buckets(of.LOOP_DELAY, _DELAY_LABELS, self._delay.counts)
        for family, number in (
            (of.CONNECTIONS, len(server.connections)),
            (of.MOST_CONNECTIONS, server.most_connections),
            (of.WITHOUT_LOGIN, server.without_login),
            (of.BUFFERED, server.budget.used),
            (of.MOST_BUFFERED, server.budget.limit),
            (of.CPU_SECONDS, round(time.process_time(), 3)),
            (of.STARTED, self._started_ms / 1000),
        ):
            found.add(family, number)
        for listener, limits in broker.config.listener_limits.items():
            found.add(of.CONNECTIONS, server.limits.open[listener], listener)
            if limits.max_connections != INT_MAX:
                found.add(of.MOST_CONNECTIONS, limits.max_connections, listener)
        loop = asyncio.get_running_loop()
        for family, number in await loop.run_in_executor(broker.readers, self._from_system):
            found.add(family, number)

    def add_waits(self, found: Exposition) -> None:
        """Add how long handshakes took, and how long quotas made clients wait."""
        self._add_handshakes(found)
        self._add_throttles(found)

    def _add_handshakes(self, found: Exposition) -> None:
        times = self._server.handshake_times
        for listener in self._broker.config.tls:
            found.add_buckets(of.HANDSHAKES, _HANDSHAKE_LABELS, times.done[listener], listener)
            found.add(of.FAILED_HANDSHAKES, times.failed[listener], listener)

    def _add_throttles(self, found: Exposition) -> None:
        times, limits = self._broker.quotas.times, self._server.limits
        waits = {key.value: (times.counts[key], times.wait_ms[key]) for key in QuotaKey}
        waits["max.connection.creation.rate"] = limits.pauses, round(1000 * limits.paused_s)
        for quota, (count, wait_ms) in waits.items():
            found.add(of.THROTTLED, count, quota)
            found.add(of.THROTTLE_MS, wait_ms, quota)

    def _from_system(self) -> list[tuple[Family, int]]:
        return [*_of_disk(self._broker.log_dir_path), *_of_memory_and_files()]


def _of_disk(directory: Path) -> Iterator[tuple[Family, int]]:
    with suppress(OSError):  # it is lost; another metric says so
        disk = os.statvfs(directory)
        yield of.DISK_FREE, disk.f_bavail * disk.f_frsize
        yield of.DISK_SIZE, disk.f_blocks * disk.f_frsize


def _of_memory_and_files() -> Iterator[tuple[Family, int]]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        yield of.MOST_FILES, soft
    with suppress(OSError):  # not Linux
        pages = int((_SELF / "statm").read_text().split()[1])
        yield of.MEMORY, pages * resource.getpagesize()
        yield of.FILES, len(os.listdir(_SELF / "fd")) - 1  # less the one that reads it
