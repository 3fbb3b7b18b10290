"""Random histories of a metadata log, with kills and full disks, against what was acknowledged."""

from __future__ import annotations

import errno
from typing import Any
from uuid import UUID

import pytest
from faultyfiles import FaultyFiles, Killed
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import StorageFailed
from horolog.metadata import TOPIC, MetadataLog
from horolog.schemas import metadata as m
from horolog.schemas.metadata import METADATA_VERSION, Record

NOW = 1_700_000_000_000
DAY = 86_400_000
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["make", "remove", "set", "snapshot", "reopen"]),
        st.integers(0, 3),
        st.none() | st.tuples(st.integers(0, 30), st.sampled_from(["kill", "full"])),
        st.integers(0, 40),
    ),
    min_size=1,
    max_size=25,
)


def records_for(what: str, number: int, log: MetadataLog, made: int) -> list[Record]:
    name = f"topic-{number}"
    known = log.image.topics.get(name)
    if what == "make" and known is None:
        topic_id = UUID(int=1000 + made)
        return [
            m.TopicRecord(name, topic_id),
            m.PartitionRecord(0, topic_id, (1,), (1,), (), (), 1, 0, 0, 0, (UUID(int=9),)),
        ]
    if what == "remove" and known is not None:
        return [m.RemoveTopic(known.topic_id)]
    return [m.Config(TOPIC, name, "retention.ms", str(made))]


@given(STEPS)
def test_every_acknowledged_change_and_no_half_of_another_is_there(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    path = str(tmp_path_factory.mktemp("log"))
    files = FaultyFiles(None)
    now = NOW

    def opened() -> MetadataLog:
        return MetadataLog.open(files, path, node_id=1, snapshot_bytes=3000)

    log = opened()
    log.append([m.FeatureLevel(METADATA_VERSION, 30)], now)
    acknowledged = set(log.image.records())
    for made, (what, number, fault, days) in enumerate(steps):
        now += days * DAY
        if fault is not None:
            files.fail_after(fault[0], Killed() if fault[1] == "kill" else NO_SPACE)
        possible = [acknowledged]
        try:
            if what == "reopen":
                log.close()
                log = opened()
            elif what == "snapshot":
                log.snapshot(now)
            else:
                records = records_for(what, number, log, made)
                after = opened().image
                for record in records:
                    after.apply(record)
                possible.append(set(after.records()))
                log.append(records, now)
                possible = possible[1:]
        except StorageFailed:
            files.heal()
            assert set(log.image.records()) == acknowledged
            possible = possible[:1]
        except Killed:
            files = FaultyFiles(None)
            log = opened()
        files.heal()
        found = opened()
        assert found.damage == ()
        assert set(found.image.records()) in possible
        acknowledged = set(found.image.records())
        assert found.next_offset in (log.next_offset, log.next_offset + 1)  # begins an epoch
        assert set(log.image.records()) == acknowledged
