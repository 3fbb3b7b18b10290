"""Follows another cluster: starts, stops and reports all parts of following it.

`Shadow` starts and stops the follower, keeps topics and group offsets as the source has them,
promotes and demotes, and says how far everything is. Without a source it does nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Final

from horolog.broker.catalogue import Catalogue
from horolog.broker.controller import Controller
from horolog.broker.coordinators.group_coordinator import GroupCoordinator
from horolog.broker.coordinators.transaction_coordinator import TransactionCoordinator
from horolog.broker.follow_state import (
    allowed_servers,
    connection_to,
    is_selected,
    match_all,
    widened,
)
from horolog.broker.following.appending import local
from horolog.broker.producers import ProducerIds
from horolog.broker.scheduling.blocking_thread import BlockingThread
from horolog.broker.scheduling.turns import TimeSlice
from horolog.broker.shadow.access import FOLLOWS_US, FollowedAccess, access_at
from horolog.broker.shadow.demotion import choose, drop_pending
from horolog.broker.shadow.follower import Follower, PartitionStatus
from horolog.broker.shadow.groups import FollowedGroups, committed_at
from horolog.broker.shadow.offsets import SourceOffsets
from horolog.broker.shadow.promotion import Promotions
from horolog.broker.shadow.source import Source
from horolog.broker.shadow.topics import FollowedTopics
from horolog.broker.source_topics import SourceTopics
from horolog.client.client import Client
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.metadata.rows import SourceRow
from horolog.metadata.topics import Topic
from horolog.patterns import given_pattern
from horolog.storage.names import CONSUMER_OFFSETS, FOLLOWED_OFFSETS, TRANSACTION_STATE
from horolog.wire.questions import (
    Demotion,
    FollowedEntry,
    FollowedState,
    Following,
    PromotedEntry,
)

_LOG = logging.getLogger(__name__)

GROUPS_S: Final = 5.0
"""Time between two rounds over the groups of the source."""
GROUPS_SHARE: Final = 20
"""A slow round is followed by a pause of this many times its duration."""
_MOST_GAPS: Final = 3  # that are named of a partition


class Shadow:
    """Follows another cluster, and promotes its topics. For the event loop's thread only."""

    def __init__(
        self,
        catalogue: Catalogue,
        controller: Controller,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIds,
        access: FollowedAccess,
    ) -> None:
        self._live, _, self._topics, self._partitions, self._follow_state = catalogue
        self._controller = controller
        self._groups = groups
        self._transactions = transactions
        self.followed_topics = FollowedTopics(catalogue, controller)
        self.follower = Follower(catalogue, self.followed_topics)
        self._followed_groups = FollowedGroups(catalogue, groups)
        self._access = access
        self._offsets = SourceOffsets(catalogue, self.follower, self._followed_groups)
        self._promotions = Promotions(
            catalogue,
            controller,
            groups,
            transactions,
            producer_ids,
            self.follower,
            self._offsets,
        )
        self._lock = asyncio.Lock()  # of starts, stops, promotions and demotions
        self._is_demoting = False
        self._client: Client | None = None
        self._groups_task: asyncio.Task[None] | None = None

    @property
    def is_promoted_in_part(self) -> bool:
        """True if a promotion was interrupted and has to be continued by another one.

        Transactions are not ended before that has decided on them.
        """
        source = self._follow_state.source
        is_ended = source is not None and source.ended
        return any(
            topic.followed and (is_ended or self._follow_state.is_interrupted(topic))
            for topic in self._topics
            if topic.name != FOLLOWED_OFFSETS
        )

    # --- start and stop ---------------------------------------------------------------

    async def start(self) -> None:
        """Follow the source, if there is one."""
        async with self._lock:
            await self.followed_topics.drop_offsets()  # a kill may have come before that
            self._start()

    def _start(self) -> None:
        source = self._follow_state.source
        if source is not None and not source.ended and self._groups_task is None:
            self.follower.start()
            self._groups_task = asyncio.create_task(
                self._follow_groups_and_rights(source), name="follow groups and rights"
            )

    async def stop(self) -> None:
        """Stop following until the next start."""
        async with self._lock:
            await self._stop()

    async def _stop(self) -> None:
        task, self._groups_task = self._groups_task, None
        if task is not None:
            task.cancel()
            if self._client is not None:
                self._client.brokers.interrupt()
            await asyncio.gather(task, return_exceptions=True)
        await self.follower.stop()

    async def _follow_groups_and_rights(self, source: SourceRow) -> None:
        """Follow the source's groups, rights and quotas until this is cancelled."""
        thread, loop, said = BlockingThread("horolog-follow-groups"), asyncio.get_running_loop(), ""
        try:
            try:
                states = self._topics.find(TRANSACTION_STATE)
                if states is not None and states.followed:  # a kill may have come before that
                    await drop_pending(self._topics, self._partitions, self._groups)
            except HorologError as error:
                _LOG.warning("offsets of former transactions are pending still: %s", error)
            while True:
                begun_s = loop.time()
                why = await self._ask_groups(source, thread)
                if why and why != said:
                    _LOG.warning("offsets of groups are not followed: %s", why)
                said = why
                await self._ask_access(source, thread)
                await asyncio.sleep(max(GROUPS_S, GROUPS_SHARE * (loop.time() - begun_s)))
        finally:
            client, self._client = self._client, None
            if client is not None:
                thread.run(client.close)
            thread.end()

    async def _ask_groups(self, source: SourceRow, thread: BlockingThread) -> str:
        """Commit new offsets of the source's groups here; return the problem, if any."""
        try:
            if self._offsets.is_given:
                async with self._offsets.lock:
                    await self._offsets.apply()
                return ""
            client = await self._connected(source, thread)
            topics = self._followed_groups.topic_ids()
            found, why = await thread.run(lambda: committed_at(client))
            if not self._offsets.is_given:  # else they may be ahead of what is here
                await self._followed_groups.apply(found, topics)
        except HorologError as error:
            return str(error)
        except Exception:  # noqa: BLE001 - a bug in one round does not end the following
            _LOG.exception("a bug in following group offsets")
            return "a bug: see the log"
        return why

    async def _ask_access(self, source: SourceRow, thread: BlockingThread) -> None:
        """Copy rights and quotas of a known source that does not copy them from here itself."""
        seen = self._follow_state.seen
        if seen is None:
            return
        if self._partitions.cluster_id in seen.upstream:  # one removed there would come back
            self._access.note(FOLLOWS_US)
            return
        try:
            client, cluster_id = await self._connected(source, thread), seen.cluster_id
            await self._access.apply(await thread.run(lambda: access_at(client, cluster_id)))
        except HorologError as error:  # the look at the source fails, too, and reports it
            _LOG.debug("rights and quotas of the source are not known now: %s", error)
        except Exception:  # noqa: BLE001 - a bug in one round does not end the following
            _LOG.exception("a bug in following rights and quotas")

    async def _connected(self, source: SourceRow, thread: BlockingThread) -> Client:
        """Return the client for groups and rights of the source."""
        if self._client is None:
            self._client = Client.of(await thread.run(lambda: connection_to(source)))
        return self._client

    # --- promote and demote -----------------------------------------------------------

    async def promote(self, names: list[str] | None) -> None:
        """Lead topics, or everything (None).

        Raises:
            RequestRefused, StorageFailed: some topics are not led.
        """
        async with self._lock:
            try:
                await self._promotions.promote(names, self._missing)
            finally:
                await self.followed_topics.drop_offsets()
                self._transactions.start()
                if not self._follow_state.is_following:
                    await self._stop()

    def promoted(self, names: tuple[str, ...]) -> Iterator[PromotedEntry]:
        """Yield the outcome of promotions since the start, of some topics or of all (no names)."""
        for name in (*names, CONSUMER_OFFSETS) if names else sorted(self._promotions.done):
            yield from self._promotions.done.get(name, ())

    async def demote(self, asked: Demotion) -> None:
        """Follow a cluster, also in topics that are led here.

        Raises:
            Misconfigured: it cannot be reached so.
            RequestRefused: the settings do not name it, or another demotion is under way; it is
                this broker, follows it, or another cluster is followed; a topic there is not the
                one here; the pattern takes too long.
            StorageFailed: a write failed; some topics may be led here still.
        """
        config = self._live.config
        topics = given_pattern(asked.topics, "topics").expression
        servers = allowed_servers(config, asked.servers)
        if self._is_demoting:
            raise RequestRefused(
                ErrorCode.policy_violation,
                "another demotion of this broker is under way: try again once it has ended",
            )
        self._is_demoting = True
        try:
            await self._demote(SourceRow("", servers, topics, config.horolog_follow_config))
        finally:
            self._is_demoting = False

    async def _demote(self, given: SourceRow) -> None:
        seen = await _look(given, self._partitions.cluster_id)
        async with self._lock:
            self._check_source(given, seen)
            source = widened(self._follow_state.source, given._replace(cluster_id=seen.cluster_id))
            known = {
                *seen.topics,
                *(topic.name for topic in self._topics),
                *self._follow_state.rows,
            }
            for source_row in (given, source):
                await asyncio.to_thread(match_all, source_row, known)
            chosen = choose(self._topics, seen, self._latest_epoch)
            await self._stop()
            try:
                await self._follow_state.put_source(source, self._promoted_once(given))
                for topic, row in chosen:
                    if topic.name == TRANSACTION_STATE:
                        await self._transactions.begin_anew()
                    await self._controller.demote(topic, row)
                    if topic.name == TRANSACTION_STATE:  # the new leader has decided on them
                        await drop_pending(self._topics, self._partitions, self._groups)
                    _LOG.warning(
                        "%s is followed from %s now: what that never had is cut off and set aside",
                        topic.name,
                        given.servers,
                    )
            finally:
                self._start()

    def _latest_epoch(self, topic: str, index: int) -> int:
        partition = self._partitions.find(topic, index)
        if partition is None:
            return -1
        log = local(partition.log)
        return max(
            (epoch.epoch for epoch in log.epochs if epoch.start_offset < log.end), default=-1
        )

    def _promoted_once(self, given: SourceRow) -> list[str]:
        """Return the asked topics that were promoted and then deleted."""
        rows = self._follow_state.rows.values()
        led = (row.topic for row in rows if row.led and is_selected(given, row.topic))
        return [name for name in led if name not in self._topics]

    def _check_source(self, given: SourceRow, seen: SourceTopics) -> None:
        if seen.cluster_id == self._partitions.cluster_id:
            raise RequestRefused(
                ErrorCode.inconsistent_cluster_id,
                f"{given.servers} is this broker, or has a copy of its log directory",
            )
        for topic in filter(self._follow_state.is_interrupted, self._topics):
            raise RequestRefused(
                ErrorCode.policy_violation,
                f"the promotion of {topic.name} was interrupted: complete it first, with `horolog "
                "promote` of the same topics",
            )
        source = self._follow_state.source
        followed = [topic.name for topic in self._topics if topic.followed]
        if followed and source is not None and source.cluster_id not in ("", seen.cluster_id):
            raise RequestRefused(
                ErrorCode.inconsistent_cluster_id,
                f"{given.servers} is cluster {seen.cluster_id}, and {followed[0]} and others are "
                f"followed from cluster {source.cluster_id}: promote those first",
            )

    def _missing(self, topic: str) -> Iterator[str]:
        """Yield sentences about records of a topic that are not here, as far as is known."""
        why = self.followed_topics.refused.get(topic)
        if why is not None:
            yield why
        found = self._topics.find(topic)
        for index in () if found is None else found.partitions:
            key = (topic, index)
            its = None if self.follower.is_complete(key) else self.follower.status_of(key)
            if its is not None:
                text = _text(its)
                if its.offsets_behind:
                    text = f"{its.offsets_behind} offsets of the source are not here. {text}"
                if text:
                    yield f"partition {index}: {text}".strip()

    # --- status -----------------------------------------------------------------------

    def source(self) -> Following:
        """Describe the followed cluster, without its topics; without an id if there is none."""
        row = self._follow_state.source
        if row is None:
            return Following(None, "", "", False, None, (), (), None)
        seen = self._follow_state.seen
        upstream = () if row.ended or not row.cluster_id else (row.cluster_id,)
        return Following(
            row.cluster_id,
            row.servers,
            row.topics,
            row.ended,
            self.follower.why,
            (seen and seen.upstream) or upstream,
            (),
            None,
            () if row.ended else self._access.notes,
        )

    async def entries(self) -> AsyncIterator[FollowedEntry]:
        """Yield the progress of each partition, and notes about each topic, in order."""
        turns = TimeSlice()
        rows = self._follow_state.rows
        names = {topic.name for topic in self._topics if topic.followed}
        for name in sorted({*names, *rows, *self.followed_topics.refused}):
            await turns.pause()
            topic = self._topics.find(name)
            entry = self._of_topic(name, topic)
            if entry is not None:
                yield entry
            for index in () if topic is None or not topic.followed else topic.partitions:
                await turns.pause()
                yield self._of_partition(name, index, self.follower.status_of((name, index)))

    def _of_topic(self, name: str, topic: Topic | None) -> FollowedEntry | None:
        row = self._follow_state.rows.get(name)
        if topic is not None and self._follow_state.is_interrupted(topic):
            text = "its promotion was interrupted: `horolog promote` continues with it"
            return FollowedEntry(name, None, FollowedState.WAITING, text=text)
        if row is not None and row.led:
            text = f"it is led here, from epoch {row.epoch} on"
            if topic is None:
                text = "it was deleted here after it was promoted"
            return FollowedEntry(name, None, FollowedState.PROMOTED, text=text)
        why = self.followed_topics.refused.get(name)
        settings = self.followed_topics.refused_settings(name)
        if why is None and row is None:
            why = "it was found here, and the source was not asked yet whether it is its topic"
        if why is None and not settings:
            return None
        is_followed = row is not None and topic is not None
        state = FollowedState.FOLLOWING if why is None else FollowedState.REFUSED
        if why is not None and is_followed:
            state = FollowedState.WAITING
        return FollowedEntry(name, None, state, settings=settings, text=why or "")

    def _of_partition(self, name: str, index: int, its: PartitionStatus | None) -> FollowedEntry:
        if its is None:
            partition = self._partitions.find(name, index)
            end = None if partition is None else partition.log.log_end_offset
            why = "it is not being followed now"
            if self._follow_state.source is None:
                why = "it is not known which cluster it is of: start with --follow, or promote it"
            elif not self._follow_state.source.topics:
                why = "the stored pattern of topics was dropped: start with --follow and another"
            if partition is None:
                why = self._partitions.why_offline(name, index)
            state = FollowedState.REFUSED if partition is None else FollowedState.WAITING
            return FollowedEntry(name, index, state, end_offset=end, text=why)
        if name == FOLLOWED_OFFSETS and self.follower.is_denied((name, index)):
            text = "the source does not let it be read: groups are asked for their offsets"
            return FollowedEntry(name, index, FollowedState.FOLLOWING, text=text)
        return FollowedEntry(
            name,
            index,
            FollowedState(its.state),
            its.offsets_behind,
            0 if its.offsets_behind == 0 else None,  # what is missing was not counted
            its.lag_ms,
            its.next_offset,
            len(its.gaps),
            text=_text(its),
        )


def _text(its: PartitionStatus) -> str:
    """Describe gaps and errors of a partition in sentences."""
    gaps = [f"{gap.start} to {gap.end - 1}" for gap in its.gaps[-_MOST_GAPS:]]
    more = len(its.gaps) - len(gaps)
    said = []
    if gaps:
        others = f" and {more} other stretches" if more else ""
        said.append(f"offsets {', '.join(gaps)}{others} were deleted there before they came here")
    if its.why:
        said.append(its.why)
    return "; ".join(said)


async def _look(given: SourceRow, own_cluster_id: str) -> SourceTopics:
    """Return a snapshot of a cluster."""
    thread = BlockingThread("horolog-demote")
    try:
        config = await thread.run(lambda: connection_to(given))
        selects = partial(is_selected, given)
        source = Source(config, selects, own_cluster_id=own_cluster_id)
        try:
            return await thread.run(lambda: source.look({}))
        finally:
            source.interrupt()
            thread.run(source.close)
    finally:
        thread.end()
