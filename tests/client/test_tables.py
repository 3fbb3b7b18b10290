"""Topics read as Arrow: offsets that are not there, ends, ranges of time."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from patience import eventually
from scripted_broker import ScriptedBroker

from horolog.client import Client, NoAnswer, scan
from horolog.client.offset_lookups import EARLIEST, LATEST
from horolog.errors import CorruptBatch
from horolog.record.batch import parse_header
from horolog.record.builder import Record, build_batch
from horolog.wire.api import ApiKey
from horolog.wire.fetch import FetchedPartition, FetchedTopic, encode_fetch_response


def log_of(*batches: bytes, end: int) -> Mapping[ApiKey, Any]:
    """A broker's answers: one batch for each fetch, the first that ends after the offset."""

    def offsets(request: Any) -> dict[str, Any]:
        target = request.topics[0].partitions[0].timestamp
        it = {
            "partition_index": 5,
            "error_code": 0,
            "timestamp": -1,
            "offset": 0 if target == EARLIEST else end,
            "leader_epoch": 3,
        }
        return {"topics": [{"name": "clicks", "partitions": [it]}]}

    def fetch(request: Any) -> bytes:
        offset = request.topics[0].partitions[0].fetch_offset
        records = next((b for b in batches if _last_offset(b) >= offset), b"")
        partition = FetchedPartition(5, high_watermark=end, records=records)
        return b"".join(encode_fetch_response(12, [FetchedTopic("clicks", None, [partition])]))

    return {ApiKey.LIST_OFFSETS: offsets, ApiKey.FETCH: fetch}


def _last_offset(batch: bytes) -> int:
    return parse_header(batch).last_offset


def batch(offset: int, *times: int) -> bytes:
    return build_batch([Record(time, None, b"%d" % time) for time in times], base_offset=offset)


def test_gaps_that_compaction_left_are_skipped() -> None:
    log = log_of(batch(7, 10, 11), batch(400, 12), end=401)
    with ScriptedBroker(log) as broker, Client(broker.bootstrap) as client:
        table = scan(client, "clicks").read_all()
        assert len(broker.asked(ApiKey.FETCH)) == 2
    assert table["offset"].to_pylist() == [7, 8, 400]
    assert table["partition"].to_pylist() == [5, 5, 5]


def test_the_next_fetch_is_sent_before_a_table_is_given_and_the_client_is_free() -> None:
    log = log_of(batch(0, 10), batch(1, 20), batch(2, 30), end=3)
    with ScriptedBroker(log) as broker, Client(broker.bootstrap) as client:
        tables = iter(scan(client, "clicks"))
        assert next(tables)["offset"].to_pylist() == [0]
        assert eventually(lambda: len(broker.asked(ApiKey.FETCH)) == 2)
        assert client.list_offsets({("clicks", 5): LATEST})["clicks", 5].offset == 3
        assert [table["timestamp_ms"].to_pylist() for table in tables] == [[20], [30]]
        assert len(broker.asked(ApiKey.FETCH)) == 3


def test_records_before_damage_are_given_before_it_is_named() -> None:
    torn = bytearray(batch(1, 20))
    torn[8:12] = bytes(4)  # its length
    log = log_of(batch(0, 10) + torn, end=2)
    with ScriptedBroker(log) as broker, Client(broker.bootstrap) as client:
        tables = iter(scan(client, "clicks"))
        assert next(tables)["timestamp_ms"].to_pylist() == [10]
        with pytest.raises(CorruptBatch):
            next(tables)


def test_only_the_offsets_and_times_asked_for_are_given() -> None:
    log = log_of(batch(0, 10, 50, 20), batch(3, 30, 15), end=5)
    with ScriptedBroker(log) as broker, Client(broker.bootstrap) as client:
        late = scan(client, "clicks", from_ms=15, to_ms=31).read_all()
        some = scan(client, "clicks", starting_offsets={5: 2}, ending_offsets={5: 4}).read_all()
    assert late["timestamp_ms"].to_pylist() == [20, 30, 15]
    assert some["offset"].to_pylist() == [2, 3]


def test_topic_and_time_with_a_zone_can_be_asked_for() -> None:
    log = log_of(batch(0, 10, -1), end=2)
    with ScriptedBroker(log) as broker, Client(broker.bootstrap) as client:
        table = scan(client, "clicks", columns=("timestamp", "topic", "value")).read_all()
        topics = scan(client, "clicks", columns=("topic",)).read_all()
        with pytest.raises(ValueError, match="No such columns"):
            scan(client, "clicks", columns=("topic", "offsets"))
    assert table.schema.names == ["partition", "timestamp", "topic", "value"]
    assert table["timestamp"].to_pylist() == [datetime(1970, 1, 1, 0, 0, 0, 10_000, UTC), None]
    assert topics.to_pylist() == [{"partition": 5, "topic": "clicks"}] * 2


def test_a_broker_that_never_returns_what_it_promised_is_an_error() -> None:
    log = log_of(batch(0, 10), end=9)
    with (
        ScriptedBroker(log) as broker,
        Client(broker.bootstrap, timeout_ms=300) as client,
        pytest.raises(
            NoAnswer, match="clicks-5 gives no batch at offset 1, though it goes on to 9"
        ),
    ):
        scan(client, "clicks", max_wait_ms=20).read_all()
