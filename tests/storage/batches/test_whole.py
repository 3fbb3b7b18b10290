"""The search for whole batches in a damaged log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from overrides import override
from storelogs import placed

from horolog.errors import CorruptBatch
from horolog.storage import BatchReader, Files, is_torn_tail, whole_batches


def offsets_in(path: Path, content: bytes) -> list[int]:
    path.write_bytes(content)
    files = Files(read_only=True)
    found = whole_batches(BatchReader(files, files.get(str(path)), len(content)))
    return [header.base_offset for _, header in found]


def is_torn(path: Path, content: bytes) -> bool:
    path.write_bytes(content)
    files = Files(read_only=True)
    return is_torn_tail(files, files.get(str(path)), 0, len(content))


@given(
    parts=st.lists(
        st.one_of(st.integers(0, 1 << 40), st.binary(max_size=70), st.just(b"\x02" * 90)),
        max_size=12,
    ),
    piece_bytes=st.integers(61, 500),
)
def test_all_whole_batches_are_found_among_anything(
    tmp_path_factory: pytest.TempPathFactory, parts: list[int | bytes], piece_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        override(patch, "horolog.storage", PIECE_BYTES=piece_bytes)
        content = b"".join(placed(part) if isinstance(part, int) else part for part in parts)
        found = offsets_in(tmp_path_factory.mktemp("f") / "f", content)
    assert found == [part for part in parts if isinstance(part, int)]


def test_a_batch_within_the_value_of_a_damaged_one_is_skipped(tmp_path: Path) -> None:
    damaged = bytearray(placed(0, value=b"x" + placed(77)))
    damaged[-1] ^= 1
    content = bytes(damaged) + placed(1)
    assert offsets_in(tmp_path / "f", content) == [1]


def test_a_search_among_look_alikes_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    override(monkeypatch, "horolog.storage", BUDGET_BYTES=1 << 16)
    header = bytearray(placed(0)[:61])
    header[8:12] = (1 << 15).to_bytes(4, "big")
    content = bytes(header) * 2000
    with pytest.raises(CorruptBatch, match="only looks like batches"):
        offsets_in(tmp_path / "f", content)
    assert not is_torn(tmp_path / "f", content), "what was not searched to its end is kept"


def test_what_is_a_torn_tail(tmp_path: Path) -> None:
    whole = placed(0)
    for content in (whole[:-1], whole[:61], whole[:5], bytes(500), b"\x5a" * 60):
        assert is_torn(tmp_path / "f", content)
    damaged = whole[:-1] + bytes([whole[-1] ^ 1])
    odd = whole[:16] + b"\x03" + whole[17:]
    for content in (whole, damaged, odd, whole[:-1] + placed(1), bytes(500) + placed(1)):
        assert not is_torn(tmp_path / "f", content)
