"""Interface of request handling: the only dependency between network and broker."""

import asyncio
from typing import Protocol

from horolog.buffers import Buffer
from horolog.errors import HorologError
from horolog.network.peer import Peer
from horolog.network.reply import Reply


class Hangup(HorologError):
    """Error for which the protocol has no response, so that the connection is closed."""


class Dispatch(Protocol):
    """Handles requests."""

    def __call__(
        self, frame: Buffer, peer: Peer, /
    ) -> "Reply | asyncio.Future[Reply | None] | None":
        """Return the reply to a request, or its future; None if the request has no response.

        Raises:
            TooManyFields: decoding takes too long for the event loop; call `slowly`.
            HorologError: the connection must be closed for this reason.
        """
        ...

    def slowly(self, frame: Buffer, peer: Peer, /) -> "asyncio.Future[Reply | None]":
        """Return the future reply to a request with many fields; it starts after this returns."""
        ...
