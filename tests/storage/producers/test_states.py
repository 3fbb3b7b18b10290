from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import crc32c
import pytest
from batches import batch, marker
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from storelogs import NOW, append, new_log, partition_dir, reopened, snapshot_of

from horolog.config import TopicConfig
from horolog.errors import CorruptFile, ErrorCode, RequestRefused
from horolog.record import BatchHeader, TimestampType, parse_header
from horolog.storage import NO_END, Files, LastEnd, Producers, Unended, WrittenBatch, first_unread

LAST_SEQUENCE = (1 << 31) - 1


def sent(
    sequence: int, count: int = 2, *, epoch: int = 4, producer_id: int = 9, **more: bool
) -> BatchHeader:
    names = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return parse_header(batch(*[NOW] * count, **names, **more))


def write(producers: Producers, header: BatchHeader, base_offset: int = 40) -> None:
    assert producers.find_duplicate(header) is None
    producers.update(header, base_offset + header.last_offset_delta, NOW, NOW)


def code(producers: Producers, header: BatchHeader) -> ErrorCode:
    with pytest.raises(RequestRefused) as caught:
        producers.find_duplicate(header)
    return caught.value.code


@pytest.fixture
def producers() -> Producers:
    """Producer 9 in epoch 4 has written seven batches of two: sequences 0 to 13 at 40 to 53."""
    producers = Producers()
    for sequence in range(0, 14, 2):
        write(producers, sent(sequence), 40 + sequence)
    return producers


@pytest.mark.parametrize("sequence", [4, 6, 8, 10, 12])
def test_a_retry_of_the_five_newest_batches_is_known(producers: Producers, sequence: int) -> None:
    found = producers.find_duplicate(sent(sequence))
    assert found == WrittenBatch(sequence + 1, 41 + sequence, 1, NOW)
    assert found.base_offset == 40 + sequence


@pytest.mark.parametrize(
    ("sequence", "count"),
    [
        pytest.param(2, 2, id="an older batch"),
        pytest.param(12, 1, id="a part of one"),
        pytest.param(13, 2, id="an overlap"),
        pytest.param(15, 1, id="a gap"),
        pytest.param(0, 1, id="beginning again without a new epoch"),
    ],
)
def test_what_is_neither_next_nor_a_retry_is_out_of_order(
    producers: Producers, sequence: int, count: int
) -> None:
    assert code(producers, sent(sequence, count)) is ErrorCode.out_of_order_sequence_number


def test_the_next_batch_is_taken(producers: Producers) -> None:
    assert producers.find_duplicate(sent(14)) is None


def test_a_stale_epoch_is_fenced(producers: Producers) -> None:
    assert code(producers, sent(14, epoch=3)) is ErrorCode.invalid_producer_epoch


def test_a_new_epoch_begins_at_zero(producers: Producers) -> None:
    assert code(producers, sent(14, epoch=5)) is ErrorCode.out_of_order_sequence_number
    write(producers, sent(0, epoch=5))
    assert code(producers, sent(14, epoch=4)) is ErrorCode.invalid_producer_epoch


def test_an_unknown_producer_may_begin_anywhere(producers: Producers) -> None:
    assert producers.find_duplicate(sent(77, producer_id=10)) is None


def test_after_the_last_sequence_comes_zero() -> None:
    producers = Producers()
    write(producers, sent(LAST_SEQUENCE - 1))
    assert code(producers, sent(1)) is ErrorCode.out_of_order_sequence_number
    write(producers, sent(0))
    found = producers.find_duplicate(sent(LAST_SEQUENCE - 1))
    assert found is not None
    assert found.first_sequence == LAST_SEQUENCE - 1


def test_a_batch_may_wrap_within() -> None:
    producers = Producers()
    header = sent(LAST_SEQUENCE, 3)
    write(producers, header)
    assert header.last_sequence == 1
    assert producers.find_duplicate(header) is not None
    write(producers, sent(2))


def test_a_producer_is_forgotten_by_when_it_was_heard_of_not_by_its_records() -> None:
    producers = Producers()
    old = parse_header(batch(0, producer_id=9, producer_epoch=0, base_sequence=0))
    producers.update(old, 40, 0, NOW)
    assert producers.expire(NOW + 999, 1000) == 0
    assert producers.expire(NOW + 1000, 1000) == 1
    assert len(producers) == 0


