"""KIP-32, phases 1 and 2: what is stored in which format, and what clients of each get."""

import pytest
from metrics_page import records_converted
from old_messages import build_messages
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.client import ResourceType
from horolog.clock import ManualClock
from horolog.record import Codec, LogRecord, build_batch, convert_all, iter_headers, read_records
from horolog.wire import ApiKey

ROWS = [
    LogRecord(NOW_MS - 3, b"k", b"one"),
    LogRecord(NOW_MS, None, b"two"),
    LogRecord(-1_000, b"k", None),
]
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
RELEASES = {0: "0.9.0", 1: "0.10.2", 2: "0.11.0"}
PRODUCE = {0: 1, 1: 2, 2: 9}  # a version of the request for each format
FETCH = {0: 1, 1: 2, 2: 12}
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
UNSUPPORTED_COMPRESSION_TYPE = 76


broker = a_broker(inter_broker_protocol_version="2.8", horolog_metrics_port="0")


def sent(magic: int, codec: Codec = Codec.NONE) -> bytes:
    if magic == 2:
        return build_batch(ROWS, codec=codec)
    return build_messages(ROWS, magic, codec=codec)


def on_disk(broker: RunningBroker, topic: str) -> bytes:
    return b"".join(
        bytes(segment.log.files.read_at(segment.log.open(), segment.size, 0))
        for segment in broker.log(topic).segments
    )


def time_of(row: LogRecord, produced: int, stored: int, read: int, stamped: bool) -> int:
    """KIP-32's table: what a consumer of a format sees, from what was sent and stored."""
    if stored == 0 or read == 0:
        return -1
    if stamped:
        return NOW_MS
    return -1 if produced == 0 else row.timestamp


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("produced", [0, 1, 2])
@pytest.mark.parametrize("stored", [0, 1, 2])
def test_every_cell_of_both_phases(
    broker: RunningBroker, stored: int, produced: int, kind: str
) -> None:
    """Produce v0, v1 or v2; store any; fetch any: formats, times, and which bytes are untouched."""
    stamped = kind == "LogAppendTime"
    for codec in OLD_CODECS:
        topic = f"t-{codec.name}"
        broker.create_topic(
            topic, message_format_version=RELEASES[stored], message_timestamp_type=kind
        )
        answer = broker.produce(topic, sent(produced, codec), version=PRODUCE[produced])
        assert (answer.error_code, answer.base_offset) == (0, 0)
        if PRODUCE[produced] >= 2:
            assert answer.log_append_time_ms == (NOW_MS if stamped else -1)
        disk = on_disk(broker, topic)
        assert {header.magic for _, header in iter_headers(disk)} == {stored}
        if produced == stored and not (stored and stamped):
            # Offsets from 0 are those that were sent: nothing has changed.
            assert disk == sent(produced, codec) or (stored == 0 and codec) or stored == 2
        for read in (0, 1, 2):
            fetched = broker.fetch(topic, version=FETCH[read])
            assert fetched.error_code == 0
            assert {header.magic for _, header in iter_headers(fetched.records)} == {
                min(read, stored)
            }
            if read >= stored:
                assert bytes(fetched.records) == disk
            seen = [
                (row.offset, row.timestamp, row.key, row.value)
                for converted in convert_all(fetched.records, 2)
                for row in read_records(converted.data)
            ]
            assert seen == [
                (offset, time_of(row, produced, stored, read, stamped), row.key, row.value)
                for offset, row in enumerate(ROWS)
            ]


def test_conversions_of_producers_and_consumers_are_counted_apart(broker: RunningBroker) -> None:
    broker.create_topic("t", message_format_version="0.10.0")
    for produced in (0, 1, 2):
        broker.produce("t", sent(produced), version=PRODUCE[produced])
    assert records_converted(broker, "produce") == 6  # of v0 and v2
    assert records_converted(broker, "fetch") == 0
    broker.fetch("t", version=FETCH[1])
    broker.fetch("t", version=FETCH[2])
    assert records_converted(broker, "fetch") == 0
    broker.fetch("t", version=FETCH[0])
    assert records_converted(broker, "fetch") == 9


def test_the_setting_is_ignored_from_inter_broker_protocol_3_0_on(make_broker: MakeBroker) -> None:
    broker = make_broker(inter_broker_protocol_version="3.0", log_message_format_version="0.9.0")
    broker.create_topic("t", message_format_version="0.10.0")
    assert broker.produce("t", sent(0), version=1).error_code == 0
    assert {header.magic for _, header in iter_headers(on_disk(broker, "t"))} == {2}


