"""What a pass leaves: tombstones, transactions, producers, formats, times, and the map's bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import crc32c
import pytest
from batches import marker
from compacting import COMPACT, check_lookups, clean, faults, put
from examples import some_of
from old_messages import build_messages
from overrides import override
from storelogs import NOW, new_follower, new_log, pull, records_in, reopened

from horolog.config import LONG_MAX
from horolog.errors import CorruptBatch
from horolog.record import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    AppendTimeStretch,
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    cleaning,
    cleaning_kernels,
    iter_headers,
    parse_header,
    with_records,
)
from horolog.storage import Cleaning, KeyMap, Log, names

HOUR = 3_600_000


def held(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(one.offset or 0, one.key, one.value) for one in records_in(log)]


def finish(log: Log, now: int = NOW) -> None:
    """A segment that another record keeps from being the last one."""
    log.roll(now)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_tombstone_goes_once_its_horizon_is_over_and_not_before(
    tmp_path: Path, codec: Codec
) -> None:
    config = replace(COMPACT, delete_retention_ms=HOUR)
    with new_log(tmp_path, config) as log:
        put(log, b"k", value=b"v", codec=codec)
        put(log, b"k", value=None, codec=codec)
        put(log, b"other", value=b"v", codec=codec)
        finish(log)
        clean(log, NOW)
        assert held(log) == [(1, b"k", None), (2, b"other", b"v")]
        times = [one.timestamp for one in records_in(log)]
        assert times == [NOW, NOW], "deltas count from the horizon"
        for later, is_there in ((HOUR - 1, True), (HOUR, False)):
            put(log, b"other", value=b"v", codec=codec)
            finish(log)
            clean(log, NOW + later)
            assert ((1, b"k", None) in held(log)) is is_there, later


def test_records_of_aborted_transactions_go_and_their_markers_later(tmp_path: Path) -> None:
    config = replace(COMPACT, delete_retention_ms=HOUR)

    def sent(offset: int, producer: int, sequence: int, *, value: bytes = b"v") -> bytes:
        return build_batch(
            [LogRecord(NOW + offset, b"k%d" % producer, value)],
            base_offset=offset,
            is_transactional=True,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )

    with new_follower(tmp_path, config) as log:
        pull(log, sent(0, 7, 0, value=b"old"), marker(1, 7, kind=1))
        pull(log, sent(2, 7, 1, value=b"aborted"), marker(3, 7, kind=0))
        pull(log, sent(4, 9, 0), marker(5, 9, kind=1))
        log.roll(NOW)
        pull(log, build_batch([LogRecord(NOW, b"z", b"v")], base_offset=6))
        log.roll(NOW)
        clean(log, NOW)
        values = [value for _, key, value in held(log) if key in (b"k7", b"k9", b"z")]
        assert values == [b"old", b"v", b"v"], "the aborted record was not the latest"
        assert [e.last_offset for e in log.look().aborted_transactions(0, 7)] == [3]
        for at in (7, 8, 9):
            pull(log, build_batch([LogRecord(NOW, b"z", b"v")], base_offset=at))
            log.roll(NOW)
            clean(log, NOW + at * HOUR)
        assert (b"old" in [value for _, _, value in held(log)]) is True
        offsets = [h.base_offset for s in log.segments for _, h in s.headers(0, s.size)]
        assert 0 in offsets
        assert 4 in offsets
        assert log.last_stable_offset == 10


def test_what_a_producer_commits_counts_though_it_has_aborted_before(tmp_path: Path) -> None:
    def sent(offset: int, sequence: int, key: bytes, value: bytes | None) -> bytes:
        return build_batch(
            [LogRecord(NOW, key, value)],
            base_offset=offset,
            is_transactional=True,
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
        )

    def end_segment(log: Log, offset: int) -> None:
        log.roll(NOW)
        pull(log, build_batch([LogRecord(NOW, b"z", b"v")], base_offset=offset))
        log.roll(NOW)

    with new_follower(tmp_path, replace(COMPACT, delete_retention_ms=HOUR)) as log:
        pull(log, build_batch([LogRecord(NOW, b"k", b"deleted")], base_offset=0))
        pull(log, sent(1, 0, b"x", b"aborted"), marker(2, 7, kind=0))
        end_segment(log, 3)
        clean(log, NOW)
        assert [e.last_offset for e in log.look().aborted_transactions(0, 4)] == [2]
        pull(log, sent(4, 1, b"k", None), marker(5, 7, kind=1))
        end_segment(log, 6)
        for later in (1, 2 * HOUR):
            clean(log, NOW + later)
            assert b"deleted" not in [value for _, _, value in held(log)], later
            end_segment(log, 6 + later)


def test_the_last_batch_of_a_producer_stays_empty(tmp_path: Path) -> None:
    with new_log(tmp_path, COMPACT) as log:
        more = {"producer_id": 5, "producer_epoch": 1}
        put(log, b"k", base_sequence=0, **more)
        put(log, b"k", base_sequence=1, **more)
        put(log, b"k")
        finish(log)
        clean(log)
        headers = [h for s in log.segments[:-1] for _, h in s.headers(0, s.size)]
        assert [(h.base_offset, h.records_count, h.producer_id) for h in headers] == [
            (1, 0, 5),
            (2, 1, -1),
        ]


@pytest.mark.parametrize("together", [False, True])
def test_an_empty_batch_that_kafka_has_left_has_no_time_any_more(
    tmp_path: Path, together: bool
) -> None:
    cleaning.load_kernels()
    of_producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    sent = build_batch(
        [LogRecord(NOW + 999, b"k", b"v")], base_offset=1, leader_epoch=0, **of_producer
    )
    header = parse_header(sent)._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD, base_timestamp=NO_TIMESTAMP, records_count=0
    )
    codec = Codec.NONE if together else Codec.LZ4  # others are cleaned one by one
    with new_follower(tmp_path, replace(COMPACT, segment_bytes=10_000)) as log:
        for offset, data in enumerate((None, with_records(header, b""), None)):
            record = LogRecord(NOW + offset, b"%d" % offset, b"v")
            more: dict[str, Any] = {"base_offset": offset, "leader_epoch": 0, "codec": codec}
            pull(log, data or build_batch([record], **more))
        log.roll(NOW)
        pull(log, build_batch([LogRecord(NOW, b"0", b"v")], base_offset=3, leader_epoch=0))
        assert clean(log, NOW) is not None
        first, *_ = log.segments
        headers = [header for _, header in first.headers(0, first.size)]
        assert [(each.base_offset, each.max_timestamp) for each in headers] == [
            (0, NOW),
            (1, NO_TIMESTAMP),
            (2, NOW + 2),
        ]
        assert headers[1].producer_id == 7
        check_lookups(log)
    assert not faults(tmp_path)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_formats_v0_and_v1_are_cleaned_as_they_are(
    tmp_path: Path, magic: int, codec: Codec
) -> None:
    def messages(first: int, keys: Sequence[bytes]) -> bytes:
        records = [
            LogRecord(NOW + first + at, key, b"%d" % (first + at), offset=first + at)
            for at, key in enumerate(keys)
        ]
        return bytes(build_messages(records, magic, codec=codec))

    with new_follower(tmp_path, replace(COMPACT, segment_bytes=10_000)) as log:
        for first in range(0, 40, 4):
            stamped = [AppendTimeStretch(first, NOW + 1000 * first)]
            pull(log, messages(first, (b"a", b"b", b"c", b"d")), append_times=stamped)
        log.roll(NOW)
        pull(log, messages(40, (b"a",)), append_times=[AppendTimeStretch(40, NOW + 40_000)])
        clean(log)
        found = [(offset, key, value) for offset, key, value in held(log)]
        assert found == [
            (36, b"a", b"36"),
            (37, b"b", b"37"),
            (38, b"c", b"38"),
            (39, b"d", b"39"),
            (40, b"a", b"40"),
        ]
        assert {h.magic for s in log.segments for _, h in s.headers(0, s.size)} == {magic}
        assert log.append_times(36, 41) == [
            AppendTimeStretch(36, NOW + 36_000),
            AppendTimeStretch(40, NOW + 40_000),
        ]
        if magic:
            at = log.find_by_timestamp(NOW + 37)
            assert at is not None
            assert at.offset == 37


def test_messages_of_v1_with_different_append_times_are_cleaned(tmp_path: Path) -> None:
    def message(offset: int, key: bytes) -> bytes:
        return build_messages(
            [LogRecord(NOW, key, b"v")],
            1,
            base_offset=offset,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            append_time=NOW + offset // 2,
        )

    with new_follower(tmp_path, COMPACT) as log:
        pull(log, b"".join(message(offset, b"k%d" % (offset % 3)) for offset in range(7)))
        log.roll(NOW)
        pull(log, build_batch([LogRecord(NOW, b"z", b"v")], base_offset=7))
        clean(log, NOW)
        assert [(one.offset, one.timestamp - NOW) for one in records_in(log)][:3] == [
            (4, 2),
            (5, 2),
            (6, 3),
        ]


def test_a_log_ends_where_it_did_though_its_last_records_go(tmp_path: Path) -> None:
    with new_log(tmp_path, replace(COMPACT, delete_retention_ms=0)) as log:
        put(log, b"k", value=None)
        finish(log)
        for step in range(3):
            clean(log, NOW + 10 * step)
            put(log, b"other", now=NOW + 10 * step)
            finish(log)
        assert log.log_start_offset == 0
        assert held(log)[0][0] > 0
        assert log.read(0, 1 << 20).size > 0


def test_a_lookup_by_append_time_passes_what_is_empty(tmp_path: Path) -> None:
    """What keeps the place of a segment, or of a producer, has the append time of what it was."""
    with new_log(tmp_path, COMPACT) as log:
        for at in range(7):
            put(log, b"a", now=NOW + at, value=b"v" * 60)
        clean(log)
        assert [each.base_offset for each in log.segments] == [0, 3, 6]
        assert [record.offset for record in records_in(log)] == [5, 6]
        for ms, offset in ((0, 5), (2, 5), (5, 5), (6, 6)):
            found = log.find_by_append_time(NOW + ms)
            assert found is not None
            assert (found.offset, found.ms) == (offset, NOW + offset)
        assert log.find_by_append_time(NOW + 7) is None


@pytest.mark.parametrize("preallocate", [False, True])
def test_segments_of_which_nothing_is_left_are_empty_files(
    tmp_path: Path, preallocate: bool
) -> None:
    config = replace(COMPACT, preallocate=preallocate)
    with new_log(tmp_path, config) as log:
        for at in range(24):
            put(log, b"a", at=NOW + at, now=NOW + at, value=b"v" * 60)
        clean(log)
        *emptied, last, active = log.segments
        assert len(emptied) > 3
        assert [(each.size, Path(each.log.path).stat().st_size) for each in emptied] == [
            (0, 0) for _ in emptied
        ]
        assert last.size > 0
        kept = list(range(active.base_offset - 1, 24))
        assert [record.offset for record in records_in(log)] == kept
    assert faults(tmp_path) == []
    for _ in ("killed", "closed"):
        with reopened(tmp_path, config) as (log_dir, log):
            assert [each.warnings for each in log_dir.recoveries if each.warnings] == []
            assert (log.log_start_offset, log.log_end_offset) == (0, 24)
            assert [each.size for each in log.segments[: len(emptied)]] == [0] * len(emptied)
            for offset in range(kept[0] + 1):
                header = parse_header(log.read(offset, 1 << 20).read())
                assert (header.base_offset, header.records_count) == (kept[0], 1)
            check_lookups(log)
            assert log.find_by_append_time(NOW) == log.find_by_append_time(NOW + kept[0])
            log_dir.close()
    with reopened(tmp_path, config) as (_, log):
        put(log, b"b", now=NOW + 20)
        log.roll(NOW)
        clean(log)
        assert len(log.segments) < len(emptied), "the next run joins them"
    assert faults(tmp_path) == []


@pytest.mark.parametrize("is_reset", [False, True])
def test_an_append_time_that_is_unknown_is_bounded_from_behind_what_is_empty(
    tmp_path: Path, is_reset: bool
) -> None:
    with new_log(tmp_path, COMPACT) as log:
        put(log, b"a", now=NOW, value=b"v" * 300)
        for at in range(1, 12):
            put(log, b"b", now=NOW + at, value=b"v" * 300)
        if is_reset:
            log.reset_append_time(NOW)
        for at in range(12, 16):
            put(log, b"b", now=NOW + at, value=b"v" * 300)
        clean(log)
        assert [each.size > 0 for each in log.segments][:3] == [True, False, False]
        first = Path(log.segments[0].log.path)
    first.with_suffix(".companion").unlink()
    with reopened(tmp_path, COMPACT) as (_, log):
        found = log.find_by_append_time(NOW + 15)
        assert found is not None
        assert (found.offset, found.ms) == ((0, None) if is_reset else (15, NOW + 15))


def test_append_times_of_both_sides_of_a_reset_stay_apart(tmp_path: Path) -> None:
    with new_log(tmp_path, replace(COMPACT, segment_bytes=1 << 20)) as log:
        put(log, b"a", now=NOW + 9 * HOUR)
        log.reset_append_time(NOW)
        put(log, b"b", now=NOW)
        finish(log)
        clean(log)
        assert [each.base_offset for each in log.segments] == [0, 1, 2]
        assert [each.ms for each in log.append_times(0, 2)] == [NOW + 9 * HOUR, NOW]
        assert [each.offset for each in log.floor.resets] == [1]


def test_a_map_knows_the_latest_offset_of_as_many_keys_as_fit() -> None:
    key_map = KeyMap(24 * 100, 0.5)
    assert key_map.capacity == 50
    assert len(key_map) == 0
    other = KeyMap(24 * 100, 0.5)
    assert key_map.secret.tolist() != other.secret.tolist(), "each pass has its own"


def test_batches_whose_records_all_stay_are_the_same_bytes(tmp_path: Path) -> None:
    with new_log(tmp_path, COMPACT) as log:
        for at in range(10):
            put(log, b"%d" % at, codec=Codec.LZ4)
        finish(log)
        before = b"".join(bytes(log.read(at, 1 << 20).read()) for at in (0,))
        sizes = [h.crc for _, h in iter_headers(before)]
        clean(log)
        after = bytes(log.read(0, 1 << 20).read())
        assert [h.crc for _, h in iter_headers(after)][: len(sizes)] == sizes


@pytest.mark.parametrize("bits", [0, 0x10, 0x30])
def test_a_batch_of_a_negative_number_of_records_is_damage(tmp_path: Path, bits: int) -> None:
    """Also a marker, or one of a transaction."""
    with new_log(tmp_path, COMPACT) as log:
        put(log, b"k")
        put(log, b"k")
        finish(log)
        path = Path(log.segments[0].log.path)
        data = bytearray(path.read_bytes())
        data[22] |= bits
        data[57:61] = (-1).to_bytes(4, signed=True)
        size = 12 + int.from_bytes(data[8:12])
        data[17:21] = crc32c.crc32c(bytes(data[CRC_START:size])).to_bytes(4)
        path.write_bytes(data)
        with pytest.raises(CorruptBatch, match="-1 records"):
            clean(log)
        assert path.read_bytes() == data


def test_what_was_chosen_is_left_alone_once_the_log_begins_elsewhere(tmp_path: Path) -> None:
    """The dirty part would begin before what the run has looked at."""
    both = replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=LONG_MAX)
    with new_log(tmp_path, both) as log:
        for _ in range(8):
            put(log, b"k", b"other", value=bytes(200))
        chosen = log.cleanable(NOW)
        assert chosen is not None
        assert chosen.dirty_bytes
        late = Cleaning(log, chosen, KeyMap(1 << 16), now_ms=lambda: NOW, monotonic_ms=lambda: 0)
        log.delete_records(4)
        assert list(late.steps(lambda call: call())) == []
        assert not late.run.is_whole
        assert clean(log) is not None


@pytest.mark.parametrize("seed", some_of(range(8), 3))
def test_small_batches_become_the_same_many_at_a_time_and_one_by_one(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among large and compressed ones, transactions, producers, tombstones, and no keys.

    With append times that are known, seen or unknown, and change often or not.
    """
    cleaning.load_kernels()

    def fill(log: Log) -> None:
        rng, offset, sequences = Random(seed), 0, dict.fromkeys(range(4), 0)
        ms, kind = NOW, 0.5
        for _ in range(160):
            keys = [b"%d" % rng.randrange(12) for _ in range(rng.choice((1, 1, 1, 2, 5)))]
            records = [
                LogRecord(NOW + offset, key, None if rng.random() < 0.2 else b"v" * 9)
                for key in keys
            ]
            if rng.random() < 0.1:
                records = [record._replace(key=None) for record in records]
            more: dict[str, Any] = {}
            if rng.random() < 0.4:
                producer = rng.randrange(4)
                more = {"producer_id": producer, "producer_epoch": 0}
                more["base_sequence"] = sequences[producer]
                more["is_transactional"] = producer == 3
                sequences[producer] += len(records)
            codec = Codec.LZ4 if rng.random() < 0.1 else Codec.NONE
            ms += rng.choice((0, 0, 1, 70))
            kind = rng.random() if rng.random() < 0.1 else kind
            time = AppendTimeStretch(offset, None if kind < 0.2 else ms, kind > 0.8)
            batch = build_batch(records, base_offset=offset, codec=codec, **more)
            pull(log, batch, append_times=[time])
            offset += len(records) + rng.choice((0, 0, 3))
            if more.get("is_transactional"):
                pull(log, marker(offset, 3, kind=rng.randrange(2)))
                offset += 1
            if rng.random() < 0.05:
                log.roll(NOW)
        log.roll(NOW)
        pull(log, build_batch([LogRecord(NOW, b"z", b"v")], base_offset=offset))

    found = []
    for most in (cleaning_kernels.SMALL_BYTES, 0):
        override(monkeypatch, "horolog.record", SMALL_BYTES=most)
        config = replace(COMPACT, segment_bytes=4000)
        with new_follower(tmp_path / str(most), config) as log:
            fill(log)
            runs = [clean(log, NOW + at) for at in (0, 5000)]
            log.roll(NOW)
            pull(log, build_batch([LogRecord(NOW, b"1", b"v")], base_offset=log.log_end_offset))
            log.roll(NOW)
            runs.append(clean(log, NOW + 9000))
            kept = [run and (run.keys, run.records_before, run.records_after) for run in runs]
            files = [
                Path(each.path_of(suffix)).read_bytes()
                for each in log.segments[:-1]
                for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX, names.COMPANION)
                if each.size and Path(each.path_of(suffix)).exists()
            ]
            times = [log.append_times(at, at + 1) for at, _, _ in held(log)]
            found.append((kept, held(log), times, files))
    assert found[0] == found[1]
    assert len(found[0][1]) < 120
