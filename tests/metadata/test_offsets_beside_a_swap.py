"""What groups have committed, in a directory whose segments are being replaced."""

from __future__ import annotations

from pathlib import Path

from compacting import put
from storelogs import NOW
from swapped import end_swap, states

from horolog.history import AskGroupHistory
from horolog.metadata import read_consumer_offsets, read_group_history
from horolog.schemas.offsets import CommittedValue, OffsetKey, committed_bytes, key_bytes
from horolog.storage import CONSUMER_OFFSETS, Files, Log, TopicPartition

PARTITION = TopicPartition(CONSUMER_OFFSETS, 0)


def commit(log: Log) -> None:
    """A commit of partition 0 now and then, many of partition 1, one of each other one."""
    for n in range(30):
        partition = (0, 1, 1, 1, n + 2)[n % 5]
        value = committed_bytes(CommittedValue(n, commit_ms=NOW + n))
        put(log, key_bytes(OffsetKey("g", "t", partition)), value=value, at=NOW + n)


def test_offsets_of_a_kafka_are_those_before_a_swap_or_after_it(tmp_path: Path) -> None:
    for path, _ in states(tmp_path, commit, PARTITION, every=5):
        found = read_consumer_offsets(Files(read_only=True), path)
        end_swap(path, PARTITION)
        assert found == read_consumer_offsets(Files(read_only=True), path), path
        assert found.of_topics["t"]["g", 1] == 28


def test_the_history_of_a_group_is_that_before_a_swap_or_after_it(tmp_path: Path) -> None:
    for path, _ in states(tmp_path, commit, PARTITION, every=5):
        found = read_group_history(path, "g", AskGroupHistory())
        end_swap(path, PARTITION)
        assert found == read_group_history(path, "g", AskGroupHistory()), path
