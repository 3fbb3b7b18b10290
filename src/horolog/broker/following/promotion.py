"""Leads followed topics here, and follows topics that were led here.

A promotion ends the following of a topic first, so that its log holds still. Then the offsets of
groups are clamped to what is here, producer ids are raised above all that were copied, and only
then it is stored that the topic is led: a kill before leaves it followed, a kill after is completed
by the next start. Producers are accepted once all of its partitions lead.
"""

import logging
import random
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

from horolog.broker.controller import Controller
from horolog.broker.group_coordinator import GroupCoordinator
from horolog.broker.partition import Partition
from horolog.broker.partitions import Partitions
from horolog.broker.placement import Placement
from horolog.broker.producer_ids import FIRST, ProducerIds
from horolog.broker.scheduling.turns import TimeSlice
from horolog.clock import Clock
from horolog.errors import HorologError, RequestRefused, code_for
from horolog.groups.rows import OffsetRow
from horolog.metadata.rows import FollowedRow
from horolog.metadata.topics import Topic, TopicRegistry
from horolog.offsets import commits_positions
from horolog.replication.followed import MAX_EPOCH
from horolog.wire.questions import PromotedEntry

_LOG = logging.getLogger(__name__)

_LEAST_STEP: Final = 1 << 10
_MOST_STEP: Final = 1 << 16


class _Still(NamedTuple):
    """What a log ends with that is not followed any more."""

    start_offset: int
    end_offset: int
    epoch: int
    """The highest that it has seen."""
    producer_id: int
    """The highest; -1 without one."""


def epoch_after(latest: int) -> int:
    """A leader epoch after `latest` in which no other broker leads.

    Two logs are taken for the same as far as their epochs are (KIP-101). A source that was killed
    leads in the next epoch when it is started again, or has elected another leader by now, and a
    second shadow of it, or a copy of this one, may be promoted, too. So the step is large and drawn
    by lot.
    """
    step = random.randrange(_LEAST_STEP, _MOST_STEP)  # noqa: S311 - not a secret
    return min(latest + step, MAX_EPOCH + 1)