def test_producers_of_what_the_format_cannot_hold_are_told_so(broker: RunningBroker) -> None:
    broker.create_topic("t", message_format_version="0.10.0")
    idempotent = build_batch(ROWS, producer_id=3, producer_epoch=0, base_sequence=0)
    answer = broker.produce("t", idempotent)
    assert answer.error_code == UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert "enable.idempotence=false" in answer.error_message
    with_headers = build_batch([LogRecord(NOW_MS, b"k", b"v", (("h", b"x"),))])
    answer = broker.produce("t", with_headers)
    assert answer.error_code == UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert "headers" in answer.error_message
    assert broker.fetch("t").high_watermark == 0


@pytest.mark.parametrize(
    ("protocol", "codec_of_topic", "refused"),
    [
        # What counts is the codec to store with.
        ("2.0", "producer", {Codec.ZSTD}),
        ("0.11.0", "producer", {Codec.ZSTD}),
        ("2.0", "zstd", {*OLD_CODECS, Codec.ZSTD}),
        ("2.0", "gzip", set()),
        ("2.0", "uncompressed", set()),
        ("2.1", "producer", set()),
        ("2.1", "zstd", set()),
    ],
)
def test_zstd_is_refused_where_other_brokers_could_not_read_it(
    make_broker: MakeBroker, protocol: str, codec_of_topic: str, refused: set[Codec]
) -> None:
    broker = make_broker(
        clock=ManualClock(NOW_MS),
        inter_broker_protocol_version=protocol,
        log_message_format_version="0.11.0",
    )
    broker.create_topic("t", compression_type=codec_of_topic)
    stored = 0
    for codec in (*OLD_CODECS, Codec.ZSTD):
        for magic in (2, 1, 0) if codec in OLD_CODECS else (2,):
            answer = broker.produce("t", sent(magic, codec), version=PRODUCE[magic])
            if codec in refused:
                assert answer.error_code == UNSUPPORTED_COMPRESSION_TYPE
                if magic == 2:
                    assert "inter.broker.protocol.version" in answer.error_message
            else:
                assert (answer.error_code, answer.base_offset) == (0, stored)
                stored += len(ROWS)
    assert broker.fetch("t").high_watermark == stored


def test_searches_by_time_are_refused_where_the_format_has_none(broker: RunningBroker) -> None:
    """Java's consumer takes that for "nothing found" and asks for no more."""
    broker.create_topic("t", message_format_version="0.9.0")
    broker.produce("t", sent(1), version=2)

    def find(timestamp: int, version: int) -> tuple[int, int]:
        partition = {"partition_index": 0, "timestamp": timestamp, "max_num_offsets": 1}
        topics = [{"name": "t", "partitions": [partition]}]
        answer = broker.ask(ApiKey.LIST_OFFSETS, version, topics=topics)
        found = answer.topics[0].partitions[0]
        return int(found.error_code), int(found.offset)

    for timestamp in (0, NOW_MS, -3):
        assert find(timestamp, 7) == (UNSUPPORTED_FOR_MESSAGE_FORMAT, -1)
    assert (find(-1, 7), find(-2, 7)) == ((0, 3), (0, 0))
    broker.client.alter_configs({(ResourceType.TOPIC, "t"): {"message.format.version": "0.10.0"}})
    broker.produce("t", sent(1), version=2)
    assert find(NOW_MS, 7) == (0, 4)


def test_a_format_that_is_raised_and_lowered_again_loses_nothing(broker: RunningBroker) -> None:
    """The road of KIP-32, and back: each change counts from the next batch on."""
    broker.create_topic("t", message_format_version="0.9.0")
    formats = []
    for stored in (0, 1, 2, 1, 0):
        changes = {"message.format.version": RELEASES[stored]}
        broker.client.alter_configs({(ResourceType.TOPIC, "t"): changes})
        for produced in (0, 1, 2):
            assert (
                broker.produce("t", sent(produced, Codec.LZ4), version=PRODUCE[produced]).error_code
                == 0
            )
        formats += [stored] * 3
    assert [header.magic for _, header in iter_headers(on_disk(broker, "t"))] == formats
