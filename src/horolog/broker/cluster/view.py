"""State of the cluster as the broker obeys it: the image on the event loop.

The observer's thread publishes changes. Each piece of them is applied in one step to the image and
to the parts of the broker (`obeyed`), then waiters are woken. `offset` is advanced last, so
that a heartbeat never advertises what is not applied (KAFKA-13836).
"""

import asyncio
from collections.abc import Callable

from horolog.broker.cluster.obeyed import ObeyedMetadata
from horolog.metadata.image import Image
from horolog.metadata.image_changes import Changes
from horolog.schemas.metadata import RegisterBroker


class ClusterView:
    """Image of the controllers' metadata.

    For the event loop's thread; others may read `offset`, and the observer's calls `publish`.
    """

    def __init__(self) -> None:
        self.image = Image()
        """State after the changes so far. It changes between two steps of the event loop."""
        self.offset = 0
        """Offset after the last record that is applied; any thread may read it."""
        self.timestamp = -1
        """Timestamp of that record in milliseconds; -1 if unknown."""
        self.on_changes: list[Callable[[Changes], object]] = []
        """Called with each piece of changes, once the image and the settings have it; in order."""
        self._obeyed: ObeyedMetadata | None = None
        self._turn = asyncio.Lock()
        self._waiting: dict[asyncio.Future[None], Callable[[Image], object]] = {}
        self._loop = asyncio.get_running_loop()

    @property
    def features(self) -> dict[str, int]:
        """Finalised levels of features."""
        return self.image.features

    def broker(self, broker_id: int) -> RegisterBroker | None:
        """Return the registration of a broker; None if it has none."""
        return self.image.brokers.get(broker_id)

    def publish(self, changes: Changes) -> None:
        """Apply changes, and return once they are; for the observer's thread.

        Large changes are applied in pieces, so that other tasks run in between.
        """
        for piece in changes.pieces(self.offset):
            asyncio.run_coroutine_threadsafe(self.take(piece), self._loop).result()

    async def take(self, changes: Changes) -> None:
        """Apply one piece of changes. They come in order."""
        async with self._turn:
            changes.apply_to(self.image)
            if self._obeyed is not None:
                await self._obeyed.obey(changes)
            for call in self.on_changes:
                call(changes)
            self.offset = changes.offset
            if changes.timestamp >= 0:
                self.timestamp = changes.timestamp
            for future, is_so in list(self._waiting.items()):
                if not future.done() and is_so(self.image):
                    future.set_result(None)

    async def obey(self, obeyed: ObeyedMetadata) -> None:
        """Fill the parts of the broker from the image, and apply each change of it from now on."""
        async with self._turn:
            await obeyed.fill()
            self._obeyed = obeyed

    async def until(self, is_so: Callable[[Image], object]) -> None:
        """Wait until something is true of the image; the caller sets a timeout."""
        if is_so(self.image):
            return
        future = self._loop.create_future()
        self._waiting[future] = is_so
        try:
            await future
        finally:
            del self._waiting[future]
