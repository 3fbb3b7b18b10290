"""Carries out the roles that the metadata give this broker, for each partition in order.

    changes of the metadata ──► wanted: the latest state of each partition ──► workers
    a worker takes one partition: delete another topic's log, create the log, lead, follow or pause

A state that comes while an earlier one is carried out waits, and replaces one that waits already:
roles depend on the latest state alone. Directories are created and deleted together for all
partitions of a topic that wait for that.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from horolog.broker.cluster.assigning import DirectoryAssignments
from horolog.broker.cluster.leading import Leaders
from horolog.broker.cluster.view import ClusterView
from horolog.broker.partition import Partition
from horolog.broker.partitions import Partitions
from horolog.broker.scheduling.turns import TimeSlice
from horolog.errors import HorologError, StorageFailed
from horolog.metadata.image_changes import Changes, PartitionKey
from horolog.metadata.topics import Topic, TopicRegistry
from horolog.replication.roles import Role, RoleStep, role_of, step
from horolog.schemas.metadata import PartitionRecord

__all__ = ["Roles"]

_LOG = logging.getLogger(__name__)

WORKERS: Final = 16
_RETRY_S: Final = 10.0
"""Pause before a role that could not be taken is tried again."""

_UNKNOWN: Final = Role(leader=-1, leader_epoch=-1, is_leader=False, is_replicated=True)
"""Role of a log that was opened and has not been given one yet."""

_NO_TOPIC: Final = UUID(int=0)

_Key = tuple[str, int]


class Followers(Protocol):
    """Fetches partitions from their leaders (`ReplicaFetchers`)."""

    def follow(
        self, partition: Partition, leader_id: int, leader_epoch: int, topic_id: UUID
    ) -> None:
        """Fetch a partition, whose log follows, from the leader of an epoch."""
        ...

    def stop(self, partition: Partition) -> None:
        """Stop fetching a partition."""
        ...

    def on_brokers(self) -> None:
        """Look again at the addresses of brokers."""
        ...


class _Wanted(NamedTuple):
    topic_id: UUID
    state: PartitionRecord | None
    """None if the topic is gone."""


class _Held(NamedTuple):
    """State of a partition after the changes that were carried out."""

    topic_id: UUID
    role: Role
    state: PartitionRecord | None
    """State by which the role was taken; None for a log that was opened just now."""


class Roles:
    """Roles of this broker's replicas. For the event loop's thread.

    Args:
        on_failure: called with a sentence on a role that the disk has refused: another broker has
            to take it.
    """

    def __init__(
        self,
        node_id: int,
        view: ClusterView,
        topics: TopicRegistry,
        partitions: Partitions,
        leaders: Leaders,
        followers: Followers,
        directories: DirectoryAssignments,
        *,
        on_failure: Callable[[str], object],
        retry_s: float = _RETRY_S,
    ) -> None:
        self.complaints: dict[tuple[str, int], str] = {}
        """Reasons why partitions could not take their roles, by topic and index."""
        self._node_id = node_id
        self._view = view
        self._topics = topics
        self._partitions = partitions
        self._leaders = leaders
        self._followers = followers
        self._directories = directories
        self._on_failure = on_failure
        self._retry_s = retry_s
        self._held: dict[_Key, _Held] = {}
        self._wanted: dict[_Key, _Wanted] = {}
        self._indexes: dict[str, set[int]] = {}  # of what is held or wanted, by topic
        self._queue: asyncio.Queue[_Key] = asyncio.Queue()
        self._busy: set[_Key] = set()
        self._structure = asyncio.Lock()  # directories are created and deleted
        self._unsettled: set[_Key] = set()
        self._settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._workers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Take the roles of the image, and then those of each change of it.

        Returns once each partition has its first role, or could not take it.
        """
        self._view.on_changes.append(self.on_changes)
        turns = TimeSlice()
        for key, partition in list(self._partitions.items()):
            await turns.pause()
            topic_id = partition.log.topic_id or _NO_TOPIC
            self._hold(key, _Held(topic_id, _UNKNOWN, None))
            self._want(key, topic_id)
        for topic in list(self._view.image.topics.values()):
            for index in list(topic.partitions):
                await turns.pause()
                self._want((topic.name, index), topic.topic_id)
        self._unsettled = set(self._wanted)
        loop = asyncio.get_running_loop()
        self._workers = [loop.create_task(self._work()) for _ in range(WORKERS)]
        if self._unsettled:
            await self._settled

    async def close(self) -> None:
        """Stop taking roles; partitions continue to lead or follow."""
        if self.on_changes in self._view.on_changes:
            self._view.on_changes.remove(self.on_changes)
        for worker in self._workers:
            worker.cancel()
        if self._workers:
            await asyncio.wait(self._workers)

    @property
    def is_settled(self) -> bool:
        """True if each partition has the role that the image gives, or could not take it."""
        return not self._wanted and not self._busy

    def on_changes(self, changes: Changes) -> None:
        """Take the roles that changes give; they are in the image already."""
        for name, topic_id in changes.topics_deleted:
            for index in self._indexes.get(name, ()):
                self._want((name, index), topic_id)
        by_id = self._view.image.by_id
        for topic_id, index in changes.partitions:
            topic = by_id.get(topic_id)
            if topic is not None:  # else it is deleted by a later piece
                self._want((topic.name, index), topic_id)
        if changes.brokers:
            self._followers.on_brokers()
        self._leaders.on_changes(changes)

    # --- the queue ----------------------------------------------------------------------

    def _want(self, key: _Key, topic_id: UUID) -> None:
        """Let a partition take the role that the image has for it."""
        name, index = key
        topic = self._view.image.by_id.get(topic_id)
        state = None if topic is None else topic.partitions.get(index)
        is_known = key in self._held or key in self._wanted or key in self._busy
        if not is_known and role_of(self._node_id, state) is None:
            self.complaints.pop(key, None)
            return  # it never was here, or is gone
        self._indexes.setdefault(name, set()).add(index)
        queued = self._wanted.get(key)
        if queued is not None and state is None and queued.topic_id != topic_id:
            return  # it waits for the role of a later topic of the name
        self._wanted[key] = _Wanted(topic_id, state)
        if queued is None and key not in self._busy:
            self._queue.put_nowait(key)

    def _hold(self, key: _Key, held: _Held) -> None:
        self._held[key] = held
        self._indexes.setdefault(key[0], set()).add(key[1])

    def _forget(self, key: _Key) -> None:
        """Forget a partition that is not here, is not wanted, and is in no worker's hand."""
        name, index = key
        indexes = self._indexes.get(name)
        if indexes is None or key in self._held or key in self._wanted or key in self._busy:
            return
        indexes.discard(index)
        if not indexes:
            del self._indexes[name]

    async def _work(self) -> None:
        turns = TimeSlice()
        while True:
            key = await self._queue.get()
            if key in self._busy:
                continue
            self._busy.add(key)
            try:
                while key in self._wanted:
                    await self._take_role(key, self._wanted.pop(key))
                    await turns.pause()
            finally:
                self._busy.discard(key)
            self._forget(key)
            self._unsettled.discard(key)
            if not self._unsettled and not self._settled.done():
                self._settled.set_result(None)

    async def _take_role(self, key: _Key, wanted: _Wanted) -> None:
        try:
            await self._obey(key, wanted)
        except HorologError as error:
            if isinstance(error, StorageFailed):
                self._on_failure(f"{key[0]}-{key[1]} cannot take its role: {error}")
            if key not in self.complaints:
                _LOG.error("%s-%d cannot take its role: %s", *key, error)
            self.complaints[key] = str(error)
        except Exception as error:  # noqa: BLE001 - one bug must not stop all roles
            _LOG.exception("%s-%d cannot take its role", *key)
            self.complaints[key] = repr(error)
        else:
            self.complaints.pop(key, None)
            return
        asyncio.get_running_loop().call_later(self._retry_s, self._retry, key, wanted.topic_id)

    def _retry(self, key: _Key, topic_id: UUID) -> None:
        if key in self.complaints:
            topic = self._view.image.topics.get(key[0])  # it may have been made again
            self._want(key, topic_id if topic is None else topic.topic_id)

    # --- one partition ------------------------------------------------------------------

    async def _obey(self, key: _Key, wanted: _Wanted) -> None:
        """Take a role.

        Raises:
            RequestRefused: the log has records of a later leader epoch.
            StorageFailed: the disk refused.
        """
        held = self._held.get(key)
        if held is not None and held.topic_id != wanted.topic_id:
            if wanted.state is None and held.topic_id in self._view.image.by_id:
                return  # another topic of the name is gone
            await self._delete(key, held)
            held = None
        before, after = None if held is None else held.role, role_of(self._node_id, wanted.state)
        to_do = step(before, after)
        if held is not None and to_do is RoleStep.DELETE:
            await self._delete(key, held)
            return
        if after is None:
            return
        assert wanted.state is not None
        while held is None or held.topic_id != wanted.topic_id:
            if held is not None:  # created meanwhile, with others of an earlier topic
                await self._delete(key, held)
            if not await self._create(key, wanted.topic_id):
                return  # the topic is gone: that change is to come
            held = self._held[key]
        if to_do is RoleStep.STAY:
            self._hold(key, held._replace(state=wanted.state))
        else:
            await self._become(self._partitions[key], held.role, after, wanted.state, to_do)
            self._hold(key, _Held(wanted.topic_id, after, wanted.state))
        self._directories.look(PartitionKey(wanted.topic_id, key[1]))

    async def _become(
        self,
        partition: Partition,
        before: Role,
        role: Role,
        state: PartitionRecord,
        to_do: RoleStep,
    ) -> None:
        epoch, is_replicated = role.leader_epoch, role.is_replicated
        if to_do is RoleStep.UPDATE:
            if before.is_replicated != is_replicated:
                self._leaders.stop(state)  # else a fetch might move the high watermark meanwhile
                await partition.change(lambda log: log.set_replicated(is_replicated))
            self._leaders.lead(partition, state)
            return
        self._followers.stop(partition)
        if to_do is RoleStep.LEAD:
            if not is_replicated:
                self._leaders.stop(state)
            await partition.change(
                lambda log: log.become_leader(epoch, is_replicated=is_replicated)
            )
            self._leaders.lead(partition, state)
            return
        if before.is_leader:
            self._leaders.stop(state)
            partition.lead(None)  # requests that wait look again who leads
        await partition.change(lambda log: log.become_follower(epoch))
        if to_do is RoleStep.FOLLOW:
            self._followers.follow(partition, role.leader, epoch, state.topic_id)

    async def _create(self, key: _Key, topic_id: UUID) -> bool:
        """Create the logs of a topic's partitions that have none and take a role now.

        Returns:
            False if the topic is gone.

        Raises:
            StorageFailed: the disk refused.
        """
        name, index = key
        async with self._structure:
            topic = self._topics.find(name)
            if topic is None or topic.topic_id != topic_id:
                return False
            if key in self._held:  # another worker has created all of them
                return True
            others = self._others(key, lambda other: self._may_create(other, topic_id))
            made = [index, *others]
            with self._taking(name, others):
                try:
                    await self._partitions.open(topic, made)
                except StorageFailed:
                    if not others:
                        raise
                    made = [index]  # another one may be the reason
                    await self._partitions.open(topic, made)
                for each in made:
                    self._hold((name, each), _Held(topic_id, _UNKNOWN, None))
        return True

    def _may_create(self, key: _Key, topic_id: UUID) -> bool:
        wanted = self._wanted.get(key)
        return (
            wanted is not None
            and wanted.topic_id == topic_id
            and key not in self._held
            and key not in self._busy
            and key not in self.complaints
            and role_of(self._node_id, wanted.state) is not None
        )

    async def _delete(self, key: _Key, held: _Held) -> None:
        """Delete the log of a partition, and those of its topic that are to be deleted, too.

        Raises:
            StorageFailed: the disk refused.
        """
        name, index = key
        async with self._structure:
            if self._held.get(key) is not held:
                return  # another worker has deleted all of them
            others = self._others(key, lambda other: self._may_delete(other, held))
            gone = [index, *others]
            with self._taking(name, others):
                for each in gone:
                    self._release(name, each)
                await self._partitions.remove(self._topic(name, held.topic_id), gone)
                for each in gone:
                    del self._held[name, each]
        _LOG.info("deleted partition(s) %s of topic %s", gone, name)

    def _topic(self, name: str, topic_id: UUID) -> Topic:
        """Return a topic some of whose logs are here, even if it is gone."""
        topic = self._topics.find(name)
        if topic is not None and topic.topic_id == topic_id:
            return topic
        return Topic(name=name, topic_id=topic_id, partitions=tuple(sorted(self._indexes[name])))

    def _may_delete(self, key: _Key, held: _Held) -> bool:
        wanted, its = self._wanted.get(key), self._held.get(key)
        return (
            wanted is not None
            and its is not None
            and its.topic_id == held.topic_id
            and key not in self._busy
            and (wanted.topic_id != its.topic_id or role_of(self._node_id, wanted.state) is None)
        )

    def _release(self, name: str, index: int) -> None:
        """Take a partition away from those who lead or follow it."""
        held, partition = self._held[name, index], self._partitions.find(name, index)
        if held.state is not None and held.role.is_leader:
            self._leaders.stop(held.state)
        if partition is not None:
            self._followers.stop(partition)

    @contextmanager
    def _taking(self, name: str, indexes: Collection[int]) -> Iterator[None]:
        """Keep other workers from partitions that a worker takes with its own."""
        keys = [(name, index) for index in indexes]
        self._busy.update(keys)
        try:
            yield
        finally:
            for key in keys:
                self._busy.discard(key)
                if key in self._wanted:
                    self._queue.put_nowait(key)

    def _others(self, key: _Key, is_due: Callable[[_Key], bool]) -> list[int]:
        """Return the indexes of other partitions of the topic for which something is due, too."""
        name, index = key
        others = sorted(self._indexes.get(name, ()))
        return [other for other in others if other != index and is_due((name, other))]
