"""The kernel that plans batches gives the same compiled and as plain Python."""

import random
from array import array
from collections import Counter

from plain_kernels import Answers, plain_and_compiled

from horolog.record import (
    COLUMN_KERNELS,
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    column_kernels,
    parse_header,
)

CASES = 1_500
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
OFFSETS = (0, 0, 7, 1 << 40, INT64_MAX - (1 << 32) + 1, INT64_MAX - 3, INT64_MIN)
FIELDS = (0, 8, 11, 16, 17, 21, 22, 23, 26, 27, 35, 57, 60)  # of a header: where one begins or ends


def batches(rng: random.Random) -> bytes:
    out, offset = bytearray(), rng.choice(OFFSETS)
    broken, codec = rng.choice((0.0, 0.1, 0.3)), rng.choice((Codec.NONE, Codec.NONE, Codec.LZ4))
    for _ in range(rng.choice((0, 1, 3, 20))):
        records = [LogRecord(rng.choice((-1, 5)), None, rng.randbytes(9))] * rng.choice((1, 2, 9))
        batch = bytearray(
            build_batch(
                records,
                base_offset=offset,
                codec=rng.choice(list(Codec)) if rng.random() < broken else codec,
                timestamp_type=rng.choice(list(TimestampType)),
            )
        )
        batch[43:57] = rng.choice((bytes(14), b"\xff" * 14, rng.randbytes(14)))  # its producer
        offset = parse_header(batch).next_offset - (rng.random() < broken / 2)
        if offset > INT64_MAX:
            offset = 0
        if rng.random() < broken:
            batch[rng.choice(FIELDS)] ^= 1 << rng.randrange(8)
        out += batch
    if out and rng.random() < 0.3:
        del out[rng.randrange(len(out)) :]
    return bytes(out)


def test_compiled_and_plain_plan_the_same_batches(rng: random.Random) -> None:
    plain, compiled = plain_and_compiled(COLUMN_KERNELS)
    planned: Counter[int] = Counter()
    answers = Answers()
    for case in range(CASES):
        data = batches(rng)
        state = array("q", bytes(8 * column_kernels.PLAN_STATE_SIZE))
        state[column_kernels.PLAN_LEFT] = rng.choice((0, 1, 100, 1 << 20, 1 << 20))
        state[column_kernels.PLAN_LEAST_OFFSET] = rng.choice((*[INT64_MIN] * 5, 7, 8))
        state[column_kernels.PLAN_FIRST_OFFSET] = rng.choice((*[INT64_MIN] * 5, 8))
        state[column_kernels.PLAN_LAST_OFFSET] = rng.choice((*[INT64_MAX] * 5, 9, INT64_MIN))
        state[column_kernels.PLAN_AS_CREATED] = rng.choice((0, 0, 1))
        plan = array("q", bytes(8 * column_kernels.STRETCH_SIZE * rng.choice((1, 4, 50, 50))))
        facts = array("q", bytes(8 * column_kernels.FACTS_SIZE * rng.choice((1, 50, 50))))
        mine = [each[:] for each in (state, plan, facts)]
        plain.plan_batches(data, *mine)
        compiled.plan_batches(data, state, plan, facts)
        assert [state, plan, facts] == mine, case
        answers.add(mine)
        planned[state[column_kernels.PLAN_COUNT]] += 1
    assert planned[0] > CASES // 10
    assert planned[1] > CASES // 20
    assert planned[20] > 0
    assert answers.digest() == "23be7ed954336cb0"