# Files.


def test_a_snapshot_is_kafkas_file(producers: Producers, tmp_path: Path) -> None:
    producers.write(Files(), str(tmp_path), 54)
    data = (tmp_path / "00000000000000000054.snapshot").read_bytes()
    assert data[:2] == b"\0\1"
    assert data[6:] == bytes.fromhex(
        "00000001"  # one producer
        "0000000000000009 0004 0000000d 0000000000000035 00000001"
        f"{NOW:016x} ffffffff ffffffffffffffff"
    )


def test_all_five_batches_survive_a_restart(producers: Producers, tmp_path: Path) -> None:
    producers.write(Files(), str(tmp_path), 54)
    again = Producers()
    again.read(Files(), str(tmp_path), 54, NOW)
    for sequence in (4, 6, 8, 10, 12):
        assert again.find_duplicate(sent(sequence)) == producers.find_duplicate(sent(sequence))
    assert again.find_duplicate(sent(14)) is None


def test_kafkas_file_alone_knows_the_newest_batch(producers: Producers, tmp_path: Path) -> None:
    producers.write(Files(), str(tmp_path), 54)
    (tmp_path / "00000000000000000054.batches").unlink()
    again = Producers()
    again.read(Files(), str(tmp_path), 54, NOW)
    assert again.find_duplicate(sent(12)) is not None
    assert code(again, sent(10)) is ErrorCode.out_of_order_sequence_number


def test_older_batches_that_do_not_precede_the_newest_are_skipped(
    producers: Producers, tmp_path: Path
) -> None:
    """A Kafka lost the tail, wrote on, and left its snapshot where ours was."""
    producers.write(Files(), str(tmp_path), 54)
    older = (tmp_path / "00000000000000000054.batches").read_bytes()
    kafkas = Producers()
    write(kafkas, sent(20), 52)
    kafkas.write(Files(), str(tmp_path), 54)
    (tmp_path / "00000000000000000054.batches").write_bytes(older)
    again = Producers()
    again.read(Files(), str(tmp_path), 54, NOW)
    assert again.find_duplicate(sent(20)) is not None
    assert code(again, sent(10)) is ErrorCode.out_of_order_sequence_number
    assert again.find_duplicate(sent(22)) is None


@pytest.mark.parametrize("position", [0, 3, 9, 15, 50])
def test_a_damaged_snapshot_is_refused(producers: Producers, tmp_path: Path, position: int) -> None:
    producers.write(Files(), str(tmp_path), 54)
    path = tmp_path / "00000000000000000054.snapshot"
    data = bytearray(path.read_bytes())
    data[position] ^= 8
    path.write_bytes(data)
    with pytest.raises(CorruptFile):
        Producers().read(Files(), str(tmp_path), 54, NOW)
    path.write_bytes(data[:20])
    with pytest.raises(CorruptFile):
        Producers().read(Files(), str(tmp_path), 54, NOW)


def ended(*ends: LastEnd) -> Producers:
    """Producers 0, 1, ... whose last markers these are."""
    producers = Producers()
    for producer_id, (epoch, is_commit, ms) in enumerate(ends):
        its = marker(40 + producer_id, producer_id, kind=int(is_commit), epoch=epoch, ms=ms)
        producers.replay(parse_header(its), lambda its=its: its, NOW)
    return producers


def last_ends(directory: Path, offset: int = 54) -> list[LastEnd | None]:
    again = Producers()
    again.read(Files(), str(directory), offset, NOW)
    return [state.last_end for _, state in again]


ENDS = (LastEnd(4, True, NOW), LastEnd(32767, False, -1), LastEnd(0, True, (1 << 63) - 1))
OURS, KAFKAS = "00000000000000000054.batches", "00000000000000000054.snapshot"


def test_last_markers_survive_a_restart(tmp_path: Path) -> None:
    ended(*ENDS).write(Files(), str(tmp_path), 54)
    assert last_ends(tmp_path) == [*ENDS]


