"""Shards of a coordinator: what was read of a leader before does not count."""

import asyncio
from collections.abc import Callable

import pytest
from overrides import override

from horolog.broker import Shards
from horolog.buffers import Buffer
from horolog.errors import RequestRefused
from horolog.record import LogRecord


class Log:
    """A log of two partitions, of which one is led in another epoch while it is read."""

    name, count, exists, is_followed = "__state", 2, True, False

    def __init__(self) -> None:
        self.epochs = [3, 3]
        self.loaded: list[tuple[int, int]] = []

    def epoch(self, index: int) -> int:
        return self.epochs[index]

    def partition_of(self, key: str) -> int:
        return int(key)

    async def load(self, index: int, take: Callable[[Buffer], None]) -> None:
        take(bytes([index, self.epochs[index]]))
        self.loaded.append((index, self.epochs[index]))
        if self.loaded == [(0, 3), (1, 3)]:
            self.epochs[1] = 4

    async def ready(self) -> None: ...

    def append_record(self, key: str, record: LogRecord) -> None: ...


class Taken:
    """The batches of one shard."""

    unreadable, reason = 0, None

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    def take(self, batch: Buffer) -> None:
        self.batches.append(bytes(batch))


def test_a_shard_that_is_led_anew_while_it_is_read_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    override(monkeypatch, "horolog.broker", RETRY_S=0)
    served: list[bytes] = []

    async def take_over(taken: Taken) -> None:
        served.extend(taken.batches)

    async def run() -> None:
        log = Log()
        loading: Shards[Taken] = Shards(log, Taken, take_over)
        with pytest.raises(RequestRefused, match="is being loaded"):
            loading.check("1")
        await loading.run()
        loading.check("1")
        assert log.loaded == [(0, 3), (1, 3), (1, 4)]
        assert served == [b"\0\3", b"\1\4"]
        loading.unload()
        with pytest.raises(RequestRefused, match="is being loaded"):
            loading.check("0")

    asyncio.run(run())
