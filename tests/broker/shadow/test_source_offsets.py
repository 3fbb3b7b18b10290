"""Offsets of a source's groups, read from its `__consumer_offsets` while that changes here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from storelogs import NOW, new_follower, pull

from horolog.broker import Catalogue, SourceOffsets
from horolog.groups import GroupChange, records_of
from horolog.record import LogRecord, build_batch
from horolog.schemas.group_records import GroupEpochKey, GroupEpochValue
from horolog.schemas.offsets import CommittedValue, OffsetKey, committed_bytes, key_bytes
from horolog.storage import Log


def commit(at: int, group: str, offset: int) -> bytes:
    """A commit in the source's log at an offset."""
    value = committed_bytes(CommittedValue(offset, commit_ms=NOW))
    record = LogRecord(NOW, key_bytes(OffsetKey(group, "t", 0)), value)
    return build_batch([record], base_offset=at, leader_epoch=1)


class Shadow:
    """What `SourceOffsets` asks of a broker: one partition, and where commits go."""

    def __init__(self, log: Log) -> None:
        self.log: Any = log
        self.is_closed = False
        self.is_followed = self.has_caught_up = True
        self.taken: list[dict[str, int | None]] = []
        self.after_reading: Callable[[], object] = lambda: None
        whole: Any = self
        self.offsets = SourceOffsets(
            Catalogue(
                whole,
                whole,
                SimpleNamespace(find=lambda _: SimpleNamespace(partitions=(0,), followed=True)),  # type: ignore[arg-type]
                SimpleNamespace(find=lambda *_: whole),  # type: ignore[arg-type]
                whole,
            ),
            SimpleNamespace(has_caught_up=lambda _: self.has_caught_up),  # type: ignore[arg-type]
            whole,
        )

    expired = 0

    def topic_ids(self) -> dict[str, None]:
        self.after_reading()
        return {}

    def source_ids(self) -> dict[str, None]:
        return {}

    async def take(self, changes: Any, topics: Any, *, closing: bool) -> set[str]:
        its = {
            group: None if offset is None else offset.offset
            for group, changed in changes.items()
            for offset in changed.values()
        }
        self.taken.append(its)
        return set()

    def apply(self) -> dict[str, int | None]:
        """What is committed here."""
        asyncio.run(self.offsets.apply())
        return self.taken.pop()


def test_a_history_that_ends_after_it_was_read_counts_once_all_of_it_is_read(
    tmp_path: Path,
) -> None:
    with new_follower(tmp_path) as log:
        shadow = Shadow(log)
        shadow.has_caught_up = False
        pull(log, commit(0, "g", 5))

        def rest_comes() -> None:
            pull(log, commit(log.log_end_offset, "g", 9))
            shadow.has_caught_up = True

        shadow.after_reading = rest_comes
        assert shadow.apply() == {}
        shadow.after_reading = lambda: None
        assert shadow.apply() == {"g": 9}


def test_what_was_read_on_both_sides_of_a_truncation_does_not_count(tmp_path: Path) -> None:
    with new_follower(tmp_path) as log:
        shadow = Shadow(log)
        pull(log, *(commit(at, f"g{at}", at) for at in range(10)))

        class CutBesideTheRead:
            """The log, which is cut and grows again once its last batch is read."""

            def __getattr__(self, name: str) -> Any:
                return getattr(log, name)

            def read(self, offset: int, size: int) -> Any:
                found = log.read(offset, size)
                data = found.read()
                shadow.log = log
                log.truncate_to(5, NOW)
                pull(log, *(commit(at, f"other{at}", at) for at in range(5, 15)))
                return SimpleNamespace(read=lambda: data)

        shadow.log = CutBesideTheRead()
        assert shadow.apply() == {}
        expected = {f"g{at}": at for at in range(5)} | {f"other{at}": at for at in range(5, 15)}
        assert shadow.apply() == expected


def test_members_of_consumer_groups_at_the_source_are_left_out(tmp_path: Path) -> None:
    change = GroupChange(records=[(GroupEpochKey("g"), GroupEpochValue(2))])
    with new_follower(tmp_path) as log:
        shadow = Shadow(log)
        joined = build_batch(records_of(change, NOW), base_offset=0, leader_epoch=1)
        pull(log, joined, commit(1, "g", 5))
        assert shadow.apply() == {"g": 5}
        assert shadow.apply() == {}
