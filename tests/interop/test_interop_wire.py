"""The same bytes sent to Apache Kafka and to horolog: the same answers, and the same bytes stored.

Where we mean to answer differently, the reason stands at the case.
"""

import re
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

import cramjam
import pytest
import xxhash
from confluent_kafka.admin import AdminClient, NewTopic

from horolog.clock import SystemClock
from horolog.record import HEADER_SIZE, Codec, LogRecord, TimestampType, build_batch, parse_header
from horolog.record import with_records as packed
from horolog.wire import (
    ApiKey,
    decode_response,
    encode_request,
    parse_response_header,
    request_prefix,
)

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
DAY_MS = 86_400_000
SILENT_S = 30  # after which a broker is taken not to answer at all; one case of Kafka's does not


class Answers(NamedTuple):
    """What each side answered."""

    horolog: Any
    kafka: Any


class Pair:
    """A horolog and an Apache Kafka that are asked the same."""

    def __init__(self, horolog: str, kafka: str) -> None:
        self._bootstraps = {"horolog": horolog, "kafka": kafka}

    def create(self, topic: str, config: Mapping[str, str]) -> None:
        for bootstrap in self._bootstraps.values():
            admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
            made = NewTopic(topic, 1, 1, config={"retention.ms": "-1", **config})
            admin.create_topics([made])[topic].result()
            for _ in range(50):  # until it has a leader that answers
                told = ask(bootstrap, ApiKey.LIST_OFFSETS, 1, at_time(topic, -1))
                if told.topics[0].partitions[0].error_code == 0:
                    break

    def ask(self, api: ApiKey, version: int, request: Mapping[str, Any]) -> Answers:
        told = {name: ask(to, api, version, request) for name, to in self._bootstraps.items()}
        return Answers(**told)


def ask(bootstrap: str, api: ApiKey, version: int, request: Mapping[str, Any]) -> Any:
    """The answer, or "closed" where the broker closed the connection, or "no answer"."""
    host, _, port = bootstrap.rpartition(":")
    body = encode_request(api, version, request)
    with socket.create_connection((host, int(port)), timeout=SILENT_S) as connection:
        connection.sendall(request_prefix(api, version, 7, "interop", len(body)) + body)
        frame = b""
        while len(frame) < 4 or len(frame) < 4 + int.from_bytes(frame[:4], "big"):
            try:
                received = connection.recv(1 << 20)
            except TimeoutError:
                return "no answer"
            if not received:
                return "closed"
            frame += received
    _, position = parse_response_header(frame[4:], api, version)
    return decode_response(api, version, frame[4:], position)


@pytest.fixture(scope="module")
def pair(both_brokers) -> Pair:
    return Pair(both_brokers[0].bootstrap, both_brokers[1].bootstrap)


# --- requests -----------------------------------------------------------------------------------


def produce(topic: str, records: bytes | None, *, acks: int = -1) -> dict[str, Any]:
    data = {"index": 0, "records": records}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 10_000,
        "topic_data": [{"name": topic, "partition_data": [data]}],
    }


def at_time(topic: str, timestamp: int) -> dict[str, Any]:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [asked]}],
        "timeout_ms": 10_000,
    }


