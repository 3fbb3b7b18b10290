"""Looks at the source, and runs a fetcher for each of its leaders.

    source ── SourceTopics, each second ──► topics made, grown, deleted here
                                       └──► partitions given to the fetcher of their leader

For the event loop's thread only. Nothing that fails here ends it: the source may be away for days.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from horolog.broker.catalogue import Catalogue
from horolog.broker.follow_state import connection_to
from horolog.broker.following.appending import local
from horolog.broker.following.fetching import LeaderFetcher
from horolog.broker.following.followed import Followed, fetch_limits
from horolog.broker.following.source_leader import SourceLeader
from horolog.broker.scheduling.blocking_thread import BlockingThread
from horolog.broker.scheduling.turns import TimeSlice
from horolog.broker.shadow.source import Source
from horolog.broker.shadow.topics import FollowedTopics
from horolog.broker.source_topics import SourcePartition, SourceTopics, TopicAtSource
from horolog.client.config import Address, ClientConfig
from horolog.config.releases import replica_fetch_version
from horolog.errors import HorologError
from horolog.offsets import TopicPartition
from horolog.replication.asked import Asks, Gap
from horolog.replication.followed import FollowedPartition

__all__ = ["Follower", "PartitionStatus"]

_LOG = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Time between two looks at the source, unless a fetcher asks for one."""

LOOK_SHARE: Final = 50
LONGEST_LOOK_S: Final = 10.0
"""Longest pause after a look. A slow look is followed by a pause of `LOOK_SHARE` times its
duration."""

AT_ONCE_S: Final = 0.05
"""Least time between two looks that fetchers ask for."""

CONFIRM_MS: Final = 3_000
"""Longest wait of a promotion for the source's confirmation that nothing is missing."""

PROGRESS_S: Final = 30.0
"""Time between two log lines about the lag."""

FAR_BEHIND: Final = 10_000
"""Lag in offsets of all partitions together from which log lines report it."""

_MOST_NAMED: Final = 10


@dataclass
class _Following:
    """State while a source is followed."""

    thread: BlockingThread
    task: "asyncio.Task[None]"
    config: ClientConfig | None = None
    source: Source | None = None


class PartitionStatus(NamedTuple):
    """Progress of following one partition."""

    state: str
    """`following`, `comparing`, `waiting` after an error, or `refused`."""
    next_offset: int
    offsets_behind: int | None
    lag_ms: int | None
    """Time since everything of the source was here; None if it never was since the start."""
    gaps: tuple[Gap, ...]
    why: str | None
    """Reason why it is not followed now."""


