"""A broker for a test: in this process on a thread of its own, or in one that can be killed.

Most test files name the broker that they want in one line, `broker = a_broker("t", partitions=2)`,
and ask it through `broker.client`, or request by request: `broker.produce("t", batch(NOW_MS))`.
"""

import asyncio
import atexit
import functools
import signal
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol, Self, TypeVar

import pytest
from broker_nursery import BornBroker, Nursery
from patience import PATIENCE_S
from raw_connection import RawConnection, fetch_fields, produce_fields
from storelogs import followed

from horolog.broker import NewTopic, Service, new_event_loop
from horolog.client import Client
from horolog.clock import Clock, ManualClock, SystemClock
from horolog.config import Settings, secrets_among
from horolog.record import AppendTimeStretch, BatchHeader, iter_headers
from horolog.storage import Log
from horolog.wire import ApiKey

T = TypeVar("T")
NewLoop = Callable[[], asyncio.AbstractEventLoop]

NOW_MS = 1_700_000_000_000
"""What the clock of a test's broker says at first, unless the test says otherwise."""

TOPIC, BROKER = 2, 4
"""Types of resources that have settings."""

EVER = str((1 << 63) - 1)
ANY_TIME = {"message_timestamp_after_max_ms": EVER, "retention_ms": "-1"}
"""Settings of a topic that takes and keeps records of any time."""

QUICK = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    # Tests do not wait for members that might still come.
    "group.initial.rebalance.delay.ms": "0",
    # A request that begins a transaction waits as long as a slow machine needs to end the former.
    "add.partitions.to.txn.retry.backoff.max.ms": "60000",
    # Records of years ago outlive a slow test; those that run retention say when.
    "log.initial.task.delay.ms": "86400000",
}

# The clients are in this process, and need its interpreter.
SHARED = {
    "horolog.busy.poll.us": "0",
    # Transactions that a manual clock has passed time out when a test says so.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "86400000",
}


class Asked:
    """What a test asks of a broker with an address."""

    address: str
    _client: Client | None = None

    @property
    def client(self) -> Client:
        """One that waits as long as a test does; when the broker stops, it is closed."""
        if self._client is None:
            self._client = Client(self.address, timeout_ms=int(1000 * PATIENCE_S))
        return self._client

    def close_client(self) -> None:
        if self._client is not None:
            self._client.close()  # it connects again when it is asked again

    def connect(self, tls: ssl.SSLContext | None = None) -> RawConnection:
        """A connection for requests as the protocol has them."""
        return RawConnection(self.address, tls=tls)

    def ask(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """The answer to one request, on a connection of its own."""
        with self.connect() as connection:
            return connection.ask(key, version, **fields)

    def produce(
        self, topic: Any, records: bytes, partition: int = 0, *, version: int = 9, acks: int = 1
    ) -> Any:
        """Send one batch as it is; the answer about its partition."""
        fields = produce_fields(topic, {partition: records}, acks=acks)
        (answer,) = self.ask(ApiKey.PRODUCE, version, **fields).responses
        return answer.partition_responses[0]

    def append(self, topic: str, records: bytes, partition: int = 0) -> int:
        """Send one batch that is taken; its offset."""
        answer = self.produce(topic, records, partition)
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    def fetch(
        self, topic: Any, offset: int = 0, partition: int = 0, *, version: int = 12, **more: Any
    ) -> Any:
        """The answer about one partition."""
        fields = fetch_fields(topic, {partition: offset}, **more)
        (answer,) = self.ask(ApiKey.FETCH, version, **fields).responses
        return answer.partitions[0]

    def count(self, topic: str, partition: int = 0) -> int:
        """How many records a fetch from the beginning gives."""
        found = self.fetch(topic, partition=partition)
        assert found.error_code == 0, found
        return sum(header.records_count for _, header in iter_headers(found.records))

    def alter(
        self,
        name: str,
        *changes: tuple[str, int, str | None],
        kind: int = TOPIC,
        validate_only: bool = False,
        **settings: str,
    ) -> Any:
        """Alter settings incrementally: by name, operation and value, or set them; the answer."""
        changes += tuple((key.replace("_", "."), 0, value) for key, value in settings.items())
        configs = [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in changes
        ]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        (answer,) = self.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=validate_only
        ).responses
        return answer