@pytest.mark.parametrize("late", [OURS, KAFKAS])
def test_last_markers_count_beside_their_own_snapshot_only(tmp_path: Path, late: str) -> None:
    """A power failure has kept one of the two files; or a Kafka was here since."""
    ended(*ENDS).write(Files(), str(tmp_path), 54)
    kept = (tmp_path / late).read_bytes()
    ended(*(end._replace(epoch=5) for end in ENDS)).write(Files(), str(tmp_path), 54)
    assert last_ends(tmp_path) == [end._replace(epoch=5) for end in ENDS]
    (tmp_path / late).write_bytes(kept)
    assert last_ends(tmp_path) == [None] * 3
    (tmp_path / OURS).unlink()
    assert last_ends(tmp_path) == [None] * 3


def test_what_is_left_of_another_snapshot_of_the_same_offset_goes(tmp_path: Path) -> None:
    ended(*ENDS).write(Files(), str(tmp_path), 54)
    Producers().write(Files(), str(tmp_path), 54)
    assert [path.name for path in tmp_path.iterdir()] == [KAFKAS]


@pytest.mark.parametrize("damage", [*range(0, 90, 5), "cut", "longer", "empty", "version 1"])
def test_damaged_file_beside_a_snapshot_is_refused_and_nothing_replaced(
    producers: Producers, tmp_path: Path, damage: int | str
) -> None:
    its = marker(54, 9, kind=1, epoch=4)
    producers.replay(parse_header(its), lambda: its, NOW)
    producers.write(Files(), str(tmp_path), 55)
    path = tmp_path / "00000000000000000055.batches"
    data = bytearray(path.read_bytes())
    if isinstance(damage, int):
        data[damage] ^= 8
    elif damage == "version 1":
        data[1] = 1
    else:
        data = {"cut": data[:-1], "longer": data + b"\0", "empty": bytearray()}[damage]
    path.write_bytes(data)
    before = ended(*ENDS)
    with pytest.raises(CorruptFile):
        before.read(Files(), str(tmp_path), 55, NOW)
    assert [state.last_end for _, state in before] == [*ENDS]


@pytest.mark.parametrize("counts", [(-1, 0), (0, -1), (3, 0), (0, 1 << 30), (5, 1)])
def test_counts_that_do_not_fit_the_file_are_refused(
    tmp_path: Path, counts: tuple[int, int]
) -> None:
    ended(*ENDS).write(Files(), str(tmp_path), 54)
    data = (tmp_path / OURS).read_bytes()
    body = data[6:10] + struct.pack(">ii", *counts) + data[18:]
    (tmp_path / OURS).write_bytes(data[:2] + crc32c.crc32c(body).to_bytes(4, "big") + body)
    with pytest.raises(CorruptFile, match="entries"):
        last_ends(tmp_path)


@pytest.mark.parametrize("name", [OURS, KAFKAS])
def test_files_that_are_too_long_are_damaged(tmp_path: Path, name: str) -> None:
    ended(*ENDS).write(Files(), str(tmp_path), 54)
    os.truncate(tmp_path / name, 1 << 40)
    with pytest.raises(CorruptFile, match="longer"):
        last_ends(tmp_path)


@pytest.mark.parametrize(
    ("sequence", "is_transactional", "expected"),
    [(0, True, NO_END), (2, True, None), (0, False, None), (-1, True, None)],
)
def test_no_marker_was_before_a_producers_sequence_zero(
    tmp_path: Path, sequence: int, is_transactional: bool, expected: LastEnd | None
) -> None:
    producers = Producers()
    producers.update(sent(sequence, is_transactional=is_transactional), 41, NOW, NOW)
    producers.write(Files(), str(tmp_path), 54)
    assert last_ends(tmp_path) == [expected]
    its = marker(54, 9, kind=1, epoch=4)
    producers.replay(parse_header(its), lambda: its, NOW)
    producers.update(sent(0, epoch=5, is_transactional=True), 56, NOW, NOW)
    producers.write(Files(), str(tmp_path), 57)
    assert last_ends(tmp_path, 57) == [LastEnd(4, True, parse_header(its).max_timestamp)]


