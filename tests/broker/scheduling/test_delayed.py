"""Requests that wait for marks of partitions."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from horolog.broker.scheduling.delayed import Delayed, Mark

FAR_S = 3_600.0


class GrowingPartition:
    """A partition whose marks a test moves."""

    def __init__(self) -> None:
        self.listeners: tuple[dict[Delayed, None], ...] = ({}, {}, {}, {})
        self.is_closed = False
        self.marks = dict.fromkeys(Mark, 0)

    def mark(self, mark: Mark) -> int:
        return self.marks[mark]

    def move(self, mark: Mark, offset: int, size: int = 0) -> None:
        self.marks[mark] = offset
        for listener in list(self.listeners[mark]):
            listener.on_moved(self, size)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def delayed(*partitions: GrowingPartition, mark: Mark, for_s: float = FAR_S) -> Delayed:
    return Delayed(partitions, asyncio.get_running_loop().time() + for_s, mark)


def test_a_request_waits_until_all_partitions_have_reached_their_offsets() -> None:
    async def test() -> None:
        one, other, there = GrowingPartition(), GrowingPartition(), GrowingPartition()
        there.move(Mark.HIGH_WATERMARK, 9)
        waiting = delayed(one, other, there, mark=Mark.HIGH_WATERMARK)
        reached = asyncio.create_task(waiting.reached({one: 3, other: 5, there: 9}))
        await asyncio.sleep(0)
        one.move(Mark.HIGH_WATERMARK, 3)
        other.move(Mark.HIGH_WATERMARK, 4)
        await asyncio.sleep(0)
        assert not reached.done()
        other.move(Mark.HIGH_WATERMARK, 7)
        assert await reached is False
        waiting.close()
        assert not any(one.listeners)

    run(test())


def test_offsets_that_are_reached_already_are_not_waited_for() -> None:
    async def test() -> None:
        partition = GrowingPartition()
        partition.move(Mark.LOW_WATERMARK, 2)
        waiting = delayed(partition, mark=Mark.LOW_WATERMARK)
        assert await waiting.reached({partition: 2}) is False
        waiting.close()

    run(test())


def test_a_fetch_of_a_replica_is_not_completed_by_the_high_watermark() -> None:
    """KAFKA-9952: it doubled the rate of fetches."""

    async def test() -> None:
        partition = GrowingPartition()
        waiting = delayed(partition, mark=Mark.LOG_END)
        grown = asyncio.create_task(waiting.grown_by(1))
        await asyncio.sleep(0)
        partition.move(Mark.HIGH_WATERMARK, 5, 100)
        await asyncio.sleep(0)
        assert not grown.done()
        partition.move(Mark.LOG_END, 6, 100)
        assert await grown is False
        waiting.close()

    run(test())


def test_a_partition_that_is_gone_ends_the_wait_before_the_timeout() -> None:
    async def test() -> None:
        partition = GrowingPartition()
        waiting = delayed(partition, mark=Mark.HIGH_WATERMARK)
        reached = asyncio.create_task(waiting.reached({partition: 3}))
        await asyncio.sleep(0)
        for listener in list(partition.listeners[Mark.HIGH_WATERMARK]):
            listener.on_gone()
        assert await reached is False
        waiting.close()

    run(test())


def test_a_request_whose_offsets_are_not_reached_times_out() -> None:
    async def test() -> None:
        partition = GrowingPartition()
        waiting = delayed(partition, mark=Mark.HIGH_WATERMARK, for_s=0)
        assert await waiting.reached({partition: 3}) is True
        waiting.close()

    run(test())
