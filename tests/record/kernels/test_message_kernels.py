"""The kernels between messages of v0 and v1 and records of v2: compiled as plain Python."""

import random
import struct
import zlib
from array import array
from collections import Counter

import numpy as np
from plain_kernels import Answers, plain_and_compiled

from horolog.record import MESSAGE_KERNELS, layout, message_bytes, message_kernels
from horolog.record.record_bytes import record_bytes

POISONS = (0x00, 0xFF, 0x81)
MARGIN = 64
CASES = 3_000
INT64_MAX, INT64_MIN = (1 << 63) - 1, -(1 << 63)
TIMES = (0, -1, 1, 1_000, 1 << 40, -5_000, INT64_MAX, INT64_MIN)
SIZES = (0, 1, 3, 7, 8, 9, 31, 64)
BREAKS = (0, 1, -1, -2, 13, 14, 21, 22, 64, (1 << 31) - 1, -(1 << 31))


def hostile_messages(rng: random.Random, magic: int) -> bytes:
    """Messages of one format; a break is likely to be in one that is sound otherwise."""
    out = bytearray()
    offset = rng.choice((0, 5, 1 << 40, INT64_MAX - 8))
    breaks = rng.choice((0.0, 0.05, 0.2))
    for _ in range(rng.choice((1, 2, 5))):
        own = magic if rng.random() >= breaks else rng.choice((0, 1, 2, 255))
        key, value = (
            None if rng.random() < 0.2 else rng.randbytes(rng.choice(SIZES)) for _ in range(2)
        )
        message = bytearray(
            message_bytes(
                min(own, 1),
                offset,
                key,
                value,
                rng.choice(TIMES),
                codec=rng.choice((1, 3, 7)) if rng.random() < breaks / 4 else 0,
                is_append_time=rng.random() < 0.2,
            )
        )
        message[16] = own
        if rng.random() < breaks:
            at = rng.choice((8, 18 if min(own, 1) == 0 else 26, len(message) - 4))
            message[at : at + 4] = struct.pack(">i", rng.choice(BREAKS))
        if rng.random() >= breaks:
            message[12:16] = struct.pack(">I", zlib.crc32(message[16:]))
        out += message
        step = rng.choice((1, 1, 1, 2, 0, -3, 1 << 31)) if rng.random() < 0.3 else 1
        offset = max(INT64_MIN, min(offset + step, INT64_MAX))
    if rng.random() < 0.2:
        del out[rng.randrange(len(out) + 1) :]
    return bytes(out)


def hostile_records(rng: random.Random) -> bytes:
    out = bytearray()
    breaks = rng.choice((0.0, 0.02, 0.1))
    for delta in range(rng.choice((1, 2, 5))):
        key, value = (
            None if rng.random() < 0.2 else rng.randbytes(rng.choice(SIZES)) for _ in range(2)
        )
        headers = [(rng.randbytes(rng.choice(SIZES)), None)] * rng.choice((0, 0, 1, 3))
        record = bytearray(record_bytes(rng.choice(TIMES), delta, key, value, headers))
        for at in range(len(record)):
            if rng.random() < breaks:
                record[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        out += record
    if rng.random() < 0.2:
        del out[rng.randrange(len(out) + 1) :]
    return bytes(out)


def change_state(rng: random.Random) -> "array[int]":
    state = array("q", bytes(8 * message_kernels.CHANGE_STATE_SIZE))
    state[message_kernels.CHANGE_MAGIC] = rng.choice((0, 1))
    state[message_kernels.CHANGE_MODE] = (
        rng.choice((message_kernels.INNER, message_kernels.PLAIN))
        | rng.choice((0, message_kernels.WITH_CRCS))
        | rng.choice((0, 0, message_kernels.RENUMBER))
    )
    state[message_kernels.CHANGE_APPEND_TIME] = rng.random() < 0.2
    state[message_kernels.CHANGE_BASE_TIME] = rng.choice(TIMES)
    state[message_kernels.CHANGE_FIRST_OFFSET] = rng.choice((0, 7, INT64_MAX))
    state[message_kernels.CHANGE_SKIP_BELOW] = rng.choice((INT64_MIN, INT64_MIN, 2, 9, INT64_MAX))
    return state


def run(change, data: bytes, state: "array[int]", room: int, poison: int):
    """One call inside poisoned buffers; all that can be seen from outside."""
    state = state[:]
    around = bytes([poison]) * MARGIN
    whole = np.frombuffer(around + data + around, np.uint8)
    buffer = bytearray(around + bytes(room) + around)
    piece = memoryview(whole)[MARGIN : MARGIN + len(data)]
    out = memoryview(buffer)[MARGIN : MARGIN + room]
    status = change(piece, state, out)
    assert buffer[:MARGIN] == buffer[MARGIN + room :] == around
    filled = state[message_kernels.CHANGE_FILLED]
    return status, list(state), bytes(out[:filled])


def compare(rng, name, make, digest) -> Counter:
    plain, compiled = (getattr(each, name) for each in plain_and_compiled(MESSAGE_KERNELS))
    answers: Counter = Counter()
    seen = Answers()
    for case in range(CASES):
        state = change_state(rng)
        data = make(state)
        room = rng.choice((0, 1, 40, 100, 10_000))
        expected = run(plain, data, state, room, 0)
        answers[expected[0]] += 1
        seen.add(expected)
        for poison in POISONS:
            assert run(compiled, data, state, room, poison) == expected, case
    assert seen.digest() == digest
    return answers


def test_compiled_and_plain_read_the_same_messages(rng):
    answers = compare(
        rng,
        "to_records",
        lambda state: hostile_messages(rng, state[message_kernels.CHANGE_MAGIC]),
        "ac932d7dd8eddba8",
    )
    assert set(answers) == {
        layout.DONE,
        layout.CUT_OFF,
        layout.FULL,
        message_kernels.SMALL_MESSAGE,
        message_kernels.OTHER_MAGIC,
        message_kernels.WRONG_CRC,
        message_kernels.NESTED,
        message_kernels.BEYOND_MESSAGE,
        message_kernels.FAR_OFFSET,
        message_kernels.RUN_ENDS,
    }  # every answer there is was met


def test_compiled_and_plain_write_the_same_messages(rng):
    answers = compare(
        rng,
        "to_messages",
        lambda _: hostile_records(rng),
        "1f3556feed3598d8",
    )
    assert set(answers) == {layout.DONE, layout.CUT_OFF, layout.FULL, layout.MALFORMED}