def fetch(
    topic: str, offset: int, *, max_bytes: int = 1 << 20, isolation: int = 0
) -> dict[str, Any]:
    asked = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    return {
        "replica_id": -1,
        "max_wait_ms": 100,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "isolation_level": isolation,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "topic_id": UUID(int=0), "partitions": [asked]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


# --- answers, without what must differ ----------------------------------------------------------


def produced(answer: Any) -> dict[str, Any]:
    told = answer.responses[0].partition_responses[0]
    message = getattr(told, "error_message", None)
    return {
        "error": int(told.error_code),
        "base_offset": told.base_offset,
        "append_time": told.log_append_time_ms is not None and as_ms(told.log_append_time_ms) != -1,
        "log_start_offset": getattr(told, "log_start_offset", None),
        "record_errors": [
            (one.batch_index, timeless(one.batch_index_error_message))
            for one in getattr(told, "record_errors", ())
        ],
        "message": timeless(message),
    }


def fitting(ours: Any, theirs: Any) -> Any:
    """Ours without the sentences that we add to Kafka's, or say where Kafka says nothing."""
    if isinstance(ours, str) or isinstance(theirs, str):
        return ours
    if theirs["message"] is None:
        ours = {**ours, "message": None}
    if len(ours["record_errors"]) == len(theirs["record_errors"]):
        pairs = zip(ours["record_errors"], theirs["record_errors"], strict=True)
        said = [
            (at, message if message is None or his is None else message[: len(his)])
            for (at, message), (_, his) in pairs
        ]
        ours = {**ours, "record_errors": said}
    return ours


def as_ms(value: Any) -> int:
    return value if isinstance(value, int) else int(value.timestamp() * 1000)


def timeless(message: str | None) -> str | None:
    """A message without the bounds, which hang on the moment, and without our own hints."""
    if message is None:
        return None
    message = re.sub(r"within \[-?\d+, -?\d+\]", "within [...]", message)
    return re.sub(r"in message (with offset \d+|\w+\(.*\))\.", "in message ...", message)


def stored(answer: Any) -> tuple[int, int, int, int, bytes]:
    told = answer.responses[0].partitions[0]
    data = bytearray(told.records or b"")
    if len(data) >= HEADER_SIZE:
        data[12:16] = b"...."  # the leader epoch hangs on how often a side was started
    return (
        int(told.error_code),
        told.high_watermark,
        told.last_stable_offset,
        getattr(told, "log_start_offset", -1),
        bytes(data),
    )


def found(answer: Any) -> tuple[int, int, int, bool]:
    told = answer.topics[0].partitions[0]
    epoch = getattr(told, "leader_epoch", -1)
    return int(told.error_code), told.timestamp, told.offset, epoch >= 0


# --- batches ------------------------------------------------------------------------------------


def now_ms() -> int:
    return SystemClock().now_ms()


def batch(*timestamps: int, **settings: Any) -> bytes:
    records = [
        LogRecord(at, b"k", b"value %d" % n) for n, at in enumerate(timestamps or (now_ms(),))
    ]
    return build_batch(records, **settings)


def changed(data: bytes, **fields: int) -> bytes:
    """The batch with other header fields and a CRC that fits."""
    header = parse_header(data)._replace(**fields)
    return packed(header, data[HEADER_SIZE:])


def with_records(data: bytes, records: bytes, **fields: int) -> bytes:
    """The batch with other bytes for its records."""
    return packed(parse_header(data)._replace(**fields), records)


def flip(data: bytes, at: int) -> bytes:
    spoilt = bytearray(data)
    spoilt[at] ^= 0x10
    return bytes(spoilt)


def odd_deltas(codec: Codec = Codec.NONE) -> bytes:
    """Three records whose offset deltas are 0, 2, 1."""
    data = bytearray(batch(now_ms(), now_ms(), now_ms()))
    at = HEADER_SIZE
    for delta in (0, 4, 2):  # zigzag of 0, 2, 1
        data[at + 3] = delta  # length, attributes and a time delta of one byte each before it
        at += 1 + data[at] // 2
    plain = bytes(data)
    if codec is Codec.NONE:
        return changed(plain)
    packed = bytes(cramjam.zstd.compress(plain[HEADER_SIZE:]))
    return with_records(plain, packed, attributes=int(codec))


def linked_lz4() -> bytes:
    """An lz4 frame whose blocks may lean on the ones before; Java cannot read such a one."""
    plain = batch(now_ms())
    data = plain[HEADER_SIZE:]
    flags, block = 0x40, 0x40
    check = xxhash.xxh32_intdigest(bytes([flags, block])) >> 8 & 0xFF
    head = struct.pack("<IBBB", 0x184D2204, flags, block, check)
    frame = head + struct.pack("<I", len(data) | 0x80000000) + data + struct.pack("<I", 0)
    return with_records(plain, frame, attributes=int(Codec.LZ4))


class Case(NamedTuple):
    """A topic's settings, what is sent to it, and with which version."""

    data: Callable[[], bytes | None]
    config: Mapping[str, str] = {}
    version: int = 11


LAT = {"message.timestamp.type": "LogAppendTime"}
BOUNDS = {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}
ENDLESS = {"message.timestamp.after.max.ms": str(LONG_MAX)}
DECOMPRESSED = "max.decompressed.message.bytes"
SMALL, LARGE = LogRecord(now_ms(), b"k", b"v"), LogRecord(now_ms(), b"k", b"v" * 500)
TINY_RECORDS, SMALL_RECORDS, LARGE_RECORDS = ({DECOMPRESSED: it} for it in ("4", "507", "508"))
APPEND_TIME = {"timestamp_type": TimestampType.LOG_APPEND_TIME}

CASES: dict[str, Case] = {
    "good": Case(batch),
    "good, version 3": Case(batch, version=3),
    "good, version 5": Case(batch, version=5),
    "good, version 9": Case(batch, version=9),
    "good, version 12": Case(batch, version=12),
    "append time": Case(lambda: batch(5, 6), LAT),
    "append time, zstd": Case(lambda: batch(5, 6, codec=Codec.ZSTD), LAT),
    "bad crc": Case(lambda: flip(batch(), 70)),
    "bad crc of a broken length": Case(lambda: flip(batch(), HEADER_SIZE)),
    "base offset not zero": Case(lambda: batch(base_offset=5)),
    "no records at all": Case(lambda: b""),
    "null records": Case(lambda: None),
    "two batches": Case(lambda: batch() + batch()),
    "a torn batch": Case(lambda: batch()[:-3]),
    "a torn batch after a whole one": Case(lambda: batch() + batch()[:-3]),
    "magic 3": Case(lambda: batch()[:16] + b"\x03" + batch()[17:]),
    "magic 1 in a v2 frame": Case(lambda: batch()[:16] + b"\x01" + batch()[17:]),
    "count too large": Case(lambda: changed(batch(), records_count=2)),
    "count and delta too large": Case(
        lambda: changed(batch(), records_count=2, last_offset_delta=1)
    ),
    "count too small": Case(
        lambda: changed(batch(now_ms(), now_ms()), records_count=1, last_offset_delta=0)
    ),
    "count zero": Case(lambda: changed(batch(), records_count=0)),
    "count negative": Case(lambda: changed(batch(), records_count=-1)),
    "delta negative": Case(lambda: changed(batch(), last_offset_delta=-1)),
    "odd offset deltas": Case(odd_deltas),
    "odd offset deltas, zstd": Case(lambda: odd_deltas(Codec.ZSTD)),
    "control batch": Case(lambda: batch(is_control=True)),
    "producer without sequence": Case(lambda: batch(producer_id=7, producer_epoch=0)),
    "claims append time": Case(lambda: batch(now_ms(), **APPEND_TIME)),
    "claims append time, no time": Case(lambda: batch(-1, **APPEND_TIME)),
    "claims append time on an append-time topic": Case(lambda: batch(now_ms(), **APPEND_TIME), LAT),
    "claims append time, out of bounds": Case(lambda: batch(5, **APPEND_TIME), BOUNDS),
    "too old": Case(lambda: batch(now_ms(), 5), BOUNDS),
    "too far ahead": Case(lambda: batch(now_ms() + DAY_MS)),
    "too old, version 7": Case(lambda: batch(5), BOUNDS, 7),
    "too old, compressed": Case(lambda: batch(5, now_ms(), 6, codec=Codec.GZIP), BOUNDS),
    "five too old": Case(lambda: batch(1, 2, 3, 4, 5), BOUNDS),
    "no time, tight bounds": Case(lambda: batch(-1, -1), BOUNDS),
    "far ahead, bound lifted": Case(lambda: batch(LONG_MAX, now_ms()), ENDLESS),
    "smallest time, default bounds": Case(lambda: batch(LONG_MIN)),
    "codec 5": Case(lambda: changed(batch(), attributes=5)),
    "zstd, version 6": Case(lambda: batch(codec=Codec.ZSTD), version=6),
    "packed garbage": Case(lambda: with_records(batch(), b"garbage", attributes=int(Codec.GZIP))),
    "linked lz4 blocks": Case(linked_lz4),
    "unknown attribute bits": Case(lambda: changed(batch(), attributes=0x7F80)),
    "delete horizon bit": Case(lambda: changed(batch(), attributes=0x40)),
    "largest time too large": Case(lambda: changed(batch(5), max_timestamp=now_ms())),
    "largest time too small": Case(lambda: changed(batch(5), max_timestamp=1)),
    "transactional flag alone": Case(lambda: changed(batch(), attributes=0x10)),
    "too large": Case(lambda: batch(*[now_ms()] * 50), {"max.message.bytes": "300"}),
    "too large when decompressed": Case(lambda: batch(codec=Codec.ZSTD), TINY_RECORDS),
    "second too large when decompressed": Case(
        lambda: build_batch([SMALL, LARGE], codec=Codec.GZIP), SMALL_RECORDS
    ),
    "both just as large as may be": Case(
        lambda: build_batch([LARGE, LARGE], codec=Codec.LZ4), LARGE_RECORDS
    ),
    "too large without a codec": Case(lambda: build_batch([SMALL, LARGE]), SMALL_RECORDS),
    "rest behind the records": Case(
        lambda: with_records(batch(), batch()[HEADER_SIZE:] + b"\x00\x00")
    ),
}


class Otherwise(NamedTuple):
    """The errors of both sides where we mean to differ, and why."""

    ours: int
    theirs: int | str
    why: str


BEFORE_3_6 = "since 3.6 Kafka takes it and sets the flag back; KIP-32 forbids the claim"

OTHERWISE = {
    "null records": Otherwise(87, "no answer", "Kafka 4.3 throws and never answers"),
    "magic 3": Otherwise(87, 2, "both say that it is no batch of v2"),
    "odd offset deltas": Otherwise(87, 0, "Kafka stores offsets that repeat"),
    "odd offset deltas, zstd": Otherwise(87, -1, "Kafka throws"),
    "claims append time": Otherwise(32, 0, BEFORE_3_6),
    "claims append time, out of bounds": Otherwise(32, 32, BEFORE_3_6),
    "delete horizon bit": Otherwise(0, 0, "Kafka keeps the bit; a horizon is the cleaner's to set"),
    "codec 5": Otherwise(76, -1, "Kafka has no code for it but the unexpected"),
    "packed garbage": Otherwise(87, -1, "Kafka has no code for it but the unexpected"),
    "linked lz4 blocks": Otherwise(87, -1, "Kafka has no code for it but the unexpected"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_produce_request_gets_the_same_answer(pair, topic, name):
    case = CASES[name]
    to = topic("wire")
    pair.create(to, case.config)
    data = case.data()
    answers = pair.ask(ApiKey.PRODUCE, case.version, produce(to, data))
    ours, theirs = (
        one if isinstance(one, str) else produced(one) for one in (answers.horolog, answers.kafka)
    )
    if name in OTHERWISE:
        errors = [one if isinstance(one, str) else one["error"] for one in (ours, theirs)]
        assert errors == list(OTHERWISE[name][:2])
        return
    after = pair.ask(ApiKey.FETCH, 12, fetch(to, 0))
    assert fitting(ours, theirs) == theirs
    kept = [list(stored(one)) for one in after]
    if case.config == LAT:
        for one in kept:
            one[4] = one[4][:17] + one[4][21:35] + one[4][43:]  # without crc and append time
    assert kept[0] == kept[1]


@pytest.mark.parametrize("version", [1, 2, 4, 6, 7, 8, 9, 10, 11])
@pytest.mark.parametrize("target", [0, 6, 9, 10, LONG_MAX, *range(-8, 0), LONG_MIN])
def test_the_same_moment_is_found(pair, topic, version, target):
    to = topic("wire-lookup")
    pair.create(to, {})
    pair.ask(ApiKey.PRODUCE, 11, produce(to, batch(5, 9, 7)))
    answers = pair.ask(ApiKey.LIST_OFFSETS, version, at_time(to, target))
    assert found(answers.horolog) == found(answers.kafka)


@pytest.mark.parametrize("version", [4, 5, 7, 10, 11, 12])
@pytest.mark.parametrize("offset", [0, 1, 3, 4, 99, -1])
def test_the_same_fetch_gets_the_same_answer(pair, topic, version, offset):
    to = topic("wire-fetch")
    pair.create(to, {})
    pair.ask(ApiKey.PRODUCE, 11, produce(to, batch(5, 9, 7)))
    for isolation in (0, 1):
        for max_bytes in (1 << 20, 1):
            request = fetch(to, offset, max_bytes=max_bytes, isolation=isolation)
            answers = pair.ask(ApiKey.FETCH, version, request)
            assert stored(answers.horolog) == stored(answers.kafka)


def test_the_same_unknown_topic_is_refused(pair):
    for api, version, request, read in (
        (ApiKey.PRODUCE, 9, produce("not created", batch()), produced),
        (ApiKey.FETCH, 11, fetch("not-created", 0), stored),
        (ApiKey.LIST_OFFSETS, 6, at_time("not-created", -1), found),
    ):
        answers = pair.ask(api, version, request)
        theirs = read(answers.kafka)
        ours = read(answers.horolog)
        assert (fitting(ours, theirs) if read is produced else ours) == theirs


@pytest.mark.parametrize("acks", [2, -2])
def test_impossible_acks_are_refused_alike(pair, topic, acks):
    to = topic("wire-acks")
    pair.create(to, {})
    answers = pair.ask(ApiKey.PRODUCE, 9, produce(to, batch(), acks=acks))
    theirs = produced(answers.kafka)
    assert fitting(produced(answers.horolog), theirs) == theirs


def test_sequences_of_an_idempotent_producer_are_judged_alike(pair, topic):
    to = topic("wire-idempotent")
    pair.create(to, {})
    steps = [
        (0, 0, 2),  # epoch, first sequence, records
        (0, 2, 3),
        (0, 2, 3),  # the same again
        (0, 0, 2),  # an older one again
        (0, 9, 1),  # a gap
        (0, 5, 1),
        (1, 3, 1),  # a new epoch begins at 0
        (1, 0, 1),
        (0, 6, 1),  # the old epoch is over
        (1, 1, 1),
    ]
    for epoch, sequence, count in steps:
        data = batch(
            *[now_ms()] * count, producer_id=4242, producer_epoch=epoch, base_sequence=sequence
        )
        answers = pair.ask(ApiKey.PRODUCE, 9, produce(to, data))
        theirs = produced(answers.kafka)
        assert fitting(produced(answers.horolog), theirs) == theirs, (epoch, sequence, count)
