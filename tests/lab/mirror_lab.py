"""What tests of the mirror need: a mirror without Spark, records of partitions, and kills."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from in_process_spark import InProcessSpark
from overrides import override

from horolog.client import EARLIEST, LATEST, Client, Transaction
from horolog.client.transactions import Transactions
from horolog.jobs.counting import count
from horolog.jobs.mirroring import Mirrored, mirror
from horolog.jobs.mirroring.cluster import ClusterDestination
from horolog.jobs.mirroring.directory import LogDirectory
from horolog.jobs.spread import UnitOutcome
from horolog.record import (
    AbortedTransactions,
    LogRecord,
    TimestampType,
    build_batch,
    iter_headers,
    read_records,
)
from horolog.storage import CopiedLog

if TYPE_CHECKING:
    from running_broker import MakeBroker, RunningBroker

T0_MS = 1_700_000_000_000
NO_SPARK: Any = InProcessSpark()


class Killed(BaseException):
    """The process ends here."""


class MirrorLab:
    """Runs a mirror in this process; batches stay as they are unless `batch_bytes` is given."""

    def __init__(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, make_broker: "MakeBroker | None" = None
    ) -> None:
        self.state = path / "state"
        self._monkeypatch = monkeypatch
        self._make_broker = make_broker

    @cached_property
    def source(self) -> "RunningBroker":
        """A broker to mirror from, started when it is first asked for."""
        assert self._make_broker is not None
        return self._make_broker()

    @cached_property
    def target(self) -> "RunningBroker":
        """And one to mirror to."""
        assert self._make_broker is not None
        return self._make_broker()

    def produce(self, topic: str, partition: int, rows: Sequence[LogRecord], **how: Any) -> None:
        """Append one batch to the source."""
        produce(self.source.address, topic, partition, rows, **how)

    def source_rows(self, topic: str, partition: int = 0) -> list[LogRecord]:
        """All records of a partition of the source, without their offsets."""
        return without_offsets(rows_of(self.source.address, topic, partition))

    def rows(self, topic: str, partition: int = 0) -> list[LogRecord]:
        """All committed records of a partition of the target, without their offsets."""
        return without_offsets(rows_of(self.target.address, topic, partition))

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values of all records of a partition of the target."""
        return values(self.target.address, topic, partition)

    def run(
        self,
        source: object = None,
        target: object = None,
        topics: str | None = "t",
        **more: Any,
    ) -> Mirrored:
        """Mirror once, between the brokers of this lab unless others or directories are named."""
        return mirror(
            NO_SPARK,
            source=str(self.source.address if source is None else source),
            target=str(self.target.address if target is None else target),
            topics=topics,
            **{"state": self.state, "batch_bytes": 0, **more},
        )

    def killed_before_the_end(self, *arguments: Any, **more: Any) -> None:
        """Run it up to a kill: after this many batches are sent, or before that is written down."""
        assert self.may_be_killed(*arguments, **more)

    def may_be_killed(
        self, *arguments: Any, after: int = 1 << 60, at_commit: str | None = None, **more: Any
    ) -> bool:
        """The same, where nothing may be left to do; whether it was killed.

        `at_commit` is "before it" or "after it": the kill is then at a commit of the driver.
        """
        left = after

        def advance(records: int) -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            original(records)

        def append(self: Any, *arguments: Any) -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            original_append(self, *arguments)

        def no_sync(self: Any) -> None:
            if left == 0:
                raise Killed
            original_sync(self)

        def end(self: Transactions, transaction: Transaction, *, commit: bool) -> None:
            if commit and at_commit == "before it":
                raise Killed
            original_end(self, transaction, commit=commit)
            if commit and at_commit == "after it":
                raise Killed

        original, original_append = count, CopiedLog.append
        original_sync, original_end = CopiedLog.sync, Transactions.end
        with self._monkeypatch.context() as patched:
            override(patched, "horolog.jobs.mirroring.moving", count=advance)
            patched.setattr(CopiedLog, "append", append)
            patched.setattr(CopiedLog, "sync", no_sync)
            patched.setattr(Transactions, "end", end)
            for destination in (ClusterDestination, LogDirectory):
                patched.setattr(destination, "move", _killed_after_a_wave(destination.move))
            try:
                self.run(*arguments, **more)
            except Killed:
                return True
        return False

    def run_twice_at_once(self, *arguments: Any, **more: Any) -> Mirrored:
        """Run it with two attempts at each task at once; the second one's result counts."""

        def spread_twice(
            spark: object, units: Sequence[Any], work: Callable[[Any], Any]
        ) -> Iterator[list[UnitOutcome[Any, Any]]]:
            for unit in units:
                with ThreadPoolExecutor(2) as pool:
                    attempts = [pool.submit(work, unit) for _ in range(2)]
                    yield [UnitOutcome(unit, attempts[1].result())]

        with self._monkeypatch.context() as patched:
            override(patched, "horolog.jobs.mirroring", spread=spread_twice)
            return self.run(*arguments, **more)


def _killed_after_a_wave(move: Callable[..., Any]) -> Callable[..., Any]:
    def killed(self: Any, *arguments: Any) -> Iterator[Any]:
        for _ in move(self, *arguments):
            raise Killed
        yield from ()

    return killed


def records(start: int, count: int, **given: Any) -> list[LogRecord]:
    """Records with values that count."""
    return [
        LogRecord(T0_MS + number, b"k%d" % (number % 3), b"%d" % number)._replace(**given)
        for number in range(start, start + count)
    ]


def produce(
    address: str, topic: str, partition: int, rows: Sequence[LogRecord], **how: Any
) -> None:
    """Append one batch."""
    with Client(address) as client:
        client.produce(topic, partition, build_batch(rows, **how))


def rows_of(
    address: str, topic: str, partition: int = 0, *, committed: bool = True
) -> list[LogRecord]:
    """All records of a partition."""
    found: list[LogRecord] = []
    at = (topic, partition)
    with Client(address) as client:
        first, last = (client.list_offsets({at: which})[at] for which in (EARLIEST, LATEST))
        assert first is not None
        assert last is not None
        offset = first.offset
        while offset < last.offset:
            fetched = client.fetch(topic, partition, offset, read_committed=committed)
            view = memoryview(fetched.records)
            before = offset
            aborted = AbortedTransactions(fetched.aborted)
            for position, header in iter_headers(view):
                batch = view[position : position + header.size]
                if not aborted.drop(header, batch) and not header.is_control:
                    found += [row for row in read_records(batch) if (row.offset or 0) >= offset]
                offset = header.next_offset
            if offset == before:
                break
    return found


def without_offsets(rows: Sequence[LogRecord]) -> list[LogRecord]:
    return [row._replace(offset=None) for row in rows]


def values(address: str, topic: str, partition: int = 0) -> list[bytes | None]:
    return [row.value for row in rows_of(address, topic, partition)]


def log_bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def write_log(directory: Path, batches: Sequence[bytes], base_offset: int = 0) -> None:
    """Segment files of a partition, as a broker left them."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{base_offset:020d}.log").write_bytes(b"".join(batches))


def stamped(rows: Sequence[LogRecord], ms: int, base_offset: int = 0) -> bytes:
    return build_batch(
        rows,
        base_offset=base_offset,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=ms,
    )
