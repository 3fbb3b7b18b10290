"""Warnings in the broker's log about appends: their times, and those that are refused.

    a record ahead of the clock,   at most once a minute for each partition, when it is appended
    or older than retention.ms
    append times ahead of it       once a minute for all partitions, while any is ahead, appended
                                   to or not: retention waits for them either way
    an append that the disk        once for each partition until it takes one again, and at most
    refuses                        one line a minute, which names several
    a batch that a policy refuses  at most once a minute for each topic: its client may show only
                                   the name of the error
    records that are too early     once a minute for all partitions, if the clock of append times
    only for append times that     decides: it is ahead of the clock
    are ahead

The minute is measured with the event loop's time, because the wall clock may be wrong.
"""

import asyncio
import logging
from typing import Final

from horolog.broker.catalogue import Catalogue
from horolog.broker.partition import Partition
from horolog.clock import format_duration
from horolog.errors import (
    ErrorCode,
    HorologError,
    RecordsRejected,
    RequestRefused,
    StorageFailed,
)
from horolog.storage.logs.appendable import Appended
from horolog.storage.validation.rules import CLOCK_AHEAD, RESET_ALL

_LOG = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 60.0
LOOK_INTERVAL_MS: Final = 1_000
"""Pause between two checks for due warnings."""
_NAMED: Final = 3
_MOST_SHOWN: Final = 200  # characters of a name that a client has chosen
_HOLDS: Final = (
    "; retention.ms counts from its timestamp, and keeps its segment for so much longer (KIP-937), "
    "unless horolog.retention.by is append-time"
)


