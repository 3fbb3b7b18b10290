"""Processes that run `horolog serve`, many one after the other, some of which are to die midway.

What is the same in every start is done once, by a process that forks for each: the command's
modules are imported, kernels and the shapes of messages loaded. What runs after the fork is the
command itself, from its arguments on. A start takes milliseconds of the processor so, and
there can be hundreds.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import io
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from powerless import drop_capabilities

START_S = 900
POLL_S = 0.005

# What the clients of these tests ask: librdkafka's own requests, and those of raw connections.
ASKED = {
    "API_VERSIONS": (0, 3),
    "METADATA": (12,),
    "PRODUCE": (9, 10),
    "FETCH": (12,),
    "INIT_PRODUCER_ID": (4,),
    "LIST_OFFSETS": (7,),
    "OFFSET_COMMIT": (8,),
    "OFFSET_FETCH": (7,),
    "CREATE_TOPICS": (7,),
    "DELETE_TOPICS": (5,),
    "DELETE_RECORDS": (2,),
    "DESCRIBE_CONFIGS": (4,),
    "INCREMENTAL_ALTER_CONFIGS": (1,),
}


class Nursery:
    """The process that forks. To be closed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()

    def ask(self, **order: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(START_S)
        self._process.stdout.close()


class BornBroker:
    """One life of a broker; what it says goes to `said`.

    `powerless`, root's broker obeys the rights of files as anybody's does.
    """

    def __init__(
        self,
        nursery: Nursery,
        said: Path,
        arguments: Sequence[str],
        dies: str | None = None,
        *,
        open_files: int | None = None,
        powerless: bool = False,
    ) -> None:
        self._nursery = nursery
        self._said = said
        self._ended: int | None = None
        said.write_text("")  # not that of the life before
        self.pid: int = nursery.ask(
            arguments=list(arguments),
            said=str(said),
            dies=dies,
            open_files=open_files,
            powerless=powerless,
        )
        self._end: int | None = None  # becomes readable when it has ended, where there is such
        if hasattr(os, "pidfd_open"):
            self._end = os.pidfd_open(self.pid)

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    @property
    def ready(self) -> str | None:
        """Where it listens, once it does."""
        for line in self.said.splitlines():
            if line.startswith("ready "):
                return line.split()[1].rstrip(",")
        return None

    def await_ready(self) -> str | None:
        """Where it listens; None if it has died before it did."""
        begun = time.monotonic()
        while time.monotonic() < begun + START_S:
            if (address := self.ready) is not None:
                return address
            if self._ends_within(pause_s(begun)):
                return self.ready
        raise AssertionError(f"not ready after {START_S} s: {self.said[-2000:]}")

    @property
    def has_ended(self) -> bool:
        return self._ends_within(0)

    def await_end(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self._ends_within(min(max(until - time.monotonic(), 0), 1)):
            if time.monotonic() > until:
                return False
        return True

    def _ends_within(self, seconds: float) -> bool:
        """Whether it has ended, now or soon; without a descriptor for that it is asked after."""
        if self._ended is None:
            if self._end is None:
                self._ended = self._nursery.ask(reap=self.pid, wait=False)
                if self._ended is None:
                    time.sleep(min(seconds, POLL_S))
            elif select.select([self._end], [], [], seconds)[0]:
                self._reap()
        return self._ended is not None

    def end(self, number: int = signal.SIGKILL) -> int:
        """Send it a signal and wait for its end; the exit code, -9 if the kernel killed it."""
        if self._ended is None:
            os.kill(self.pid, number)
            self._reap()
        assert self._ended is not None
        return self._ended

    def _reap(self) -> None:
        self._ended = self._nursery.ask(reap=self.pid, wait=True)
        if self._end is not None:
            os.close(self._end)
            self._end = None


def pause_s(begun: float) -> float:
    """How long to wait before one looks again: an eighth of the time since it `begun`.

    Looking takes from the processor what the broker needs, which on a slow machine is much.
    """
    return min(max((time.monotonic() - begun) / 8, POLL_S), 1)


# --- in the process that forks ------------------------------------------------------------


def main() -> None:
    """Read orders until there are no more."""
    from short_pauses import SHORT_PAUSES

    from horolog.cli import app
    from horolog.cli.lazy import load_command

    load_command("serve")
    for module, name, value in SHORT_PAUSES:
        setattr(module, name, value)
    warm_up()
    for line in sys.stdin:
        order = json.loads(line)
        if "reap" in order:
            pid, status = os.waitpid(order["reap"], 0 if order["wait"] else os.WNOHANG)
            answer: int | None = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                _become(app, order)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def warm_up() -> None:
    """Load what a broker loads while it serves, so that no life of one has to."""
    from horolog.broker import service
    from horolog.record.scan import load_kernels
    from horolog.wire.api import ApiKey
    from horolog.wire.codec import preload

    service.new_event_loop().close()
    load_kernels()
    for name, versions in ASKED.items():
        for version in versions:
            preload(ApiKey[name], version)
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page


def _become(app: Any, order: dict[str, Any]) -> None:
    said = os.open(order["said"], os.O_WRONLY | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    cast("io.TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)
    if order["open_files"] is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (order["open_files"], order["open_files"]))
    if order["powerless"]:
        drop_capabilities()
    if order["dies"] is not None:
        hinder(order["dies"])
    try:
        app(order["arguments"], prog_name="horolog")
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def hinder(how: str) -> None:
    """Have this process die, or its disk fail, at a chosen step.

    step:N     dies at step N of all that change the disk, in the middle of a write
    stop:N     the same, counted from the signal to stop
    promote:N  the same, counted from the request to promote all
    tear:N:P   dies in write N to a `.log`, when P of 1000 bytes are written
    full:PATH  has a full disk while there is a file at PATH
    marker:N   dies before marker N of transactions, whose outcome is written and which are written
               one after the other
    complete:N dies when all markers of transaction N are written, and Complete is not
    sync:PATH  has a disk that refuses to sync `.log` files while there is a file at PATH
    """
    from horolog.storage.files import Files

    kind, _, argument = how.partition(":")
    if kind in ("step", "stop", "promote"):
        _count_steps(Files, int(argument), kind)
    elif kind == "tear":
        _tear(Files, *map(int, argument.split(":")))
    elif kind == "marker":
        _die_before_marker(int(argument))
    elif kind == "complete":
        _die_before_complete(int(argument))
    elif kind == "full":
        _fill(Files, argument)
    elif kind == "sync":
        _refuse_syncs(Files, argument)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def _count_steps(files: Any, last: int, since: str) -> None:
    from horolog.broker.service import Service
    from horolog.broker.shadow.promotion import Promotions

    left, counts_now = [last], [since == "step"]

    def at_last() -> bool:
        left[0] -= counts_now[0]
        return left[0] == -1

    def count_from(kind: Any, name: str) -> None:
        begin = getattr(kind, name)

        async def counting(*args: Any) -> None:
            counts_now[0] = True
            await begin(*args)
            counts_now[0] = since == "stop"

        setattr(kind, name, counting)

    if since == "stop":
        count_from(Service, "stop")
    elif since == "promote":
        count_from(Promotions, "promote_all")

    def before(name: str, counts: Callable[..., bool] = lambda *_: True) -> None:
        real = getattr(files, name)

        def step(self: Any, *args: Any) -> Any:
            if counts(*args) and at_last():
                _die()
            return real(self, *args)

        setattr(files, name, step)

    before("os_open", lambda path, flags: bool(flags & os.O_CREAT))
    for name in ("os_ftruncate", "os_fsync", "os_rename", "os_unlink", "os_mkdir"):
        before(name)
    write, rmtree = files.os_pwritev, files.os_rmtree

    def pwritev(self: Any, fd: int, parts: Any, position: int) -> int:
        if at_last():
            data = b"".join(parts)
            os.pwrite(fd, data[: len(data) // 2], position)
            _die()
        return int(write(self, fd, parts, position))

    def remove_tree(self: Any, path: str) -> None:
        if at_last():
            inside = sorted(Path(path).iterdir())
            for one in inside[: len(inside) // 2]:
                one.unlink()
            _die()
        rmtree(self, path)

    files.os_pwritev, files.os_rmtree = pwritev, remove_tree


def _tear(files: Any, number: int, permille: int) -> None:
    left = [number]
    write = files.write_at

    def write_at(self: Any, file: Any, parts: Any, position: int) -> None:
        if file.path.endswith(".log"):
            left[0] -= 1
            if left[0] == -1:
                data = b"".join(parts)
                os.pwrite(file.fd, data[: max(1, len(data) * permille // 1000)], position)
                _die()
        write(self, file, parts, position)

    files.write_at = write_at


def _die_before_marker(number: int) -> None:
    from horolog.broker import LocalMarkers

    markers: Any = LocalMarkers
    left, turn, end = [number], asyncio.Lock(), markers.end

    async def one_by_one(self: Any, *args: Any, **more: Any) -> None:
        async with turn:
            left[0] -= 1
            if left[0] == -1:
                _die()
            waits = end(self, *args, **more)
            if waits is not None:
                await waits

    markers.end = one_by_one


def _die_before_complete(number: int) -> None:
    from horolog.transactions import decisions

    made: Any = decisions
    left, completed = [number], made.completed

    def dying(*args: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            _die()
        return completed(*args)

    made.completed = dying


def _fill(files: Any, path: str) -> None:
    write = files.os_pwritev

    def pwritev(self: Any, fd: int, parts: Any, position: int) -> int:
        if os.path.exists(path):
            data = b"".join(parts)
            os.pwrite(fd, data[: len(data) // 2], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(write(self, fd, parts, position))

    files.os_pwritev = pwritev


def _refuse_syncs(files: Any, path: str) -> None:
    """As Linux does, it refuses once and has then forgotten what it was asked to write."""
    sync = files.os_fsync

    def fsync(self: Any, fd: int) -> None:
        if os.path.exists(path) and os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(self, fd)

    files.os_fsync = fsync


if __name__ == "__main__":
    main()
