"""OffsetCommit requests whose topics are deleted meanwhile, or that are not allowed."""

import asyncio
from typing import Any

from commit_requests import Asked, single, stored
from dispatched_client import DispatchedClient
from running_broker import RunningBroker, a_broker

from horolog.broker import GroupDecision
from horolog.groups import GroupChange
from horolog.network import Hangup, Peer
from horolog.wire import ApiKey, decode_response, parse_request_header

broker = a_broker("t", "u", partitions=80, scope="module")


def test_a_topic_that_is_gone_at_the_commits_turn_fails_alone(broker: RunningBroker) -> None:
    topics = broker.broker.topics
    broker.create_topic("gone", partitions=4)
    partitions = tuple((index, 5, "") for index in range(4))
    its = ("t", partitions), ("gone", partitions), ("u", partitions[:1])
    asked = Asked(9, its, group="gone")
    client, frame = DispatchedClient(broker), asked.frame(broker)
    gone = topics.named("gone")
    answer = broker.run(without_topic(broker, client, frame, asked.group))
    topics.put(gone)
    committed = [row and row.committed for row in stored(broker, asked)]
    assert committed == [5] * 4 + [None] * 4 + [5]
    header = parse_request_header(frame)
    response = decode_response(ApiKey.OFFSET_COMMIT, 9, answer, 9)
    assert header.correlation_id == int.from_bytes(answer[4:8], "big")
    codes = [[it.error_code for it in topic.partitions] for topic in response.topics]
    assert codes == [[0] * 4, [3] * 4, [0]]
    client.close()


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
