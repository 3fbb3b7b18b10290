"""A broker for a test: in this process on a thread of its own, or in one that can be killed."""

import asyncio
import atexit
import functools
import signal
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from broker_nursery import BornBroker, Nursery
from patience import PATIENCE_S

from horolog.broker.controller import NewTopic
from horolog.broker.service import Service, new_event_loop
from horolog.clock import Clock, SystemClock
from horolog.config import Settings
from horolog.record.batch import BatchHeader
from horolog.storage.logs.log import Log

T = TypeVar("T")

QUICK = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    # Tests do not wait for members that might still come.
    "group.initial.rebalance.delay.ms": "0",
    # Records of years ago outlive a slow test; those that run retention say when.
    "log.initial.task.delay.ms": "86400000",
}

# The clients are in this process, and need its interpreter.
SHARED = {"horolog.busy.poll.us": "0"}


class RunningBroker:
    """A broker in this process; its state may be looked at through `call` and `run`."""

    def __init__(
        self,
        log_dir: Path,
        settings: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
    ) -> None:
        self.log_dir = log_dir
        self.clock = SystemClock() if clock is None else clock
        self._settings = {"log.dir": str(log_dir), **QUICK, **SHARED, **(settings or {})}
        self._new_loop = new_loop
        self._start()

    def _start(self) -> None:
        self.loop = self._new_loop()
        self._thread = threading.Thread(target=self._run_loop, name="broker", daemon=True)
        self._thread.start()
        try:
            self.service = self.run(Service.start(Settings(self._settings), self.clock))
        except BaseException:
            self._stop_loop()
            raise
        self.bound = self.service.bound
        self.port = self.bound[0].port
        self.address = f"{self.bound[0].host}:{self.port}"

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = PATIENCE_S) -> T:
        """Await something on the broker's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout_s)

    def call(self, function: Callable[[], T]) -> T:
        """Call something on the broker's loop."""

        async def call() -> T:
            return function()

        return self.run(call())

    @property
    def broker(self) -> Any:
        """What the service works on."""
        return self.service.broker

    def create_topic(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic; settings under Kafka's names with underscores."""
        overrides = {name.replace("_", "."): value for name, value in settings.items()}
        new = NewTopic(name=topic, partitions=partitions, overrides=overrides)
        self.run(self.broker.controller.create_topic(new))

    def log(self, topic: str, partition: int = 0) -> Log:
        """The log of a partition; not to be written to."""
        log: Log = self.broker.partition(topic, partition)._log
        return log

    def headers(self, topic: str, partition: int = 0) -> list[BatchHeader]:
        """The headers of all batches of a partition, as they lie on disk."""
        return [
            header
            for segment in self.log(topic, partition).segments
            for _, header in segment.headers(0, segment.size)
        ]

    def restart(self, **settings: str) -> None:
        """Stop cleanly and start again on the same port, with settings changed."""
        self.stop()
        self._settings |= {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}
        self._settings |= {name.replace("_", "."): value for name, value in settings.items()}
        self._start()

    def stop(self) -> None:
        """Stop cleanly; nothing if it is stopped."""
        if self.loop.is_closed():
            return
        self.run(self.service.stop())
        self._stop_loop()

    def kill(self) -> None:
        """Drop everything, as kill -9 does."""
        self.run(self.service.kill())
        self._stop_loop()

    def _stop_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@functools.cache
def _nursery() -> Nursery:
    """The process that brokers are forked from, for as long as tests run."""
    nursery = Nursery()
    atexit.register(nursery.close)
    return nursery


class BrokerProcess:
    """A broker in a process of its own, to be killed."""

    def __init__(self, log_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        self.log_dir = log_dir
        self._settings = {**QUICK, **(settings or {})}
        self.start_again()

    def start_again(self) -> None:
        """Start it in the same directory and on the same port."""
        said = self.log_dir.with_name(f"{self.log_dir.name}.said")
        said.parent.mkdir(parents=True, exist_ok=True)
        arguments = ["serve", "--log-dir", str(self.log_dir)]
        for name, value in self._settings.items():
            arguments += ["--set", f"{name}={value}"]
        self._process = BornBroker(_nursery(), said, arguments)
        address = self._process.await_ready()
        assert address is not None, f"the broker did not start: {self._process.said[-2000:]}"
        self.address = address
        # Whatever is started again listens where its clients look for it.
        self._settings["listeners"] = f"PLAINTEXT://{address}"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        """Kill it: no signal handler, no clean-up."""
        self._process.end(signal.SIGKILL)

    def terminate(self) -> int:
        """Stop it as an operator does; the exit code."""
        return self._process.end(signal.SIGTERM)
