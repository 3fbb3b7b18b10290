"""Settings of deleted topics are cleared once, by one broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from horolog.broker.cluster.controllers import ControllersUnavailable
from horolog.broker.cluster.stale_settings import StaleSettings
from horolog.metadata import BROKER, Changes, Image, TopicKey
from horolog.metadata import state as kept
from horolog.metadata.rows import AS_FOUND, TopicRow
from horolog.schemas import metadata as m
from horolog.wire import REPLICATION, ApiKey

A, B = UUID(int=500), UUID(int=501)
SETTINGS = {"horolog.retention.by": "append-time", "horolog.roll.by": "append-time"}


def registered(broker: int, *, is_horolog: bool = True, fenced: bool = False) -> m.RegisterBroker:
    features = (m.Supported(REPLICATION, 0, 1),) if is_horolog else ()
    return m.RegisterBroker(broker, False, UUID(int=broker), 10, (), features, fenced=fenced)


class Cluster:
    """An image with topic `a` and its settings; controllers that obey or refuse."""

    def __init__(self, *brokers: m.RegisterBroker) -> None:
        self.image = Image()
        self.asked: list[list[str]] = []
        self.failures: list[int | None] = []
        self.apply(*brokers, m.Config(BROKER, "", "log.retention.ms", "1"))
        self.give("a", A)
        self.settings = StaleSettings(5, self.image, self._ask, grace_s=0)

    def apply(self, *records: m.Record) -> None:
        for record in records:
            self.image.apply(record)

    def give(self, name: str, topic_id: UUID) -> None:
        row = TopicRow(name, topic_id, AS_FOUND)
        shared = kept.split(row, SETTINGS).shared
        self.apply(m.TopicRecord(name, topic_id))
        self.apply(*(m.Config(BROKER, "", *item) for item in shared.items()))

    async def _ask(self, api_key: ApiKey, body: Mapping[str, Any], /, *, timeout_ms: int) -> Any:
        assert (api_key, timeout_ms > 0) == (ApiKey.INCREMENTAL_ALTER_CONFIGS, True)
        [resource] = body["resources"]
        self.asked.append([row["name"] for row in resource["configs"]])
        code = self.failures.pop(0) if self.failures else 0
        if code is None:
            raise ControllersUnavailable("no controller answers")
        if code == 0:
            for row in resource["configs"]:
                assert row["config_operation"] == 1
                self.apply(m.Config(BROKER, "", row["name"], None))
        return SimpleNamespace(responses=[SimpleNamespace(error_code=code, error_message=None)])

    async def work(self) -> None:
        task = asyncio.create_task(self.settings.run())
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()

    def deleted(self, topic_id: UUID = A) -> None:
        self.apply(m.RemoveTopic(topic_id))
        self.settings.look(Changes(offset=1, topics_deleted=(TopicKey("a", topic_id),)))


def test_settings_of_a_deleted_topic_are_cleared_and_no_others() -> None:
    async def run() -> None:
        cluster = Cluster(registered(5), registered(6))
        await cluster.work()
        assert not cluster.asked
        cluster.deleted()
        await cluster.work()
        [names] = cluster.asked
        assert sorted(names) == sorted(["horolog.state.topic.a", *(
            f"horolog.topic.a.{name}" for name in SETTINGS)])  # fmt: skip
        assert cluster.image.settings_of(BROKER, "") == {"log.retention.ms": "1"}

    asyncio.run(run())


def test_a_name_that_is_used_again_keeps_its_new_settings() -> None:
    async def run() -> None:
        cluster = Cluster(registered(5))
        cluster.deleted()
        cluster.give("a", B)
        await cluster.work()
        assert not cluster.asked
        cluster.deleted(B)
        cluster.apply(m.TopicRecord("a", A))
        await cluster.work()
        assert len(cluster.asked) == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("others", "clears"),
    [
        ([registered(4)], False),
        ([registered(4, fenced=True)], True),
        ([registered(4, is_horolog=False)], True),
    ],
)
def test_the_lowest_horolog_that_is_alive_clears(
    others: list[m.RegisterBroker], clears: bool
) -> None:
    async def run() -> None:
        cluster = Cluster(registered(5), *others)
        cluster.deleted()
        await cluster.work()
        assert bool(cluster.asked) == clears

    asyncio.run(run())


def test_a_refusal_is_tried_again() -> None:
    async def run() -> None:
        cluster = Cluster(registered(5))
        cluster.failures = [None, 41]
        cluster.deleted()
        await cluster.work()
        assert len(cluster.asked) == 3
        assert not cluster.settings.stale()

    asyncio.run(run())
