"""The history of a group is the same whether commits are decoded or told from earlier ones."""

from __future__ import annotations

import random
from pathlib import Path
from struct import Struct
from unittest.mock import patch
from uuid import UUID

import pytest
from examples import some_of
from overrides import override
from plain_kernels import without_numba

from horolog.history import AskGroupHistory, GroupEvent
from horolog.metadata import CommitTemplates, read_group_history
from horolog.record import (
    CLEANING_KERNELS,
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    load_kernels,
)
from horolog.schemas.offsets import CommittedValue, OffsetKey, committed_bytes, key_bytes

NOW = 1_700_000_000_000
TOPIC_ID = UUID(int=5)


def value(dice: random.Random) -> bytes | None:
    """A value of version 1, 3 or 4, now and then broken without another length."""
    metadata = dice.choice(["", "", "", "note", "é", "m" * 126, "m" * 127, "m" * 900])
    offset, epoch = dice.choice([0, 7, -1, 2**63 - 1, -(2**63)]), dice.choice([-1, 0, 2**31 - 1])
    made = CommittedValue(offset, epoch, metadata, dice.choice([0, NOW, -1]), None, None)
    kind = dice.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        return committed_bytes(made._replace(expire_ms=NOW))
    if kind == 2:
        text = metadata.encode()
        head = Struct(">hqih").pack(3, offset, epoch, len(text))
        return head + text + Struct(">q").pack(made.commit_ms)
    data = committed_bytes(made._replace(topic_id=TOPIC_ID if kind == 3 else None))
    if kind == 4:
        at = dice.randrange(len(data))
        return data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
    return data


def record(dice: random.Random) -> LogRecord:
    group, topic = dice.choice(["g", "g", "g", "gg", "h"]), dice.choice(["t", "t", "topic", "é"])
    key = key_bytes(OffsetKey(group, topic, dice.randrange(2)))
    headers = (("h", b"x"),) if dice.random() < 0.05 else ()
    return LogRecord(NOW + dice.randrange(100), key, value(dice), headers)


def batch(dice: random.Random) -> bytes:
    kind = dice.randrange(20)
    records = [record(dice) for _ in range(3 if kind == 0 else 1)]
    if kind == 1:
        return build_batch(records, codec=Codec.GZIP)
    if kind == 2:
        return build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    if kind == 3:
        return build_batch(
            records,
            is_transactional=True,
            producer_id=dice.randrange(2),
            producer_epoch=0,
            base_sequence=0,
        )
    return build_batch(records)


def log_of(path: Path, dice: random.Random, batches: int) -> None:
    directory = path / "__consumer_offsets-0"
    directory.mkdir()
    data, offset = bytearray(), 0
    for _ in range(batches):
        made = batch(dice)
        data += offset.to_bytes(8, "big") + made[8:]
        offset += int.from_bytes(made[57:61], "big") + (dice.random() < 0.02)
    (directory / "00000000000000000000.log").write_bytes(data)


@pytest.mark.parametrize("seed", some_of(range(3), 3))
def test_told_from_an_earlier_commit_is_what_decoding_says(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    log_of(tmp_path, dice, 400)
    asks = [
        AskGroupHistory(),
        AskGroupHistory(topic="topic"),
        AskGroupHistory(most=7, start=3, end=200),
        *(AskGroupHistory(at=NOW + at) for at in (-1, 0, 30, 99)),
    ]
    told: list[GroupEvent | None] = []
    plain = CommitTemplates.event

    def noted(*args: object) -> GroupEvent | None:
        told.append(plain(*args))  # type: ignore[arg-type]
        return told[-1]

    for ask in asks:
        with patch.object(CommitTemplates, "event", noted):
            found = read_group_history(tmp_path, "g", ask)
        with patch.object(CommitTemplates, "event", return_value=None):
            assert found == read_group_history(tmp_path, "g", ask)
    assert sum(each is not None for each in told) > 120


@pytest.mark.parametrize("damage", [None, "bit", "torn", "order", "removed"])
def test_batches_that_the_kernel_passes_are_those_that_are_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str | None
) -> None:
    load_kernels()
    dice = random.Random(damage)
    log_of(tmp_path, dice, 150)
    (log,) = tmp_path.glob("*/*.log")
    data = bytearray(log.read_bytes())
    if damage == "bit":
        data[len(data) // 2] ^= 4
    elif damage == "torn":
        del data[-20:]
    elif damage == "order":
        data += data[: 12 + int.from_bytes(data[8:12], "big")]
    elif damage == "removed":
        del data[: 12 + int.from_bytes(data[8:12], "big")]
    log.write_bytes(data)
    asks = [AskGroupHistory(), AskGroupHistory(topic="t", most=9), AskGroupHistory(at=NOW + 50)]
    for group in ("g", "h", "none"):
        found = [read_group_history(tmp_path, group, ask) for ask in asks]
        with monkeypatch.context() as patched:
            without_numba(CLEANING_KERNELS, patched)
            assert found == [read_group_history(tmp_path, group, ask) for ask in asks]


@pytest.mark.parametrize("most", [0, 1])
def test_commits_are_decoded_where_there_is_no_room_for_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    override(monkeypatch, "horolog.metadata", _MOST=most, _MOST_LAYOUTS=most)
    log_of(tmp_path, random.Random(1), 300)
    found = read_group_history(tmp_path, "g", AskGroupHistory())
    with patch.object(CommitTemplates, "event", return_value=None):
        assert found == read_group_history(tmp_path, "g", AskGroupHistory())
