"""Transactions that no marker will end, as they count at a broker and at those that follow it."""

import shutil
from pathlib import Path

import pytest
from batches import batch
from following import batches_of, is_caught_up
from overrides import override
from patience import eventually
from promotion import Start
from running_broker import NOW_MS, RunningBroker

from golden import GOLDEN
from horolog.record import AbortedTransactions, iter_headers
from horolog.storage import TopicPartition

TOPIC = "transaction-open"


@pytest.fixture
def adopted(start: Start, tmp_path: Path) -> RunningBroker:
    """A broker that has a Kafka's log in which transactions were left open."""
    shutil.copytree(GOLDEN / "clean" / f"{TOPIC}-0", tmp_path / "a" / f"{TOPIC}-0")
    return start("a")


def committed_in(broker: RunningBroker) -> tuple[list[int], int]:
    """The batches that a consumer of committed records is given, and where it waits for more."""
    given: list[int] = []
    offset = 0
    while True:
        answer = broker.client.fetch(TOPIC, 0, offset, max_wait_ms=0, read_committed=True)
        drop, records = AbortedTransactions(answer.aborted).drop, memoryview(answer.records)
        if not records:
            return given, offset
        for position, header in iter_headers(records):
            if not drop(header, records[position : position + header.size]):
                given.append(header.base_offset)
            offset = header.next_offset


def soon(broker: RunningBroker, expected: tuple[list[int], int]) -> bool:
    return eventually(lambda: committed_in(broker) == expected)


def follows(broker: RunningBroker, source: RunningBroker) -> bool:
    return is_caught_up(broker, source, [(TOPIC, 0)])


def test_committed_records_are_read_on_at_every_follower_of_a_log_that_was_adopted(
    adopted: RunningBroker, start: Start
) -> None:
    expected = committed_in(adopted)
    everything = [offset for offset, _ in batches_of(adopted.client, TOPIC)]
    assert expected[0] != everything, "some are left open"
    assert expected[1] == adopted.log(TOPIC).log_end_offset
    near = start("b", adopted)
    far = start("c", near)
    for shadow in (near, far):
        assert follows(shadow, adopted)
        assert soon(shadow, expected)
    for shadow in (near, far):
        shadow.restart(crash=True)
        assert soon(shadow, expected)


def test_committed_records_are_read_on_after_a_promotion_and_a_demotion(
    adopted: RunningBroker, start: Start
) -> None:
    given, end = committed_in(adopted)
    shadow = start("b", adopted)
    assert follows(shadow, adopted)
    shadow.client.promote(None)
    shadow.produce(TOPIC, batch(NOW_MS))
    expected = ([*given, end, end + 1], end + 2)  # the marker of what was open, and the batch
    assert committed_in(shadow) == expected
    adopted.demote(shadow, TOPIC)
    assert soon(adopted, expected)


def test_a_commit_that_a_kafka_had_decided_on_counts_at_a_follower(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def committed(*_: object) -> dict[TopicPartition, frozenset[int]]:
        return {TopicPartition(TOPIC, 0): frozenset(range(1 << 10))}

    override(monkeypatch, "horolog.broker", committed_in=committed)
    shutil.copytree(GOLDEN / "clean" / f"{TOPIC}-0", tmp_path / "a" / f"{TOPIC}-0")
    adopted = start("a")
    everything = [offset for offset, _ in batches_of(adopted.client, TOPIC)]
    expected = committed_in(adopted)
    assert expected == (everything, adopted.log(TOPIC).log_end_offset)
    shadow = start("b", adopted)
    assert follows(shadow, adopted)
    assert soon(shadow, expected)
