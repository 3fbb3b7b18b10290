"""OffsetCommit requests with and without being decoded by their schema."""

import asyncio
from typing import Any

import pytest
from commit_requests import VERSIONS, Asked, logged, requests, single, stored
from dispatched_client import DispatchedClient, without_decoding
from hypothesis import given
from running_broker import RunningBroker, a_broker

from horolog.broker import GroupDecision
from horolog.groups.rows import GroupChange
from horolog.network import Hangup, Peer
from horolog.wire import ApiKey

broker = a_broker("t", "u", partitions=80, scope="module")


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
    first = queue.run(lambda: GroupDecision(None, GroupChange()), exclusive=True)
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
