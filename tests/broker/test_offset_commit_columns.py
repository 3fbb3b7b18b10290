"""OffsetCommit requests with and without being decoded by their schema."""

import asyncio
from typing import Any, NamedTuple

import pytest
from dispatched_client import DispatchedClient, without_decoding
from hypothesis import given
from hypothesis import strategies as st
from raw_connection import encoded
from running_broker import RunningBroker, a_broker

from horolog.broker.scheduling.group_queue import Decided
from horolog.groups.rows import GroupChange
from horolog.network.dispatching import Hangup
from horolog.network.peer import Peer
from horolog.record.batch import HEADER_SIZE
from horolog.wire.api import SUPPORTED, ApiKey
from horolog.wire.frame import request_prefix

VERSIONS = range(2, SUPPORTED[ApiKey.OFFSET_COMMIT].max + 1)


Partition = tuple[int, int, str | None]
"""Index, offset, metadata."""


class Asked(NamedTuple):
    """One request."""

    version: int
    topics: tuple[tuple[str, tuple[Partition, ...]], ...]
    group: str = "alone"
    generation: int = -1
    member: str = ""
    instance: str | None = None
    retention_ms: int = -1
    trailing: bytes = b""

    def frame(self, broker: RunningBroker, correlation_id: int = 5) -> bytes:
        """The request without its length."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member,
            "group_instance_id": self.instance,
            "retention_time_ms": self.retention_ms,
            "topics": [_topic(broker, *topic) for topic in self.topics],
        }
        key = ApiKey.OFFSET_COMMIT
        body = encoded(key, self.version, fields) + self.trailing
        return request_prefix(key, self.version, correlation_id, "me", len(body))[4:] + body


def _topic(broker: RunningBroker, name: str, partitions: tuple[Partition, ...]) -> dict[str, Any]:
    known = broker.broker.topics.find(name)
    asked = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 3,
            "committed_metadata": metadata,
        }
        for index, offset, metadata in partitions
    ]
    return {"name": name, "topic_id": known and known.topic_id, "partitions": asked}


def single(
    version: int, partition: int = 0, offset: int = 7, metadata: str | None = "m", **others: Any
) -> Asked:
    return Asked(version, (("t", ((partition, offset, metadata),)),), **others)


broker = a_broker("t", "u", partitions=80, scope="module")


int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.sampled_from([None, "", "", "x", "x" * 4096, "x" * 4097])
indices = st.sampled_from([0, 0, 1, 79, 80, -1, 2**31 - 1])


@st.composite
def topics(draw: st.DrawFn) -> tuple[str, tuple[Partition, ...]]:
    """One partition of any kind, several without metadata, or a mixture of these."""
    name = draw(st.sampled_from(["t", "t", "u", "missing", "__consumer_offsets"]))
    if draw(st.booleans()):
        count = draw(st.sampled_from([1, 3, 4, 80, 80, 81]))
        first, metadata = draw(int64), draw(st.sampled_from([None, ""]))
        offsets = [min(first + at, 2**63 - 1) for at in range(count)]
        return name, tuple((at, offset, metadata) for at, offset in enumerate(offsets))
    few = st.lists(st.tuples(indices, int64, texts), min_size=1, max_size=6)
    return name, tuple(draw(few))


requests = st.builds(
    Asked,
    st.sampled_from(VERSIONS),
    st.lists(topics(), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["alone", "other", "", "ï" * 200]),
    st.sampled_from([-1, -1, 0, 1]),
    st.sampled_from(["", "", "somebody"]),
    st.sampled_from([None, None, "static"]),
    st.sampled_from([-1, 0, 5, 2**63 - 1]),
    st.sampled_from([b"", b"", b"\0"]),
)


def stored(broker: RunningBroker, asked: Asked) -> list[Any]:
    """What is committed of the partitions of a request."""
    get = broker.broker.groups.offsets.get
    return [get(asked.group, name, each[0]) for name, its in asked.topics for each in its]


def logged(broker: RunningBroker, group: str) -> list[bytes]:
    """The records of the last batch of a group's partition of `__consumer_offsets`."""
    index = broker.broker.groups.transactions.partition_of(group)
    found = broker.broker.partitions.find("__consumer_offsets", index)
    batches: list[bytes] = []
    if found is not None:
        list(found.log.replay(lambda batch: batches.append(bytes(batch))))
    return [batch[HEADER_SIZE:] for batch in batches[-1:]]


@given(asked=requests)
def test_a_client_with_the_shortcut_gets_the_same_answers_and_commits_the_same(
    broker: RunningBroker, asked: Asked
) -> None:
    before = single(asked.version, 1, 1, "before", group=asked.group).frame(broker)
    results = []
    for shortcut in (False, True, False):  # the first one makes the group
        side = DispatchedClient(broker, shortcut=shortcut)
        side.give(before)
        answer = side.give(asked.frame(broker))
        results.append((answer, stored(broker, asked), logged(broker, asked.group)))
        side.close()
    assert results[1] == results[2]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("metadata", [None, "", "m"])
@pytest.mark.parametrize("count", [1, 80])
def test_a_commit_is_not_decoded(
    broker: RunningBroker,
    version: int,
    metadata: str | None,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = DispatchedClient(broker)
    without_decoding(monkeypatch)
    partitions = tuple((index, version + index, metadata) for index in range(count))
    asked = Asked(version, (("t", partitions), ("u", partitions)))
    assert isinstance(client.give(asked.frame(broker)), bytes)
    assert [row.committed for row in stored(broker, asked)] == [each[1] for each in partitions] * 2
    client.close()


def test_a_topic_that_is_gone_at_the_commits_turn_fails_alone(broker: RunningBroker) -> None:
    topics = broker.broker.topics
    broker.create_topic("gone", partitions=4)
    partitions = tuple((index, 5, "") for index in range(4))
    answers = []
    for shortcut in (True, False):
        its = ("t", partitions), ("gone", partitions), ("u", partitions[:1])
        asked = Asked(9, its, group=f"gone-{shortcut}")
        client, frame = DispatchedClient(broker, shortcut=shortcut), asked.frame(broker)
        gone = topics.named("gone")
        answers.append(broker.run(without_topic(broker, client, frame, asked.group)))
        topics.put(gone)
        committed = [row and row.committed for row in stored(broker, asked)]
        assert committed == [5] * 4 + [None] * 4 + [5]
        client.close()
    assert answers[0] == answers[1]


async def without_topic(
    broker: RunningBroker, client: DispatchedClient, frame: bytes, group: str
) -> bytes:
    """The answer to a commit that waits in its group's queue while a topic is deleted."""
    written: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    queue = broker.broker.groups._groups.entry(group).queue
    write, queue._write = queue._write, lambda changes: written
    first = queue.run(lambda: Decided(None, GroupChange()), exclusive=True)
    answer = client.dispatcher(frame, client.peer)
    assert isinstance(answer, asyncio.Future)
    await asyncio.sleep(0)
    broker.broker.topics.remove("gone")
    queue._write = write
    written.set_result([None])
    await first
    return b"".join(map(bytes, await answer or ()))


def test_a_commit_is_authorised_as_any_other(broker: RunningBroker) -> None:
    def authorise(peer: Peer, key: ApiKey) -> None:
        raise Hangup("You may no longer")

    client = DispatchedClient(broker, authorise=authorise)
    asked = single(9, group="refused")
    assert client.give(asked.frame(broker)) == "Hangup: You may no longer"
    assert stored(broker, asked) == [None]
    client.close()
