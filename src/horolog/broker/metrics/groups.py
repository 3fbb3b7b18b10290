"""Metrics of groups of both types, from memory, and from disk for groups that are behind.

An append time is looked up once for each committed offset, and what retention does about a
partition once in `_KEPT_MS`, whoever scrapes.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from horolog.broker.broker import BrokerParts
from horolog.broker.coordinators.group_lag import (
    Behind,
    Doomed,
    Key,
    append_time_of,
    deletions,
    doomed,
)
from horolog.broker.metrics import families as of
from horolog.broker.metrics.exposition import Exposition
from horolog.broker.scheduling.turns import TimeSlice
from horolog.config import TopicConfig
from horolog.errors import HorologError
from horolog.groups.consumers.group import ConsumerGroup
from horolog.groups.group import Group
from horolog.groups.values import GroupState
from horolog.storage.logs.readable import ReadableLog
from horolog.storage.removal.retention_report import SegmentRetention

_KEPT_MS: Final = 30_000
_AT_ONCE: Final = 100  # partitions in one call of a thread
_STATES: Final = (
    (Group.kind, GroupState.EMPTY),
    (Group.kind, GroupState.PREPARING_REBALANCE),
    (Group.kind, GroupState.COMPLETING_REBALANCE),
    (Group.kind, GroupState.STABLE),
    (ConsumerGroup.kind, GroupState.EMPTY),
    (ConsumerGroup.kind, GroupState.ASSIGNING),
    (ConsumerGroup.kind, GroupState.RECONCILING),
    (ConsumerGroup.kind, GroupState.STABLE),
)


class _Appended(NamedTuple):
    """Append time of the first unread record."""

    log: ReadableLog
    offset: int
    end: int
    """Offset up to which there is no record, if `is_none`."""
    ms: int | None
    is_none: bool = False


class _Judged(NamedTuple):
    """Deletions that retention plans for a partition."""

    log: ReadableLog
    config: TopicConfig
    now_ms: int
    segments: Sequence[SegmentRetention]


class _GroupSums(NamedTuple):
    """Metrics of a group in a partition, or summed up over a topic."""

    committed: int
    behind: int
    lost: int
    lag_ms: int | None
    doomed: Doomed

    def plus(self, other: "_GroupSums") -> "_GroupSums":
        lags = [lag_ms for lag_ms in (self.lag_ms, other.lag_ms) if lag_ms is not None]
        both = (self.doomed.first_ms, other.doomed.first_ms)
        firsts = [first_ms for first_ms in both if first_ms is not None]
        return _GroupSums(
            self.committed + other.committed,
            self.behind + other.behind,
            self.lost + other.lost,
            max(lags, default=None),
            Doomed(self.doomed.records + other.doomed.records, min(firsts, default=None)),
        )


class GroupNumbers:
    """Metrics of all groups of a broker.

    Only the event loop's thread uses it, one `add` at a time.
    """

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker
        self._appended: dict[Key, _Appended] = {}
        self._judged: dict[tuple[str, int], _Judged] = {}

    async def add(self, found: Exposition, turns: TimeSlice, *, by_partition: bool) -> None:
        """Add the metrics of all groups."""
        broker = self._broker
        counts = dict.fromkeys(_STATES, 0)
        for group in broker.groups.all():
            found.add(of.MEMBERS, group.member_count, group.group_id)
            counts[group.kind, group.state] += 1
            await turns.pause()
        for (group_type, state), count in counts.items():
            found.add(of.GROUPS, count, group_type, state.value)
        for group_type in (Group.kind, ConsumerGroup.kind):
            found.add(of.REBALANCES, broker.groups.rebalances.get(group_type, 0), group_type)
        sums: dict[tuple[str, str], _GroupSums] = {}
        rest = broker.group_lags.behind()
        appended, judged = self._appended, self._judged
        self._appended, self._judged = {}, {}  # what is not asked for again is forgotten
        while some := list(islice(rest, _AT_ONCE)):
            for key, numbers in await self._numbers_of(some, appended, judged):
                if by_partition:
                    _add(found, numbers, *key)
                before = sums.get(key[:2])
                sums[key[:2]] = numbers if before is None else before.plus(numbers)
            await turns.pause()
        for group_and_topic, numbers in sums.items():
            found.add(of.LAG_SUM, numbers.behind, *group_and_topic)
            if not by_partition:
                _add(found, numbers, *group_and_topic)

    async def _numbers_of(
        self,
        some: Sequence[Behind],
        appended: dict[Key, _Appended],
        judged: dict[tuple[str, int], _Judged],
    ) -> Iterable[tuple[Key, _GroupSums]]:
        broker, now_ms = self._broker, self._broker.clock.now_ms()
        unread = [behind for behind in some if behind.has_unread]
        paces = [broker.group_lags.paces(behind).commits for behind in unread]

        def look() -> None:
            for behind in unread:
                with suppress(HorologError):  # of this one nothing more is known
                    self._look(behind, now_ms, appended, judged)

        if unread:
            await asyncio.get_running_loop().run_in_executor(broker.readers, look)
        deleted = {
            behind.key: doomed(behind, known.segments, pace, now_ms)
            for behind, pace in zip(unread, paces, strict=True)
            if (known := self._judged.get(behind.key[1:])) is not None
            and not self._has_none(behind.key)
        }
        return [
            (
                behind.key,
                _GroupSums(
                    behind.committed,
                    behind.offsets,
                    behind.lost,
                    self._lag_ms(behind, now_ms),
                    deleted.get(behind.key, Doomed()),
                ),
            )
            for behind in some
        ]

    def _has_none(self, key: Key) -> bool:
        """True if only markers of transactions are unread."""
        known = self._appended.get(key)
        return known is not None and known.is_none

    def _lag_ms(self, behind: Behind, now_ms: int) -> int | None:
        if not behind.has_unread or self._has_none(behind.key):
            return 0
        known = self._appended.get(behind.key)
        return None if known is None or known.ms is None else max(0, now_ms - known.ms)

    def _look(
        self,
        behind: Behind,
        now_ms: int,
        appended: dict[Key, _Appended],
        judged: dict[tuple[str, int], _Judged],
    ) -> None:
        """Look up missing values on disk. Runs in a thread."""
        log, key = behind.log, behind.key
        at = appended.get(key)
        if at is None or at.log is not log or at.offset != behind.first_unread:
            at = _appended(behind, behind.first_unread)
        elif at.is_none and at.end < behind.end:
            at = _appended(behind, at.end)
        self._appended[key] = at
        its = self._judged.get(key[1:], judged.get(key[1:]))
        if (
            its is None
            or its.log is not log
            or its.config is not log.config
            or not 0 <= now_ms - its.now_ms < _KEPT_MS
        ):
            its = _Judged(log, log.config, now_ms, deletions(log.look(), 0, now_ms))
        self._judged[key[1:]] = its


def _appended(behind: Behind, from_offset: int) -> _Appended:
    view = behind.log.look()
    end, first = min(behind.end, view.high_watermark), behind.first_unread
    record = view.first_record(max(from_offset, view.log_start_offset), end)
    if record is None:
        return _Appended(behind.log, first, end, None, is_none=True)
    return _Appended(behind.log, first, end, append_time_of(view, record))


def _add(found: Exposition, numbers: _GroupSums, *labels: object) -> None:
    found.add(of.COMMITTED, numbers.committed, *labels)
    found.add(of.LAG, numbers.behind, *labels)
    found.add(of.LOST, numbers.lost, *labels)
    found.add(of.UNREAD_DELETED, numbers.doomed.records, *labels)
    if numbers.lag_ms is not None:
        found.add(of.LAG_MS, numbers.lag_ms, *labels)
    if numbers.doomed.first_ms is not None:
        found.add(of.FIRST_DELETED, numbers.doomed.first_ms, *labels)
