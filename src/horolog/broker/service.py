"""The running broker: opens storage, listens, runs background tasks, and shuts down in order.

settings = Settings({"log.dir": "/data", "listeners": "PLAINTEXT://127.0.0.1:0"})
service = await Service.start(settings)
(endpoint, *_) = service.bound
...
await service.stop()
"""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from horolog import __version__
from horolog.broker import handlers, kernels
from horolog.broker.audit import AuditLog
from horolog.broker.audit_file import AuditFile
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Dispatcher
from horolog.broker.faults import Faults
from horolog.broker.faulty_dispatch import FaultyDispatch
from horolog.broker.logins import LoginDispatch
from horolog.broker.open_files import raise_limit
from horolog.broker.scheduling.garbage import FullCollections
from horolog.broker.service_manager import ServiceManager
from horolog.clock import Clock
from horolog.config import Endpoint, Settings, host_port, require_closed
from horolog.network.budget import ByteBudget
from horolog.network.connection import ServerConnection
from horolog.network.dispatching import Dispatch
from horolog.network.request_times import RequestTimes
from horolog.network.server import Server
from horolog.storage.log_dir.log_dir import OpeningProgress

if TYPE_CHECKING:
    from horolog.broker.joining import EarlyServer
    from horolog.broker.metrics.page import MetricsPage

_LOG = logging.getLogger(__name__)

# Loading the kernels takes half a second of CPU time, which would slow down the first clients;
# until then they run as plain Python.
KERNELS_AFTER_SECONDS: Final = 1.0

# The GIL's switch interval: how long a thread that decodes or scans delays the event loop. A fifth
# of Python's default, because every response waits for it several times.
SWITCH_SECONDS: Final = 0.001

LOGGED_EVERY_S: Final = 10

assert handlers.__all__  # importing them has filled the table of APIs


class Service:
    """A broker with its sockets and its background tasks."""

    def __init__(
        self,
        broker: BrokerParts,
        dispatcher: Dispatcher,
        server: Server,
        bound: tuple[Endpoint, ...],
        metrics: "MetricsPage | None",
        faulty: FaultyDispatch | None,
    ) -> None:
        """Use `start` to create a service."""
        self.broker = broker
        self.background_tasks = broker.background_tasks
        self.bound = bound
        """Bound endpoints, with their actual ports."""
        self.metrics = metrics
        """Page of metrics, if it is served."""
        self._dispatcher = dispatcher
        self._faulty = faulty
        self.server = server
        self._audit_file: AuditFile | None = None
        self._kernels: asyncio.TimerHandle | None = None
        self._garbage = FullCollections(lambda: dispatcher.has_large)

    @classmethod
    async def start(
        cls,
        settings: Settings,
        clock: Clock | None = None,
        *,
        load_kernels: bool = True,
        owns_process: bool = False,
        faults: Faults | None = None,
        progress: OpeningProgress | None = None,
    ) -> Self:
        """Open the log directory and accept connections.

        A service that `owns_process` disables garbage collection while it loads, excludes the
        loaded objects from it, and schedules it from then on.

        Raises:
            Misconfigured: a directory, a port or a setting is unusable.
            StorageFailed: a read or write failed.
        """
        if not owns_process:
            return await cls._started(settings, clock, faults, progress, load_kernels=load_kernels)
        gc.disable()  # it would look again and again at what is loaded, and find nothing
        try:
            service = await cls._started(
                settings, clock, faults, progress, load_kernels=load_kernels, owns_process=True
            )
            gc.freeze()
            service._garbage.start()
        finally:
            gc.enable()
        return service

    @classmethod
    async def _started(
        cls,
        settings: Settings,
        clock: Clock | None,
        faults: Faults | None,
        progress: OpeningProgress | None,
        *,
        load_kernels: bool,
        owns_process: bool = False,
    ) -> Self:
        config = settings.broker_config()
        require_closed(config)
        async with AsyncExitStack() as undo:
            audit_file = None
            if config.horolog_audit_log:
                audit_file = AuditFile(config.horolog_audit_log)
                undo.callback(audit_file.close)
            times = None if config.horolog_metrics_port is None else RequestTimes()
            early: EarlyServer | None = None
            if config.cluster is not None:
                from horolog.broker import joining  # noqa: PLC0415 - only in a cluster

                early = await joining.EarlyServer.start(settings, clock, times)
                undo.push_async_callback(early.abort)
                broker = await early.join(progress)
            else:
                broker = await BrokerParts.open(settings, clock, progress)
            undo.push_async_callback(broker.close)
            dispatcher = Dispatcher(broker)
            undo.callback(dispatcher.close)
            broker.faults = faults
            dispatch: Dispatch = dispatcher
            if broker.config.logins:
                dispatch = LoginDispatch(dispatcher, broker)
            faulty = None if faults is None else FaultyDispatch(dispatch, broker, faults)
            served = dispatch if faulty is None else faulty
            server: Server
            if early is not None:
                server = early.server
            else:
                server = Server(
                    lambda: broker.config,
                    served,
                    broker.readers,
                    file_slots=broker.slices_to_send,
                    most_connections=broker.open_files.connections,
                    times=times,
                    wait_s=broker.quotas.connected,
                    audit=AuditLog(logging.getLogger("horolog.broker.logins")).write,
                )
                broker.controller.load_tls = server.load_tls
                broker.controller.on_altered = server.reconsider
            metrics = None
            if times is not None:
                from horolog.broker.metrics.page import (  # noqa: PLC0415 - only where it is served
                    MetricsPage,
                )

                metrics = MetricsPage(broker, times, server)
                undo.callback(metrics.close)
            bound = server.listen() if early is None else early.bound
            service = cls(broker, dispatcher, server, bound, metrics, faulty)
            service._audit_file = audit_file
            broker.background_tasks.start()
            broker.cleaner.start()
            undo.push_async_callback(service._stop_background, is_clean=False)
            await broker.node.start()
            if early is not None:
                early.open(served)
            undo.pop_all()
        if load_kernels:
            loop = asyncio.get_running_loop()
            load = partial(kernels.load_in_background, owns_process=owns_process)
            service._kernels = loop.call_later(KERNELS_AFTER_SECONDS, load)
        return service

    @property
    def connections(self) -> frozenset[ServerConnection]:
        """The open connections."""
        return frozenset(self.server.connections)

    @property
    def requests_in_flight(self) -> int:
        """Number of asynchronous requests without a response yet."""
        return self._dispatcher.in_flight

    @property
    def budget(self) -> ByteBudget:
        """Memory budget of all connections."""
        return self.server.budget

    async def stop(self) -> None:
        """Stop accepting, answer the requests in flight, and close the logs cleanly."""
        await self._stop_background(is_clean=True)
        await self.server.close(self._end_waits)
        self._dispatcher.close()
        await self.broker.close()
        await self._close_audit()

    async def kill(self) -> None:
        """Stop like a crash: no responses, no flush, no clean-shutdown marker; release the lock."""
        await self._stop_background(is_clean=False)
        await self.server.abort()
        if self._faulty is not None:
            self._faulty.kill()
        self._dispatcher.close()
        self.broker.end_waits()
        await self.broker.close(clean=False)
        await self._close_audit()

    async def _close_audit(self) -> None:
        if self._audit_file is not None:
            await asyncio.to_thread(self._audit_file.close)

    def _end_waits(self) -> None:
        """Complete the requests that wait, and let no more wait."""
        if self._faulty is not None:
            self._faulty.end()
        self.broker.end_waits()

    async def _stop_background(self, *, is_clean: bool) -> None:
        if self._kernels is not None:
            self._kernels.cancel()
        self._garbage.stop()
        if self.metrics is not None:
            self.metrics.close()
        await self.background_tasks.stop()
        await self.broker.cleaner.stop()
        await self.broker.node.stop(is_clean=is_clean)