def test_a_missing_snapshot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match="missing"):
        Producers().read(Files(), str(tmp_path), 54, NOW)


# Transactions of others, replayed.


@pytest.mark.parametrize(("kind", "aborted"), [(0, True), (1, False)])
def test_a_marker_ends_a_transaction(kind: int, aborted: bool) -> None:
    producers = Producers()
    more = {"producer_id": 9, "producer_epoch": 4, "is_transactional": True}
    for base_offset in (40, 42):
        data = batch(NOW, NOW, base_offset=base_offset, base_sequence=base_offset - 40, **more)
        assert producers.replay(parse_header(data), lambda data=data: data, NOW) is None
    assert producers.unended() == ((9, 40),)
    end = marker(50, 9, kind=kind, epoch=4, value=bytes([0, 0, 0, 0, 0, 7]))
    done = producers.replay(parse_header(end), lambda: end, NOW)
    assert done == (9, 40, 50, aborted, 51)
    assert producers.unended() == ()
    ((_, state),) = producers
    assert state.coordinator_epoch == 7


def _first_unstable(
    producers: Producers, high_watermark: int, said: Sequence[Unended] = ()
) -> int | None:
    found = first_unread(producers.ended, high_watermark, producers.first_open(said))
    producers.forget_ended(high_watermark)
    assert found == first_unread(producers.ended, high_watermark, producers.first_open(said))
    return found


WHAT = st.sampled_from(["write", "write", "end", "end", "read", "restart"])
STEPS = st.lists(st.tuples(WHAT, st.integers(0, 4)))


@examples(4)
@example([("write", 0), ("end", 0), ("read", 1)])
@given(STEPS)
def test_what_is_stable_ends_at_the_first_transaction_that_consumers_cannot_see_end(
    steps: list[tuple[str, int]],
) -> None:
    producers = Producers()
    producers.keeps_ended = True
    opened: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    high_watermark = 0
    with TemporaryDirectory() as directory:
        for offset, (step, number) in enumerate(steps):
            more = {"producer_id": number, "producer_epoch": 0, "is_transactional": True}
            if step == "write":
                data = batch(NOW, base_offset=offset, base_sequence=-1, **more)
                producers.replay(parse_header(data), lambda data=data: data, NOW)
                opened.setdefault(number, offset)
            elif step == "end":
                data = marker(offset, number, kind=0, epoch=0)
                done = producers.replay(parse_header(data), lambda data=data: data, NOW)
                first = opened.pop(number, None)
                if first is not None:
                    stable = min([*opened.values(), offset + 1])
                    assert done == (number, first, offset, True, stable)
                    ended.append((first, offset))
            elif step == "read":
                high_watermark = max(high_watermark, offset - number)
            else:
                producers.write(Files(), directory, offset)
                producers.read(Files(), directory, offset, NOW)
            assert producers.unended() == tuple(sorted(opened.items(), key=lambda each: each[1]))
            firsts = [first for first, last in ended if last >= high_watermark]
            expected = min([*firsts, *opened.values()], default=None)
            assert _first_unstable(producers, high_watermark) == expected
            said = [Unended(each, opened.get(each, 0)) for each in range(number)]
            waits = [offset for each, offset in opened.items() if each >= number]
            expected = min([*firsts, *waits], default=None)
            assert _first_unstable(producers, high_watermark, said) == expected
            assert [producers.is_open(*each[:2]) for each in said] == [
                each in opened for each in range(number)
            ]


def test_a_snapshot_of_transactions_in_any_order_is_read_in_that_of_their_offsets(
    tmp_path: Path,
) -> None:
    """Kafka's file is in the order of its hash table; one that lies behind it is of no log."""
    producers = Producers()
    for number, offset in ((1, 7), (2, 99), (3, 5)):
        more = {"producer_id": number, "producer_epoch": 0, "is_transactional": True}
        data = batch(NOW, base_offset=offset, base_sequence=0, **more)
        producers.replay(parse_header(data), lambda data=data: data, NOW)
    producers.write(Files(), str(tmp_path), 20)
    again = Producers()
    again.read(Files(), str(tmp_path), 20, NOW)
    assert again.unended() == ((3, 5), (1, 7))
    assert again.first_open() == 5
    assert len(again) == 3


