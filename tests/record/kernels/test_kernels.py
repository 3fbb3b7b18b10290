"""Each kernel gives the same compiled and as plain Python, and reads and writes nothing else.

Every case runs the compiled kernel inside two buffers that are poisoned in different ways:
a read beyond the end would give different answers, a write beyond it is seen.
"""

import random
from array import array
from collections import Counter

import numpy as np
from batches import ALL_COLUMNS, BASE_OFFSET, generated_record
from plain_kernels import Answers, plain_and_compiled

from horolog.record import (
    COLUMN_KERNELS,
    HEADER_SIZE,
    JOIN_KERNELS,
    NOTHING,
    SCAN_KERNELS,
    batch_schema,
    build_batch,
    column_kernels,
    decode,
    join_kernels,
    layout,
    new_state,
    parse_header,
    times_for,
)

POISONS = (0x00, 0xFF, 0x81)
MARGIN = 64
CASES = 4_000
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
TIMES = (0, -1, 1, 63, 64, -65, 1 << 40, INT64_MAX, INT64_MIN)
SIZES = (0, 1, 2, 5, 63, 64, 150)
# Sizes that are not so, with what Java makes of them: the 32 lowest bits.
WRONG = (-1, -2, 1, 2, 64, 8_191, (1 << 31) - 1, -(1 << 31), 1 << 33, INT64_MAX, INT64_MIN)
RAW = (b"", b"\x80", b"\xff" * 5, b"\xff" * 4 + b"\x7f", b"\x80" * 4, b"\x80" * 10, b"\x80" * 11)


