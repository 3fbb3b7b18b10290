"""Producer ids of a broker of a cluster: blocks of the controllers, and never an id twice."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from horolog.broker.cluster.producer_ids import BlockProducerIds
from horolog.client import NoAnswer
from horolog.errors import ErrorCode, RequestRefused
from horolog.wire import ApiKey

NODE, EPOCH = 3, 17


class Blocks:
    """A controller that allocates what it is told to, or blocks of ten."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Mapping[str, Any]] = []
        self._next = 0

    async def __call__(
        self, api_key: ApiKey, body: Mapping[str, Any], /, *, timeout_ms: int
    ) -> Any:
        assert api_key is ApiKey.ALLOCATE_PRODUCER_IDS
        assert timeout_ms > 0
        self.asked.append(body)
        await asyncio.sleep(0)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        self._next += 10
        return block(self._next - 10, 10)


def block(start: int, length: int, error_code: int = 0) -> SimpleNamespace:
    return SimpleNamespace(error_code=error_code, producer_id_start=start, producer_id_len=length)


def ids_of(controller: Blocks, epoch: Callable[[], int] = lambda: EPOCH) -> BlockProducerIds:
    return BlockProducerIds(controller, NODE, epoch)


def test_each_id_is_given_once_however_many_ask_at_once() -> None:
    async def scenario() -> None:
        controller = Blocks()
        ids = ids_of(controller)
        given = await asyncio.gather(*(ids.next() for _ in range(95)))
        assert sorted(given) == list(range(95))
        assert controller.asked[0] == {"broker_id": NODE, "broker_epoch": EPOCH}

    asyncio.run(scenario())


def test_the_next_block_is_asked_for_before_the_last_id_is_given() -> None:
    async def scenario() -> None:
        controller = Blocks()
        ids = ids_of(controller)
        for expected in range(9):
            assert await ids.next() == expected
        await asyncio.sleep(0.01)
        assert len(controller.asked) == 2
        assert [await ids.next() for _ in range(3)] == [9, 10, 11]
        assert len(controller.asked) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        NoAnswer("it has gone"),
        block(0, 0, ErrorCode.stale_broker_epoch),
        block(0, 0, 30_000),
        block(5, 0),
        block(5, -1),
        block(-5, 10),
        block((1 << 62) - 5, 10),
    ],
    ids=["gone", "stale", "unknown error", "empty", "negative", "below zero", "too high"],
)
def test_without_a_block_producers_are_to_try_again(answer: Any) -> None:
    async def scenario() -> None:
        ids = ids_of(Blocks(answer))
        with pytest.raises(RequestRefused) as refused:
            await ids.next()
        assert refused.value.code is ErrorCode.coordinator_load_in_progress
        assert await ids.next() == 0

    asyncio.run(scenario())


def test_a_block_that_was_given_before_is_refused() -> None:
    async def scenario() -> None:
        ids = ids_of(Blocks(block(40, 2), block(41, 2), block(40, 2), block(42, 2)))
        assert [await ids.next(), await ids.next()] == [40, 41]
        for _ in range(2):
            with pytest.raises(RequestRefused):
                await ids.next()
        assert await ids.next() == 42

    asyncio.run(scenario())


def test_a_new_registration_asks_with_its_epoch_and_keeps_the_block() -> None:
    async def scenario() -> None:
        epochs = [EPOCH]
        controller = Blocks()
        ids = ids_of(controller, lambda: epochs[0])
        assert await ids.next() == 0
        epochs[0] = 99
        assert [await ids.next() for _ in range(12)] == list(range(1, 13))
        assert [body["broker_epoch"] for body in controller.asked] == [EPOCH, 99]

    asyncio.run(scenario())


def test_closing_ends_the_request_that_is_under_way() -> None:
    async def scenario() -> None:
        async def silent(*_: Any, **__: Any) -> Any:
            await asyncio.Event().wait()

        ids = BlockProducerIds(silent, NODE, lambda: EPOCH)
        waiting = asyncio.ensure_future(ids.next())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await ids.close()
        with pytest.raises(RequestRefused):
            await waiting

    asyncio.run(scenario())
