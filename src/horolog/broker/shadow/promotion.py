"""Promotes followed topics: leads them here.

A promotion first stops following a topic, so that its log does not change. Then committed offsets
are clamped to the log, and producer ids are raised above all copied ones. Only then is it stored
that the topic is led. A kill before leaves it followed; the next start completes the promotion
after a kill. Producers are accepted once all partitions lead.

`__transaction_state` is led before any other topic, once the decisions on transactions are written
to it. The offsets that groups have committed in transactions are written before that. After a kill
earlier than that the next promotion decides. Then the copy of the source's `__consumer_offsets` is
not needed any more.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from horolog.broker.catalogue import Catalogue
from horolog.broker.controller import Controller
from horolog.broker.coordinators.group_coordinator import GroupCoordinator
from horolog.broker.coordinators.transaction_coordinator import TransactionCoordinator
from horolog.broker.partition import Partition
from horolog.broker.producers import FIRST_PRODUCER_ID, ProducerIds
from horolog.broker.scheduling.turns import TimeSlice
from horolog.broker.shadow.follower import Follower
from horolog.broker.shadow.groups import NOBODY
from horolog.broker.shadow.offsets import SourceOffsets
from horolog.errors import HorologError, RequestRefused, StorageFailed, code_for
from horolog.groups.offsets import CommittedOffsets
from horolog.groups.rows import OffsetRow
from horolog.metadata.rows import FollowedRow
from horolog.metadata.topics import Topic
from horolog.offsets import commits_positions
from horolog.replication.followed import MAX_EPOCH
from horolog.storage.logs.log import Log
from horolog.storage.names import (
    CONSUMER_OFFSETS,
    FOLLOWED_INTERNAL,
    FOLLOWED_OFFSETS,
    TRANSACTION_STATE,
    TopicPartition,
    name_at_source,
)
from horolog.transactions.promotion import Ends, FollowedStates, PartitionHere, ends_of
from horolog.transactions.replay import record_of
from horolog.transactions.values import CoordinatedTransaction
from horolog.wire.questions import PromotedEntry

_LOG = logging.getLogger(__name__)

_LEAST_STEP: Final = 1 << 10
_MOST_STEP: Final = 1 << 16
_UNSEEN: Final = 1 << 32
"""Number of producer ids that the source may have allocated without a record here."""


class _Still(NamedTuple):
    """End of a log that is not followed any more."""

    start_offset: int
    end_offset: int
    epoch: int
    """Highest leader epoch of its records."""
    producer_id: int
    """Highest producer id; -1 without one."""


def epoch_after(latest: int) -> int:
    """Return a leader epoch after `latest` in which no other broker leads.

    Two logs count as equal up to their common epochs (KIP-101). Another broker may lead in the next
    epochs: the restarted source, its next leader, a second shadow, or a copy of this one. So the
    step is large and random.
    """
    step = random.randrange(_LEAST_STEP, _MOST_STEP)  # noqa: S311 - not a secret
    return min(latest + step, MAX_EPOCH + 1)


class Promotions:
    """Promotes topics. For the event loop's thread only."""

    def __init__(
        self,
        catalogue: Catalogue,
        controller: Controller,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIds,
        follower: Follower,
        offsets: SourceOffsets,
    ) -> None:
        self.done: dict[str, list[PromotedEntry]] = {}
        """Outcome of promotions since the start, by topic."""
        _, self._clock, self._topics, self._partitions, self._follow_state = catalogue
        self._controller = controller
        self._groups = groups
        self._producer_ids = producer_ids
        self._follower = follower
        self._offsets = offsets
        self._transactions = transactions
        self._transactions_topic = transactions.topic

    async def promote(
        self, given: Collection[str] | None, notes: Callable[[str], Iterable[str]]
    ) -> None:
        """Lead topics; a topic that is led here stays so.

        Transactions are led with the first topic.

        Args:
            given: names of topics; None to lead everything, and to follow nothing any more.
            notes: yields sentences about what a topic lacks here.

        Raises:
            RequestRefused, StorageFailed: some are not led, with the reason of one. The others are;
                another call continues with the rest.
        """
        names = self._all_followed() if given is None else given
        if self._transactions_topic.exists and self._followed(names):
            await self._follower.confirm({*names, *FOLLOWED_INTERNAL})
        async with self._offsets.lock:
            await self._promote_confirmed(given, notes)

    def _all_followed(self) -> list[str]:
        return [topic.name for topic in self._topics if topic.followed]

    async def _promote_confirmed(
        self, asked: Collection[str] | None, notes: Callable[[str], Iterable[str]]
    ) -> None:
        failures: list[tuple[str, HorologError]] = []
        with ExitStack() as held:
            # Of all, also those that were followed meanwhile.
            given = self._all_followed() if asked is None else asked
            names = [name for name in dict.fromkeys(given) if name not in FOLLOWED_INTERNAL]
            followed = self._followed(names)
            stopped = followed
            if followed or asked is None or not FOLLOWED_INTERNAL.isdisjoint(given):
                stopped = [*followed, *self._followed(sorted(FOLLOWED_INTERNAL))]
            said = {name: [*notes(name)] for name in followed}
            confirmed = self._confirmed()
            arrived = self._arrived()
            held.enter_context(self._follow_state.promoting(*stopped))
            for name in stopped:
                self._follower.release(name)
            source = self._follow_state.source
            if asked is None and source is not None and not source.ended:
                await self._follow_state.put_source(source._replace(ended=True))
            ends = Ends({}, {}, {})
            try:
                if stopped:
                    ends = await self._end_transactions(stopped, confirmed, arrived)
            except HorologError as error:
                failures = [(name, error) for name in stopped]
                names = []
            committed = held.enter_context(self._groups.offsets.noting_commits())
            groups = await _GroupsByTopic.read(self._groups, names, committed)
            for name in names:
                try:
                    topic = self._topics.named(name)
                    if topic.followed:
                        await self._promote(topic, said.get(name, []), ends, groups)
                    else:
                        self._found_led(topic)
                except HorologError as error:
                    failures.append((name, error))
        if failures:
            (name, first), count = failures[0], f"{len(failures)} of {len(given)} topics"
            raise RequestRefused(code_for(first), f"{count} are not promoted, as {name}: {first}")

    def _followed(self, names: Iterable[str]) -> list[str]:
        found = (self._topics.find(name) for name in dict.fromkeys(names))
        return [topic.name for topic in found if topic is not None and topic.followed]

    # --- transactions -----------------------------------------------------------------

    def _confirmed(self) -> dict[TopicPartition, int]:
        """Return followed partitions, each with the time up to which it is known to be complete."""
        return {
            key: self._follower.confirmed_ms(key)
            for topic in self._topics
            if topic.followed and topic.name != TRANSACTION_STATE
            for key in (TopicPartition(topic.name, index) for index in topic.partitions)
        }

    def _arrived(self) -> dict[int, int]:
        """Return the arrival time of the last record in each partition of `__transaction_state`."""
        indexes = range(self._transactions_topic.count)
        return {
            index: self._follower.arrived_ms(TopicPartition(TRANSACTION_STATE, index))
            for index in indexes
        }

    async def _end_transactions(
        self,
        names: Collection[str],
        confirmed: Mapping[TopicPartition, int],
        arrived: Mapping[int, int],
    ) -> Ends:
        """Decide on the source's transactions, and lead `__transaction_state` here.

        Args:
            names: the topics that are not followed any more.
            confirmed: as of `_confirmed`, before that.
            arrived: as of `_arrived`, before that.

        Raises:
            StorageFailed: the states cannot be read, or a write failed.
        """
        topic = self._topics.find(TRANSACTION_STATE)
        is_followed = topic is not None and topic.followed
        is_led = topic is not None and not is_followed and topic.name in self._follow_state.rows
        still = {} if topic is None else await self._stop(topic, [])
        if topic is not None and len(still) < len(topic.partitions):
            raise StorageFailed(f"{TRANSACTION_STATE} is offline: see the log of this broker")
        here = await self._here(confirmed)
        if is_led:  # no state changes until the topics are led
            await self._transactions.begin_anew()
        else:
            await self._offsets.apply(closing=True)
            unread = {index for topic, index in here if topic == FOLLOWED_OFFSETS}
            for index in unread - self._offsets.read:
                del here[TopicPartition(FOLLOWED_OFFSETS, index)]
        known = FollowedStates(here)
        for index in still if is_followed or is_led else ():
            known.begin(arrived.get(index, 0))
            await self._transactions_topic.load(index, known.take)
        if known.unreadable:
            _LOG.error(
                "%s: %d records cannot be read and are left out; the first: %s",
                TRANSACTION_STATE,
                known.unreadable,
                known.reason,
            )
        decide = partial(ends_of, known, here, names, self._clock.now_ms(), is_led=is_led)
        ends = await asyncio.to_thread(decide)
        self._say(ends.notes)
        await self._commit_pending(here, ends)
        if topic is None or not (is_followed or is_led):
            return ends  # all states began here
        write = partial(self._write, ends.changed)
        if is_led:
            await write()
            return ends
        highest = await asyncio.to_thread(lambda: known.highest_id)
        if highest >= FIRST_PRODUCER_ID:
            await self._producer_ids.skip_to(highest + _UNSEEN)
        await self._transactions.begin_anew()
        await self._controller.promote(topic, self._row_of(topic, still), write=write)
        return ends

    async def _here(
        self, confirmed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, PartitionHere]:
        """Return the open transactions and markers of the followed partitions."""
        here, turns = {}, TimeSlice()
        for key, confirmed_ms in confirmed.items():
            await turns.pause()
            partition = self._partitions.find(*key)
            if partition is None:
                continue
            if key.topic == FOLLOWED_OFFSETS:
                await partition.change(lambda log: log.move_high_watermark(log.log_end_offset))
            its = await partition.producers_here()
            here[key] = its._replace(confirmed_ms=confirmed_ms)
        return here

    async def _commit_pending(self, here: Iterable[TopicPartition], ends: Ends) -> None:
        """Commit the offsets of groups here that are in committed transactions of the source.

        Raises:
            StorageFailed: a write failed.
        """
        known = [index for topic, index in here if topic == FOLLOWED_OFFSETS]
        for index, pending in (await self._offsets.pending(known)).items():
            ids = ends.committed.get(TopicPartition(FOLLOWED_OFFSETS, index), frozenset())
            counting = (
                row.row for row in pending if row.producer_id in ids and not row.is_superseded
            )
            for group_id, rows in groupby(counting, key=lambda row: row.group_id):
                valid = partial(self._valid, list(rows))
                try:
                    await self._groups.commit(group_id, NOBODY, valid)
                except RequestRefused as error:
                    _LOG.warning(
                        "offsets of group %r in a transaction are not those of the source: %s",
                        group_id,
                        error,
                    )

    def _valid(self, rows: Iterable[OffsetRow]) -> list[OffsetRow]:
        """Return offsets of followed topics, with the ids that these topics have here."""
        now_ms = self._clock.now_ms()
        return [
            row._replace(topic_id=topic.topic_id, commit_ms=now_ms)
            for row in rows
            if (topic := self._topics.find(row.topic)) is not None
            if topic.followed and topic.has_partition(row.partition)
        ]

    def _say(self, notes: Mapping[TopicPartition, Iterable[str]]) -> None:
        """Log the differences to the source, and keep them for questions."""
        self.done.pop(CONSUMER_OFFSETS, None)
        for (topic, index), sentences in notes.items():
            name = name_at_source(topic)
            for sentence in sentences:
                _LOG.warning("%s-%d was promoted: %s", name, index, sentence)
                if topic == FOLLOWED_OFFSETS:
                    entry = PromotedEntry(name, -1, partition=index, text=sentence)
                    self.done.setdefault(name, []).append(entry)

    async def _write(self, changed: Mapping[str, CoordinatedTransaction]) -> None:
        state = self._transactions_topic
        for id_, after in changed.items():
            appending = state.append_record(id_, record_of(id_, after, self._clock.now_ms()))
            if appending is not None:
                await appending

    def _found_led(self, topic: Topic) -> None:
        row = self._follow_state.rows.get(topic.name)
        if topic.name not in self.done:
            epoch = -1 if row is None else row.epoch
            entry = PromotedEntry(topic.name, epoch, text="it was led here already")
            self.done[topic.name] = [entry]

    async def _promote(
        self,
        topic: Topic,
        notes: list[str],
        ends: Ends,
        groups: "_GroupsByTopic",
    ) -> None:
        """Lead a topic.

        Args:
            notes: sentences to report about the topic.
            ends: decisions on the transactions in its partitions.
            groups: groups with committed offsets, by topic.
        """
        still = await self._stop(topic, notes)
        highest = max((end.producer_id for end in still.values()), default=-1)
        if highest >= FIRST_PRODUCER_ID:
            await self._producer_ids.skip_to(highest + _UNSEEN)
        committed = {
            index: tuple(sorted(ids))
            for index in topic.partitions
            if (ids := ends.committed.get(TopicPartition(topic.name, index)))
        }
        row = self._row_of(topic, still)._replace(committed=committed)
        epoch = row.epoch
        clamped = await self._clamp(topic, epoch, still, groups)
        await self._controller.promote(topic, row)
        said = [PromotedEntry(topic.name, epoch, text=note) for note in notes]
        of_transactions = [
            PromotedEntry(topic.name, epoch, partition=index, text=sentence)
            for index in topic.partitions
            for sentence in ends.notes.get(TopicPartition(topic.name, index), ())
        ]
        entries = [*clamped, *said, *of_transactions]
        self.done[topic.name] = entries or [PromotedEntry(topic.name, epoch)]
        _LOG.info("%s is promoted: it is led here from epoch %d on", topic.name, epoch)
        for note in notes:
            _LOG.warning("%s was promoted: %s", topic.name, note)

    def _row_of(self, topic: Topic, still: Mapping[int, _Still]) -> FollowedRow:
        """Return the row of a topic that is led here, with its first leader epoch."""
        epoch = epoch_after(
            max(
                self._follow_state.source_epoch(topic.name),
                *(end.epoch for end in still.values()),
                0,
            )
        )
        before = self._follow_state.rows.get(topic.name)
        row = FollowedRow(topic.name, None, True, epoch, "{}")
        if before is not None:
            row = before._replace(led=True, epoch=max(epoch, before.epoch))
        return row

    async def _stop(self, topic: Topic, notes: list[str]) -> dict[int, _Still]:
        """Return the end of each partition, once batches that are being appended are appended."""
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
        self, topic: Topic, epoch: int, still: dict[int, _Still], groups: "_GroupsByTopic"
    ) -> list[PromotedEntry]:
        """Clamp committed offsets to the records that are here; return an entry for each."""
        turns, entries = TimeSlice(), []
        for group_id in groups.of(topic.name):
            await turns.pause()
            for row, clamped in self._beyond(group_id, topic, still):
                entry = PromotedEntry(
                    topic.name, epoch, group_id, row.partition, row.committed, clamped
                )
                try:
                    after = row._replace(
                        committed=clamped, leader_epoch=-1, commit_ms=self._clock.now_ms()
                    )
                    await self._groups.replace_offset(row, after)
                except HorologError as error:
                    entry = entry._replace(clamped=None, text=f"it is not clamped: {error}")
                entries.append(entry)
                _LOG.warning(
                    "group %r had committed %d of %s-%d, which ends at %d here: %s",
                    group_id,
                    row.committed,
                    topic.name,
                    row.partition,
                    still[row.partition].end_offset,
                    entry.text or f"it is committed at {clamped} now",
                )
        return entries

    def _beyond(
        self, group_id: str, topic: Topic, still: dict[int, _Still]
    ) -> Iterator[tuple[OffsetRow, int]]:
        """Yield the offsets of a group that are not here, each with the nearest one that is."""
        for index, here in still.items():
            row = self._groups.offsets.get(group_id, topic.name, index)
            if row is not None:
                clamped = min(max(row.committed, here.start_offset), here.end_offset)
                if clamped != row.committed:
                    yield row, clamped


