"""A follower's append that may not block: what it appends, and that it has no effect otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from batches import batch, marker
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from storelogs import NOW, new_follower

from horolog.config import TopicConfig
from horolog.record import AppendTimeStretch
from horolog.storage import Log, Origin, SourceBatches, WouldBlock

SMALL = TopicConfig(segment_bytes=500, index_interval_bytes=0, retention_ms=-1)
PLAIN = TopicConfig(retention_ms=-1)


def at_once(log: Log, *batches: bytes, times: Iterable[AppendTimeStretch] = ()) -> None:
    source = SourceBatches(b"".join(batches), tuple(times))
    log.append(source, NOW, Origin.FOLLOWER, may_block=False)


def files_of(log: Log) -> dict[str, bytes]:
    """All files beside the log, without the room that is kept for more."""
    found = {path.name: path.read_bytes() for path in Path(log.directory).iterdir()}
    return {name: data.rstrip(b"\0") for name, data in found.items()}


def state_of(log: Log) -> tuple[object, ...]:
    return (
        log.log_end_offset,
        log.epochs.entries,
        log.floor.last,
        log.last_stable_offset,
        [segment.size for segment in log.segments],
        dict(log.producers).keys(),
    )


def test_batches_behind_others_are_appended_at_once(tmp_path: Path) -> None:
    with new_follower(tmp_path, PLAIN) as log:
        log.append(SourceBatches(batch(NOW, base_offset=0, leader_epoch=3)), NOW, Origin.FOLLOWER)
        for offset in range(1, 50, 2):
            at_once(
                log,
                batch(NOW, base_offset=offset, leader_epoch=3),
                batch(NOW + 1, base_offset=offset + 1, leader_epoch=3),
            )
        assert log.log_end_offset == 51


@pytest.mark.parametrize(
    ("config", "batches"),
    [
        (PLAIN, [batch(NOW, base_offset=1, leader_epoch=4)]),  # an epoch begins
        (SMALL, [batch(NOW, base_offset=1, leader_epoch=3, value=b"v" * 450)]),  # a segment does
        (
            PLAIN,
            [batch(NOW, base_offset=1, leader_epoch=3), marker(2, 9, kind=1, leader_epoch=3)],
        ),
        (TopicConfig(flush_messages=2), [batch(NOW, base_offset=1, leader_epoch=3)]),
    ],
    ids=["epoch", "roll", "marker", "flush"],
)
def test_what_may_wait_for_the_disk_has_no_effect(
    config: TopicConfig, batches: list[bytes], tmp_path: Path
) -> None:
    with new_follower(tmp_path, config) as log:
        with pytest.raises(WouldBlock):  # its files are not open yet
            at_once(log, batch(NOW, base_offset=0, leader_epoch=3))
        log.append(SourceBatches(batch(NOW, base_offset=0, leader_epoch=3)), NOW, Origin.FOLLOWER)
        before, files = state_of(log), files_of(log)
        with pytest.raises(WouldBlock):
            at_once(log, *batches)
        assert (state_of(log), files_of(log)) == (before, files)
        log.append(SourceBatches(b"".join(batches)), NOW, Origin.FOLLOWER)
        assert log.log_end_offset > 1


STEPS = st.lists(
    st.lists(
        st.tuples(
            st.integers(1, 3),  # records
            st.sampled_from([0, 0, 0, 1]),  # by how much the epoch grows
            st.sampled_from(["plain", "plain", "idempotent", "transactional", "commit", "abort"]),
            st.integers(-5, 20),  # by how much the append time does
            st.sampled_from([0, 0, 0, 5]),  # a gap
            st.sampled_from([10, 200]),
        ),
        min_size=1,
        max_size=4,
    ),
    max_size=15,
)


@given(STEPS, st.sampled_from([SMALL, PLAIN]), st.booleans())
@examples(4)
def test_the_log_is_the_same_as_if_all_was_appended_in_a_thread(
    steps: list[list[tuple[int, int, str, int, int, int]]],
    config: TopicConfig,
    has_times: bool,
) -> None:
    with (
        TemporaryDirectory() as one,
        TemporaryDirectory() as other,
        new_follower(Path(one), config) as quick,
        new_follower(Path(other), config) as patient,
    ):
        offset, epoch, append_ms, sequence = 0, 3, NOW, 0
        for step in steps:
            sent, times = b"", []
            for count, newer, kind, later, gap, size in step:
                offset, epoch, append_ms = offset + gap, epoch + newer, append_ms + later
                times.append(AppendTimeStretch(offset, append_ms))
                if kind in {"commit", "abort"}:
                    sent += marker(offset, 9, kind=int(kind == "commit"), leader_epoch=epoch)
                    offset += 1
                    continue
                more: dict[str, int | bool] = {}
                if kind != "plain":
                    more = {"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence}
                    more |= {"is_transactional": kind == "transactional"}
                    sequence += count
                sent += batch(
                    *[append_ms] * count,
                    value=b"v" * size,
                    base_offset=offset,
                    leader_epoch=epoch,
                    **more,
                )
                offset += count
            source = SourceBatches(sent, tuple(times) if has_times else ())
            before = state_of(quick)
            try:
                quick.append(source, NOW, Origin.FOLLOWER, may_block=False)
            except WouldBlock:
                assert state_of(quick) == before
                quick.append(source, NOW, Origin.FOLLOWER)
            patient.append(source, NOW, Origin.FOLLOWER)
            assert state_of(quick) == state_of(patient)
        for log in (quick, patient):
            log.roll(NOW)
            log.finish()
        assert files_of(quick) == files_of(patient)
