"""From a frame to a handler: who may ask, and how a coroutine is begun and continues."""

import asyncio
import inspect
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from patience import eventually
from raw_connection import encoded, fetch_fields, produce_fields
from running_broker import RunningBroker

from horolog.broker import AT_ONCE, SLICE_SECONDS, Apart, Dispatcher, dispatch, served, turns
from horolog.network import Hangup, Peer
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey


class Asking:
    """Frames given to a dispatcher as connections give them."""

    def __init__(self, broker: RunningBroker, **options: Any) -> None:
        self._broker = broker
        self.dispatcher = broker.call(lambda: Dispatcher(broker.broker, **options))
        self.peer = Peer(broker.bound[0])

    def ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        """What dispatch returns, or what its future comes to."""
        frame = struct.pack(">hhih", key, version, 1, -1) + encoded(key, version, fields)

        async def ask() -> Any:
            answer = self.dispatcher(frame, self.peer)
            return await answer if isinstance(answer, asyncio.Future) else answer

        return self._broker.run(ask())

    def close(self) -> None:
        self._broker.call(self.dispatcher.close)


@pytest.fixture
def asking(broker: RunningBroker) -> Iterator[Asking]:
    asking = Asking(broker)
    yield asking
    asking.close()


def test_a_client_that_has_not_authenticated_may_ask_for_versions_only(asking: Asking) -> None:
    assert asking.ask(ApiKey.API_VERSIONS, 0)
    for key, fields in ((ApiKey.METADATA, {"topics": []}), (ApiKey.LIST_GROUPS, {})):
        with pytest.raises(Hangup, match="before authentication"):
            asking.ask(key, 0, **fields)
    asking.peer.authenticate("User:alice")
    assert asking.ask(ApiKey.METADATA, 0, topics=[])


def test_every_request_is_authorised_once_before_its_handler(broker: RunningBroker) -> None:
    asked = []

    def authorise(peer: Peer, key: ApiKey) -> None:
        asked.append((peer.principal, key))
        if key is ApiKey.LIST_GROUPS:
            raise Hangup("not for you")

    asking = Asking(broker, authorise=authorise)
    asking.peer.authenticate("User:alice")
    assert asking.ask(ApiKey.METADATA, 0, topics=[{"name": "t"}])
    with pytest.raises(Hangup, match="not for you"):
        asking.ask(ApiKey.LIST_GROUPS, 0)
    assert asked == [("User:alice", ApiKey.METADATA), ("User:alice", ApiKey.LIST_GROUPS)]
    asking.close()


def test_a_coroutine_that_has_not_to_wait_is_answered_at_once(
    broker: RunningBroker, asking: Asking
) -> None:
    asking.peer.authenticate("User:alice")
    broker.create_topic("t")

    def ask() -> Any:
        body = encoded(ApiKey.METADATA, 0, {"topics": [{"name": "t"}]})
        return asking.dispatcher(
            struct.pack(">hhih", ApiKey.METADATA, 0, 1, -1) + body, asking.peer
        )

    assert isinstance(broker.call(ask), tuple)
    assert asking.dispatcher.in_flight == 0


def test_a_fetch_that_has_waited_for_records_is_not_taken_for_long_work(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is packed at once, not in a thread."""
    apart: list[Apart] = []
    make = Apart.__new__
    monkeypatch.setattr(Apart, "__new__", lambda *args: apart.append(make(*args)) or apart[-1])
    now = [0.0]  # a machine that stops for a moment must not use up the slice
    monkeypatch.setattr(turns, "perf_counter", lambda: now[0])
    broker.create_topic("t")
    with broker.connect() as waiting:
        fields = fetch_fields("t", {0: 0}, max_wait_ms=60_000)
        fields["topics"][0]["partitions"] *= AT_ONCE + 1
        waiting.send(ApiKey.FETCH, 11, **fields)
        assert eventually(lambda: broker.service.requests_in_flight == 1)
        now[0] += 3 * SLICE_SECONDS
        batch = build_batch([LogRecord(-1, None, b"v")])
        broker.ask(ApiKey.PRODUCE, 8, **produce_fields("t", {0: batch}))
        assert waiting.receive()[1].responses[0].partitions[0].records
    assert not apart


@pytest.mark.parametrize("key", served(), ids=lambda key: key.title)
def test_the_type_checker_sees_what_every_handler_answers(key: ApiKey) -> None:
    answer = inspect.get_annotations(dispatch.HANDLERS[key])["return"]
    assert "dict[" not in str(answer), f"use the types in wire/responses.py: {answer}"
