"""Requests that follow the protocol and make little sense, and requests that do not follow it."""

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from wire_messages import BITS

from horolog.wire import ApiKey, Field, Shape, encode_request, load

NAMES = (
    "t", "t", "t", "", ".", "nowhere", "new.topic", "new_topic", "__consumer_offsets",
    "forged\n2030-01-01 00:00:00,000 ERROR horolog: no", "\r\x1b[31m\u2028\u202e", "é\U0001f600",
    "x" * 250, "y" * 32_767, "g", "simple", "m", "1", "-1", "consumer", "range", "roundrobin",
    "retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes", "horolog.clock.ms",
    "horolog.append.time.reset", "compact", "stable", "classic", "0",
)  # fmt: skip
SMALL = (0, 0, 0, 1, 1, 2, 3, -1, -1, -2, -3, -6, 4, 5, 8, 16, 32, 100, 1000)


class Wild:
    """Requests drawn from a seed; `topic_ids` and `batches` are some that are in order."""

    def __init__(self, seed: int, topic_ids: Sequence[UUID], batches: Sequence[bytes]) -> None:
        self._random = random.Random(seed)
        self._topic_ids = topic_ids
        self._batches = batches

    def body(self, key: ApiKey, version: int) -> bytes:
        """The body of a request."""
        shape = load("request", key, version)
        while True:
            try:
                body = encode_request(key, version, self._structure(shape))
            except ValueError:
                continue  # a name that is too long for this field
            return self._mutated(body) if self._random.random() < 0.3 else body

    def _structure(self, shape: Shape) -> dict[str, Any]:
        return {each.name: self._field(each) for each in shape.fields}

    def _field(self, each: Field) -> Any:
        if each.is_nullable and self._random.random() < 0.15:
            return None
        if not each.is_array:
            return self._value(each)
        values = [self._value(each) for _ in range(self._random.choice((0, 1, 1, 1, 2, 3)))]
        return values * self._random.choice((1, 1, 1, 1, 2))

    def _value(self, each: Field) -> Any:
        if each.shape is not None:
            return self._structure(each.shape)
        match each.type:
            case "bool":
                return self._random.random() < 0.5
            case "string":
                return self._random.choice(NAMES)
            case "bytes":
                return self._random.randbytes(self._random.choice((0, 1, 20, 300)))
            case "records":
                batch = self._random.choice(self._batches)
                return self._mutated(batch) if self._random.random() < 0.4 else batch
            case "uuid":
                return self._random.choice((None, UUID(int=7), *self._topic_ids))
            case "float64":
                return self._random.choice((0.0, -1.5, float("nan"), float("inf")))
            case "uint16":
                return self._random.choice((0, 1, 65_535))
            case number:
                return self._number(BITS[number])

    def _number(self, bits: int) -> int:
        most = 2**bits - 1
        if self._random.random() < 0.8:
            return max(min(self._random.choice(SMALL), most), -most - 1)
        any_number = self._random.getrandbits(bits)
        return self._random.choice((most, most - 1, -most - 1, most // 2, any_number))

    def _mutated(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._random.choice((1, 1, 2, 5))):
            at = self._random.randrange(len(changed) + 1)
            match self._random.randrange(4):
                case 0 if changed:
                    changed[at % len(changed)] = self._random.getrandbits(8)
                case 1:
                    del changed[at:]
                case 2:
                    changed[at:at] = self._random.randbytes(self._random.choice((1, 4, 9)))
                case _:
                    del changed[at : at + 1 + self._random.randrange(4)]
        return bytes(changed)
