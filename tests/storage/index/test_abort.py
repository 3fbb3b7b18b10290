from __future__ import annotations

from pathlib import Path

import pytest
from batches import batch, marker
from storelogs import NOW, append, new_log, partition_dir, reopened

from horolog.errors import CorruptIndex
from horolog.record import iter_headers
from horolog.storage import AbortedTxn, Files, read_aborted, write_aborted

FIRST = AbortedTxn(9, 40, 50, 40)
SECOND = AbortedTxn(7, 45, 60, 51)


def test_entries_are_kafkas_bytes(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000040.txnindex"
    write_aborted(Files(), str(path), [FIRST, SECOND])
    assert path.read_bytes()[:34] == bytes.fromhex(
        "0000 0000000000000009 0000000000000028 0000000000000032 0000000000000028"
    )
    assert read_aborted(Files(), str(path)) == [FIRST, SECOND]
    write_aborted(Files(), str(path), [])
    assert not path.exists()
    assert read_aborted(Files(), str(path)) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: b"\0\1" + data[2:],
        lambda data: data[:10] + b"\xff" + data[11:],
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "00000000000000000040.txnindex"
    write_aborted(Files(), str(path), [FIRST])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptIndex):
        read_aborted(Files(), str(path))


def test_a_log_names_the_aborted_transactions_that_reach_into_a_range(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, *[NOW] * 30)
    path = partition_dir(tmp_path) / "00000000000000000000.txnindex"
    early, late = AbortedTxn(9, 2, 5, 2), AbortedTxn(7, 8, 20, 8)
    write_aborted(Files(), str(path), [early, late])
    with reopened(tmp_path) as (_, log):
        assert log.look().aborted_transactions(0, 30) == [early, late]
        assert log.look().aborted_transactions(5, 8) == [early]
        assert log.look().aborted_transactions(6, 9) == [late]
        assert log.look().aborted_transactions(21, 30) == []


@pytest.mark.parametrize("how", ["truncate", "recovery", "a power failure"])
def test_what_is_cut_off_takes_its_aborted_transactions_along(tmp_path: Path, how: str) -> None:
    with new_log(tmp_path) as log:
        for _ in range(10):
            append(log, *[NOW] * 3)
    path = partition_dir(tmp_path) / "00000000000000000000.txnindex"
    early, late = AbortedTxn(9, 2, 5, 2), AbortedTxn(7, 8, 29, 8)
    write_aborted(Files(), str(path), [early, late])
    file = path.with_suffix(".log")
    if how == "recovery":
        file.write_bytes(file.read_bytes()[:-1])
    elif how == "a power failure":  # the disk had the entry, and never the last batch
        last = [position for position, _ in iter_headers(file.read_bytes())][-1]
        file.write_bytes(file.read_bytes()[:last])
    with reopened(tmp_path) as (_, log):
        if how != "a power failure":
            log.truncate_to(27, NOW)
        assert log.log_end_offset == 27
        assert log.look().aborted_transactions(0, 100) == [early]
    assert read_aborted(Files(), str(path)) == [early]


@pytest.mark.parametrize("ours", [False, True], ids=["adopted", "ours"])
def test_an_open_transaction_counts_as_aborted_in_an_adopted_log_alone(
    tmp_path: Path, ours: bool
) -> None:
    """The broker that wrote an adopted log has stopped for good; our own coordinator goes on."""
    with new_log(tmp_path) as log:
        append(log, NOW)
    path = partition_dir(tmp_path) / "00000000000000000000.log"
    opened = batch(
        NOW,
        NOW,
        base_offset=1,
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    path.write_bytes(path.read_bytes() + opened)
    with reopened(tmp_path, ours=ours) as (_, log):
        assert log.log_end_offset == log.high_watermark == 3
        assert log.last_stable_offset == (1 if ours else 3)
        aborted = [entry[:2] for entry in log.look().aborted_transactions(0, 3)]
        assert aborted == ([] if ours else [(9, 1)])
        assert log.look().aborted_transactions(0, 1) == []


def transactional(base_offset: int, producer_id: int, *times: int) -> bytes:
    return batch(
        *times,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_offset,
        is_transactional=True,
        leader_epoch=0,
    )


ABORT, COMMIT = 0, 1
SEGMENTS = {
    0: [
        transactional(0, 9, NOW, NOW),
        transactional(2, 7, NOW),
        marker(
            3, 7, kind=ABORT, leader_epoch=0
        ),  # while 9 is open: nothing after its first record is stable
        transactional(4, 7, NOW),
    ],
    5: [
        marker(5, 9, kind=COMMIT, leader_epoch=0),
        marker(6, 7, kind=ABORT, leader_epoch=0),  # begun in the segment before
        transactional(7, 9, NOW),
        marker(8, 9, kind=ABORT, leader_epoch=0),
    ],
}
TRUTH = {
    0: [AbortedTxn(7, 2, 3, 0)],
    5: [AbortedTxn(7, 4, 6, 7), AbortedTxn(9, 7, 8, 9)],
}


@pytest.mark.parametrize("lost", ["nothing", "damaged", "missing"])
@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("snapshot", [True, False])
def test_aborted_transactions_are_reported_again_by_their_markers(
    tmp_path: Path, lost: str, marked: bool, snapshot: bool
) -> None:
    with new_log(tmp_path) as log:
        assert log.log_end_offset == 0
    directory = partition_dir(tmp_path)
    for base, batches in SEGMENTS.items():
        path = directory / f"{base:020d}.log"
        path.write_bytes(b"".join(batches))
        write_aborted(Files(), str(path.with_suffix(".txnindex")), TRUTH[base])
    if marked:
        (tmp_path / ".kafka_cleanshutdown").write_text("")
    with reopened(tmp_path) as (log_dir, log):
        log_dir.close()
    if not snapshot:
        for path in directory.glob("*.snapshot"):
            path.unlink()
    for path in directory.glob("*.txnindex"):
        if lost == "damaged":
            path.write_bytes(path.read_bytes()[:-3])
        elif lost == "missing" and not marked:
            path.unlink()
    if not marked:
        (tmp_path / ".kafka_cleanshutdown").unlink()
        (tmp_path / "recovery-point-offset-checkpoint").unlink()
    with reopened(tmp_path, ours=lost != "nothing") as (_, log):
        assert log.look().aborted_transactions(0, 9) == TRUTH[0] + TRUTH[5]
