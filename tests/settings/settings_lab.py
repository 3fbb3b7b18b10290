"""A broker to try settings on: its clock stands still until it is turned."""

import logging
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from patience import PATIENCE_S, eventually
from raw_connection import RawConnection, produce_fields
from running_broker import RunningBroker
from stepped_loop import SteppedLoop

from horolog.client import Client, Fetched, Produced, ResourceType
from horolog.clock import HOUR_MS, ManualClock
from horolog.config import host_port
from horolog.record import BatchHeader, LogRecord, build_batch, iter_headers
from horolog.storage import Log
from horolog.wire import ApiKey

BROKER = "1"  # its number, where no setting says otherwise
WHOLE_CLUSTER = ""
BEFORE_3_0 = {"inter.broker.protocol.version": "2.8"}
"""So that settings count which Kafka ignores from then on."""

SOON_S = 0.8
"""How long what happens "by itself" is waited for, and what must not happen is watched."""


class Lab:
    """A running broker, its clock, and a client of ours."""

    def __init__(
        self, log_dir: Path, static: Mapping[str, str] | None = None, soon_s: float = SOON_S
    ) -> None:
        self.soon_s = soon_s
        self.clock = ManualClock()
        given = {**BEFORE_3_0, **(static or {})}
        self.broker = RunningBroker(log_dir, given, self.clock, SteppedLoop)
        self._client: Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.hang_up()
        self.broker.stop()

    @property
    def address(self) -> str:
        return host_port(*self.broker.bound[0][1:])

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client(self.address, timeout_ms=int(PATIENCE_S * 1000))
        return self._client

    def hang_up(self) -> None:
        """Hold no connection, so that every one that is counted is another's."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if not self.broker.loop.is_closed():
            assert eventually(lambda: not self.broker.service.connections)

    def advance_timers(self, seconds: float) -> None:
        """Put the time ahead by which sessions and waits are measured."""
        assert isinstance(self.broker.loop, SteppedLoop)
        self.broker.loop.advance(seconds)

    def restart(self) -> None:
        """Stop cleanly, and start with what the command line and the directory say."""
        self.hang_up()
        self.broker.restart()

    def connect(self, tls: ssl.SSLContext | None = None) -> RawConnection:
        """A connection of its own."""
        return RawConnection(self.address, tls=tls)

    def alter(self, resource: str, **changes: str | None) -> None:
        """Change the broker's settings while it runs; names with underscores."""
        named = {name.replace("_", "."): value for name, value in changes.items()}
        self.client.alter_configs({(ResourceType.BROKER, resource): named})

    def topic(self, name: str, settings: Mapping[str, str] | None = None) -> "Trial":
        """A new topic with these settings."""
        self.client.create_topics({name: 1}, configs=settings)
        return Trial(self, name)

    @contextmanager
    def log_lines(self) -> Iterator[list[str]]:
        """What the broker logs meanwhile."""
        lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())
        logger = logging.getLogger("horolog")
        logger.addHandler(handler)
        try:
            yield lines
        finally:
            logger.removeHandler(handler)


class Trial:
    """A topic of one partition, on which the difference is seen."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.name = name

    @property
    def now_ms(self) -> int:
        return self.lab.clock.now_ms()

    @property
    def log(self) -> Log:
        return self.lab.broker.log(self.name)

    @property
    def segments(self) -> int:
        return len(self.log.segments)

    @property
    def directory(self) -> Path:
        return Path(self.log.directory)

    def alter(self, settings: Mapping[str, str | None]) -> None:
        """Change its settings while the broker runs."""
        self.lab.client.alter_configs({(ResourceType.TOPIC, self.name): settings})

    def put(self, batch: bytes, acks: int = 1) -> Produced:
        """Produce a batch."""
        return self.lab.client.produce(self.name, 0, batch, acks=acks)

    def refusal(self, batch: bytes, acks: int = 1) -> int:
        """Produce a batch, once; the error it is refused with, or 0."""
        fields = produce_fields(self.name, {0: batch}, acks=acks)
        with self.lab.connect() as connection:
            answer = connection.ask(ApiKey.PRODUCE, 9, **fields)
        return int(answer.responses[0].partition_responses[0].error_code)

    def put_at(self, timestamp_ms: int, value: bytes = b"v") -> Produced:
        """Produce one record of a moment."""
        return self.put(build_batch([LogRecord(timestamp_ms, b"k", value)]))

    def fetch(self, offset: int = 0) -> Fetched:
        return self.lab.client.fetch(self.name, 0, offset)

    def headers(self) -> list[BatchHeader]:
        """Of all batches, as a consumer gets them."""
        return [header for _, header in iter_headers(self.fetch().records)]

    def begin_segment(self) -> None:
        """Settings of files count from the next segment on: have one."""
        partition = self.lab.broker.broker.led(self.name, 0)
        now_ms = self.now_ms
        self.put_at(now_ms)

        async def roll() -> None:
            await partition.change(lambda log: log.roll(now_ms))

        self.lab.broker.run(roll())

    def look_for_expired(self) -> int:
        """Let retention have a look; how many segments of this topic went."""
        gone = self.lab.broker.run(self.lab.broker.service.background_tasks.run_retention())
        return sum(name == f"{self.name}-0" for name, _ in gone)

    def tidy(self) -> None:
        """Let the broker flush what is due, and remove the files of what was deleted."""
        self.lab.broker.run(self.lab.broker.service.background_tasks.tidy())

    def advance(self, ms: int = HOUR_MS) -> None:
        self.lab.clock.advance(ms)
