"""Producers of a log after any restart: as if all that was ever appended had been replayed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from batches import batch, marker
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from storelogs import NOW, TOPIC_ID, open_dir, partition_dir, pull

from horolog.config import TopicConfig
from horolog.record import parse_header
from horolog.storage import CACHED_BATCHES, NO_END, Files, LastEnd, Producers, TopicPartition

CONFIG = TopicConfig(segment_bytes=400, retention_ms=-1, file_delete_delay_ms=0)


class Writer(NamedTuple):
    """What a producer of transactions writes next."""

    epoch: int = 0
    sequence: int = 0


class History:
    """A follower's log, and all batches that were ever in it and were not truncated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log_dir = open_dir(path, CONFIG, follows=True)
        self.log = self._log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
        self.log.begin_following(0)
        self._writers: dict[int, list[tuple[int, Writer]]] = {}
        self._ends: list[tuple[int, int, LastEnd]] = []

    def close(self, *, is_clean: bool = False) -> None:
        self._log_dir.close(clean=is_clean)

    @property
    def _end(self) -> int:
        return self.log.log_end_offset

    def _writer(self, producer_id: int) -> Writer:
        return self._writers.get(producer_id, [(0, Writer())])[-1][1]

    def _becomes(self, producer_id: int, writer: Writer) -> None:
        self._writers.setdefault(producer_id, []).append((self._end, writer))

    def write(self, producer_id: int) -> None:
        epoch, sequence = self._writer(producer_id)
        self._becomes(producer_id, Writer(epoch, sequence + 1))
        names = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        pull(self.log, batch(NOW, base_offset=self._end, is_transactional=True, **names))

    def end(self, producer_id: int, *, is_commit: bool, is_second: bool) -> None:
        """Write a marker; in the second flow of KIP-890 with the next epoch, which follows."""
        writer = self._writer(producer_id)
        if is_second:
            writer = Writer(writer.epoch + 1)
        ms = NOW + self._end
        self._ends.append((self._end, producer_id, LastEnd(writer.epoch, is_commit, ms)))
        self._becomes(producer_id, writer)
        its = marker(self._end, producer_id, kind=int(is_commit), ms=ms, epoch=writer.epoch)
        pull(self.log, its)

    def truncate(self, offsets: int) -> None:
        to = max(self._end - offsets, self.log.log_start_offset)
        self.log.truncate_to(to, NOW)
        self._ends = [each for each in self._ends if each[0] < to]
        for its in self._writers.values():
            its[:] = [each for each in its if each[0] < to]
        self._writers = {id_: its for id_, its in self._writers.items() if its}

    def delete(self, offsets: int) -> None:
        self.log.delete_records(min(self.log.log_start_offset + offsets, self._end))
        self.log.apply_retention(NOW, NOW)

    def restart(self, *, is_clean: bool, damage: str | None = None) -> None:
        before = _everything(self.log.producers)
        self._log_dir.close(clean=is_clean)
        bases = [segment.base_offset for segment in self.log.segments]
        found = sorted(partition_dir(self._path).glob("*.batches"))
        newest = found[-1] if found and (bases[0] == 0 or len(bases) > 2) else None
        content = newest.read_bytes() if newest is not None else b""
        if damage is not None and newest is not None:
            newest.write_bytes(_damaged(content, damage))
        self._log_dir = open_dir(self._path, CONFIG, follows=True)
        if newest is not None and newest.exists():
            newest.write_bytes(content)
        self.log = self._log_dir.logs[TopicPartition("events", 3)]
        self.log.move_high_watermark(self._end)
        assert _everything(self.log.producers) == before

    def check(self) -> None:
        last = dict.fromkeys(self._writers, NO_END) | {id_: end for _, id_, end in self._ends}
        assert {id_: state.last_end for id_, state in self.log.producers} == last


def _everything(producers: Producers) -> dict[int, Any]:
    opened = dict(producers.unended())
    return {
        id_: (state.epoch, state.batches, state.coordinator_epoch, state.last_end, opened.get(id_))
        for id_, state in producers
    }


def _damaged(content: bytes, how: str) -> bytes:
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
    return {"flip": flipped, "cut": content[:-3], "empty": b""}[how]


ID = st.integers(1, 3)
STEP = st.one_of(
    st.tuples(st.just("write"), ID),
    st.tuples(st.just("write"), ID),
    st.tuples(st.just("end"), ID, st.booleans(), st.booleans()),
    st.tuples(st.just("truncate"), st.integers(0, 9)),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("restart"), st.booleans(), st.sampled_from([None, "flip", "cut", "empty"])),
)
ENDS_IN_FRONT = [
    *[("write", 1), ("end", 1, True, False), ("write", 1)],
    *[("write", 2)] * 5,
    ("restart", False, None),
]


@examples(2)
@given(st.lists(STEP, max_size=40))
@example(ENDS_IN_FRONT)
@example([*ENDS_IN_FRONT[:-1], ("delete", 4), ("truncate", 1), ("restart", True, "flip")])
def test_last_markers_are_known_after_any_restart(steps: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as directory:
        history = History(Path(directory))
        try:
            for step, *more in steps:
                if step == "write":
                    history.write(*more)
                elif step == "end":
                    history.end(more[0], is_commit=more[1], is_second=more[2])
                elif step == "truncate":
                    history.truncate(*more)
                elif step == "delete":
                    history.delete(*more)
                else:
                    history.restart(is_clean=more[0], damage=more[1])
                history.check()
        finally:
            history.close()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("whose", ["none", "another's", "earlier"])
def test_a_snapshot_that_is_not_of_the_log_does_not_count(
    tmp_path: Path, whose: str, *, is_clean: bool
) -> None:
    """It is whole, and names no log: records of an open transaction would count as committed."""
    history = History(tmp_path)
    history.write(1)
    history.end(1, is_commit=True, is_second=False)
    for _ in range(12):
        history.write(1)
    history.write(2)
    expected = history.log.producers.unended()
    assert [first for _, first in expected] == [2, 14]
    history.close(is_clean=is_clean)
    other = Producers()
    if whose != "none":
        producer_id = 1 if whose == "earlier" else 9
        header = parse_header(
            batch(NOW, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        )
        other.replay(header, lambda: b"", NOW)
    directory = partition_dir(tmp_path)
    for path in directory.glob("*.snapshot"):
        path.with_suffix(".batches").unlink(missing_ok=True)
        path.unlink()
        other.write(Files(), str(directory), int(path.stem))
    log_dir = open_dir(tmp_path, CONFIG, follows=True)
    assert log_dir.logs[TopicPartition("events", 3)].producers.unended() == expected
    log_dir.close(clean=False)


def test_snapshot_counts_alone_where_all_beside_it_is_damaged_and_its_batches_are_gone(
    tmp_path: Path,
) -> None:
    history = History(tmp_path)
    for _ in range(12):
        history.write(1)
    history.delete(7)
    assert history.log.segments[0].base_offset > 0
    history.close()
    for path in partition_dir(tmp_path).glob("*.batches"):
        path.write_bytes(b"")
    log_dir = open_dir(tmp_path, CONFIG, follows=True)
    producers = log_dir.logs[TopicPartition("events", 3)].producers
    assert producers.unended() == ((1, 0),)
    ((_, state),) = producers
    assert len(state.batches) == CACHED_BATCHES
    assert state.last_end is None
    log_dir.close(clean=False)