class AppendWarnings:
    """Warnings of one broker about appends. For the event loop's thread only."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._live, self._clock, _, self._partitions, _ = catalogue
        self._loop = asyncio.get_running_loop()
        self._next_look_at = 0.0  # at the append times of all partitions
        self._next_warning_at = 0.0  # about them
        self._refusing: set[str] = set()  # partitions that were named, and take nothing yet
        self._next_refusal_at = 0.0  # when the next line may name some
        self._next_policy_at: dict[str, float] = {}  # by topic
        self._next_clock_ahead_at = 0.0
        self._refused_at_ms: int | None = None  # by the clock of append times, which was ahead

    def note(self, partition: Partition, appended: Appended, client_id: str, host: str) -> None:
        """Warn if appended records are ahead of the clock, or due for deletion at once."""
        limit_ms = self._live.config.horolog_timestamp_warn_ahead_ms
        assert appended.remarks is not None
        ahead_ms, records_ahead_ms, expired_ms, _, _ = appended.remarks
        if ahead_ms > limit_ms:
            if self._loop.time() >= self._next_warning_at:
                self._look()
        elif records_ahead_ms > limit_ms and self._is_due(partition):
            holds = partition.log.config.horolog_retention_by != "append-time"
            _LOG.warning(
                "%s: a record is %s ahead of the clock (offsets %d to %d, from client %r at %s)%s",
                partition.name,
                format_duration(records_ahead_ms),
                appended.base_offset,
                appended.last_offset,
                client_id,
                host,
                _HOLDS if holds else "",
            )
        elif expired_ms > 0 and self._is_due(partition):
            _LOG.warning(
                "%s: records have been older than retention.ms for %s when they arrived (offsets "
                "%d to %d, from client %r at %s): retention deletes them with their segment, "
                "unless horolog.retention.by is append-time or later",
                partition.name,
                format_duration(expired_ms),
                appended.base_offset,
                appended.last_offset,
                client_id,
                host,
            )

    def note_refused(
        self, partition: Partition, error: HorologError, client_id: str, host: str
    ) -> None:
        """Warn of a batch that the disk or a policy refused."""
        if isinstance(error, StorageFailed):
            is_new = partition.log.refusal is not None and partition.name not in self._refusing
            if is_new and self._loop.time() >= self._next_refusal_at:
                self.look_at_refusals()
        elif isinstance(error, RequestRefused) and error.code is ErrorCode.policy_violation:
            now, due = self._loop.time(), self._next_policy_at
            if now < due.get(partition.topic, now):
                return
            for topic in [topic for topic, at in due.items() if at <= now]:
                del due[topic]
            due[partition.topic] = now + INTERVAL_SECONDS
            _LOG.warning(
                "%s: a batch was refused: %s (from client %r at %s)",
                partition.name,
                error,
                client_id[:_MOST_SHOWN],
                host,
            )
        elif isinstance(error, RecordsRejected) and any(
            reason == CLOCK_AHEAD for reason, _ in error.kinds
        ):
            self._note_clock_ahead(partition, client_id, host)

    def _note_clock_ahead(self, partition: Partition, client_id: str, host: str) -> None:
        if self._partitions.stamps_ahead_ms < LOOK_INTERVAL_MS:
            return  # a clock that is being corrected, and a record at the edge of the bound
        self._refused_at_ms = self._partitions.stamp_ms
        now = self._loop.time()
        if now < self._next_clock_ahead_at:
            return
        self._next_clock_ahead_at = now + INTERVAL_SECONDS
        _LOG.warning(
            "%s: records were refused (error 32, from client %r at %s) that "
            "message.timestamp.before.max.ms allows by the clock: it counts from the broker's last "
            "append time, which is %s ahead. `%s` ends that (docs/append-times.md)",
            partition.name,
            client_id[:_MOST_SHOWN],
            host,
            format_duration(self._partitions.stamps_ahead_ms),
            RESET_ALL,
        )

    @property
    def clock_ahead_refuses(self) -> bool:
        """True if the clock of append times is ahead, and records were refused because of that."""
        refused_at_ms = self._refused_at_ms
        is_over = refused_at_ms is None or self._clock.now_ms() >= refused_at_ms
        return not is_over and self._partitions.stamps_ahead_ms > 0

    def look_at_refusals(self) -> None:
        """Warn of partitions to which the disk has refused the last append."""
        partitions = self._partitions.values()
        refusals = {
            partition.name: why
            for partition in partitions
            if (why := partition.log.refusal) is not None
        }
        if self._refusing and not refusals:
            _LOG.info("the disk refuses no append any more")
        self._refusing.intersection_update(refusals)
        new = sorted(refusals.keys() - self._refusing)
        now = self._loop.time()
        if not new or now < self._next_refusal_at:
            return
        self._next_refusal_at = now + INTERVAL_SECONDS
        self._refusing.update(new)
        more = f" and {len(new) - _NAMED} more partitions" if len(new) > _NAMED else ""
        _LOG.error(
            "appends are refused by %s%s: %s", ", ".join(new[:_NAMED]), more, refusals[new[0]]
        )

    async def warn_of_appends(self) -> None:
        """Warn of append times ahead of the clock, and of refused appends, if that is due."""
        if self._loop.time() >= self._next_look_at:
            self._look()
        self.look_at_refusals()

    def _look(self) -> None:
        now = self._loop.time()
        self._next_look_at = now + INTERVAL_SECONDS
        now_ms = self._clock.now_ms()
        limit_ms = self._live.config.horolog_timestamp_warn_ahead_ms
        ahead = [
            (ahead_ms, partition)
            for partition in self._partitions.values()
            if (ahead_ms := partition.log.append_time_ahead_ms(now_ms)) > limit_ms
        ]
        if not ahead:
            return
        self._next_warning_at = now + INTERVAL_SECONDS
        ahead.sort(key=lambda item: (-item[0], item[1].name))
        named = ", ".join(
            f"{partition.name} {format_duration(by)}" for by, partition in ahead[:_NAMED]
        )
        more = f" and {len(ahead) - _NAMED} more partitions" if len(ahead) > _NAMED else ""
        _LOG.warning(
            "append times are ahead of the clock, which has gone back: %s%s. New records get "
            "the last append time until the clock has caught up; `horolog topics "
            "reset-append-time %s` ends that (docs/append-times.md)",
            named,
            more,
            ahead[0][1].topic,
        )

    def _is_due(self, partition: Partition) -> bool:
        now = self._loop.time()
        if now < partition.next_warning_at:
            return False
        partition.next_warning_at = now + INTERVAL_SECONDS
        return True
