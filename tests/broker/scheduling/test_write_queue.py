"""The order of writes to one partition, and what a batch that takes long to check holds up."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from examples import some_of
from overrides import override
from patience import PATIENCE_S
from storelogs import NOW, new_log

from horolog.broker import Checkers, Partition, write_queue
from horolog.config import TopicConfig
from horolog.errors import ErrorCode, RequestRefused
from horolog.record import Codec, LogRecord, build_batch
from horolog.record.scan import load_kernels
from horolog.storage import Appended, prepare
from horolog.storage.logs.stamp_clock import StampClock

LARGE_BYTES = 200_000  # beyond what the event loop decompresses
MAX_BYTES = 1 << 20


def small(value: bytes = b"v") -> bytes:
    return build_batch([LogRecord(NOW, b"k", value)])


def packed(size: int = LARGE_BYTES, value: bytes = b"v") -> bytes:
    """Small as sent: it looks as if the event loop could check it."""
    return build_batch([LogRecord(NOW, b"k", value * size)], codec=Codec.ZSTD)


def large(value: bytes = b"v") -> bytes:
    """Too large for the event loop as it is sent."""
    return noise(Codec.GZIP, value)


def noise(codec: Codec, value: bytes = b"v", size: int = LARGE_BYTES) -> bytes:
    noise = random.Random(value).randbytes(size)
    return build_batch([LogRecord(NOW, b"k", value + noise)], codec=codec)


class Gate:
    """Holds up the checks of some batches until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._held: dict[bytes, Event] = {}
        self.begun: dict[bytes, Event] = {}
        self.limits: list[int] = []
        override(monkeypatch, "horolog.broker", prepare=self._prepare)

    def hold(self, batch: bytes) -> bytes:
        self._held[batch], self.begun[batch] = Event(), Event()
        return batch

    def open(self, batch: bytes) -> None:
        self._held[batch].set()

    def _prepare(self, batch: bytes, *arguments: Any, **more: Any) -> Any:
        self.limits.append(more["max_uncompressed_bytes"])
        if batch in self._held:
            self.begun[batch].set()
            assert self._held[batch].wait(PATIENCE_S)
        return prepare(batch, *arguments, **more)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Run a test on the event loop with a partition of its own."""

    def run(test: Callable[[Partition], Coroutine[Any, Any, None]], **config: Any) -> None:
        async def main() -> None:
            checkers = Checkers()
            with ThreadPoolExecutor(2) as workers, new_log(tmp_path, TopicConfig(**config)) as log:
                partition = Partition(log, workers, checkers, MAX_BYTES)
                await asyncio.wait_for(test(partition), PATIENCE_S)
                await partition.close()
                checkers.shutdown()

        asyncio.run(main())

    return run


def append(partition: Partition, batch: bytes, owner: str) -> "asyncio.Future[Appended]":
    appended = partition.writes.append(batch, NOW, 9, owner)
    if isinstance(appended, Appended):
        future = asyncio.get_running_loop().create_future()
        future.set_result(appended)
        return future
    return appended


def offset(appended: Appended) -> int:
    return appended.base_offset


def test_a_slow_check_holds_up_its_own_client_and_no_other(run, gate) -> None:
    async def test(partition: Partition) -> None:
        slow = gate.hold(large())
        mine = [append(partition, slow, "mine"), append(partition, small(), "mine")]
        await asyncio.to_thread(gate.begun[slow].wait, PATIENCE_S)
        assert offset(await append(partition, small(), "other")) == 0
        assert offset(await append(partition, large(b"o"), "other")) == 1
        assert not mine[0].done()
        assert not mine[1].done()
        gate.open(slow)
        assert [offset(await one) for one in mine] == [2, 3]

    run(test)


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_decompresses_quickly_and_to_not_much_more_is_checked_at_once(
    run, gate, codec
) -> None:
    load_kernels()

    async def test(partition: Partition) -> None:
        await append(partition, small(), "a")  # opens the files
        gate.limits.clear()
        batch = noise(codec)
        assert isinstance(partition.writes.append(batch, NOW, 9, "a"), Appended)
        assert gate.limits == [MAX_BYTES]
        gate.limits.clear()
        bomb = build_batch([LogRecord(NOW, b"k", b"v" * MAX_BYTES)], codec=codec)
        assert write_queue.INLINE_RATIO * len(bomb) < MAX_BYTES
        with pytest.raises(RequestRefused):  # with its header it is a little too large
            await append(partition, bomb, "a")
        assert gate.limits[0] == max(
            write_queue.INLINE_DECOMPRESSED_BYTES, write_queue.INLINE_RATIO * len(bomb)
        )
        assert gate.limits[1:] == [MAX_BYTES]
        gate.limits.clear()
        await append(partition, noise(Codec.GZIP), "a")
        assert gate.limits == [MAX_BYTES], "in a thread, at once"

    run(test, max_message_bytes=2 * MAX_BYTES)


def test_what_is_large_inside_begins_again_among_the_large_ones(run, gate, monkeypatch) -> None:
    override(monkeypatch, "horolog.broker", QUICK_BYTES=300_000)

    async def test(partition: Partition) -> None:
        await append(partition, packed(LARGE_BYTES), "a")
        assert gate.limits == [write_queue.INLINE_DECOMPRESSED_BYTES, 300_000]
        gate.limits.clear()
        await append(partition, packed(2 * LARGE_BYTES), "a")
        assert gate.limits == [write_queue.INLINE_DECOMPRESSED_BYTES, 300_000, MAX_BYTES]
        with pytest.raises(RequestRefused) as refused:
            await append(partition, packed(2 * MAX_BYTES), "a")
        assert refused.value.code is ErrorCode.message_too_large

    run(test)


def test_a_batch_that_is_refused_lets_those_behind_it_go_on(run) -> None:
    async def test(partition: Partition) -> None:
        broken = bytearray(large())
        broken[-1] ^= 1
        futures = [append(partition, bytes(broken), "a")]
        futures += [append(partition, make(), "a") for make in (small, large, packed, small)]
        done = await asyncio.gather(*futures, return_exceptions=True)
        assert isinstance(done[0], Exception)
        assert [offset(one) for one in done[1:]] == [0, 1, 2, 3]

    run(test)


def test_a_batch_that_waits_is_checked_by_the_settings_and_the_clock_it_came_with(
    run, gate
) -> None:
    async def test(partition: Partition) -> None:
        partition.log.stamps = StampClock()
        waiting = gate.hold(large())
        future = append(partition, waiting, "a")
        behind = append(partition, large(b"w"), "a")
        await asyncio.to_thread(gate.begun[waiting].wait, PATIENCE_S)
        partition.log.config = TopicConfig(message_timestamp_before_max_ms=0)
        partition.log.stamps.rise(NOW + 60_001)
        with pytest.raises(RequestRefused):
            await append(partition, small(), "b")
        gate.open(waiting)
        assert [offset(await one) for one in (future, behind)] == [0, 1]

    run(test, message_timestamp_before_max_ms=60_000)


def test_closing_finishes_what_has_begun_and_refuses_what_has_not(run, gate) -> None:
    async def test(partition: Partition) -> None:
        begun = [gate.hold(large(b"%d" % number)) for number in range(2)]
        first = [append(partition, batch, f"client {batch[-9:]!r}") for batch in begun]
        for batch in begun:
            await asyncio.to_thread(gate.begun[batch].wait, PATIENCE_S)
        rest = [append(partition, large(b"r%d" % n), f"client {n}") for n in range(5)]
        closing = asyncio.ensure_future(partition.close())
        done, _ = await asyncio.wait(rest)
        for one in done:
            assert isinstance(one.exception(), RequestRefused)
        assert not closing.done()
        for make in (small, large):  # nor is anything taken that comes now
            with pytest.raises(RequestRefused):
                await append(partition, make(), "late")
        for batch in begun:
            gate.open(batch)
        assert sorted([offset(await one) for one in first]) == [0, 1]
        await closing
        assert partition.is_closed

    run(test)


def test_a_batch_may_be_checked_in_a_thread_however_small_it_is(run, gate) -> None:
    async def test(partition: Partition) -> None:
        held = gate.hold(small(b"held"))
        first = partition.writes.append(held, NOW, 9, "a", in_thread=True)
        second = append(partition, small(), "a")
        assert offset(await append(partition, small(), "b")) == 0
        gate.open(held)
        assert isinstance(first, asyncio.Future)
        assert offset(await first) == 1
        assert offset(await second) == 2

    run(test)


@pytest.mark.parametrize("seed", some_of(range(8), 2))
@pytest.mark.parametrize("compression_type", ["producer", "gzip"])
def test_whatever_comes_in_between_each_client_is_served_in_its_order(
    run, monkeypatch, seed: int, compression_type: str
) -> None:
    """Small and large, sound and refused, with rolls and other work on the log; settings change."""
    load_kernels()
    rng = random.Random(seed)
    override(monkeypatch, "horolog.broker", QUICK_BYTES=300_000)

    async def test(partition: Partition) -> None:
        asked: dict[str, list[asyncio.Future[Appended]]] = {"a": [], "b": [], "c": []}
        broken = bytearray(large())
        broken[-1] ^= 1
        makes = (
            small,
            small,
            large,
            packed,
            lambda: packed(2 * LARGE_BYTES),
            lambda: bytes(broken),
        )
        for _ in range(120):
            owner = rng.choice(list(asked))
            make = rng.choice(makes)
            with suppress(Exception):
                asked[owner].append(append(partition, make(), owner))
            if rng.random() < 0.1:
                partition.writes.run(lambda: None)
            if rng.random() < 0.05:
                other = rng.choice(("producer", "gzip"))
                config = TopicConfig(compression_type=other, segment_bytes=900_000)
                partition.obey(config, retention_exempt=False)
            if rng.random() < 0.3:
                await asyncio.sleep(0)
            if rng.random() < 0.05:
                await asyncio.sleep(0.002)
        offsets: list[int] = []
        for futures in asked.values():
            done = await asyncio.gather(*futures, return_exceptions=True)
            mine = [offset(one) for one in done if isinstance(one, Appended)]
            assert mine == sorted(mine)
            offsets += mine
        assert sorted(offsets) == list(range(partition.log.high_watermark))

    run(test, compression_type=compression_type, segment_bytes=900_000)
