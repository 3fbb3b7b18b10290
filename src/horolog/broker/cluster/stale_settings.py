"""Clears what the resource of all brokers has of topics that were deleted.

Settings of a topic that Kafka refuses on a topic are kept there (`metadata.state`), and Kafka does
not delete them with the topic. Of the horolog brokers that are alive the one with the lowest id
clears them.
"""

import asyncio
import logging
from typing import Final

from horolog.broker.cluster.controllers import AskController
from horolog.broker.cluster.placement import is_horolog
from horolog.errors import ErrorCode, HorologError
from horolog.metadata import state
from horolog.metadata.image import BROKER, Image
from horolog.metadata.image_changes import Changes
from horolog.wire.api import ApiKey

GRACE_S: Final = 5.0
"""Time after a deletion in which the name may be used again, with settings of its own."""
_TIMEOUT_MS: Final = 30_000
_DELETE: Final = 1
_MOST_AT_ONCE: Final = 1_000

_logger = logging.getLogger(__name__)


class StaleSettings:
    """Clears stale settings. For the event loop's thread."""

    def __init__(
        self, node_id: int, image: Image, ask: AskController, grace_s: float = GRACE_S
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._ask = ask
        self._grace_s = grace_s
        self._may_be_stale = asyncio.Event()
        self._may_be_stale.set()

    def look(self, changes: Changes) -> None:
        """Note changes after which settings may be stale, or another broker's to clear."""
        if changes.topics_deleted or changes.brokers or (BROKER, "") in changes.configs:
            self._may_be_stale.set()

    def stale(self) -> list[str]:
        """Return the settings that this broker has to clear."""
        image = self._image
        alive = (
            broker_id
            for broker_id, broker in image.brokers.items()
            if not broker.fenced and is_horolog(broker)
        )
        shared = image.settings_of(BROKER, "")
        if min(alive, default=None) != self._node_id:
            return []
        about = set(state.topics_in(shared)) & image.topics.keys()
        topics = {name: image.topics[name].topic_id for name in about}
        return list(dict.fromkeys(state.stale_names(topics, shared)))[:_MOST_AT_ONCE]

    async def run(self) -> None:
        """Clear what is stale, until cancelled."""
        while True:
            await self._may_be_stale.wait()
            self._may_be_stale.clear()
            while self.stale():
                await asyncio.sleep(self._grace_s)
                names = self.stale()
                if names and await self._clear(names):
                    break  # the image will say so

    async def _clear(self, names: list[str]) -> bool:
        """Ask the controllers once to remove settings; False if they did not."""
        configs = [{"name": it, "config_operation": _DELETE, "value": None} for it in names]
        resource = {"resource_type": BROKER, "resource_name": "", "configs": configs}
        fields = {"resources": [resource], "validate_only": False}
        try:
            body = await self._ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields, timeout_ms=_TIMEOUT_MS)
        except HorologError as error:
            _logger.warning("settings of deleted topics are not cleared yet: %s", error)
            return False
        for row in body.responses:
            if row.error_code != ErrorCode.none:
                why = row.error_message or f"error {row.error_code}"
                _logger.warning("settings of deleted topics are not cleared yet: %s", why)
                return False
        _logger.info("cleared %d settings of deleted topics", len(names))
        return True
