"""What answers requests, as connections see it: the only tie between network and broker."""

import asyncio
from typing import Protocol

from horolog.config import Endpoint
from horolog.errors import HorologError
from horolog.network.peer import ANONYMOUS, Peer
from horolog.network.reply import Reply
from horolog.wire.packing import Bytes


class Hangup(HorologError):  # noqa: N818 - errors are named by what happened
    """The only answer that the protocol leaves is to close the connection; says why."""


class Dispatch(Protocol):
    """What answers requests."""

    def __call__(
        self, frame: Bytes, peer: Peer, /
    ) -> "Reply | asyncio.Future[Reply | None] | None":
        """The reply to a request, or its future where it takes time; None if it has none.

        Raises:
            TooManyFields: it takes too long for the event loop; `slowly` answers it.
            HorologError: the connection is to be closed, for this reason.
        """
        ...

    def slowly(self, frame: Bytes, peer: Peer, /) -> "asyncio.Future[Reply | None]":
        """The reply to a request of many fields; nothing of it has been done when this returns."""
        ...


def anonymous(listener: Endpoint, transport: asyncio.BaseTransport) -> str | None:
    """The principal of a client on a listener where nobody authenticates."""
    return ANONYMOUS
