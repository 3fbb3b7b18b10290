"""What a broker of a cluster goes by: the image of the controllers' metadata."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from uuid import UUID

from observing import state_of

from horolog.broker.cluster.obeyed import ObeyedMetadata, ObeyingParts, TopicSettings
from horolog.broker.cluster.view import ClusterView
from horolog.broker.partitions import Partitions
from horolog.broker.scheduling.fair_pool import Checkers
from horolog.broker.settings import LiveSettings
from horolog.clock import ManualClock
from horolog.config import BrokerConfig, Settings
from horolog.metadata import BROKER, GROUP, TOPIC, Changes, TrackedImage
from horolog.metadata import state as kept
from horolog.metadata.rows import AS_FOUND, TopicRow
from horolog.metadata.topics import TopicRegistry
from horolog.quotas.model import Quotas
from horolog.quotas.windows import QuotaWindow
from horolog.rights.model import Rights
from horolog.schemas import metadata as m
from horolog.schemas.metadata import Record
from horolog.storage import LogDir

A, B, OTHER, NEW = (UUID(int=number) for number in range(500, 504))
NODE = 5
NOW = 1_795_000_000_000


def created(name: str, topic_id: UUID, partitions: int = 1) -> list[Record]:
    some: list[Record] = [m.TopicRecord(name, topic_id)]
    return some + [
        m.PartitionRecord(index, topic_id, (NODE,), (NODE,), (), (), NODE, 0, 0, 0)
        for index in range(partitions)
    ]


class Broker:
    """The parts that go by a view, and records that change it."""

    def __init__(self, log_dir: LogDir, pool: ThreadPoolExecutor) -> None:
        self.static = {"node.id": str(NODE), "log.retention.ms": "7000"}
        live = LiveSettings(Settings(self.static), {})
        clock = ManualClock(NOW)
        window = QuotaWindow(11, 1000)
        self.altered = 0
        self.parts = ObeyingParts(
            topics=TopicRegistry(),
            live=live,
            partitions=Partitions(log_dir, (), live, clock, pool, Checkers()),
            rights=Rights(),
            credentials={},
            quotas=Quotas(window, window),
            on_altered=self._count,
        )
        self.view = ClusterView()
        self.tracked = TrackedImage()
        self.offset = 0

    def _count(self) -> None:
        self.altered += 1

    def changes(self, *records: Record) -> Changes:
        for record in records:
            self.tracked.apply(record)
            self.offset += 1
        return self.tracked.take(self.offset, NOW)

    async def take(self, *records: Record) -> None:
        await self.view.take(self.changes(*records))

    async def obey(self) -> None:
        settings = TopicSettings(NODE, self.static)
        await self.view.obey(ObeyedMetadata(self.parts, self.view.image, settings))


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[Broker]:
    log_dir = LogDir.open(
        path, broker_config=BrokerConfig(), topic_config=lambda _: Settings().topic_config(),
        now_ms=NOW,
    )  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        broker = Broker(log_dir, pool)
        try:
            yield broker
        finally:
            await broker.parts.partitions.close(clean=True)


def on_loop(test: Callable[[Broker], Awaitable[None]]) -> Callable[[Path], None]:
    """Run a test on an event loop, with a broker that obeys its view."""

    async def run(path: Path) -> None:
        async with running(path) as broker:
            await broker.obey()
            await test(broker)

    @wraps(test)
    def whole(tmp_path: Path) -> None:
        asyncio.run(run(tmp_path))

    del whole.__wrapped__  # type: ignore[attr-defined] # pytest asks for its arguments
    return whole


@on_loop
async def test_topics_come_change_and_go(broker: Broker) -> None:
    topics = broker.parts.topics
    await broker.take(*created("a", A), m.Config(TOPIC, "a", "retention.ms", "1"))
    topic = topics.named("a")
    assert (topic.topic_id, topic.partitions, topic.may_expire) == (A, (0,), True)
    assert broker.parts.live.of_topic(topic).retention_ms == 1
    await broker.take(*created("a", A, 3)[2:])
    assert topics.named("a").partitions == (0, 1, 2)
    await broker.take(m.RemoveTopic(A), *created("a", B))
    assert topics.named("a").topic_id == B
    assert broker.parts.live.of_topic(topics.named("a")).retention_ms == 7000
    await broker.take(m.RemoveTopic(B))
    assert len(topics) == 0


@on_loop
async def test_logs_go_by_changed_settings(broker: Broker) -> None:
    await broker.take(*created("a", A))
    await broker.parts.partitions.open(broker.parts.topics.named("a"), [0])
    log = broker.parts.partitions["a", 0].log
    assert log.config.retention_ms == 7000
    await broker.take(m.Config(TOPIC, "a", "retention.ms", "1"))
    assert log.config.retention_ms == 1
    await broker.take(
        m.Config(TOPIC, "a", "retention.ms", None), m.Config(BROKER, "", "log.retention.ms", "2")
    )
    assert log.config.retention_ms == 2
    await broker.take(m.Config(BROKER, "5", "log.retention.ms", "3"))
    assert log.config.retention_ms == 3
    await broker.take(m.Config(BROKER, "6", "log.retention.ms", "4"))
    assert log.config.retention_ms == 3
    assert broker.altered == 2


@on_loop
async def test_records_do_not_expire_by_a_setting_that_is_refused(broker: Broker) -> None:
    await broker.take(*created("a", A), *created("b", B))
    await broker.take(m.Config(TOPIC, "a", "retention.ms", "soon"))
    topics = broker.parts.topics
    assert (topics.named("a").may_expire, topics.named("b").may_expire) == (False, True)
    await broker.take(m.Config(BROKER, "", "log.retention.ms", "later"))
    assert not topics.named("b").may_expire
    await broker.take(m.Config(BROKER, "", "log.retention.ms", "9"))
    assert topics.named("b").may_expire
    assert broker.parts.live.of_topic(topics.named("b")).retention_ms == 9
    await broker.take(m.Config(TOPIC, "a", "retention.ms", None))
    assert topics.named("a").may_expire


@on_loop
async def test_settings_of_another_topic_of_the_name_are_not_inherited(broker: Broker) -> None:
    await broker.take(*created("a", A))
    row = TopicRow("a", A, AS_FOUND)
    held = kept.split(row, {"horolog.retention.by": "append-time"}).shared
    await broker.take(*(m.Config(BROKER, "", *item) for item in held.items()))
    topics = broker.parts.topics
    assert topics.named("a").overrides == {"horolog.retention.by": "append-time"}
    await broker.take(m.RemoveTopic(A), *created("a", B))
    assert topics.named("a").overrides == {}
    held = kept.split(row._replace(topic_id=B), {"horolog.retention.by": "append-time"}).shared
    await broker.take(*(m.Config(BROKER, "", *item) for item in held.items()))
    assert topics.named("a").overrides == {"horolog.retention.by": "append-time"}
    await broker.take(*(m.Config(BROKER, "", key, None) for key in held))
    assert topics.named("a").overrides == {}
    assert broker.altered == 0


@on_loop
async def test_groups_users_entries_and_quotas_are_taken(broker: Broker) -> None:
    parts = broker.parts
    entity = (m.QuotaEntity("user", "alice"),)
    await broker.take(
        m.Config(GROUP, "g", "consumer.session.timeout.ms", "50000"),
        m.AccessControlEntry(A, 2, "a", 3, "User:alice", "*", 3, 3),
        m.ScramCredential("alice", 1, b"salt", b"key", b"other", 4096),
        m.ClientQuota(entity, "producer_byte_rate", 10.5),
    )
    assert parts.live.groups == {"g": {"consumer.session.timeout.ms": "50000"}}
    assert parts.rights is not None
    assert [entry.name for _, entry in parts.rights.items()] == ["a"]
    assert parts.credentials["alice", 1].iterations == 4096
    assert parts.quotas.get(frozenset(entity), "producer_byte_rate") == 10.5
    await broker.take(
        m.Config(GROUP, "g", "consumer.session.timeout.ms", None),
        m.RemoveAccessControlEntry(A),
        m.RemoveAccessControlEntry(B),
        m.RemoveScramCredential("alice", 1),
        m.ClientQuota(entity, "producer_byte_rate", 0.0, remove=True),
    )
    assert (parts.live.groups, len(parts.rights), parts.credentials) == ({}, 0, {})
    assert parts.quotas.get(frozenset(entity), "producer_byte_rate") is None


def test_what_came_before_is_obeyed_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as broker:
            await broker.take(
                *created("a", A, 2),
                m.Config(TOPIC, "a", "retention.ms", "1"),
                m.Config(BROKER, "5", "log.retention.ms", "3"),
                m.Config(GROUP, "g", "consumer.session.timeout.ms", "50000"),
                m.AccessControlEntry(A, 2, "a", 3, "User:alice", "*", 3, 3),
            )
            assert len(broker.parts.topics) == 0
            await broker.obey()
            parts = broker.parts
            assert parts.topics.named("a").partitions == (0, 1)
            assert parts.live.of_topic(parts.topics.named("a")).retention_ms == 1
            assert parts.live.settings.topic_config().retention_ms == 3
            assert parts.rights is not None
            assert (len(parts.rights), [*parts.live.groups]) == (1, ["g"])

    asyncio.run(run())


def test_topics_of_an_earlier_image_are_replaced(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as broker:
            parts = broker.parts
            await broker.take(*created("a", A), *created("b", B), *created("c", OTHER))
            for topic in await TopicSettings(NODE, broker.static).topics(broker.view.image):
                parts.topics.put(topic)
                await parts.partitions.open(topic, [0])
            await broker.take(
                m.RemoveTopic(A), m.RemoveTopic(B), *created("b", NEW),
                m.Config(TOPIC, "c", "retention.ms", "1"), m.Config(TOPIC, "b", "flush.ms", "soon"),
            )  # fmt: skip
            await broker.obey()
            assert sorted((topic.name, topic.topic_id) for topic in parts.topics) == [
                ("b", NEW),
                ("c", OTHER),
            ]
            assert parts.partitions["c", 0].log.config.retention_ms == 1
            assert parts.partitions["b", 0].log.retention_exempt

    asyncio.run(run())


@on_loop
async def test_offset_is_advanced_after_all_else(broker: Broker) -> None:
    seen: list[tuple[int, int]] = []
    view = broker.view
    view.on_changes.append(lambda changes: seen.append((view.offset, changes.offset)))
    waiting = asyncio.create_task(view.until(lambda image: "b" in image.topics))
    await broker.take(*created("a", A))
    assert not waiting.done()
    await broker.take(*created("b", B))
    await waiting
    assert seen == [(0, 2), (2, 4)]
    assert (view.offset, view.timestamp) == (4, NOW)
    assert state_of(view.image) == state_of(broker.tracked.image)


@on_loop
async def test_many_partitions_leave_the_loop_time_for_others(broker: Broker) -> None:
    topics = [
        record
        for number in range(10_000)
        for record in created(f"t{number}", UUID(int=1000 + number), 10)
    ]
    changes = broker.changes(*topics)
    gaps: list[float] = []

    async def look() -> None:
        while True:
            before = time.thread_time()  # of the loop: others may have the processor meanwhile
            await asyncio.sleep(0)
            gaps.append(time.thread_time() - before)

    looking = asyncio.create_task(look())
    gc.disable()  # what other tests have left takes long to look at
    try:
        await asyncio.to_thread(broker.view.publish, changes)
    finally:
        gc.enable()
    looking.cancel()
    assert len(broker.parts.topics) == 10_000
    assert sum(gap > 0.1 for gap in gaps) == 0