class Follower:
    """Looks at the source, and gives each followed partition to the fetcher of its leader."""

    def __init__(self, catalogue: Catalogue, followed_topics: FollowedTopics) -> None:
        """Follow nothing yet.

        Args:
            followed_topics: makes the topics here what the source has.
        """
        self.why: str | None = None
        """Reason why the source cannot be looked at; None if it can."""
        self._live, self._clock, self._topics, self._partitions, self._follow_state = catalogue
        self._followed_topics = followed_topics
        self._loop = asyncio.get_running_loop()
        self._following: _Following | None = None
        self._followed: dict[TopicPartition, Followed[FollowedPartition]] = {}
        self._fetchers: dict[int, tuple[Address, LeaderFetcher]] = {}
        self._wakes = asyncio.Event()
        self._said: dict[TopicPartition, str | None] = {}
        self._next_progress_s = 0.0
        self._was_behind = True

    # --- start and stop ---------------------------------------------------------------

    def start(self) -> None:
        """Follow the current source, if there is one."""
        if self._following is None and self._follow_state.is_following:
            thread = BlockingThread("horolog-follow-source")
            task = asyncio.create_task(self._run(), name="follow")
            self._following = _Following(thread, task)
            self._was_behind, self._next_progress_s = True, self._loop.time() + PROGRESS_S

    async def stop(self) -> None:
        """Stop following. Batches that are being appended are appended."""
        if self._following is None:
            return
        following, self._following, self.why = self._following, None, None
        following.task.cancel()
        if following.source is not None:
            following.source.interrupt()
            following.thread.run(following.source.close)
        following.thread.end()
        await asyncio.gather(following.task, return_exceptions=True)
        for key in list(self._followed):
            self._release(key)
        fetchers, self._fetchers = self._fetchers, {}
        await asyncio.gather(*(fetcher.stop() for _, fetcher in fetchers.values()))

    def release(self, topic: str) -> None:
        """Stop following a topic from this moment on; fetched batches are not appended.

        A change of its logs that is in the write queues by now still comes about, before whatever
        the caller queues.
        """
        found = self._topics.find(topic)
        for index in () if found is None else found.partitions:
            if (topic, index) in self._followed:
                self._release((topic, index))

    def look_again(self) -> None:
        """Look at the source soon, because a leader or a topic has changed."""
        self._wakes.set()

    # --- status -----------------------------------------------------------------------

    def status_of(self, key: TopicPartition) -> PartitionStatus | None:
        """Return the progress of one partition; None if it is not followed."""
        followed = self._followed.get(key)
        if followed is None:
            return None
        state, log = followed.state, local(followed.partition.log)
        why = state.why
        fetcher = self._fetcher_of(followed)
        if why is None and fetcher is not None:
            why = fetcher.why
        return PartitionStatus(
            _title(state, why),
            state.position(log),
            state.offsets_behind,
            self._lag_ms(state, fetcher),
            tuple(state.gaps),
            why,
        )

    def is_complete(self, key: TopicPartition) -> bool:
        """True if nothing is known to be missing or wrong; cheaper than `status_of`."""
        followed = self._followed.get(key)
        if followed is None:
            return True
        state, fetcher = followed.state, self._fetcher_of(followed)
        is_wrong = state.why is not None or (fetcher is not None and fetcher.why is not None)
        return not (state.offsets_behind or state.gaps or is_wrong)

    def _lag_ms(self, state: FollowedPartition, fetcher: LeaderFetcher | None) -> int | None:
        caught_up_ms = state.caught_up_ms
        if caught_up_ms is None:
            return None
        if not state.offsets_behind and fetcher is not None and fetcher.answered_ms is not None:
            # A partition without news is not in an answer.
            caught_up_ms = max(caught_up_ms, fetcher.answered_ms)
            if state.asks is Asks.RECORDS and fetcher.is_answering:
                return 0
        return max(0, self._now_ms() - caught_up_ms)

    def _fetcher_of(self, followed: Followed[FollowedPartition]) -> LeaderFetcher | None:
        leader = followed.state.leader
        found = None if leader is None else self._fetchers.get(leader)
        return None if found is None else found[1]

    def is_denied(self, key: TopicPartition) -> bool:
        """True if the source does not let a partition be read."""
        followed = self._followed.get(key)
        return followed is not None and followed.state.is_denied

    def has_caught_up(self, key: TopicPartition) -> bool:
        """True if everything that the source had of a partition was here once since the start."""
        followed = self._followed.get(key)
        return followed is not None and followed.state.caught_up_ms is not None

    def confirmed_ms(self, key: TopicPartition) -> int:
        """Return the time of the last request that found nothing missing of a partition.

        -1 if that was never so since it is followed, or is not so now.
        """
        followed = self._followed.get(key)
        fetcher = None if followed is None else self._fetcher_of(followed)
        return -1 if followed is None or fetcher is None else fetcher.confirmed_ms(followed)

    def arrived_ms(self, key: TopicPartition) -> int:
        """Return the latest time at which the last record of a partition can have arrived."""
        followed = self._followed.get(key)
        return self._now_ms() if followed is None else followed.arrived_ms

    async def confirm(self, topics: Collection[str]) -> None:
        """Wait until the partitions of topics are confirmed, while the source answers."""
        since_ms = self._now_ms()
        while self._now_ms() < since_ms + CONFIRM_MS:
            waits = False
            for key, followed in self._followed.items():
                fetcher = self._fetcher_of(followed)
                if key[0] not in topics or fetcher is None or fetcher.why is not None:
                    continue
                if followed.state.is_denied:
                    continue
                waits = waits or fetcher.confirmed_ms(followed) < since_ms
            if not waits:
                return
            await asyncio.sleep(CONFIRM_MS / 100_000)

    # --- looks ------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            pause_s = LOOK_S
            self._wakes.clear()
            try:
                pause_s = max(pause_s, min(LOOK_SHARE * await self._look(), LONGEST_LOOK_S))
                if self.why is not None:
                    _LOG.info("the source is followed again")
                self.why = None
            except HorologError as error:
                if str(error) != self.why:
                    _LOG.error("the source cannot be followed now: %s", error)
                self.why = str(error)
            except Exception:  # noqa: BLE001 - a bug in one look does not end the following
                _LOG.exception("a bug in looking at the source")
                self.why = "a bug: see the log"
            self._say_progress()
            await asyncio.sleep(AT_ONCE_S)
            try:
                async with asyncio.timeout(pause_s - AT_ONCE_S):
                    await self._wakes.wait()
            except TimeoutError:
                pass

    async def _look(self) -> float:
        """Look at the source and apply its changes; return how many seconds the source took."""
        following, row = self._following, self._follow_state.source
        if following is None or row is None:
            return 0
        if following.source is None:
            config = await following.thread.run(lambda: connection_to(row))
            following.config = config
            following.source = Source(
                config,
                self._follow_state.wants,
                row.cluster_id or None,
                own_cluster_id=self._partitions.cluster_id,
            )
        source, known = following.source, self._followed_topics.known()
        begun_s = self._loop.time()
        seen = await following.thread.run(lambda: source.look(known))
        took_s = self._loop.time() - begun_s
        await self._followed_topics.apply(seen)
        await self._assign(seen)
        return took_s

    async def _assign(self, seen: SourceTopics) -> None:
        """Assign each partition to the fetcher of its leader."""
        turns = TimeSlice()
        await self._move_fetchers(seen)
        to_follow: set[TopicPartition] = set()
        for topic in self._topics:
            await turns.pause()
            its = seen.topics.get(topic.name)
            if not topic.followed or self._topics.find(topic.name) is not topic:
                continue
            if its is not None and not self._follow_state.follows(topic, its.topic_id):
                continue  # it is another topic, or is being promoted
            for index in topic.partitions:
                to_follow.add((topic.name, index))
                if its is not None and index < len(its.partitions):
                    self._follow(its, its.partitions[index], seen)
        for key in self._followed.keys() - to_follow:
            self._release(key)
        leading = {followed.state.leader for followed in self._followed.values()}
        for node_id in self._fetchers.keys() - leading:
            await self._fetchers.pop(node_id)[1].stop()

    def _follow(self, topic: TopicAtSource, of_source: SourcePartition, seen: SourceTopics) -> None:
        key = (topic.name, of_source.partition)
        partition = self._partitions.find(*key)
        followed = self._followed.get(key)
        if followed is not None and (
            followed.partition is not partition or followed.topic_id != topic.topic_id
        ):
            self._release(key)  # it was deleted, and may have been re-created
            followed = None
        if partition is None or not partition.log.is_following:
            return
        if followed is None:
            state = FollowedPartition(self._live.config.replica_fetch_backoff_ms)
            now_ms = self._now_ms()
            followed = self._followed[key] = Followed(partition, topic.topic_id, state, now_ms)
        state = followed.state
        before, turn = self._fetcher_of(followed), state.turn
        now_ms = self._now_ms()
        state.lead(of_source.leader, of_source.leader_epoch, local(partition.log), now_ms)
        if state.turn == turn:
            return
        if before is not None:
            before.drop(followed)
        if state.leader is None:
            return
        if state.leader not in self._fetchers and state.leader in seen.brokers:
            self._put_fetcher(state.leader, seen)
        fetcher = self._fetcher_of(followed)
        if fetcher is not None:
            fetcher.attend(followed)
        else:  # its address is not known yet; the next look tries again
            state.lead(None, state.epoch, local(partition.log), now_ms)

    def _release(self, key: TopicPartition) -> None:
        followed = self._followed.pop(key)
        fetcher = self._fetcher_of(followed)
        followed.state.release()
        if fetcher is not None:
            fetcher.drop(followed)

    async def _move_fetchers(self, seen: SourceTopics) -> None:
        """Replace the fetchers of brokers whose addresses have changed."""
        for node_id, (address, fetcher) in list(self._fetchers.items()):
            if seen.brokers.get(node_id, address) != address:
                moved = self._put_fetcher(node_id, seen)
                for followed in self._followed.values():
                    if followed.state.leader == node_id:
                        moved.attend(followed)
                await fetcher.stop()

    def _put_fetcher(self, node_id: int, seen: SourceTopics) -> LeaderFetcher:
        address = seen.brokers[node_id]
        fetcher = self._new_fetcher(node_id, address, seen.cluster_id)
        self._fetchers[node_id] = (address, fetcher)
        return fetcher

    def _new_fetcher(self, node_id: int, address: Address, cluster_id: str) -> LeaderFetcher:
        assert self._following is not None
        assert self._following.config is not None
        config = self._live.config
        leader = SourceLeader(
            address,
            self._following.config,
            fetch_limits(config),
            cluster_id,
            timeout_ms=config.replica_socket_timeout_ms,
            fetch_version=replica_fetch_version(config.inter_broker_protocol_version),
        )
        return LeaderFetcher(
            leader,
            f"broker {node_id} at {address}",
            self._clock,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            follows_start=config.horolog_follow_log_start,
            look_again=self.look_again,
        )

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # --- what the log says ------------------------------------------------------------

    def _say_progress(self) -> None:
        """Log each problem once, and the lag from time to time."""
        behind, unknown, new = 0, 0, []
        for key, followed in self._followed.items():
            state = followed.state
            if state.offsets_behind is None:
                unknown += 1
            else:
                behind += state.offsets_behind
            # What an election explains is over soon.
            is_wrong = state.is_refused or state.failures >= 3
            why = state.why if is_wrong else None
            if why != self._said.get(key):
                self._said[key] = why
                if why is not None:
                    new.append(f"{followed.partition.name}: {why}")
        for gone in self._said.keys() - self._followed.keys():
            del self._said[gone]
        for line in new[:_MOST_NAMED]:
            _LOG.warning("%s", line)
        if len(new) > _MOST_NAMED:
            _LOG.warning("%d other partitions are not followed now", len(new) - _MOST_NAMED)
        self._say_behind(behind, unknown)

    def _say_behind(self, behind: int, unknown: int) -> None:
        if not self._followed:
            return
        if not behind and not unknown:
            if self._was_behind:
                self._was_behind = False
                _LOG.info(
                    "caught up: all of the source's %d partitions are here", len(self._followed)
                )
            return
        if behind < FAR_BEHIND or self._loop.time() < self._next_progress_s:
            return
        self._was_behind = True
        self._next_progress_s = self._loop.time() + PROGRESS_S
        _LOG.info("following: %d offsets behind in %d partitions", behind, len(self._followed))


def _title(state: FollowedPartition, why: str | None) -> str:
    if state.is_refused:
        return "refused"
    if why is not None or state.asks is Asks.NOTHING:
        return "waiting"
    return "following" if state.asks is Asks.RECORDS else "comparing"
