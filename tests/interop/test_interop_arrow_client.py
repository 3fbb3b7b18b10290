"""Arrow tables and raw batches to and from an Apache Kafka."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer as Librdkafka
from patience import PATIENCE_S
from tools.peers.kafka import Kafka

from horolog.client import LATEST, Client, CommittedOffset, Producer, scan
from horolog.errors import RecordsRejected
from horolog.record.compression import Codec
from horolog.record.identity import with_producer

NOW_MS = 1_795_165_200_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: Any) -> Iterator[Kafka]:
    with Kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def client(kafka: Kafka) -> Iterator[Client]:
    with Client(kafka.bootstrap) as client:
        yield client


def table(rows: int) -> pa.Table:
    return pa.table(
        {
            "key": [None if row % 9 == 0 else f"key {row % 251}" for row in range(rows)],
            "value": [f"value {row}" * 10 for row in range(rows)],
            "timestamp_ms": [NOW_MS + row for row in range(rows)],
            "headers": [[{"key": "row", "value": b"%d" % row}] for row in range(rows)],
        }
    )


@pytest.mark.parametrize("codec", Codec)
def test_a_table_comes_back_from_kafka_as_it_went(
    client: Client, topic: Callable[[str], str], codec: Codec
) -> None:
    name, sent = topic("arrow"), table(20_000)
    client.create_topics({name: 3}, configs={"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    with Producer(client, codec=codec, batch_bytes=50_000) as producer:
        written = producer.send(name, sent, metadata=True)
    assert written.metadata is not None
    columns = ("key", "value", "offset", "timestamp_ms", "headers")
    found = {
        (row["partition"], row["offset"]): row
        for row in scan(client, name, columns=columns).read_all().to_pylist()
    }
    assert len(found) == 20_000
    for row, told in zip(sent.to_pylist(), written.metadata.to_pylist(), strict=True):
        stored = found[told["partition"], told["offset"]]
        assert stored["value"].decode() == row["value"]
        assert stored["key"] == (None if row["key"] is None else row["key"].encode())
        assert (stored["timestamp_ms"], stored["headers"]) == (row["timestamp_ms"], row["headers"])


def test_keys_go_where_kafkas_own_producer_sends_them(
    kafka: Kafka, client: Client, topic: Callable[[str], str]
) -> None:
    ours, theirs = topic("ours"), topic("theirs")
    client.create_topics({ours: 7, theirs: 7})
    keys = ["x" * size + str(size) for size in range(60)] + [str(n) for n in range(500)]
    lines = "".join(f"{key}|{key}\n" for key in keys)
    kafka.tool(
        "producer",
        *("--topic", theirs, "--reader-property", "parse.key=true"),
        *("--reader-property", "key.separator=|"),
        stdin=lines.encode(),
    )
    with Producer(client) as producer:
        producer.send(ours, pa.table({"key": keys, "value": keys}))

    def placed(name: str) -> dict[bytes, int]:
        return {row["key"]: row["partition"] for row in scan(client, name).read_all().to_pylist()}

    assert len(placed(theirs)) == len(set(keys))
    assert placed(ours) == placed(theirs)


def test_append_times_and_refused_rows_are_returned(
    client: Client, topic: Callable[[str], str]
) -> None:
    name, bounded = topic("appended"), topic("bounded")
    client.create_topics({name: 1}, configs={"message.timestamp.type": "LogAppendTime"})
    client.create_topics({bounded: 1}, configs={"message.timestamp.before.max.ms": "1000"})
    with Producer(client) as producer:
        told = producer.send(name, pa.table({"value": ["a", "b"]}), metadata=True).metadata
        assert told is not None
        stored = scan(client, name).read_all()
        assert stored["timestamp_ms"].to_pylist() == told["timestamp_ms"].to_pylist()
        with pytest.raises(RecordsRejected, match="row 1") as refused:
            producer.send(
                bounded, pa.table({"value": ["a", "b"], "timestamp_ms": pa.array([None, 5])})
            )
        assert [error.batch_index for error in refused.value.errors] == [1]
        assert producer.send(bounded, pa.table({"value": ["a"]})).records == 1


def test_raw_batches_are_copied_and_repeats_are_dropped(
    client: Client, topic: Callable[[str], str]
) -> None:
    source, target = topic("source"), topic("target")
    client.create_topics({source: 1, target: 1}, configs={"retention.ms": "-1"})
    rows = table(5_000).set_column(2, "timestamp_ms", pa.array(range(5_000), pa.int64()))
    with Producer(client, codec=Codec.ZSTD, batch_bytes=20_000) as producer:
        producer.send(source, rows)
    identity = client.init_producer_id()
    fetched = client.fetch(source, 0, 0, max_bytes=50 << 20)
    for _ in range(2):
        for batch in list(with_producer(fetched.records, identity, base_sequence=0))[:5]:
            client.produce(target, 0, batch, acks=-1)
    copied = scan(client, target).read_all()
    assert 0 < len(copied) < 5_000
    assert copied == scan(client, source, ending_offsets={0: len(copied)}).read_all()


def test_aborted_transactions_are_read_only_where_uncommitted_reads_are_asked_for(
    kafka: Kafka, client: Client, topic: Callable[[str], str]
) -> None:
    name = topic("transactions")
    client.create_topics({name: 1})
    producer = Librdkafka({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions()
    for outcome in ("commit", "abort", "commit"):
        producer.begin_transaction()
        producer.produce(name, outcome)
        producer.flush()
        getattr(producer, f"{outcome}_transaction")()
    # Markers are written after commits are answered: the last one counts from then on.
    until_s = time.monotonic() + PATIENCE_S
    while client.list_offsets({(name, 0): LATEST}, read_committed=True)[name, 0].offset < 6:
        assert time.monotonic() < until_s
    committed = scan(client, name, read_committed=True).read_all()
    assert committed["value"].to_pylist() == [b"commit", b"commit"]
    assert committed["offset"].to_pylist() == [0, 4]  # markers and what was aborted lie between
    assert len(scan(client, name).read_all()) == 3
    fetched = client.fetch(name, 0, 0, read_committed=True)
    assert len(list(with_producer(fetched.records, aborted=fetched.aborted))) == 2


def test_reading_goes_on_where_a_group_has_committed(
    client: Client, topic: Callable[[str], str]
) -> None:
    name = topic("committed")
    client.create_topics({name: 1})
    with Producer(client) as producer:
        producer.send(name, pa.table({"key": ["a", "b"], "value": ["1", "2"]}))
    client.offset_commit("arrow", {(name, 0): CommittedOffset(1)})
    committed = client.offset_fetch("arrow", [(name, 0)])[name, 0]
    assert committed is not None
    rest = scan(client, name, starting_offsets={0: committed.offset}).read_all()
    assert rest["value"].to_pylist() == [b"2"]
    end = client.list_offsets({(name, 0): LATEST})[name, 0]
    assert end is not None
    assert end.offset == 2
