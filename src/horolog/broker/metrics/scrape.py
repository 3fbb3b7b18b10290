"""Collects all metrics at one moment, as Prometheus' text.

On the event loop, in slices: what is appended meanwhile is in some of the numbers only.
"""

from collections import Counter
from typing import Final

from horolog.broker.broker import BrokerParts
from horolog.broker.health import KINDS, wrong_with
from horolog.broker.metrics import families as of
from horolog.broker.metrics.cleaning import add_cleaning
from horolog.broker.metrics.cluster import add_cluster
from horolog.broker.metrics.exposition import Exposition
from horolog.broker.metrics.groups import GroupNumbers
from horolog.broker.metrics.process import ProcessNumbers
from horolog.broker.metrics.transactions import TransactionNumbers
from horolog.broker.partition import Partition
from horolog.broker.scheduling.turns import TimeSlice
from horolog.network.request_times import QUANTILES, RequestTimes
from horolog.record.time_stats import LATENCY_BOUNDS
from horolog.storage.companion.counts import BlockTotals, sum_of
from horolog.wire.api import ApiKey
from horolog.wire.questions import FollowedState, Withdrawn

MOST_SAMPLES: Final = 300_000
"""Most samples with labels on one page: about 30 MB."""

# Latencies are whole milliseconds: those below a bound are at most the bound less one.
_LATENCY_LABELS: Final = (*(str(bound - 1) for bound in LATENCY_BOUNDS), "+Inf")
_SUMMED: Final = (of.LOG_SIZE, of.SEGMENTS, of.CURRENT_OFFSET, of.OLDEST_OFFSET, of.AHEAD)