def test_markers_of_a_later_kind_are_skipped() -> None:
    producers = Producers()
    end = marker(50, 9, kind=5, epoch=4, value=bytes([0, 0, 0, 0, 0, 7]))
    assert producers.replay(parse_header(end), lambda: end, NOW) is None


# In a log.


def idempotent(sequence: int) -> dict[str, int]:
    return {"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence}


def test_a_duplicate_is_answered_as_its_original_and_not_written(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        first = append(log, NOW, NOW + 5, **idempotent(0))
        append(log, NOW, **idempotent(2))
        again = append(log, NOW, NOW + 5, **idempotent(0), now=NOW + 100)
        assert again[:2] == first[:2] == (0, 1)
        assert again.duplicate
        # Kafka says -1 for CreateTime, but the largest timestamp for a duplicate.
        assert (first.log_append_time_ms, again.log_append_time_ms) == (-1, NOW + 5)
        assert log.log_end_offset == 3


def test_a_duplicate_on_an_append_time_topic_keeps_its_first_append_time(tmp_path: Path) -> None:
    config = TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    with new_log(tmp_path, config) as log:
        append(log, 0, **idempotent(0), now=NOW)
        again = append(log, 0, **idempotent(0), now=NOW + 500)
        assert again.log_append_time_ms == NOW


def test_a_duplicate_causes_no_roll(tmp_path: Path) -> None:
    with new_log(tmp_path, TopicConfig(segment_ms=1000)) as log:
        append(log, NOW, **idempotent(0))
        append(log, NOW, **idempotent(1))
        append(log, NOW, **idempotent(1), now=NOW + 50_000)
        assert len(log.segments) == 1


@pytest.mark.parametrize("stop", ["clean", "kill", "kill, no snapshots", "kill, bad snapshots"])
def test_retries_are_known_after_a_restart(tmp_path: Path, stop: str) -> None:
    config = TopicConfig(segment_bytes=300)
    path = tmp_path / "log"
    with new_log(path, config) as log:
        for sequence in range(10):
            append(log, NOW, **idempotent(sequence))
        assert len(log.segments) > 3
        killed = snapshot_of(path, tmp_path / "killed")
    if stop == "clean":
        with reopened(path, config) as (log_dir, _):
            log_dir.close()
    else:
        path = killed
        for snapshot in partition_dir(path).glob("*.snapshot"):
            if "no" in stop:
                snapshot.unlink()
            elif "bad" in stop:
                snapshot.write_bytes(b"\0" * 30)
    with reopened(path, config) as (_, log):
        for sequence in range(5, 10):
            again = append(log, NOW, **idempotent(sequence))
            assert again.duplicate
            assert again.base_offset == sequence
        with pytest.raises(RequestRefused):
            append(log, NOW, **idempotent(4))
        assert append(log, NOW, **idempotent(10)).base_offset == 10


def test_the_snapshots_of_clean_stops_do_not_pile_up(tmp_path: Path) -> None:
    for sequence in range(4):
        if sequence == 0:
            with new_log(tmp_path) as log:
                append(log, NOW, **idempotent(0))
        with reopened(tmp_path) as (log_dir, log):
            append(log, NOW, **idempotent(sequence + 1))
            log_dir.close()
    names = sorted(path.name for path in partition_dir(tmp_path).glob("*.snapshot"))
    assert len(names) == 2, "of this stop and the one before"


def test_snapshots_follow_their_segments(tmp_path: Path) -> None:
    config = TopicConfig(segment_bytes=300, retention_ms=1000)
    with new_log(tmp_path, config) as log:
        for sequence in range(10):
            append(log, NOW, **idempotent(sequence))

        def offsets() -> set[str]:
            return {path.stem for path in partition_dir(tmp_path).glob("*.snapshot")}

        assert offsets() == {f"{segment.base_offset:020d}" for segment in log.segments[1:]}
        log.apply_retention(NOW + 5000, NOW + 5000)
        assert offsets() == {f"{log.log_end_offset:020d}"}
