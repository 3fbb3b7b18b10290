"""A client whose frames are handed to a dispatcher, with or without shortcuts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from overrides import override
from running_broker import RunningBroker

from horolog.broker import Dispatcher
from horolog.errors import HorologError
from horolog.network import Peer


class DispatchedClient:
    """One client of a running broker, without a socket."""

    def __init__(self, broker: RunningBroker, *, shortcut: bool = True, **options: Any) -> None:
        self.broker = broker
        self.dispatcher = broker.call(lambda: Dispatcher(broker.broker, **options))
        if not shortcut:
            self.dispatcher.shortcuts = {}
        self.peer = Peer(broker.bound[0], "1.2.3.4")
        self.peer.authenticate("User:alice")

    def give(self, frame: bytes) -> bytes | str | None:
        """The answer in bytes, or why the connection would be closed."""

        async def answer() -> Any:
            reply: Any
            try:
                reply = self.dispatcher(frame, self.peer)
                if isinstance(reply, asyncio.Future):
                    reply = await reply
            except HorologError as error:
                return f"{type(error).__name__}: {error}"
            return None if reply is None else b"".join(map(bytes, reply))

        answered: bytes | str | None = self.broker.run(answer())
        return answered

    def close(self) -> None:
        """Let go of the dispatcher's threads."""
        self.broker.call(self.dispatcher.close)


def without_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a request that is decoded as any other fails."""

    def decode(*_: Any) -> Any:
        raise AssertionError("it was decoded")

    override(monkeypatch, "horolog.broker", decode_request=decode)