class HostileRecords:
    """Records field by field; a wound is likely to lie inside a record that is sound otherwise."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._wounds = rng.choice((0.0, 0.02, 0.1))
        self.count = rng.choice((1, 1, 2, 5))
        self.data = b"".join(self._record(index) for index in range(self.count))
        if rng.random() < 0.1:
            self.data = self.data[: rng.randrange(len(self.data) + 1)]
        if rng.random() < 0.05:
            self.data += rng.choice((b"\x00", b"\x80", self.data))
        if rng.random() < 0.1:
            self.count += rng.choice((-1, 1))

    def _record(self, index: int) -> bytes:
        pick = self._rng.choice
        body = b"\x00" + self._number(pick(TIMES)) + self._number(pick((index, index, 7, -1)))
        body += self._bytes() + self._bytes()
        headers = pick((0, 0, 0, 1, 3))
        body += self._number(headers)
        for _ in range(headers):
            body += self._bytes(pick(SIZES)) + self._bytes()
        return self._number(len(body)) + body

    def _bytes(self, size: int | None = None) -> bytes:
        size = self._rng.choice((-1, *SIZES)) if size is None else size
        return self._number(size) + self._rng.randbytes(max(0, size))

    def _number(self, value: int) -> bytes:
        if self._rng.random() < self._wounds:
            match self._rng.randrange(3):
                case 0:
                    return self._rng.choice(RAW)
                case 1:
                    value = self._rng.choice(WRONG)
                case _:
                    value += self._rng.choice((-1, 1))
        raw = (value << 1 ^ value >> 63) & (1 << 64) - 1
        out = bytearray()
        while raw > 0x7F:
            out.append(raw & 0x7F | 0x80)
            raw >>= 7
        if self._rng.random() < 0.02 and len(out) < 4:
            return bytes([*out, raw | 0x80, 0])  # longer than it need be
        return bytes([*out, raw])


def walk_state(rng: random.Random, count: int) -> "array[int]":
    state = array("q", bytes(8 * layout.WALK_STATE_SIZE))
    state[layout.RECORDS_LEFT] = max(0, count)
    state[layout.BASE] = rng.choice((1_000, -1, INT64_MAX, INT64_MIN))
    state[layout.APPEND_TIME] = rng.random() < 0.2
    state[layout.SEARCH] = rng.choice((0, 0, 1, 2))
    state[layout.TARGET] = rng.choice((1_000, 1_064, -1, INT64_MAX, INT64_MIN))
    state[layout.MIN_DELTA] = rng.choice((0, 1, 3, INT64_MIN, INT64_MAX))
    state[layout.CHECK] = rng.choice((0, 0, 1, 2, 3))
    state[layout.NOW] = rng.choice((1_000, 1_064, -1, INT64_MAX, INT64_MIN))
    state[layout.EARLIEST] = max(INT64_MIN, state[layout.NOW] - rng.choice((0, 64, INT64_MAX)))
    state[layout.AFTER_MAX] = rng.choice((0, 64, INT64_MAX))
    state[layout.MEASURE] = rng.random() < 0.5
    return state


def poisoned(data: bytes, poison: int) -> memoryview:
    """The bytes in the middle of a buffer of something else."""
    buffer = bytes([poison]) * MARGIN + data + bytes([poison]) * MARGIN
    return memoryview(buffer)[MARGIN : MARGIN + len(data)]


def run_walk(walk, data: bytes, state: "array[int]", cuts: list[int], poison: int | None = None):
    """Walk in pieces as the scan does; all that can be seen from outside."""
    state, carry, seen = state[:], b"", []
    faults = array("q", [-7] * layout.FAULT_SIZE * 2)
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        piece = carry + data[start:end]
        times = times_for(piece, state)
        if poison is not None:
            status = walk(poisoned(piece, poison), 0, state, times, faults)
        else:
            status = walk(piece, 0, state, times, faults)
        seen.append((status, list(state), list(times), list(faults)))
        if status != layout.DONE:
            break
        carry = piece[state[layout.POSITION] :]
        assert len(carry) <= 10
    return seen


def test_the_walk_is_the_same_compiled_and_plain_step_by_step(rng):
    plain, compiled = plain_and_compiled(SCAN_KERNELS)
    endings, answers = Counter(), Answers()
    for _ in range(CASES):
        hostile = HostileRecords(rng)
        data, state = hostile.data, walk_state(rng, hostile.count)
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 1, 5))))
        expected = run_walk(plain.walk, data, state, cuts)
        endings[expected[-1][0]] += 1
        answers.add(expected)
        for poison in POISONS:
            assert run_walk(compiled.walk, data, state, cuts, poison) == expected
    assert set(endings) == set(range(layout.NEXT_RECORD))  # every answer there is was met
    assert answers.digest() == "0049b4744a45f45f"


def test_the_walk_is_the_same_compiled_and_plain_over_many_records(rng):
    plain, compiled = plain_and_compiled(SCAN_KERNELS)
    records = [generated_record(rng) for _ in range(2_000)]
    data = build_batch(records, base_offset=BASE_OFFSET)
    fresh = new_state(parse_header(data))
    fresh[layout.MEASURE], fresh[layout.NOW] = 1, records[0].timestamp + 1_000
    assert run_walk(compiled.walk, data[HEADER_SIZE:], fresh, [], 0xFF) == run_walk(
        plain.walk, data[HEADER_SIZE:], fresh, []
    )


class Guarded:
    """An output array between margins that must stay as they are."""

    def __init__(self, size: int, kind, poison: int) -> None:
        self._whole = np.frombuffer(
            bytearray([poison]) * ((size + 2 * MARGIN) * np.dtype(kind).itemsize), kind
        )
        self.array = self._whole[MARGIN : MARGIN + size]
        self._margins = self._margin_bytes()

    def _margin_bytes(self) -> tuple[bytes, bytes]:
        return self._whole[:MARGIN].tobytes(), self._whole[-MARGIN:].tobytes()

    def assert_margins_stand(self) -> None:
        assert self._margin_bytes() == self._margins


def outputs(room: int, poison: int) -> list[Guarded]:
    rows, headers = room // column_kernels.ROW_BYTES, room // column_kernels.HEADER_BYTES
    shapes = [
        (rows, np.int64),
        (rows, np.int64),
        (rows, np.int32),
        *[(rows + 1, np.int32), (room, np.uint8), (rows, np.uint8)] * 2,
        (rows + 1, np.int32),
        *[(headers + 1, np.int32), (room, np.uint8), (headers, np.uint8)] * 2,
    ]
    return [Guarded(size, kind, poison) for size, kind in shapes]


def gather_state(rng: random.Random) -> "array[int]":
    state = array("q", bytes(8 * column_kernels.GATHER_STATE_SIZE))
    state[column_kernels.FIRST_MS] = rng.choice((INT64_MIN, INT64_MIN, 1_000, 1_001))
    state[column_kernels.LAST_MS] = rng.choice((INT64_MAX, INT64_MAX, 1_000, 1_063))
    state[column_kernels.FIRST_OFFSET] = rng.choice((INT64_MIN, INT64_MIN, BASE_OFFSET + 1))
    state[column_kernels.LAST_OFFSET] = rng.choice((INT64_MAX, INT64_MAX, BASE_OFFSET + 1))
    state[column_kernels.COLUMNS] = rng.randrange(8)
    state[column_kernels.BYTES_LEFT] = rng.choice((2_000, rng.randrange(400)))
    return state


def gather_plan(rng: random.Random) -> "tuple[bytes, array[int]]":
    """Stretches of records with bytes between that belong to none."""
    data, plan = b"", array("q")
    for _ in range(rng.choice((1, 1, 3))):
        data += rng.choice((b"", b"\x00", b"\xff" * 61))
        hostile = HostileRecords(rng)
        base, base_offset = rng.choice((1_000, INT64_MAX)), rng.choice((BASE_OFFSET, INT64_MAX))
        start = len(data)
        data += hostile.data
        plan.extend((start, len(data), hostile.count, base_offset, base, rng.random() < 0.2))
    return data + rng.choice((b"", b"\x02" * 9)), plan


def run_gather(gather, data: bytes, plan: "array[int]", state: "array[int]", poison: int):
    """Answer, plan, state, and all that was written."""
    plan, state = plan[:], state[:]
    guarded = outputs(state[column_kernels.BYTES_LEFT], poison)
    arrays = [item.array for item in guarded]
    numbers, columns = arrays[:3], tuple(arrays[3:])
    status = gather(poisoned(data, poison), plan, state, *numbers, columns)
    for item in guarded:
        item.assert_margins_stand()
    return status, list(plan), list(state), [item.tobytes() for item in arrays]


def test_gathering_gives_the_same_columns_compiled_and_plain(rng):
    plain, compiled = plain_and_compiled(COLUMN_KERNELS)
    endings, seen = Counter(), Answers()
    for case in range(CASES):
        data, plan = gather_plan(rng)
        state = gather_state(rng)
        poison = POISONS[case % len(POISONS)]
        expected = run_gather(plain.gather, data, plan, state, poison)
        endings[expected[0]] += 1
        seen.add(expected)
        assert run_gather(compiled.gather, data, plan, state, poison) == expected
    answers = {"DONE", "CUT_OFF", "FULL", "MALFORMED"}
    assert set(endings) == {getattr(layout, name) for name in answers}
    assert seen.digest() == "37abc37f8373fd0d"


def sealed(array):
    array.flags.writeable = False
    return array


def scatter_inputs(rng: random.Random, rows: int):
    """Columns as the writer takes them, with nulls and headers now and then."""

    def bytes_column(count: int):
        sizes = [rng.choice((0, 0, 1, 7, 63, 64, 200)) for _ in range(count)]
        skipped = rng.choice((0, 5))  # a slice begins within its data
        ends = np.cumsum([skipped, *sizes]).astype(np.int64)
        data = np.frombuffer(rng.randbytes(int(ends[-1]) + 3), np.uint8)
        valid = np.array([rng.random() < 0.7 for _ in range(count)], np.uint8)
        has_nulls = rng.random() < 0.7
        return column_kernels.Column(
            sealed(ends), data, sealed(valid if has_nulls else np.empty(0, np.uint8))
        )

    times = np.array(
        [rng.choice((-1, 0, 1_000, 1_063, 1_064, INT64_MIN, INT64_MAX)) for _ in range(rows)],
        np.int64,
    )
    per_row = [rng.choice((0, 0, 1, 3)) for _ in range(rows)]
    header_ends = np.cumsum([0, *per_row]).astype(np.int64)
    headers = int(header_ends[-1])
    deltas = np.array([rng.choice((0, 1, 63, 64, (1 << 31) - 1)) for _ in range(rows)], np.int64)
    order = np.array([rng.randrange(rows) for _ in range(rng.randint(0, rows))], np.int64)
    return (
        order,
        deltas if rng.random() < 0.5 else deltas[:0],
        times,
        column_kernels.Columns(
            bytes_column(rows),
            bytes_column(rows),
            sealed(header_ends),
            bytes_column(headers)._replace(valid=sealed(np.empty(0, np.uint8))),
            bytes_column(headers),
        ).arrays(),
    )


def run_scatter(scatter, columns, room: int, poison: int, *, with_ends: bool):
    """Answer, state, where records end, and the bytes written."""
    state = array("q", bytes(8 * column_kernels.SCATTER_STATE_SIZE))
    state[column_kernels.MAX_TIMESTAMP] = -1
    state[column_kernels.BASE_TIMESTAMP] = 1_000
    order, times = columns[0], columns[2]
    state[column_kernels.END_ROW] = len(order) or len(times)
    state[column_kernels.FIRST_ROW] = -3  # of a batch that has rows of other columns
    out = Guarded(room, np.uint8, poison)
    ends = Guarded(state[column_kernels.END_ROW] if with_ends else 0, np.int64, poison)
    status = scatter(out.array, state, ends.array, *columns)
    out.assert_margins_stand()
    ends.assert_margins_stand()
    return status, list(state), ends.array.tobytes(), out.array.tobytes()


def test_scattering_gives_the_same_bytes_compiled_and_plain(rng):
    plain, compiled = plain_and_compiled(COLUMN_KERNELS)
    answers = Answers()
    for case in range(CASES // 8):
        columns = scatter_inputs(rng, rng.choice((0, 1, 5, 20)))
        poison = POISONS[case % len(POISONS)]
        ends = rng.random() < 0.5
        _, state, *_ = run_scatter(plain.scatter, columns, 20_000, poison, with_ends=ends)
        exact = state[column_kernels.FILLED]
        for room in (20_000, exact, max(0, exact - 1), rng.randrange(400)):
            expected = run_scatter(plain.scatter, columns, room, poison, with_ends=ends)
            found = run_scatter(compiled.scatter, columns, room, poison, with_ends=ends)
            assert found == expected
            answers.add(expected)
    assert answers.digest() == "cd1946d0bb5cff18"


def test_kernels_take_buffers_that_cannot_be_written_and_ones_that_can(rng):
    SCAN_KERNELS.load()
    data = build_batch([generated_record(rng) for _ in range(5)])
    for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(data))):
        state = new_state(parse_header(data))
        walked = SCAN_KERNELS.run.walk(buffer, HEADER_SIZE, state, NOTHING, NOTHING)
        assert walked == layout.DONE
        assert state[layout.COUNT] == 5
        (table,) = decode(buffer, columns=ALL_COLUMNS)
        assert table.schema == batch_schema(ALL_COLUMNS)
        assert table.num_rows == 5


SHIFTS = (0, 1, -1, 64, -8_192, join_kernels.FARTHEST_TIME_DELTA, -join_kernels.FARTHEST_TIME_DELTA)


def test_compiled_and_plain_join_the_same_records(rng):
    plain, compiled = plain_and_compiled(JOIN_KERNELS)
    answers: Counter[int] = Counter()
    seen = Answers()
    for _ in range(CASES):
        hostile = HostileRecords(rng)
        state = array("q", bytes(8 * join_kernels.JOIN_STATE_SIZE))
        state[join_kernels.JOIN_RECORDS] = rng.choice((hostile.count, hostile.count, -1, INT64_MAX))
        state[join_kernels.JOIN_SHIFT] = rng.choice(SHIFTS)
        state[join_kernels.JOIN_DELTA] = rng.choice((0, 0, 63, 8_191, 1 << 30))
        room = max(1, len(hostile.data) + rng.choice((200, 200, 0, -5)))
        state[join_kernels.JOIN_FILLED] = rng.choice((0, 1, room))
        mine, own = state[:], Guarded(room, np.uint8, 0)
        expected = plain.join(hostile.data, mine, own.array)
        answers[expected] += 1
        seen.add(expected, mine, bytes(own.array[: mine[join_kernels.JOIN_FILLED]]))
        for poison in POISONS:
            theirs, out = state[:], Guarded(room, np.uint8, poison)
            status = compiled.join(poisoned(hostile.data, poison), theirs, out.array)
            assert (status, theirs) == (expected, mine)
            start, end = state[join_kernels.JOIN_FILLED], mine[join_kernels.JOIN_FILLED]
            assert bytes(out.array[start:end]) == bytes(own.array[start:end])
            assert bytes(out.array[:start]) == bytes([poison]) * start
            out.assert_margins_stand()
    assert set(answers) == {layout.DONE, layout.FULL, layout.MALFORMED}
    assert seen.digest() == "984abd74af551feb"
