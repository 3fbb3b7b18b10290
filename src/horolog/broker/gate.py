"""Gate before the dispatcher of a broker that is not unfenced yet.

The port is bound before the broker registers. Until it is unfenced ApiVersions alone is answered,
so that a check of life does not restart a broker that recovers. All other requests wait, in order.
"""

import asyncio
from typing import Final

from horolog.broker.dispatch import packed, refuse_version, served
from horolog.buffers import Buffer
from horolog.errors import ErrorCode
from horolog.network.dispatching import Dispatch, Hangup
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.wire.api import ApiKey
from horolog.wire.codec import TooManyFields
from horolog.wire.frame import RequestHeader, parse_request_header

MOST_WAITING: Final = 10_000
"""Requests that wait at most; a connection whose request is one more is closed."""

Answer = asyncio.Future[Reply | None]


class Gate:
    """Answers ApiVersions, and lets other requests wait. For the event loop's thread only."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Buffer, Peer, Answer]] = []
        self._is_closed = False

    def __call__(self, frame: Buffer, peer: Peer) -> "Reply | Answer | None":
        """Return the answer to ApiVersions, or the future answer to another request.

        Raises:
            Hangup: the broker stops, or too many requests wait.
        """
        header = parse_request_header(frame)
        if header.api_key is ApiKey.API_VERSIONS:
            return _versions(header)
        if self._is_closed or len(self._waiting) >= MOST_WAITING:
            raise Hangup("the broker is not unfenced")
        answer: Answer = asyncio.get_running_loop().create_future()
        self._waiting.append((bytes(frame), peer, answer))
        return answer

    def slowly(self, frame: Buffer, peer: Peer) -> Answer:
        """Do not answer: the gate decodes no request."""
        raise AssertionError("a gate counts no fields")

    def open(self, dispatch: Dispatch) -> None:
        """Answer the requests that wait by a dispatcher, which is given the later ones."""
        waiting, self._waiting = self._waiting, []
        for frame, peer, answer in waiting:
            if not answer.done():
                _hand_over(dispatch, frame, peer, answer)

    def close(self) -> None:
        """Close the connections whose requests wait."""
        self._is_closed = True
        for _, _, answer in self._waiting:
            answer.cancel()
        self._waiting.clear()


def _versions(header: RequestHeader) -> Reply:
    """Answer ApiVersions without features: those finalised are not known yet."""
    versions = ApiKey.API_VERSIONS.versions
    if not versions.min <= header.api_version <= versions.max:
        return refuse_version(header)
    body = {
        "error_code": ErrorCode.none,
        "api_keys": [
            {"api_key": key, "min_version": versions.min, "max_version": versions.max}
            for key, versions in served().items()
        ],
        "finalized_features_epoch": -1,
    }
    reply = packed(header, body)
    assert reply is not None
    return reply


def _hand_over(dispatch: Dispatch, frame: Buffer, peer: Peer, answer: Answer) -> None:
    """Let a dispatcher answer a request that has waited."""
    try:
        try:
            found = dispatch(frame, peer)
        except TooManyFields:
            found = dispatch.slowly(frame, peer)
    except Exception as error:  # noqa: BLE001 - a bug ends this connection, not the broker
        answer.set_exception(error)
        return
    if not isinstance(found, asyncio.Future):
        answer.set_result(found)
        return

    def settle(done: Answer) -> None:
        if answer.done():
            return
        if done.cancelled():
            answer.cancel()
        elif (error := done.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(done.result())

    found.add_done_callback(settle)
