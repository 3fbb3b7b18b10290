"""Logs of all kinds, mirrored with kills at any batch, into a broker and into a directory."""

import random
from collections.abc import Iterator

import pytest
from batches import generated_record
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from mirror_lab import (
    NO_SPARK,
    T0_MS,
    MirrorLab,
    log_bytes,
    rows_of,
    stamped,
    without_offsets,
    write_log,
)
from running_broker import RunningBroker

from horolog.jobs.comparing import compare
from horolog.record import Codec, LogRecord, build_batch, convert_all

ABORT, COMMIT = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"
KINDS = ("plain", "plain", "gap", "stamped", "v1", "part", "end", "empty")
_UNLIMITED = str((1 << 63) - 1)


class AnyLog:
    """Batches of a partition, and the records of it that a mirror brings."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.batches: list[bytes] = []
        self.expected: list[LogRecord] = []
        self._offset = 0
        self._open: dict[int, list[LogRecord]] = {}
        self._sequences: dict[int, int] = {}
        for _ in range(rng.randrange(1, 25)):
            self._add(
                rng.choice(("plain", "plain", "gap", "stamped", "v1", "part", "end", "empty"))
            )
        for producer in [*self._open]:
            self._end(producer, commit=rng.random() < 0.5)

    def _rows(self) -> list[LogRecord]:
        rows = [generated_record(self.rng) for _ in range(self.rng.randrange(1, 6))]
        # What the target's format and bounds take; nothing is special about the rest.
        return [row._replace(timestamp=max(row.timestamp % (2 * T0_MS), 0)) for row in rows]

    def _add(self, kind: str) -> None:
        rng, rows = self.rng, self._rows()
        codec = rng.choice(tuple(Codec))
        if kind == "gap":
            self._offset += rng.randrange(1, 9)
        if kind in ("plain", "gap"):
            self._put(build_batch(rows, base_offset=self._offset, codec=codec), rows)
        elif kind == "stamped":
            ms = T0_MS + rng.randrange(1000)
            seen = [row._replace(timestamp=ms) for row in rows]
            self._put(stamped(rows, ms, self._offset), seen)
        elif kind == "v1":
            rows = [row._replace(headers=()) for row in rows]
            plain = build_batch(rows, base_offset=self._offset)
            made = convert_all(plain, 1, least_offset=self._offset)
            self._put(b"".join(bytes(each.data) for each in made), rows)
        elif kind == "part":
            producer = rng.randrange(3)
            sequence = self._sequences.get(producer, 0)
            self._sequences[producer] = sequence + len(rows)
            batch = build_batch(
                rows,
                base_offset=self._offset,
                codec=codec,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            self._open.setdefault(producer, []).extend(
                row._replace(offset=self._offset + at) for at, row in enumerate(rows)
            )
            self._put(batch, [], len(rows))
        elif kind == "end" and self._open:
            self._end(rng.choice([*self._open]), commit=rng.random() < 0.5)
        elif kind == "empty":
            self._put(build_batch([], base_offset=self._offset), [], 1)

    def _put(self, batch: bytes, seen: list[LogRecord], count: int | None = None) -> None:
        self.batches.append(batch)
        self.expected += [row._replace(offset=self._offset + at) for at, row in enumerate(seen)]
        self._offset += len(seen) if count is None else count

    def _end(self, producer: int, *, commit: bool) -> None:
        rows = self._open.pop(producer)
        if commit:
            self.expected += rows
        marker = build_batch(
            [LogRecord(T0_MS, COMMIT if commit else ABORT, bytes(6))],
            base_offset=self._offset,
            producer_id=producer,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
        self._put(marker, [], 1)

    @property
    def rows(self) -> list[LogRecord]:
        return sorted(self.expected, key=lambda row: row.offset or 0)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("target"))
    yield broker
    broker.stop()


_BATCH_BYTES = (0, None, 400, 20_000, 1 << 20)


@examples(1)
@given(
    seed=st.integers(0, 1 << 40),
    kills=st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from(("before it", "after it", None))), max_size=3
    ),
    sizes=st.lists(st.sampled_from(_BATCH_BYTES), min_size=4, max_size=4),
)
def test_any_log_is_mirrored_with_each_committed_record_once(
    tmp_path_factory: pytest.TempPathFactory,
    target: RunningBroker,
    seed: int,
    kills: list[tuple[int, str | None]],
    sizes: list[int | None],
) -> None:
    path = tmp_path_factory.mktemp("any")
    log, name = AnyLog(random.Random(seed)), path.name
    half = len(log.batches) // 2
    write_log(path / "log" / f"{name}-0", log.batches[:half] or log.batches)
    target.create_topic(name, 1, retention_ms="-1", message_timestamp_after_max_ms=_UNLIMITED)
    with pytest.MonkeyPatch.context() as patched:
        lab = MirrorLab(path, patched)
        for number, (after, at_commit) in enumerate(kills):
            how = {"after": after, "at_commit": at_commit, "batch_bytes": sizes[number]}
            lab.may_be_killed(path / "log", target.address, name, **how)
            if number == 0:
                write_log(path / "log" / f"{name}-0", log.batches)
        write_log(path / "log" / f"{name}-0", log.batches)
        done = lab.run(path / "log", target.address, name, batch_bytes=sizes[-1])
    assert not done.errors
    assert without_offsets(rows_of(target.address, name)) == without_offsets(log.rows)
    asked = {"source": path / "log", "target": target.address, "mirror_state": lab.state}
    compared = compare(NO_SPARK, topics=name, **asked)
    assert compared.is_equal, compared.differences
    assert compared.records == len(log.rows)


@examples(1)
@given(seed=st.integers(0, 1 << 40), kills=st.lists(st.integers(0, 20), max_size=3))
def test_any_log_comes_into_a_directory_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kills: list[int]
) -> None:
    path = tmp_path_factory.mktemp("any")
    log = AnyLog(random.Random(seed))
    write_log(path / "log" / "t-0", log.batches)
    with pytest.MonkeyPatch.context() as patched:
        lab = MirrorLab(path, patched)
        for after in kills:
            lab.may_be_killed(path / "log", path / "copy", after=after)
        done = lab.run(path / "log", path / "copy")
    assert not done.errors
    assert log_bytes(path / "copy" / "t-0") == b"".join(log.batches)
    fields = "key,value,headers,time,type"
    asked = {"source": path / "log", "target": path / "copy"}
    compared = compare(NO_SPARK, fields=fields, **asked)
    assert compared.is_equal, compared.differences
    assert compared.records == len(log.rows)
