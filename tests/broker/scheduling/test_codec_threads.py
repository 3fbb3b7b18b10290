"""Jobs that encode or decode share the time, end with their clients, and hold up no stop."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from threading import Event, Thread
from typing import Any

import pytest
from overrides import override
from patience import PATIENCE_S

from horolog.broker import Checkpoint, ClientGone, CodecThreads
from horolog.config import Endpoint
from horolog.network import Peer

LISTENER = Endpoint("PLAINTEXT", "127.0.0.1", 0)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[CodecThreads]:
    override(monkeypatch, "horolog.broker", SLICE_SECONDS=0.0)
    threads = CodecThreads(8)
    yield threads
    threads.close()


def on_a_loop(test: Callable[[CodecThreads], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on an event loop, for a while at most."""

    def run(threads: CodecThreads) -> None:
        asyncio.run(asyncio.wait_for(test(threads), PATIENCE_S))

    return run


class Endless:
    """A job that begins, and ends by its checkpoint alone."""

    def __init__(self) -> None:
        self.peer = Peer(LISTENER)
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, checkpoint: Checkpoint) -> None:
        self._loop.call_soon_threadsafe(self.begun.set)
        while True:
            checkpoint()


@on_a_loop
async def test_a_short_job_ends_while_long_ones_of_others_go_on(threads: CodecThreads) -> None:
    long = [Endless() for _ in range(6)]
    running = [asyncio.ensure_future(threads.run(job.peer, job)) for job in long]
    for job in long:
        await job.begun.wait()
    assert await threads.run(Peer(LISTENER), lambda _: 7) == 7
    assert not any(job.done() for job in running)
    for job in long:
        job.peer.leave()
    assert {type(error) for error in await asyncio.gather(*running, return_exceptions=True)} == {
        ClientGone
    }


@on_a_loop
async def test_only_one_job_runs_at_a_time(threads: CodecThreads) -> None:
    at_once, most = 0, 0

    def job(checkpoint: Checkpoint) -> None:
        nonlocal at_once, most
        for _ in range(200):
            at_once += 1
            most = max(most, at_once)
            at_once -= 1
            checkpoint()

    await asyncio.gather(*(threads.run(Peer(LISTENER), job) for _ in range(6)))
    assert most == 1


@on_a_loop
async def test_a_job_that_fails_leaves_the_others_their_turn(threads: CodecThreads) -> None:
    with pytest.raises(ZeroDivisionError):
        await threads.run(Peer(LISTENER), lambda _: 1 // 0)
    assert await threads.run(Peer(LISTENER), lambda _: 7) == 7


@on_a_loop
async def test_the_job_of_a_client_that_has_gone_does_not_begin(threads: CodecThreads) -> None:
    peer, begun = Peer(LISTENER), []
    peer.leave()
    with pytest.raises(ClientGone):
        await threads.run(peer, begun.append)
    assert not begun


@on_a_loop
async def test_a_stop_waits_for_no_job(threads: CodecThreads) -> None:
    jobs = [Endless() for _ in range(12)]  # more than there are threads
    running = [asyncio.ensure_future(threads.run(job.peer, job)) for job in jobs]
    for job in jobs[:8]:
        await job.begun.wait()
    closed = Event()
    Thread(target=lambda: (threads.close(), closed.set()), daemon=True).start()
    ends = await asyncio.gather(*running, return_exceptions=True)
    assert {type(end) for end in ends} == {ClientGone}
    assert await asyncio.to_thread(closed.wait, PATIENCE_S)