class RunningBroker(Asked):
    """A broker in this process; its state may be looked at through `call` and `run`."""

    def __init__(
        self,
        log_dir: Path,
        settings: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        new_loop: NewLoop = new_event_loop,
    ) -> None:
        self.log_dir = log_dir
        self.clock = SystemClock() if clock is None else clock
        self._settings = {"log.dir": str(log_dir), **QUICK, **SHARED, **(settings or {})}
        self._new_loop = new_loop
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.loop = self._new_loop()
        self._thread = threading.Thread(target=self._run_loop, name="broker", daemon=True)
        self._thread.start()
        try:
            self.service = self.run(Service.start(Settings(self._settings), self.clock))
            # On a machine that is busy a start leaves off waiting for groups: clients ask again.
            self.run(self.broker.groups.tried())
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

    def demote(self, leader: Asked, topics: str = ".*") -> None:
        """Have it follow another broker, with which its settings have to agree."""
        self._settings["horolog.demote.servers"] = leader.address
        live = self.broker.shadow._live
        static = {**live.settings.static, "horolog.demote.servers": leader.address}
        self.call(lambda: live.replace(replace(live.settings, static=static)))
        self.client.demote(leader.address, topics)

    def log(self, topic: str, partition: int = 0) -> Log:
        """The log of a partition; not to be written to."""
        log: Log = self.broker.partitions[topic, partition].log
        return log

    def headers(self, topic: str, partition: int = 0) -> list[BatchHeader]:
        """The headers of all batches of a partition, as they lie on disk."""
        return [
            header
            for segment in self.log(topic, partition).segments
            for _, header in segment.headers(0, segment.size)
        ]

    def roll(self, topic: str, partition: int = 0) -> None:
        """Begin a segment, after what is under way there: a restart may have begun to clean."""
        now_ms = self.clock.now_ms()

        async def roll() -> None:
            await self.broker.led(topic, partition).change(lambda log: log.roll(now_ms))

        self.run(roll())

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> None:
        """Move the log start offset, as DeleteRecords does."""

        async def delete() -> None:
            await self.broker.led(topic, partition).change(lambda log: log.delete_records(offset))

        self.run(delete())

    def restart(self, *, crash: bool = False, **settings: str) -> None:
        """Stop, cleanly or not, and start again on the same port, with settings changed."""
        self.kill() if crash else self.stop()
        self._settings |= {"listeners": f"{self.bound[0].name}://127.0.0.1:{self.port}"}
        self._settings |= {name.replace("_", "."): value for name, value in settings.items()}
        self.start()

    def restart_followed(self, topic: str, data: bytes, times: Sequence[AppendTimeStretch]) -> None:
        """Restart with what a follower left in the place of a topic's first partition."""
        self.stop()
        directory = self.log_dir / f"{topic}-0"
        for path in directory.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        followed(directory, data, times)
        self.restart()

    def stop(self) -> None:
        """Stop cleanly; nothing if it is stopped."""
        self.close_client()
        if self.loop.is_closed():
            return
        self.run(self.service.stop())
        self._stop_loop()

    def kill(self) -> None:
        """Drop everything, as kill -9 does."""
        self.close_client()
        self.run(self.service.kill())
        self._stop_loop()

    def _stop_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class MakeBroker(Protocol):
    """Starts a broker that is stopped when the test ends."""

    def __call__(
        self,
        *,
        log_dir: Path | None = None,
        clock: Clock | None = None,
        new_loop: NewLoop | None = None,
        **settings: str,
    ) -> RunningBroker:
        """`settings` under Kafka's names with underscores: `num_partitions="3"`."""
        ...


@functools.cache
def nursery() -> Nursery:
    """The process that brokers are forked from, for as long as tests run."""
    made = Nursery()
    atexit.register(made.close)
    return made


class BrokerProcess(Asked):
    """A broker in a process of its own, to be killed."""

    def __init__(self, log_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        self.log_dir = log_dir
        self._settings = {**QUICK, **(settings or {})}
        self.start_again()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start_again(self, *, without: str = "") -> None:
        """Start it in the same directory and on the same port, `without` one of its settings."""
        self._settings.pop(without, None)
        said = self.log_dir.with_name(f"{self.log_dir.name}.said")
        said.parent.mkdir(parents=True, exist_ok=True)
        arguments = ["serve", "--log-dir", str(self.log_dir)]
        secrets = secrets_among(self._settings)
        if secrets:  # which the command line does not take
            file = self.log_dir.with_name(f"{self.log_dir.name}.properties")
            file.touch(0o600)
            file.write_text("".join(f"{name}={self._settings[name]}\n" for name in secrets))
            arguments += ["--config", str(file)]
        for name, value in self._settings.items():
            if name not in secrets:
                arguments += ["--set", f"{name}={value}"]
        self._process = BornBroker(nursery(), said, arguments)
        address = self._process.await_ready()
        assert address is not None, f"the broker did not start: {self._process.said[-2000:]}"
        self.address = address
        # Whatever is started again listens where its clients look for it.
        name = self._settings.get("listeners", "PLAINTEXT:").partition(":")[0]
        self._settings["listeners"] = f"{name}://{address}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        """Kill it: no signal handler, no clean-up."""
        self.close_client()
        self._process.end(signal.SIGKILL)

    def terminate(self) -> int:
        """Stop it as an operator does; the exit code."""
        self.close_client()
        return self._process.end(signal.SIGTERM)


def a_broker(
    *topics: str,
    partitions: int = 1,
    of_topics: Mapping[str, str] | None = None,
    now_ms: int | None = NOW_MS,
    scope: Literal["function", "module", "session"] = "function",
    on_disk: bool = False,
    new_loop: NewLoop = new_event_loop,
    prepare: Callable[[RunningBroker], object] | None = None,
    **settings: str,
) -> Any:
    """A fixture: a broker in this process with these topics and a manual clock, or the machine's.

    Settings are under Kafka's names with underscores, `of_topics` those of each topic. `on_disk`
    is for what looks at the page cache. `prepare` fills it.
    """

    @pytest.fixture(scope=scope)
    def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
        clock = None if now_ms is None else ManualClock(now_ms)
        named = {name.replace("_", "."): value for name, value in settings.items()}
        with ExitStack() as stack:
            if on_disk:
                directory = Path(stack.enter_context(TemporaryDirectory(dir="/var/tmp")))
            elif scope == "function":
                directory = request.getfixturevalue("tmp_path")
            else:
                directory = request.getfixturevalue("tmp_path_factory").mktemp("broker")
            broker = RunningBroker(directory / f"of-{request.fixturename}", named, clock, new_loop)
            stack.enter_context(broker)
            for topic in topics:
                broker.create_topic(topic, partitions, **(of_topics or {}))
            if prepare is not None:
                prepare(broker)
            yield broker

    return broker


def a_broker_process(*topics: str, partitions: int = 1, **settings: str) -> Any:
    """A fixture: a broker in a process of its own, to be killed, with these topics."""

    @pytest.fixture
    def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        with BrokerProcess(tmp_path / "broker", named) as broker:
            if topics:
                broker.client.create_topics(dict.fromkeys(topics, partitions))
            yield broker

    return broker
