"""Producer ids of blocks that the controllers allocate: AllocateProducerIds (KIP-730).

The controllers give an id to one broker only. The next block is asked for when a tenth of the ids
is left. The rest of a block is lost at a stop.

For the event loop's thread only.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from horolog.broker.cluster.controllers import AskController
from horolog.client.connection import NoAnswer
from horolog.client.metadata import refuse
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.storage.producers.states import NEVER_GIVEN
from horolog.wire.api import ApiKey

_LOG = logging.getLogger(__name__)

TIMEOUT_MS: Final = 5_000
"""Longest wait of a producer for the next block."""
_MOST_IDS: Final = 1 << 31
_PARTS: Final = 10  # of a block; the last one is left when the next block is asked for


class BlockProducerIds:
    """Producer ids for this broker's clients.

    Args:
        broker_epoch: returns the epoch of this broker's registration.
    """

    def __init__(self, ask: AskController, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._ask = ask
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._blocks: deque[range] = deque()
        self._block_size = 0
        self._at_least = 0  # every id below was in a block of this broker, or in one before
        self._asking: asyncio.Task[None] | None = None
        self._failure: HorologError | None = None

    async def next(self) -> int:
        """Return an id that no other producer of the cluster has.

        Raises:
            RequestRefused: COORDINATOR_LOAD_IN_PROGRESS; no controller gave a block.
        """
        while not self._blocks:
            await asyncio.wait([self._begin()])
            if not self._blocks and self._failure is not None:
                raise RequestRefused(
                    ErrorCode.coordinator_load_in_progress,
                    f"the controllers give no producer ids: {self._failure}",
                )
        given, rest = self._blocks[0][0], self._blocks[0][1:]
        if rest:
            self._blocks[0] = rest
        else:
            self._blocks.popleft()
        if sum(map(len, self._blocks)) * _PARTS <= self._block_size:
            self._begin()
        return given

    async def close(self) -> None:
        """Stop asking."""
        self._failure = NoAnswer("this broker stops")
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    def _begin(self) -> "asyncio.Task[None]":
        """Return the request for a block that is under way; begin one without any."""
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._allocate())
            self._asking.add_done_callback(self._on_done)
        return self._asking

    def _on_done(self, _: "asyncio.Task[None]") -> None:
        self._asking = None

    async def _allocate(self) -> None:
        body = {"broker_id": self._node_id, "broker_epoch": self._broker_epoch()}
        try:
            answer = await self._ask(ApiKey.ALLOCATE_PRODUCER_IDS, body, timeout_ms=TIMEOUT_MS)
            self._take(answer.error_code, answer.producer_id_start, answer.producer_id_len)
        except HorologError as error:
            if self._failure is None:
                _LOG.warning("no block of producer ids was allocated: %s", error)
            self._failure = error
        else:
            self._failure = None

    def _take(self, error_code: int, start: int, length: int) -> None:
        """Add a block, unless its ids cannot be new."""
        refuse(error_code, "AllocateProducerIds")
        if not (
            self._at_least <= start and 0 < length <= _MOST_IDS and start < NEVER_GIVEN - length
        ):
            raise RequestRefused(
                ErrorCode.unknown_server_error,
                f"{length} producer ids from {start} on cannot be, after those below "
                f"{self._at_least}",
            )
        self._blocks.append(range(start, start + length))
        self._block_size, self._at_least = length, start + length