class Scrape:
    """Collects the metrics of a broker. For the event loop's thread only."""

    def __init__(self, broker: BrokerParts, times: RequestTimes, process: ProcessNumbers) -> None:
        self._broker = broker
        self._times = times
        self._process = process
        self._groups = GroupNumbers(broker)
        self._transactions = TransactionNumbers(broker)

    async def text(self, *, by_partition: bool = False) -> bytes:
        """Return all metrics as text; with `by_partition` for each partition instead of sums."""
        turns, found = TimeSlice(), Exposition(MOST_SAMPLES)
        found.begin(*of.FAMILIES)
        self._add_requests(found)
        await self._process.add(found)
        await self._add_health(found)
        self._add_logins(found)
        self._process.add_waits(found)
        topics = await self._partitions(turns, found, by_partition=by_partition)
        appended = self._broker.traffic.deleted
        for topic, counts in topics:
            await turns.pause()
            of_topic = sum_of(counts)
            _add_appended(found, topic, of_topic)
            appended = appended.plus(of_topic)
        found.add(of.MESSAGES_IN, appended.records)
        found.add(of.BYTES_IN, appended.size)
        await self._add_traffic(found, turns)
        if self._broker.condition is None:
            await self._add_following(turns, found, by_partition=by_partition)
        await add_cluster(found, self._broker, turns, by_partition=by_partition)
        await add_cleaning(found, self._broker, turns, by_partition=by_partition)
        await self._transactions.add(found, turns, by_partition=by_partition)
        await self._groups.add(found, turns, by_partition=by_partition)
        found.add(of.LEFT_OUT, found.left_out)
        parts = []
        for part in found.parts():
            parts.append(part)
            await turns.pause()
        return b"".join(parts)

    async def _add_health(self, found: Exposition) -> None:
        """Add what `horolog health` lists, by kind, and what only the broker as a whole has."""
        broker = self._broker
        kinds = Counter(wrong.kind for wrong in await wrong_with(broker))
        for kind in KINDS:
            found.add(of.PROBLEMS, kinds[kind], kind)
        found.add(of.OFFLINE_DIRECTORIES, int(broker.partitions.refusal is not None))
        found.add(of.CLOCK_AHEAD, broker.partitions.stamps_ahead_ms)
        for direction, count in broker.partitions.clock_jumps.items():
            found.add(of.CLOCK_JUMPS, count, direction)
        found.add(of.TASK_FAILURES, broker.background_tasks.failures.total())
        for task, count in broker.background_tasks.failures.items():
            found.add(of.TASK_FAILURES, count, task)

    def _add_logins(self, found: Exposition) -> None:
        """Add who logged in, and what was denied."""
        counts, access = self._broker.login_counts, self._broker.access
        for listener, login in self._broker.config.logins.items():
            for mechanism in login.mechanisms:
                found.add(of.LOGINS, counts.done[listener, mechanism], listener, mechanism)
            for mechanism in ("", *login.mechanisms):
                found.add(of.FAILED_LOGINS, counts.failed[listener, mechanism], listener, mechanism)
            found.add(of.ENDED_LOGINS, counts.ended[listener], listener)
        for (operation, kind), count in access.denials.items():
            found.add(of.DENIALS, count, operation, kind)

    async def _partitions(
        self, turns: TimeSlice, found: Exposition, *, by_partition: bool
    ) -> list[tuple[str, list[BlockTotals]]]:
        """Add the metrics of logs, and return the counts of each topic's partitions."""
        broker = self._broker
        now_ms = broker.clock.now_ms()
        served = offline = followed = every = 0
        replicated = broker.traffic.deleted_replicated_bytes
        in_cluster = broker.condition is not None
        topics = []
        for topic in broker.topics:
            numbers: list[tuple[int, ...]] = []
            counts: list[BlockTotals] = []
            until: list[int | None] = []
            withdrawn: Counter[str] = Counter()
            kept: Counter[str] = Counter()
            for index in topic.partitions:
                await turns.pause()
                partition = broker.partitions.find(topic.name, index)
                if partition is None:
                    until.append(None)
                    offline += not in_cluster  # else it has no replica here
                    continue
                complete = broker.partitions.complete.until(topic, partition)
                until.append(complete.ms)
                if complete.withdrawn not in (None, Withdrawn.NO_BOUND):
                    withdrawn[complete.withdrawn] += 1
                if partition.log.oddly_kept is not None:
                    kept[partition.log.oddly_kept] += 1
                numbers.append(_numbers_of(partition, now_ms))
                counts.append(partition.log.active.counts)
                replicated += partition.log.replicated_bytes
                followed += partition.log.is_following
                if by_partition:
                    for family, number in zip(_SUMMED, numbers[-1], strict=True):
                        found.add(family, number, topic.name, index)
                    if until[-1] is not None:
                        found.add(of.COMPLETE_UNTIL, until[-1], topic.name, index)
            topics.append((topic.name, counts))
            if not by_partition:
                columns = zip(*(numbers or [(0,) * len(_SUMMED)]), strict=True)
                for family, column in zip(_SUMMED, columns, strict=True):
                    total = max(column) if family is of.AHEAD else sum(column)
                    found.add(family, total, topic.name)
                if until and (known := [ms for ms in until if ms is not None]) == until:
                    found.add(of.COMPLETE_UNTIL, min(known), topic.name)
            for family, reasons in ((of.WITHDRAWN, withdrawn), (of.ODDLY_KEPT, kept)):
                for reason, count in reasons.items():
                    found.add(family, count, topic.name, reason)
            found.add(of.TOPIC_PARTITIONS, len(topic.partitions), topic.name)
            served += len(numbers)
            every += len(topic.partitions)
        alone = (
            (of.LEADERS, served - followed),
            (of.UNDER_REPLICATED, 0),
            (of.OFFLINE_PARTITIONS, offline),
            (of.ACTIVE_CONTROLLERS, 1),
            (of.BROKERS, 1),
        )
        for family, number in (
            *(() if in_cluster else alone),
            (of.REPLICATION_BYTES_IN, replicated),
            (of.REPLICATION_BYTES_OUT, broker.traffic.replication_bytes_out),
            (of.PARTITIONS, served),
            (of.OFFLINE_REPLICAS, offline),
            (of.TOPICS, len(topics)),
            (of.ALL_PARTITIONS, every),
            (of.FETCH_SESSIONS, len(broker.fetch_sessions)),
            (of.FETCH_SESSION_PARTITIONS, broker.fetch_sessions.partitions),
            (of.FETCH_SESSION_EVICTIONS, broker.fetch_sessions.evictions),
        ):
            found.add(family, number)
        return topics

    async def _add_following(
        self, turns: TimeSlice, found: Exposition, *, by_partition: bool
    ) -> None:
        """Add the lag of topics that another cluster leads."""
        sums: dict[str, list[tuple[int | None, int | None, bool]]] = {}
        async for entry in self._broker.shadow.entries():
            await turns.pause()
            if entry.partition is None:
                continue
            is_stopped = entry.state in (FollowedState.REFUSED, FollowedState.WAITING)
            its = (entry.offsets_behind, entry.lag_ms, is_stopped)
            sums.setdefault(entry.topic, []).append(its)
            if by_partition:
                for family, number in ((of.FOLLOW_BEHIND, its[0]), (of.FOLLOW_LAG, its[1])):
                    if number is not None:
                        found.add(family, number, entry.topic, entry.partition)
        for topic, partitions in sums.items():
            behind, lags, stopped = zip(*partitions, strict=True)
            found.add(of.NOT_FOLLOWED, sum(stopped), topic)
            if by_partition:
                continue
            if None not in behind:
                found.add(of.FOLLOW_BEHIND, sum(behind), topic)
            if None not in lags:
                found.add(of.FOLLOW_LAG, max(lags), topic)

    async def _add_traffic(self, found: Exposition, turns: TimeSlice) -> None:
        """Add the counters of answered requests; of deleted topics they may be behind."""
        traffic = self._broker.traffic
        for family, counted in (
            (of.BYTES_OUT, traffic.bytes_out),
            (of.FAILED_PRODUCE, traffic.failed_produce),
            (of.EXPIRED_ON_ARRIVAL, traffic.expired_on_arrival),
            (of.PRODUCE_CONVERSIONS, traffic.converted[ApiKey.PRODUCE]),
            (of.FETCH_CONVERSIONS, traffic.converted[ApiKey.FETCH]),
        ):
            found.add(family, counted.total)
            for topic, count in list(counted.topics.items()):
                await turns.pause()
                if topic in self._broker.topics:  # a request may have outlived it
                    found.add(family, count, topic)
        for (api, version), count in list(traffic.converted_for.items()):
            await turns.pause()
            found.add(of.CONVERSIONS, count, api.title, version)
        for key, count in list(traffic.refused.items()):
            await turns.pause()
            found.add(of.REFUSED, count, *key)
        for topic_and_reason, size in list(traffic.deleted_bytes.items()):
            await turns.pause()
            found.add(of.DELETED, size, *topic_and_reason)

    def _add_requests(self, found: Exposition) -> None:
        for answered in self._times:
            name = answered.api.title
            for version, count in answered.counts.items():
                found.add(of.REQUESTS, count, name, version)
            for share, milliseconds in zip(QUANTILES, answered.quantiles, strict=False):
                found.add(of.REQUEST_TIMES, round(milliseconds, 4), name, share)
            count = sum(answered.counts.values())
            found.add(of.REQUEST_TIMES, count, name, suffix="_count")


def _numbers_of(partition: Partition, now_ms: int) -> tuple[int, ...]:
    """Return the values of the families in `_SUMMED`."""
    log = partition.log
    return (
        log.size,
        len(log.segments),
        log.high_watermark,
        log.log_start_offset,
        log.append_time_ahead_ms(now_ms),
    )


def _add_appended(found: Exposition, topic: str, appended: BlockTotals) -> None:
    found.add(of.MESSAGES_IN, appended.records, topic)
    found.add(of.BYTES_IN, appended.size, topic)
    found.add(of.FUTURE, appended.latencies[0], topic)
    found.add(of.UNTIMED, appended.untimed, topic)
    if any(appended.latencies):
        found.add_buckets(of.LATENCY, _LATENCY_LABELS, appended.latencies, topic)
