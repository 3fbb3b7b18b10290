"""Run the collected tests in several processes, forked when everything is imported and collected.

Collecting takes longer than most files of tests: workers that each collect for themselves, as
pytest-xdist's do, multiply it. Here they take files of tests, or parts of long ones, until none
is left; reports come back over a pipe and are logged where `pytest` was called.
"""

import multiprocessing
import os
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from multiprocessing.connection import Connection, wait
from typing import Any, Final, Literal

import pytest
from _pytest.capture import CaptureManager
from _pytest.config import create_terminal_writer

PART_OF_A_FILE: Final = 32
"""Tests that a worker takes at once, at most: fixtures of a module are set up again for each."""

Message = tuple[Literal["more", "report", "ended"], Any]


def run_in_workers(session: pytest.Session, count: int) -> None:
    """Run all tests of a session in `count` processes.

    Raises:
        Session.Failed: as many tests failed as `--maxfail` allows, or a worker did after its last.
        Session.Interrupted: a hook wants to stop.
    """
    _Workers(session).run(count)


class _Worker:
    """One process, and the numbers of tests that it has to run, of the running one first."""

    def __init__(self, session: pytest.Session) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, there = context.Pipe()
        self.process = context.Process(target=_work, args=(session, there))
        self.process.start()
        there.close()
        self.taken: deque[int] = deque()


class _Workers:
    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._hook = session.config.hook
        self._parts: deque[Sequence[int]] = deque(_parts(session.items))
        self._workers: list[_Worker] = []
        # One directory for all, which the session removes at its end.
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]

    def run(self, count: int) -> None:
        try:
            self._workers += [_Worker(self._session) for _ in range(count)]
            while self._workers:
                ready = wait([worker.connection for worker in self._workers])
                for worker in [each for each in self._workers if each.connection in ready]:
                    try:
                        kind, value = worker.connection.recv()
                    except (EOFError, ConnectionResetError):
                        self._end(worker)
                    else:
                        self._handle(worker, kind, value)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.process.join()

    def _handle(self, worker: _Worker, kind: str, value: Any) -> None:
        if kind == "more":
            part = self._parts.popleft() if self._parts else range(0)
            worker.taken += part
            with suppress(BrokenPipeError):  # that it has died the next receive says
                worker.connection.send(part)
        elif kind == "report":
            config = self._session.config
            report = self._hook.pytest_report_from_serializable(config=config, data=value)
            self._hook.pytest_runtest_logreport(report=report)
        else:
            item = self._session.items[worker.taken.popleft()]
            self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _end(self, worker: _Worker) -> None:
        """Fail the test in which a worker died; another worker runs those after it."""
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join()
        how = f"the worker ended with exit code {worker.process.exitcode}"
        if worker.taken:
            item = self._session.items[worker.taken.popleft()]
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", how, "call")
            self._hook.pytest_runtest_logreport(report=report)
            self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            self._parts.appendleft(worker.taken)
            self._workers.append(_Worker(self._session))
        elif worker.process.exitcode:
            raise self._session.Failed(f"{how} after its last test")


def _parts(items: Sequence[pytest.Item]) -> Iterator[range]:
    """Numbers of tests that one worker runs after each other."""
    first = 0
    for _, of_file in groupby(items, lambda item: item.path):
        end = first + sum(1 for _ in of_file)
        for start in range(first, end, PART_OF_A_FILE):
            yield range(start, min(start + PART_OF_A_FILE, end))
        first = end


def _work(session: pytest.Session, connection: Connection) -> None:
    """Run tests until there are no more, in a process of its own."""
    config = session.config
    manager = config.pluginmanager
    # What tests print must not go to one file with what those of other workers do.
    capture = manager.getplugin("capturemanager")
    if isinstance(capture, CaptureManager):
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    manager.unregister(name="terminalreporter")
    # Stacks of a test that takes too long become part of its report.
    config.get_terminal_writer = lambda: create_terminal_writer(config, sys.stderr)  # type: ignore[method-assign]
    manager.register(_Sender(config, connection))
    cache = tempfile.mkdtemp(dir=os.environ["HOROLOG_CACHE_DIR"])
    os.environ["HOROLOG_CACHE_DIR"] = cache

    def more() -> deque[pytest.Item]:
        connection.send(("more", None))
        return deque(session.items[number] for number in connection.recv())

    taken = more()
    with suppress(KeyboardInterrupt):  # said by the process that waits for this one
        while taken:
            item = taken.popleft()
            if not taken:
                # Known before the last one ends, so that fixtures that the next needs stay.
                taken = more()
            following = taken[0] if taken else None
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            connection.send(("ended", None))


class _Sender:
    """Sends what is reported in a worker."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))
