"""Runs tests in processes that fork after one collection, the slowest tests first.

Collecting all tests takes twenty seconds of a processor, and each worker of pytest-xdist does it.
With `--forks N` one process collects, then forks N workers and one more for each `xdist_group`.
A worker asks for tests when it has none left. Reports are replayed in the process that
collected, so that options and plugins that read reports work as in a single process.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import signal
import traceback
import warnings
from collections import defaultdict
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pytest_rerunfailures import ClientStatusDB

UNIT_S = 2.0
GUESSED_S = 0.02
ENDING_S = 30
NICENESS = 5
NO_TEST = "after the last test"
ASK = "more tests"


class Unit(NamedTuple):
    """Consecutive tests of one module and group, by their index among the collected tests."""

    seconds: float
    group: str | None
    indices: list[int]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("horolog").addoption(
        "--forks", type=int, default=0, help="collect once, then fork this many workers"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(config), "horolog-durations")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests, unless pytest's own loop is to do it."""
    options = session.config.option
    if options.forks < 1 or options.collectonly or options.usepdb or session.testsfailed:
        return None
    Workers(session).run()
    return True


class Durations:
    """Seconds that each test took, kept in a file of pytest's cache with the slowest test first."""

    def __init__(self, config: pytest.Config) -> None:
        self._path: Path | None = None
        if config.pluginmanager.hasplugin("cacheprovider"):
            self._path = config.cache.mkdir("durations") / "slowest.txt"
        self._measured: dict[str, float] = defaultdict(float)

    def read(self) -> dict[str, float]:
        seconds = {}
        if self._path is not None and self._path.exists():
            for line in self._path.read_text().splitlines():
                duration, _, nodeid = line.partition(" ")
                seconds[nodeid] = float(duration)
        return seconds

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._measured[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        if self._path is not None and self._measured:
            slowest = sorted((self.read() | self._measured).items(), key=lambda row: -row[1])
            lines = [f"{s:.2f} {nodeid}\n" for nodeid, s in slowest if s >= GUESSED_S]
            self._path.write_text("".join(lines))


def units_of(items: list[pytest.Item], durations: dict[str, float]) -> list[Unit]:
    """Divide tests into units of about two seconds or one test; the longest is the first."""
    units: list[Unit] = []
    previous: object = None
    for index, item in enumerate(items):
        seconds = durations.get(item.nodeid, GUESSED_S)
        group = next((mark.args[0] for mark in item.iter_markers("xdist_group")), None)
        if (item.path, group) != previous or units[-1].seconds + seconds > UNIT_S:
            units.append(Unit(0, group, []))
        total, _, indices = units[-1]
        units[-1] = Unit(total + seconds, group, [*indices, index])
        previous = item.path, group
    return sorted(units, key=lambda unit: -unit.seconds)


class Worker(NamedTuple):
    """A forked process, and the tests that it was given and has not finished."""

    group: str | None
    process: Any
    connection: Connection
    given: list[int]


class Workers:
    """Forks workers, hands tests out and replays reports."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._config = session.config
        durations: Any = self._config.pluginmanager.getplugin("horolog-durations")
        self._units = units_of(session.items, durations.read())
        self._groups = {unit.group for unit in self._units} - {None}
        self._alive: list[Worker] = []
        self._forked = 0

    def run(self) -> None:
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        reporter.showfspath = False  # tests of several modules alternate
        gc.freeze()  # a collection in a worker would copy every page
        try:
            for group in [*self._groups, *[None] * self._config.option.forks]:
                self._fork(group)
            while self._alive:
                self._read_messages()
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            self._end()

    def _fork(self, group: str | None) -> None:
        ours, theirs = multiprocessing.Pipe()
        factory: Any = self._config._tmp_path_factory  # type: ignore[attr-defined]
        directory = factory.getbasetemp() / f"worker-{self._forked}"
        self._forked += 1
        process = multiprocessing.get_context("fork").Process(
            target=work,
            args=(self._session, theirs, [ours, *(other.connection for other in self._alive)]),
            kwargs={
                "directory": directory,
                "niceness": NICENESS if self._groups and group is None else 0,
            },
        )
        with warnings.catch_warnings():
            # The only other thread, that of pytest-rerunfailures, waits in accept().
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        self._alive.append(Worker(group, process, ours, []))

    def _read_messages(self) -> None:
        ready = wait([worker.connection for worker in self._alive], timeout=1)
        for worker in list(self._alive):
            if worker.connection in ready or not worker.process.is_alive():
                try:
                    # A process that a test forked may keep the connection of a dead worker open.
                    message = worker.connection.recv() if worker.connection.poll() else None
                    if message == ASK:
                        worker.given.extend(self._next_unit(worker.group))
                        worker.connection.send(worker.given)
                except (EOFError, ConnectionError):
                    message = None
                if message is None:
                    self._bury(worker)
                elif message != ASK:
                    self._replay(worker, *message)

    def _replay(self, worker: Worker, index: int | None, events: Any) -> None:
        """Call hooks as a worker did for one test, or after its last."""
        for name, content in events:
            if "data" in content:
                report = self._config.hook.pytest_report_from_serializable(
                    config=self._config, data=content["data"]
                )
                content = {"report": report}
            hook = getattr(self._config.hook, name)
            if hook.is_historic():
                hook.call_historic(kwargs=content)
            else:
                hook(**content)
        if index is not None:
            worker.given.remove(index)

    def _next_unit(self, group: str | None) -> list[int]:
        """Remove the longest unit of the group, otherwise of no group."""
        for wanted in (group, None):
            for unit in self._units:
                if unit.group == wanted:
                    self._units.remove(unit)
                    return unit.indices
        return []

    def _bury(self, worker: Worker) -> None:
        """Remove a worker that ended; if it died, fail the test that it was running."""
        self._alive.remove(worker)
        worker.connection.close()
        worker.process.join()
        code = worker.process.exitcode
        if code == 0 and not worker.given:
            return
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        if worker.given:
            item = self._session.items[worker.given[0]]
            report = failure(item.nodeid, item.location, f"the worker ended with {how}")
            if worker.given[1:]:
                self._units.insert(0, Unit(0, worker.group, worker.given[1:]))
        else:
            report = failure(NO_TEST, (NO_TEST, None, NO_TEST), f"a worker ended with {how}")
        self._config.hook.pytest_runtest_logreport(report=report)
        if self._units:
            self._fork(worker.group)

    def _end(self) -> None:
        """Interrupt workers that still run, so that their fixtures close what they opened."""
        for worker in self._alive:
            if worker.process.is_alive():
                os.kill(worker.process.pid, signal.SIGINT)
        for worker in self._alive:
            worker.process.join(ENDING_S)
            worker.process.kill()
            worker.process.join()


def failure(nodeid: str, location: tuple[str, int | None, str], why: str) -> pytest.TestReport:
    return pytest.TestReport(nodeid, location, {}, "failed", why, "call")


# --- in a worker --------------------------------------------------------------------------


class Sender:
    """Takes the place of the terminal's reporter: collects what is to be replayed."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tw = config.get_terminal_writer()  # pytest-timeout writes stacks to it
        self.stats: dict[str, list[Any]] = {}  # pytest-rerunfailures reads it
        self.events: list[tuple[str, dict[str, Any]]] = []

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self.events.append(("pytest_runtest_logstart", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self.events.append(("pytest_runtest_logreport", {"data": data}))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self.events.append(("pytest_runtest_logfinish", {"nodeid": nodeid, "location": location}))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        where = warning_message.filename, warning_message.lineno
        content = {
            "warning_message": warnings.WarningMessage(text, Warning, *where),
            "when": when,
            "nodeid": nodeid,
            "location": location,
        }
        self.events.append(("pytest_warning_recorded", content))

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        events, self.events = self.events, []
        return events


def work(
    session: pytest.Session,
    connection: Connection,
    others: list[Connection],
    *,
    directory: Path,
    niceness: int,
) -> None:
    """Run tests until the process that collected them has no more."""
    for other in others:
        other.close()  # else the end of that process would not be noticed
    atexit._clear()
    os.nice(niceness)
    sender = _stand_alone(session.config, directory)
    items = session.items

    try:
        while indices := _ask(connection):
            for index, following in zip(indices, [*indices[1:], None], strict=True):
                # Fixtures of the session stay for the next unit, which is not known yet.
                nextitem: Any = session if following is None else items[following]
                session.config.hook.pytest_runtest_protocol(item=items[index], nextitem=nextitem)
                # pytest-rerunfailures leaves fixtures open for a rerun that another worker took.
                session._setupstate.teardown_exact(nextitem)
                connection.send((index, sender.take()))
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        session._setupstate.teardown_exact(None)
        os._exit(1)
    try:
        session._setupstate.teardown_exact(None)
        session.config._ensure_unconfigure()  # raises what finalizers raised since the last test
    except Exception:  # noqa: BLE001 - any is reported
        report = failure(NO_TEST, (NO_TEST, None, NO_TEST), traceback.format_exc())
        session.config.hook.pytest_runtest_logreport(report=report)
        connection.send((None, sender.take()))
    atexit._run_exitfuncs()


def _ask(connection: Connection) -> list[int]:
    connection.send(ASK)
    return list(connection.recv())


def _stand_alone(config: pytest.Config, directory: Path) -> Sender:
    """Give up what this process shares with the one that forked it: files, output, counts."""
    directory.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = directory  # type: ignore[attr-defined]
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files have one position for all processes
    capture.start_global_capturing()
    capture.suspend_global_capture()
    sender = Sender(config)
    for name in ("terminalreporter", "terminalprogress"):
        config.pluginmanager.unregister(name=name)
    config.pluginmanager.register(sender, "terminalreporter")
    sender.take()  # warnings that the forking process has reported
    reruns: Any = getattr(config, "failures_db", None)
    if hasattr(reruns, "sock_port"):  # the count of `--max-suite-reruns` is in its thread
        config.failures_db = ClientStatusDB(reruns.sock_port, reruns.token)  # type: ignore[attr-defined]
    return sender
