"""What Apache Kafka 3.9 stores and serves of each record format, asked byte by byte (KIP-32).

Kafka obeys message.format.version under a ZooKeeper and an inter-broker protocol before 3.0 only.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from old_messages import build_messages
from raw_connection import RawConnection, fetch_fields, produce_fields
from running_broker import RunningBroker
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, Kafka, zookeeper

from horolog.client import Client
from horolog.errors import HorologError
from horolog.record import (
    BatchHeader,
    Codec,
    LogRecord,
    build_batch,
    convert_all,
    iter_headers,
    messages_in,
    read_records,
)
from horolog.wire import ApiKey

PROTOCOL = {"inter.broker.protocol.version": "2.8"}
RELEASES = {0: "0.9.0", 1: "0.10.2", 2: "0.11.0"}
PRODUCE = {0: 1, 1: 2, 2: 9}
FETCH = {0: 1, 1: 2, 2: 11}
T0_MS = 1_479_000_000_000
ROWS = [
    LogRecord(T0_MS, b"k", b"one" * 40),
    LogRecord(T0_MS + 2, None, b"two"),
    LogRecord(-1, b"", None),
    LogRecord(T0_MS + 1, b"k", b""),
]
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
CONFIGS = {
    "retention.ms": "-1",
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
    "message.timestamp.after.max.ms": str((1 << 63) - 1),
}


class Side(NamedTuple):
    address: str
    log_dir: Path


@contextmanager
def running(directory: Path, settings: dict[str, str]) -> Iterator[tuple[Side, Side]]:
    """Ours, and Kafka under a ZooKeeper, with the same settings."""
    with ExitStack() as stack:
        address = stack.enter_context(zookeeper(directory / "zookeeper"))
        kafka = stack.enter_context(
            Kafka(
                directory / "kafka",
                peer=LAST_WITH_OLD_FORMATS,
                zookeeper=address,
                settings=settings,
            )
        )
        ours = RunningBroker(directory / "ours", settings)
        stack.callback(ours.stop)
        theirs = Side(kafka.bootstrap, kafka.log_dir)
        create(theirs, "ready", 2)
        yield Side(ours.address, ours.log_dir), theirs


@pytest.fixture(scope="module")
def sides(tmp_path_factory: Any) -> Iterator[tuple[Side, Side]]:
    with running(tmp_path_factory.mktemp("formats"), PROTOCOL) as both:
        yield both


def create(side: Side, topic: str, stored: int, **more: str) -> None:
    configs = CONFIGS | {"message.format.version": RELEASES[stored]}
    configs |= {name.replace("_", "."): value for name, value in more.items()}
    deadline = time.monotonic() + 300
    while True:  # under ZooKeeper it listens before there is a controller
        try:
            with Client(side.address) as client:
                client.create_topics({topic: 1}, configs=configs)
                while client.list_offsets({(topic, 0): -1})[topic, 0] is None:
                    pass
            return
        except HorologError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def sent(rows: list[LogRecord], magic: int, codec: Codec = Codec.NONE, **more: Any) -> bytes:
    if magic == 2:
        return build_batch(rows, codec=codec, **more)
    return build_messages(rows, magic, codec=codec)


def produce(side: Side, topic: str, records: bytes, version: int) -> Any:
    with RawConnection(side.address) as connection:
        answer = connection.ask(ApiKey.PRODUCE, version, **produce_fields(topic, {0: records}))
        return answer.responses[0].partition_responses[0]


def fetch(side: Side, topic: str, version: int) -> Any:
    with RawConnection(side.address) as connection:
        answer = connection.ask(ApiKey.FETCH, version, **fetch_fields(topic, {0: 0}))
        return answer.responses[0].partitions[0]


def on_disk(side: Side, topic: str) -> bytes:
    (log,) = (side.log_dir / f"{topic}-0").glob("*.log")
    return log.read_bytes()


def shape(header: BatchHeader, appended: set[int]) -> tuple[Any, ...]:
    """What a header says, with "append time" for the broker's own."""
    time_ms = "append time" if header.max_timestamp in appended else header.max_timestamp
    return header.magic, header.codec, header.timestamp_type, header.last_offset, time_ms


def rows_in(records: bytes, appended: set[int]) -> list[tuple[Any, ...]]:
    return [
        (
            row.offset,
            "append time" if row.timestamp in appended else row.timestamp,
            row.key,
            row.value,
        )
        for converted in convert_all(records, 2)
        for row in read_records(converted.data)
    ]


