"""Commits that a client sends again with other offsets: nothing of them is read again."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import Any

import pytest
from commit_requests import VERSIONS, Asked, logged, requests, single, stored
from dispatched_client import DispatchedClient
from examples import examples
from faulty_calls import full_disk
from hypothesis import given
from hypothesis import strategies as st
from overrides import override
from patience import eventually
from running_broker import RunningBroker, a_broker

from horolog.broker import GroupDecision, RepeatedCommit
from horolog.errors import ErrorCode
from horolog.groups import GroupChange, Join, OffsetRow, PendingRow, Protocol, Sync
from horolog.network import Hangup, Peer
from horolog.wire import ApiKey, decode_request

broker = a_broker(
    "t",
    "u",
    partitions=80,
    scope="module",
    **{"group.initial.rebalance.delay.ms": "0"},
)


def committing(
    broker: RunningBroker, asked: Asked, *, shortcut: bool = True, times: int = 3
) -> DispatchedClient:
    """A client that has committed a few times."""
    client = DispatchedClient(broker, shortcut=shortcut)
    for number in range(times):
        client.give(asked.frame(broker, number))
    return client


def is_kept(client: DispatchedClient) -> bool:
    return isinstance(client.peer.last_commit, RepeatedCommit)


def with_offsets(asked: Asked, offset: int) -> Asked:
    """The same request with other offsets, one after the other."""
    topics = []
    for name, partitions in asked.topics:
        its = []
        for index, _, metadata in partitions:
            its.append((index, offset, metadata))
            offset += 1
        topics.append((name, tuple(its)))
    return asked._replace(topics=tuple(topics))


def error_of(answer: Any, version: int = 9) -> int:
    """The error of a single partition."""
    assert isinstance(answer, bytes)
    tags = 3 if version >= 8 else 0
    return int.from_bytes(answer[len(answer) - tags - 2 : len(answer) - tags], "big", signed=True)


@examples(1)
@given(asked=requests, offsets=st.lists(st.integers(-(2**63), 2**62), max_size=3))
def test_a_commit_that_is_sent_again_is_answered_and_committed_as_any_other(
    broker: RunningBroker, asked: Asked, offsets: list[int]
) -> None:
    results = []
    for shortcut in (False, True, False):  # the first one makes the group
        client = committing(broker, asked, shortcut=shortcut)
        seen = []
        for correlation_id, offset in enumerate(offsets, -3):
            frame = with_offsets(asked, offset).frame(broker, correlation_id)
            answer = client.give(frame)
            seen.append((answer, stored(broker, asked), logged(broker, asked.group)))
        results.append([*map(_without_times, seen)])
        client.close()
    assert results[1] == results[2]


def _without_times(seen: tuple[Any, list[Any], list[bytes]]) -> tuple[Any, ...]:
    answer, rows, batches = seen
    times = {row.commit_ms.to_bytes(8, "big") for row in rows if row is not None}
    for time in times:
        batches = [batch.replace(time, bytes(8)) for batch in batches]
    return answer, [row and row._replace(commit_ms=0) for row in rows], batches


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("metadata", [None, ""])
@pytest.mark.parametrize("count", [1, 4, 80])
def test_the_third_commit_of_the_same_partitions_is_not_read(
    broker: RunningBroker,
    version: int,
    metadata: str | None,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partitions = tuple((index, 1, metadata) for index in range(count))
    asked = Asked(version, (("t", partitions), ("u", partitions[:1])))
    client = committing(broker, asked)
    assert is_kept(client)
    before = stored(broker, asked)
    decoded = []

    def decode(*given: Any) -> Any:
        decoded.append(given)
        return decode_request(*given)

    override(monkeypatch, "horolog.broker", decode_request=decode)
    offsets = 2**40, -1, 2**63 - 100
    answers = []
    for offset in offsets:
        again = with_offsets(asked, offset)
        answers.append(client.give(again.frame(broker, offset & 0x7FFF)))
        expected = [each[1] for _, its in again.topics for each in its]
        assert [row.committed for row in stored(broker, asked)] == expected
        assert {row.leader_epoch for row in stored(broker, asked)} == {3 if version >= 6 else -1}
    assert len(decoded) <= 1, (
        "where one before has waited for the disk, the group may be busy still"
    )
    plain = DispatchedClient(broker, shortcut=False)
    for offset, answer in zip(offsets, answers, strict=True):
        again = with_offsets(asked, offset)
        assert answer == plain.give(again.frame(broker, offset & 0x7FFF))
    assert before != stored(broker, asked)
    client.close()
    plain.close()


@given(
    st.sampled_from(VERSIONS),
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_other_bytes_are_read_as_any_other_request(
    broker: RunningBroker, version: int, count: int, changes: list[tuple[int, int]]
) -> None:
    """Whatever a client changes in the request that it sends again."""
    asked = Asked(version, (("t", tuple((index, 7, "") for index in range(count))),))
    frame = bytearray(asked.frame(broker))
    for at, byte in changes:
        frame[at % len(frame)] = byte
    frame[:2] = ApiKey.OFFSET_COMMIT.to_bytes(2, "big")
    answers = []
    for shortcut in (True, False):
        client = committing(broker, asked, shortcut=shortcut)
        assert is_kept(client)
        answers.append((client.give(bytes(frame)), stored(broker, asked)))
        client.close()
    rows = [[row and row._replace(commit_ms=0) for row in its] for _, its in answers]
    assert (answers[0][0], rows[0]) == (answers[1][0], rows[1])


@pytest.mark.parametrize(
    "asked",
    [
        single(9, metadata="m", group="plain"),
        single(4, metadata="", group="plain", retention_ms=5),
        single(9, partition=99, metadata="", group="plain"),
        single(9, metadata="", group="plain", trailing=b"\0"),
    ],
)
def test_others_are_not_kept(broker: RunningBroker, asked: Asked) -> None:
    client = committing(broker, asked, times=4)
    assert not is_kept(client)
    client.close()


def test_other_partitions_are_kept_in_place_of_the_first(broker: RunningBroker) -> None:
    client = committing(broker, single(9, metadata="", group="moves"))
    for number in range(4):
        asked = single(9, 1, 20 + number, "", group="moves")
        client.give(asked.frame(broker))
        assert [row.committed for row in stored(broker, asked)] == [20 + number]
        assert is_kept(client) is (number > 0)
    client.close()


def test_a_member_of_another_generation_is_fenced(broker: RunningBroker) -> None:
    groups = broker.broker.groups

    async def join(member_id: str = "") -> tuple[str, int]:
        joining = Join(
            member_id=member_id,
            protocol_type="consumer",
            protocols=(Protocol("range", b""),),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
        )
        joined = await groups.join("fenced", joining)
        sync = Sync(
            member_id=joined.member_id,
            generation=joined.generation,
            assignments=((joined.member_id, b""),),
        )
        await groups.sync("fenced", sync)
        return joined.member_id, joined.generation

    member, generation = broker.run(join())
    asked = single(9, 0, 7, "", group="fenced", member=member, generation=generation)
    client = committing(broker, asked)
    assert is_kept(client)
    broker.run(join(member))
    again = with_offsets(asked, 8).frame(broker)
    assert error_of(client.give(again)) == ErrorCode.illegal_generation
    assert [row.committed for row in stored(broker, asked)] == [7]
    broker.run(groups.leave("fenced", [(member, None)]))
    assert error_of(client.give(again)) == ErrorCode.unknown_member_id
    client.close()


def test_a_topic_that_is_made_again_is_looked_for(broker: RunningBroker) -> None:
    broker.create_topic("again", partitions=2)
    asked = Asked(9, (("again", ((1, 5, ""),)),), "of again")
    client = committing(broker, asked)
    assert is_kept(client)
    broker.run(broker.broker.controller.delete_topic(broker.broker.topics.named("again")))
    assert error_of(client.give(asked.frame(broker))) == ErrorCode.unknown_topic_or_partition
    broker.create_topic("again", partitions=1)
    assert error_of(client.give(asked.frame(broker))) == ErrorCode.unknown_topic_or_partition
    assert stored(broker, asked) == [None]
    client.close()


def test_a_group_that_is_deleted_is_made_again(broker: RunningBroker) -> None:
    asked = single(9, 0, 7, "", group="deleted")
    client = committing(broker, asked)
    broker.run(broker.broker.groups.delete("deleted"))
    assert stored(broker, asked) == [None]
    assert error_of(client.give(with_offsets(asked, 9).frame(broker))) == 0
    assert [row.committed for row in stored(broker, asked)] == [9]
    assert broker.call(lambda: broker.broker.groups.describe("deleted")) is not None
    client.close()


def test_a_commit_waits_for_what_its_group_writes(broker: RunningBroker) -> None:
    asked = single(9, 0, 7, "", group="queued")
    client = committing(broker, asked)

    async def behind_another() -> tuple[bool, bytes]:
        queue = broker.broker.groups._groups.entry("queued").queue
        written: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        write, queue._write = queue._write, lambda changes: written
        first = queue.run(lambda: GroupDecision(None, GroupChange()), exclusive=True)
        reply: Any = client.dispatcher(with_offsets(asked, 8).frame(broker), client.peer)
        await asyncio.sleep(0)
        waited = not reply.done() and stored_now()[0] == 7
        queue._write = write
        written.set_result([None])
        await first
        return waited, b"".join(await reply)

    def stored_now() -> list[int]:
        return [row.committed for row in stored(broker, asked)]

    waited, answer = broker.run(behind_another())
    assert waited
    assert error_of(answer) == 0
    assert stored_now() == [8]
    client.close()


def test_an_offset_that_is_pending_never_counts_after_a_later_commit(broker: RunningBroker) -> None:
    asked = single(9, 0, 7, "", group="pending")
    client = committing(broker, asked)
    offsets = broker.broker.groups.offsets
    row = OffsetRow("pending", "t", 0, 100, -1, "", 5)

    def is_ended(group: str) -> bool:
        return group == "pending"

    client.give(with_offsets(asked, 8).frame(broker))
    broker.call(lambda: offsets.pending.put(PendingRow(77, row)))
    client.give(with_offsets(asked, 9).frame(broker))
    broker.call(lambda: list(offsets.end_transaction(77, is_ended, commit=True)))
    assert [each.committed for each in stored(broker, asked)] == [9]
    client.give(with_offsets(asked, 10).frame(broker))
    broker.call(lambda: offsets.pending.put(PendingRow(77, row)))
    broker.call(lambda: list(offsets.end_transaction(77, is_ended, commit=True)))
    assert [each.committed for each in stored(broker, asked)] == [100]
    client.close()


def test_a_disk_that_refuses_fails_the_commit_and_nothing_is_committed(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = single(9, 0, 7, "", group="refused by the disk")
    client = committing(broker, asked)
    assert is_kept(client)
    log = broker.log("__consumer_offsets", broker.broker.offsets_log.partition_of(asked.group))
    end = log.log_end_offset
    with monkeypatch.context() as patch:
        full_disk(patch)
        answer = client.give(with_offsets(asked, 8).frame(broker, 77))
    assert error_of(answer) == ErrorCode.not_coordinator
    assert isinstance(answer, bytes)
    assert int.from_bytes(answer[4:8], "big") == 77
    assert (log.log_end_offset, [row.committed for row in stored(broker, asked)]) == (end, [7])
    assert error_of(client.give(with_offsets(asked, 8).frame(broker))) == 0
    assert [row.committed for row in stored(broker, asked)] == [8]
    client.close()


def test_a_commit_that_no_segment_holds_is_refused_as_any_other(broker: RunningBroker) -> None:
    partitions = tuple((index, 7, "") for index in range(40))
    asked = Asked(9, (("t", partitions),), group="larger than a segment")
    client = committing(broker, asked)
    assert is_kept(client)
    logs = [broker.log("__consumer_offsets", index) for index in range(50)]
    before = logs[0].config
    for log in logs:
        log.config = replace(before, segment_bytes=1_000)
    again, plain = with_offsets(asked, 100), DispatchedClient(broker, shortcut=False)
    answers = [one.give(again.frame(broker, 5)) for one in (client, plain)]
    for log in logs:
        log.config = before
    assert answers[0] == answers[1]
    code = ErrorCode.invalid_commit_offset_size
    assert isinstance(answers[0], bytes)
    assert answers[0].count(code.to_bytes(2, "big") + b"\0") == len(partitions)
    assert [row.committed for row in stored(broker, asked)] == [7] * len(partitions)
    assert client.give(again.frame(broker, 5)) != answers[0]
    assert [row.committed for row in stored(broker, asked)] == list(range(100, 140))
    client.close()
    plain.close()


def test_a_client_that_may_no_longer_is_refused(broker: RunningBroker) -> None:
    may = True

    def authorise(peer: Peer, key: ApiKey) -> None:
        if not may:
            raise Hangup("You may no longer")

    client = DispatchedClient(broker, authorise=authorise)
    asked = single(9, 0, 7, "", group="authorised")
    for _ in range(3):
        client.give(asked.frame(broker))
    assert is_kept(client)
    may = False
    assert client.give(with_offsets(asked, 8).frame(broker)) == "Hangup: You may no longer"
    assert [row.committed for row in stored(broker, asked)] == [7]
    client.close()


def test_what_is_kept_is_bounded_and_goes_with_its_client(broker: RunningBroker) -> None:
    kept = broker.broker.kept_commits
    gc.collect()  # those of other tests' clients
    before = kept.used_bytes
    asked = single(9, 0, 7, "", group="bounded")
    client = committing(broker, asked)
    assert before < kept.used_bytes < before + 10_000
    most, kept.most_bytes = kept.most_bytes, kept.used_bytes
    other = committing(broker, asked, times=5)
    assert not is_kept(other)
    kept.most_bytes = most
    client.peer.leave()
    assert kept.used_bytes == before
    client.close()
    other.close()


def test_a_restart_has_what_was_committed_again(broker: RunningBroker) -> None:
    asked = Asked(9, (("t", tuple((index, 0, "") for index in range(80))),), "restarted")
    client = committing(broker, asked)
    again = with_offsets(asked, 500)
    client.give(again.frame(broker))
    client.close()
    broker.restart(crash=True)
    assert eventually(lambda: not broker.broker.groups.is_loading)
    assert [row.committed for row in stored(broker, asked)] == list(range(500, 580))
