"""Arrow tables and raw batches to and from Apache Kafka, from the oldest 2.x to the newest."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer as Librdkafka
from patience import PATIENCE_S
from releases import running
from tools.peers.kafka import (
    LAST_OF_2,
    LAST_WITH_OLD_FORMATS,
    NEWEST,
    OLDEST_OF_2,
    UNDER_ZOOKEEPER,
    Kafka,
    run_tool,
)

from horolog.client import EARLIEST, LATEST, Client, CommittedOffset, Producer
from horolog.errors import ErrorCode, RecordsRejected, RequestRefused
from horolog.record import AbortedTransactions, Codec, iter_headers, renamed
from horolog.sources import scan

NOW_MS = 1_795_165_200_000


@pytest.fixture(scope="module", params=[NEWEST, LAST_OF_2, OLDEST_OF_2])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Kafka]:
    with running(request.param, tmp_path_factory.mktemp("kafka")) as found:
        yield found


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


def any_time(kafka: Kafka) -> dict[str, str]:
    """Settings of a topic for any create time, as by default in 2.x."""
    if kafka.peer in UNDER_ZOOKEEPER:
        return {"retention.ms": "-1"}
    return {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}


@pytest.mark.parametrize("codec", Codec)
def test_a_table_comes_back_from_kafka_as_it_went(
    kafka: Kafka, client: Client, topic: Callable[[str], str], codec: Codec
) -> None:
    if codec is Codec.ZSTD and kafka.peer == OLDEST_OF_2:
        pytest.skip("Kafka knows zstd from 2.1 on (KIP-110)")
    name, sent = topic("arrow"), table(20_000)
    client.create_topics({name: 3}, configs=any_time(kafka))
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
    # 4.x names it otherwise; 3.9 is the last to talk to 2.0 (KIP-896).
    is_old = kafka.peer in UNDER_ZOOKEEPER
    option = "--property" if is_old else "--reader-property"
    run_tool(
        "producer",
        *("--bootstrap-server", kafka.bootstrap, "--topic", theirs),
        *(option, "parse.key=true", option, "key.separator=|"),
        peer=LAST_WITH_OLD_FORMATS if is_old else kafka.peer,
        stdin=lines.encode(),
    )
    with Producer(client) as producer:
        producer.send(ours, pa.table({"key": keys, "value": keys}))

    def placed(name: str) -> dict[bytes, int]:
        return {row["key"]: row["partition"] for row in scan(client, name).read_all().to_pylist()}

    assert len(placed(theirs)) == len(set(keys))
    assert placed(ours) == placed(theirs)


def test_append_times_and_refused_rows_are_returned(
    kafka: Kafka, client: Client, topic: Callable[[str], str]
) -> None:
    name, bounded = topic("appended"), topic("bounded")
    client.create_topics({name: 1}, configs={"message.timestamp.type": "LogAppendTime"})
    way = "difference" if kafka.peer in UNDER_ZOOKEEPER else "before"
    client.create_topics({bounded: 1}, configs={f"message.timestamp.{way}.max.ms": "60000"})
    names_rows = kafka.peer != OLDEST_OF_2  # from 2.4 on (KIP-467)
    with Producer(client) as producer:
        told = producer.send(name, pa.table({"value": ["a", "b"]}), metadata=True).metadata
        assert told is not None
        stored = scan(client, name).read_all()
        assert stored["timestamp_ms"].to_pylist() == told["timestamp_ms"].to_pylist()
        with pytest.raises(RequestRefused, match="row 1" if names_rows else "INVALID") as refused:
            producer.send(
                bounded, pa.table({"value": ["a", "b"], "timestamp_ms": pa.array([None, 5])})
            )
        assert refused.value.code is ErrorCode.invalid_timestamp
        errors = refused.value.errors if isinstance(refused.value, RecordsRejected) else []
        assert [error.batch_index for error in errors] == [1] * names_rows
        assert producer.send(bounded, pa.table({"value": ["a"]})).records == 1


def test_raw_batches_are_copied_and_repeats_are_dropped(
    client: Client, topic: Callable[[str], str]
) -> None:
    source, target = topic("source"), topic("target")
    client.create_topics({source: 1, target: 1}, configs={"retention.ms": "-1"})
    rows = table(5_000).set_column(2, "timestamp_ms", pa.array(range(5_000), pa.int64()))
    with Producer(client, codec=Codec.LZ4, batch_bytes=20_000) as producer:
        producer.send(source, rows)
    identity = client.init_producer_id()
    data = memoryview(client.fetch(source, 0, 0, max_bytes=50 << 20).records)
    for _ in range(2):
        sequence = 0
        for at, header in list(iter_headers(data))[:5]:
            batch = renamed(header, data[at : at + header.size], identity, sequence)
            client.produce(target, 0, batch, acks=-1)
            sequence += header.records_count
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
    drop, data = AbortedTransactions(fetched.aborted).drop, memoryview(fetched.records)
    batches = [(each, data[at : at + each.size]) for at, each in iter_headers(data)]
    assert sum(not drop(each, batch) and not each.is_control for each, batch in batches) == 2


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


def test_offsets_are_found_by_time(
    kafka: Kafka, client: Client, topic: Callable[[str], str]
) -> None:
    name = topic("times")
    client.create_topics({name: 2}, configs=any_time(kafka))
    rows = pa.table(
        {
            "value": ["a", "b", "c", "d"],
            "partition": [0, 0, 0, 1],
            "timestamp_ms": [NOW_MS, NOW_MS + 20, NOW_MS + 10, NOW_MS],
        }
    )
    with Producer(client) as producer:
        producer.send(name, rows)
    for asked, expected in {
        NOW_MS - 1: (0, NOW_MS),
        NOW_MS + 1: (1, NOW_MS + 20),
        NOW_MS + 20: (1, NOW_MS + 20),
    }.items():
        found = client.list_offsets({(name, 0): asked})[name, 0]
        assert found is not None
        assert (found.offset, found.timestamp) == expected
    assert client.list_offsets({(name, 0): NOW_MS + 21})[name, 0] is None
    ends = client.list_offsets({(name, 0): EARLIEST, (name, 1): LATEST})
    assert [None if end is None else end.offset for end in ends.values()] == [0, 1]


def test_topics_get_the_partitions_and_replicas_that_brokers_give_by_default(
    client: Client, topic: Callable[[str], str]
) -> None:
    default, three = topic("default"), topic("three")
    client.create_topics({default: -1, three: 3})
    found = client.metadata([default, three]).topics
    assert {name: len(each.partitions) for name, each in found.items()} == {default: 1, three: 3}