def cell(side: Side, stored: int, produced: int, codec: Codec, kind: str) -> dict[str, Any]:
    """All that can be seen from outside of one cell of the tables."""
    topic = f"t{stored}{produced}-{codec.name}-{kind}"
    create(side, topic, stored, message_timestamp_type=kind)
    answers = [
        produce(side, topic, sent(ROWS, produced, codec), PRODUCE[produced]) for _ in range(2)
    ]
    times = [getattr(answer, "log_append_time_ms", None) for answer in answers]
    appended = {time_ms for time_ms in times if time_ms is not None and time_ms >= 0}
    if produced == 0:  # the answer has no time
        appended = {
            header.max_timestamp
            for _, header in iter_headers(on_disk(side, topic))
            if header.timestamp_type
        }
    disk = on_disk(side, topic)
    seen: dict[str, Any] = {
        "answers": [(answer.error_code, answer.base_offset) for answer in answers],
        "times": [time_ms in appended for time_ms in times],
        "headers": [shape(header, appended) for _, header in iter_headers(disk)],
    }
    if kind == "CreateTime":
        if codec is Codec.NONE:
            # Kafka numbers the batches of v2 by their leader epochs.
            seen["bytes"] = disk if stored < 2 else None
        elif stored < 2:
            seen["inner"] = [
                b"".join(messages_in(disk[at : at + header.size], header, max_bytes=1 << 20))
                for at, header in iter_headers(disk)
            ]
    for read in (0, 1, 2):
        fetched = fetch(side, topic, FETCH[read])
        records = bytes(fetched.records)
        # Kafka converts as much as fits into the bytes of what is converted, or one batch.
        least = len(ROWS) if read < stored else None
        seen[f"fetched with v{read}"] = (
            fetched.error_code,
            fetched.high_watermark,
            sorted({header.magic for _, header in iter_headers(records)}),
            records == disk,
            rows_in(records, appended)[:least],
        )
    return seen


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("produced", [0, 1, 2])
@pytest.mark.parametrize("stored", [0, 1, 2])
def test_every_cell_is_as_in_kafka(
    sides: tuple[Side, Side], stored: int, produced: int, kind: str
) -> None:
    ours, theirs = sides
    for codec in OLD_CODECS:
        assert cell(ours, stored, produced, codec, kind) == cell(
            theirs, stored, produced, codec, kind
        ), codec


def test_what_old_formats_cannot_hold_is_refused_where_kafka_refuses_it(
    sides: tuple[Side, Side],
) -> None:
    """Where Kafka's answer is UNKNOWN_SERVER_ERROR, ours says what is wrong."""
    batches = {
        "idempotent": (
            sent(ROWS, 2, producer_id=9, producer_epoch=0, base_sequence=0),
            {"kafka": 43, "horolog": 43},
        ),
        "headers": (
            sent([LogRecord(T0_MS, b"k", b"v", (("h", b"x"),))], 2),
            {"kafka": -1, "horolog": 43},
        ),
        "zstd": (sent(ROWS, 2, Codec.ZSTD), {"kafka": -1, "horolog": 76}),
        "before 1970": (sent([LogRecord(-5, b"k", b"v")], 2), {"kafka": -1, "horolog": 0}),
    }
    for name, side in zip(("horolog", "kafka"), sides, strict=True):
        create(side, "cannot", 1)
        told = {
            what: int(produce(side, "cannot", batch, 9).error_code)
            for what, (batch, _) in batches.items()
        }
        assert told == {what: codes[name] for what, (_, codes) in batches.items()}


def test_searches_by_time_are_refused_on_topics_of_v0(sides: tuple[Side, Side]) -> None:
    for side in sides:
        create(side, "timeless", 0)
        produce(side, "timeless", sent(ROWS, 1), 2)
        told = []
        for timestamp in (-1, -2, T0_MS):
            partition = {
                "partition_index": 0,
                "timestamp": timestamp,
                "current_leader_epoch": -1,
                "max_num_offsets": 1,
            }
            with RawConnection(side.address) as connection:
                topics = [{"name": "timeless", "partitions": [partition]}]
                answer = connection.ask(ApiKey.LIST_OFFSETS, 6, topics=topics)
            found = answer.topics[0].partitions[0]
            told.append((int(found.error_code), int(found.offset)))
        assert told == [(0, 4), (0, 0), (43, -1)]


def test_zstd_is_refused_under_an_old_protocol_where_kafka_refuses_it(tmp_path: Path) -> None:
    """KIP-110: before inter-broker protocol 2.1 the codec to store with may not be zstd."""
    settings = {"inter.broker.protocol.version": "2.0", "log.message.format.version": "2.0"}
    with running(tmp_path, settings) as both:
        told: list[dict[tuple[int, str, Codec], tuple[int, int]]] = [{}, {}]
        for answers, side in zip(told, both, strict=True):
            for stored in (0, 1, 2):
                for kind in ("producer", "zstd", "gzip", "uncompressed"):
                    topic = f"z{stored}-{kind}"
                    create(side, topic, stored, compression_type=kind)
                    for codec in Codec:
                        answer = produce(side, topic, sent(ROWS, 2, codec), 9)
                        answers[stored, kind, codec] = answer.error_code, answer.base_offset
        ours, theirs = told
        assert ours == theirs
        assert {cell for cell, (error, _) in theirs.items() if error} == {
            cell for cell in theirs if cell[1] == "zstd" or cell[1:] == ("producer", Codec.ZSTD)
        }
        assert {error for error, _ in theirs.values()} == {0, 76}