class _GroupsByTopic:
    """Groups with committed offsets, by topic."""

    def __init__(self, offsets: CommittedOffsets, names: Iterable[str], noted: set[str]) -> None:
        self._offsets = offsets
        self._found: dict[str, set[str]] = {name: set() for name in names}
        self._noted = noted

    @classmethod
    async def read(
        cls, groups: GroupCoordinator, names: Iterable[str], noted: set[str]
    ) -> "_GroupsByTopic":
        """Look at all groups once; groups that commit meanwhile and later are in `noted`."""
        await groups.tried()
        turns, found = TimeSlice(), cls(groups.offsets, names, noted)
        for group_id in groups.offsets.group_ids():
            await turns.pause()
            found._add(group_id)
        return found

    def _add(self, group_id: str) -> None:
        if commits_positions(group_id):
            topics = {topic for topic, _ in self._offsets.keys(group_id)}
            for name in self._found.keys() & topics:
                self._found[name].add(group_id)

    def of(self, topic: str) -> list[str]:
        """Return the groups that have committed offsets in a topic by now, or had."""
        for group_id in self._noted:
            self._add(group_id)
        self._noted.clear()
        return sorted(self._found[topic])


async def _end(partition: Partition) -> _Still:
    def end(log: Log) -> _Still:
        epoch = max(log.leader_epoch, log.epochs.latest)
        highest = log.producers.highest_id
        return _Still(log.log_start_offset, log.log_end_offset, epoch, highest)

    return await partition.change(end)