class Promotions:
    """See the module. For the event loop's thread only.

    Args:
        topics: of this broker.
        partitions: of this broker.
        placement: says which topics are followed.
        controller: makes the changes.
        groups: whose offsets are clamped.
        producer_ids: of this broker.
        clock: of this broker.
        release: ends the following of a topic at once.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        partitions: Partitions,
        placement: Placement,
        controller: Controller,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        clock: Clock,
        release: Callable[[str], None],
    ) -> None:
        self.done: dict[str, list[PromotedEntry]] = {}
        """What was done for each topic that was promoted since the start, and has to be known."""
        self._topics = topics
        self._partitions = partitions
        self._placement = placement
        self._controller = controller
        self._groups = groups
        self._producer_ids = producer_ids
        self._clock = clock
        self._release = release

    async def promote_all(self, notes: Callable[[str], Iterable[str]]) -> None:
        """Lead everything, and follow nothing any more.

        Raises:
            RequestRefused, StorageFailed: some topics are not led; again would continue with them.
        """
        source = self._placement.source
        if source is not None and not source.ended:
            await self._placement.put_source(source._replace(ended=True))
        followed = [topic.name for topic in self._topics if topic.followed]
        await self.promote(followed, notes)

    async def promote(self, names: Collection[str], notes: Callable[[str], Iterable[str]]) -> None:
        """Lead topics; one that is led here stays so.

        Args:
            names: of the topics.
            notes: what is to be said of a topic, of what is missing here, say.

        Raises:
            RequestRefused, StorageFailed: some are not led, with the reason of one. The others are.
        """
        failures: list[tuple[str, HorologError]] = []
        for name in dict.fromkeys(names):
            try:
                topic = self._topics.named(name)
                if topic.followed:
                    await self._promote(topic, [*notes(name)])
                else:
                    self._found_led(topic)
            except HorologError as error:
                failures.append((name, error))
        if failures:
            (name, first), count = failures[0], f"{len(failures)} of {len(names)} topics"
            raise RequestRefused(code_for(first), f"{count} are not promoted, as {name}: {first}")

    def _found_led(self, topic: Topic) -> None:
        row = self._placement.rows.get(topic.name)
        if topic.name not in self.done:
            epoch = -1 if row is None else row.epoch
            entry = PromotedEntry(topic.name, epoch, text="it was led here already")
            self.done[topic.name] = [entry]

    async def _promote(self, topic: Topic, notes: list[str]) -> None:
        with self._placement.promoting(topic.name):
            self._release(topic.name)
            still = await self._stop(topic, notes)
            epoch = epoch_after(
                max(
                    self._placement.source_epoch(topic.name),
                    *(each.epoch for each in still.values()),
                    0,
                )
            )
            clamped = await self._clamp(topic, epoch, still)
            highest = max((each.producer_id for each in still.values()), default=-1)
            if highest >= FIRST:
                await self._producer_ids.skip_to(highest + 1)
            before = self._placement.rows.get(topic.name)
            row = FollowedRow(topic.name, None, True, epoch, "{}")
            if before is not None:
                row = before._replace(led=True, epoch=max(epoch, before.epoch))
            await self._controller.promote(topic, row)
        said = [PromotedEntry(topic.name, row.epoch, text=note) for note in notes]
        self.done[topic.name] = [*clamped, *said] or [PromotedEntry(topic.name, row.epoch)]
        _LOG.info("%s is promoted: it is led here from epoch %d on", topic.name, row.epoch)
        for note in notes:
            _LOG.warning("%s was promoted: %s", topic.name, note)

    async def _stop(self, topic: Topic, notes: list[str]) -> dict[int, _Still]:
        """What each partition ends with, once what was being appended is appended."""
        still: dict[int, _Still] = {}
        for index in topic.partitions:
            partition = self._partitions.find(topic.name, index)
            if partition is None:
                why = self._partitions.why_offline(topic.name, index)
                notes.append(f"partition {index} is offline, and is led when it is back: {why}")
            else:
                still[index] = await _end(partition)
        return still

    # --- groups -----------------------------------------------------------------------

    async def _clamp(
        self, topic: Topic, epoch: int, still: dict[int, _Still]
    ) -> list[PromotedEntry]:
        """Commit, for each group whose offset is not here, the next that is; say each."""
        await self._groups.tried()
        turns, entries = TimeSlice(), []
        for group_id in filter(commits_positions, self._groups.offsets.group_ids()):
            await turns.pause()
            for row, clamped in self._beyond(group_id, topic, still):
                entry = PromotedEntry(
                    topic.name, epoch, group_id, row.partition, row.committed, clamped
                )
                try:
                    await self._commit(row, clamped)
                except HorologError as error:
                    entry = entry._replace(clamped=None, text=f"it is not clamped: {error}")
                entries.append(entry)
                _LOG.warning(
                    "group %r had committed %d of %s-%d, which ends at %d here: %s",
                    *(group_id, row.committed, topic.name, row.partition),
                    still[row.partition].end_offset,
                    entry.text or f"it is committed at {clamped} now",
                )
        return entries

    def _beyond(
        self, group_id: str, topic: Topic, still: dict[int, _Still]
    ) -> Iterator[tuple[OffsetRow, int]]:
        """The offsets of a group that are not here, each with the next that is."""
        for index, here in still.items():
            row = self._groups.offsets.get(group_id, topic.name, index)
            if row is not None:
                clamped = min(max(row.committed, here.start_offset), here.end_offset)
                if clamped != row.committed:
                    yield row, clamped

    async def _commit(self, row: OffsetRow, clamped: int) -> None:
        after = row._replace(committed=clamped, leader_epoch=-1, commit_ms=self._clock.now_ms())
        await self._groups.replace_offset(row, after)


async def _end(partition: Partition) -> _Still:
    def end() -> _Still:
        log = partition.log
        epoch = max(log.leader_epoch, log.epochs.latest)
        highest = partition.highest_producer_id
        return _Still(log.log_start_offset, log.log_end_offset, epoch, highest)

    return await partition.run(end)
