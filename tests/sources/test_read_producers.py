"""`includeProducer`: who produced a record, from a broker, from files, and in a stream."""

import json

import pytest
from log_reading import Read, schema_of
from running_broker import RunningBroker
from streaming_query import Query

from horolog.record import LogRecord, build_batch
from horolog.sources import ReadOptions, columns

NINE_MS = 1_700_000_000_000
OPTION = {"includeProducer": "true"}


@pytest.fixture
def source(broker: RunningBroker) -> dict[str, str]:
    broker.create_topic("orders")
    client = broker.client
    who = client.init_producer_id()
    records = [LogRecord(NINE_MS, b"k", b"v")] * 3
    client.produce("orders", 0, build_batch(records))
    of_producer = {"producer_id": who.id, "producer_epoch": who.epoch}
    client.produce("orders", 0, build_batch(records, **of_producer, base_sequence=0))
    return {"kafka.bootstrap.servers": broker.address, "subscribe": "orders"}


def test_producers_are_the_same_from_broker_files_and_stream(
    broker: RunningBroker, source: dict[str, str]
) -> None:
    schema = schema_of(["offset", *columns.OF_PRODUCER])
    from_broker = Read(**source, schema=schema, **OPTION).rows()
    from_files = Read(broker.log_dir, schema=schema, **OPTION).rows()
    assert from_broker == from_files
    assert [row["sequence"] for row in from_broker] == [None, None, None, 0, 1, 2]
    assert [row["producerEpoch"] for row in from_broker] == [None, None, None, 0, 0, 0]
    query = Query(broker, startingOffsets="earliest", **OPTION)
    query.schema = schema
    assert query.plan()
    end = json.loads(query.log[-1])
    tasks = query.unopened()
    streamed = [
        row
        for partition in query.reader.partitions(query.begins_at(), end)
        for table in tasks.read(partition)
        for row in table.to_pylist()
    ]
    query.reader.stop()
    assert streamed == from_broker


def test_the_columns_come_last_and_only_when_asked_for() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    assert "includeProducer" not in ReadOptions.parse(given).included
    assert "includeProducer" in ReadOptions.parse({**given, **OPTION}).included
    of_all = columns.default_columns("includeHeaders", "includeTimestampMs", "includeProducer")
    others = (*columns.OF_CLOCKS, *columns.OF_SEEN, *columns.OF_STREAMS)
    assert of_all == tuple(name for name in columns.TYPES if name not in others)
    assert of_all[-3:] == columns.OF_PRODUCER
    assert [columns.TYPES[name] for name in columns.OF_PRODUCER] == ["bigint", "int", "int"]
