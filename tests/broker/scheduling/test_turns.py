"""Long work takes turns: one slice in an iteration of the event loop, and none for the gone."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from overrides import override

from horolog.broker import ClientGone, TimeSlice
from horolog.config import Endpoint
from horolog.network import Peer


@pytest.fixture(autouse=True)
def slices_without_time(monkeypatch: pytest.MonkeyPatch) -> None:
    override(monkeypatch, "horolog.broker", SLICE_SECONDS=0.0)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await work()

    asyncio.run(main())


def test_all_long_work_together_gets_one_slice_in_an_iteration() -> None:
    iteration = 0
    steps: list[tuple[int, str]] = []

    async def long(name: str) -> None:
        slice_ = TimeSlice()
        for _ in range(5):
            await slice_.pause()
            steps.append((iteration, name))

    async def count() -> None:
        nonlocal iteration
        while len(steps) < 15:
            iteration += 1
            await asyncio.sleep(0)

    async def work() -> None:
        await asyncio.gather(count(), *(long(name) for name in "abc"))

    run(work)
    at = [when for when, _ in steps]
    assert len(set(at)) == len(at), "two in one iteration"
    assert [name for _, name in steps] == list("abc") * 5, "in the order of asking"


def test_work_within_its_slice_goes_on_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    override(monkeypatch, "horolog.broker", SLICE_SECONDS=1000.0)

    async def work() -> None:
        slice_ = TimeSlice()
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(done.set_result, None)
        for _ in range(100):
            await slice_.checkpoint()
        assert not done.done()
        assert not slice_.is_long
        await done

    run(work)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_work_ends_at_a_checkpoint_once_its_client_has_gone(when: str) -> None:
    async def work() -> None:
        peer = Peer(Endpoint("PLAINTEXT", "127.0.0.1", 9092))
        slice_ = TimeSlice(peer)
        if when == "before":
            peer.leave()
        else:
            asyncio.get_running_loop().call_soon(peer.leave)
        with pytest.raises(ClientGone):
            await slice_.checkpoint()
        await slice_.pause()  # what must be finished is finished

    run(work)


def test_a_cancelled_turn_is_skipped() -> None:
    async def work() -> None:
        first, second = (asyncio.ensure_future(TimeSlice().pause()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait_for(second, 60)

    run(work)
