"""Blocking calls in a thread that nobody waits for."""

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable

import pytest

from horolog.broker import BlockingThread


def on_a_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        async def main() -> None:
            await test()

        asyncio.run(main())

    return run


@on_a_loop
async def test_calls_run_in_order_and_give_results_and_errors() -> None:
    thread = BlockingThread("test")
    seen: list[int] = []

    def fail() -> None:
        raise ValueError("wrong")

    first = thread.run(lambda: seen.append(1))
    failing = thread.run(fail)
    second = thread.run(lambda: seen.append(2))
    assert await thread.run(lambda: threading.current_thread().name) == "test"
    await first
    with pytest.raises(ValueError, match="wrong"):
        await failing
    await second
    assert seen == [1, 2]
    thread.end()


@on_a_loop
async def test_after_the_end_nothing_begins() -> None:
    thread = BlockingThread("test")
    seen: list[str] = []
    goes_on = threading.Event()

    def block() -> None:
        goes_on.wait()
        seen.append("done")

    blocked = thread.run(block)
    thread.end()
    later = thread.run(lambda: seen.append("later"))
    goes_on.set()
    await blocked
    while any(each.name == "test" for each in threading.enumerate()):
        await asyncio.sleep(0.001)
    assert seen == ["done"]
    assert not later.done()


def test_a_call_may_outlive_its_loop() -> None:
    goes_on, ended = threading.Event(), threading.Event()

    async def leave() -> None:
        thread = BlockingThread("left")
        thread.run(goes_on.wait)
        thread.run(ended.set)

    asyncio.run(leave())
    goes_on.set()
    assert ended.wait(60)


@on_a_loop
async def test_a_cancelled_call_runs_on() -> None:
    thread, goes_on = BlockingThread("test"), threading.Event()
    call = thread.run(goes_on.wait)
    call.cancel()
    goes_on.set()
    assert await thread.run(lambda: 7) == 7
    thread.end()
