"""The kernels over plain messages give the same compiled and as plain Python."""

import random
import struct
import zlib
from array import array
from collections import Counter

from plain_kernels import Answers, plain_and_compiled

from horolog.record import PLAIN_KERNELS, layout, message_bytes, message_kernels, plain_kernels

CASES = 400
INT64_MIN = -(1 << 63)
TIMES = (0, -1, -5, 7, 1 << 62, INT64_MIN, (1 << 63) - 1)


def messages(rng: random.Random, magic: int) -> bytes:
    out, offset = bytearray(), rng.choice((0, -5, 1 << 40))
    broken = rng.choice((0.0, 0.1, 0.3))
    for _ in range(rng.choice((0, 1, 3, 20))):
        offset += rng.choice((1, 1, 1, 1, 1, 1, 7, 0)) if rng.random() < broken else 1
        message = bytearray(
            message_bytes(
                magic,
                offset,
                None if rng.random() < 0.3 else rng.randbytes(rng.choice((0, 3, 20))),
                None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 1, 9, 200))),
                rng.choice(TIMES),
                is_append_time=magic == 1 and rng.random() < broken / 2,
            )
        )
        if rng.random() < broken:
            at = rng.choice((8, 12, 16, 17, len(message) - 1))
            message[at] ^= 1 << rng.randrange(8)
            if rng.random() < 0.5:
                message[12:16] = struct.pack(">I", zlib.crc32(message[16:]))
        out += message
    if rng.random() < 0.3 and out:
        del out[rng.randrange(len(out)) :]
    return bytes(out)


def test_compiled_and_plain_list_the_same_messages(rng):
    plain, compiled = plain_and_compiled(PLAIN_KERNELS)
    answers: Counter[int] = Counter()
    seen = Answers()
    for case in range(CASES):
        magic = rng.choice((0, 1))
        data = messages(rng, magic)
        state = array("q", bytes(8 * plain_kernels.LIST_STATE_SIZE))
        state[plain_kernels.LIST_MAGIC] = magic
        state[plain_kernels.LIST_LAST_OFFSET] = rng.choice((INT64_MIN, INT64_MIN, 3))
        state[plain_kernels.LIST_APPEND_TIME] = rng.random() < 0.1
        state[plain_kernels.LIST_WITH_CRCS] = rng.random() < 0.5
        rows = array("q", bytes(8 * plain_kernels.LIST_ROW * rng.choice((1, 4, 50))))
        mine, mine_rows = state[:], rows[:]
        status = plain.list_messages(data, mine, mine_rows)
        answers[status] += 1
        assert compiled.list_messages(data, state, rows) == status, case
        assert (state, rows) == (mine, mine_rows)
        seen.add(status, mine, mine_rows)
    assert set(answers) == {layout.DONE, layout.CUT_OFF, message_kernels.RUN_ENDS, layout.FULL}
    assert seen.digest() == "8e174aaf2058b56f"


def test_compiled_and_plain_place_messages_alike(rng):
    plain, compiled = plain_and_compiled(PLAIN_KERNELS)
    answers: Counter[int] = Counter()
    seen = Answers()
    for case in range(CASES):
        magic = rng.choice((0, 1))
        data = bytearray(messages(rng, magic))
        state = array("q", bytes(8 * plain_kernels.PLACE_STATE_SIZE))
        state[plain_kernels.LIST_MAGIC] = magic
        state[plain_kernels.PLACE_OFFSET] = rng.choice((0, 9, 1 << 50))
        state[plain_kernels.PLACE_STAMPED] = rng.random() < 0.5
        state[plain_kernels.PLACE_TIME] = rng.choice(TIMES)
        mine, mine_data = state[:], data[:]
        status = plain.place_messages(mine_data, mine)
        answers[status] += 1
        assert compiled.place_messages(data, state) == status, case
        assert (state, data) == (mine, mine_data)
        seen.add(status, mine, mine_data)
    assert set(answers) == {layout.DONE, layout.CUT_OFF}
    assert seen.digest() == "7c3c25ea7b59cd28"
