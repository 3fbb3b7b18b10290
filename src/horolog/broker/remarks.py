"""What the broker says in its log about the times of records, at most once a minute each."""

import asyncio
import logging
from typing import Final
from weakref import WeakKeyDictionary

from horolog.broker.partition import Partition, Written

_LOG = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 60.0


class TimeRemarks:
    """Warnings about records, or append times, that are ahead of the clock."""

    def __init__(self, warn_ahead_ms: int) -> None:
        self.warn_ahead_ms = warn_ahead_ms
        self._loop = asyncio.get_running_loop()
        self._next_at: WeakKeyDictionary[Partition, dict[str, float]] = WeakKeyDictionary()

    def note(self, partition: Partition, written: Written) -> None:
        """Look at what was appended."""
        floor_ahead_ms = written.appended.ahead_ms
        if floor_ahead_ms > self.warn_ahead_ms and self._may_say("floor", partition):
            _LOG.warning(
                "%s: append times are %s ahead of the clock, which has gone back: they stand "
                "still until it has caught up",
                partition.name,
                _duration(floor_ahead_ms),
            )
        elif written.ahead_ms > self.warn_ahead_ms and self._may_say("ahead", partition):
            _LOG.warning(
                "%s: a record is %s ahead of the clock (offsets %d to %d); retention.ms counts "
                "from its timestamp (KIP-937)",
                partition.name,
                _duration(written.ahead_ms),
                written.appended.base_offset,
                written.appended.last_offset,
            )

    def _may_say(self, kind: str, partition: Partition) -> bool:
        now = self._loop.time()
        next_at = self._next_at.setdefault(partition, {})
        if now < next_at.get(kind, 0.0):
            return False
        next_at[kind] = now + INTERVAL_SECONDS
        return True


def _duration(ms: int) -> str:
    for unit, unit_ms in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if ms >= 2 * unit_ms:
            return f"{ms // unit_ms} {unit}"
    return f"{ms // 1000} seconds"