def serve(
    settings: Settings,
    *,
    clock: Clock | None = None,
    faults: Faults | None = None,
    on_ready: Callable[[Service], None] = lambda service: None,
) -> None:
    """Run a broker in the foreground until SIGTERM or SIGINT.

    SIGHUP is ignored; SIGQUIT writes the stacks of all threads to stderr, as in a JVM.

    Raises:
        Misconfigured: a directory, a port or a setting that cannot be used.
        StorageFailed: the disk refused.
    """
    raise_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    signal.signal(signal.SIGQUIT, _print_stacks)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(settings, clock, faults, on_ready))


def _print_stacks(*_: object) -> None:
    """Write the stacks of all threads to stderr.

    In Python, between two steps of it: a handler in C walks frames that other threads change, and
    crashes while kernels are loaded.
    """
    if sys.__stderr__ is None:
        return
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        sys.__stderr__.write(f"Thread {names.get(ident, ident)}:\n")
        traceback.print_stack(frame, file=sys.__stderr__)
    sys.__stderr__.flush()


async def _serve(
    settings: Settings,
    clock: Clock | None,
    faults: Faults | None,
    on_ready: Callable[[Service], None],
) -> None:
    config = settings.broker_config()
    where = Path(config.log_dir).absolute()
    _LOG.info("horolog %s starts: node %d, log directory %s", __version__, config.node_id, where)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _LOG.info, "SIGHUP is ignored; SIGTERM stops the broker")
    manager = ServiceManager(os.environ)
    progress = OpeningProgress()
    reporting = asyncio.create_task(_report_opening(progress, manager))
    starting = loop.create_task(
        Service.start(settings, clock, owns_process=True, faults=faults, progress=progress)
    )
    try:
        if not await _finished(starting, stopping, progress):
            _LOG.info("stopped before the broker was ready")
            return
        service = await starting
    finally:
        reporting.cancel()
    on_ready(service)
    addresses = (host_port(endpoint.host, endpoint.port) for endpoint in service.bound)
    manager.ready(f"serving {len(service.broker.partitions)} logs at {', '.join(addresses)}")
    failed = None if service.broker.cluster is None else service.broker.cluster.failed
    if failed is not None:
        failed.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    _LOG.info("stopping")
    manager.report("STOPPING=1", "STATUS=answering the last requests and closing the logs")
    await service.stop()
    manager.close()
    if failed is not None and failed.done():
        raise failed.result()


async def _finished(
    starting: "asyncio.Task[Service]", stopping: asyncio.Event, progress: OpeningProgress
) -> bool:
    """Wait for a start; cancel it, and return False, if the broker is to stop before its end."""
    stopped = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if starting.done():
        return True
    _LOG.info("stopping before the broker is ready")
    progress.is_ended = True
    starting.cancel()
    with suppress(asyncio.CancelledError):
        await starting
    return False


async def _report_opening(progress: OpeningProgress, manager: ServiceManager) -> None:
    """Report how far a long start is: to the service manager, and now and then to the log."""
    reported = ""
    for seconds in count(1):
        await asyncio.sleep(1)
        status = f"opened {progress.loaded} of {progress.logs} logs"
        if status != reported and progress.logs:
            reported = status
            manager.report(f"STATUS={status}")
        if seconds % LOGGED_EVERY_S == 0 and progress.logs:
            _LOG.info("starting: %s", status)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop, of uvloop if it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - optional, and 60 ms only where it is used
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
