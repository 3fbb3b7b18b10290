"""Records through the real clients: whatever one of them writes, all of them read."""

import random

import pytest
from confluent_kafka import Producer
from examples import some_pairs
from kafka_clients import CLIENTS, CODECS, Confluent, KafkaClient, Received, Rejected, Sent
from patience import PATIENCE_S
from running_broker import RunningBroker

AROUND_MS = 1_700_000_000_000

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


def records(count: int) -> list[Sent]:
    """Records with all there is: null keys and values, headers, times out of order."""
    rng = random.Random(count)
    return [
        Sent(
            None if n % 3 == 0 else b"key-%d" % n,
            None if n % 5 == 4 and n % 3 else b"%d " % n * rng.choice([0, 1, 60, 300]),
            AROUND_MS + rng.randrange(-1000, 1000),
            [("h", b"v"), ("h", b""), ("\N{SNOWMAN}", b"\0\xff")][: n % 4],
        )
        for n in range(count)
    ]


def expected(sent: list[Sent], timestamp_type: int = 0) -> list[Received]:
    return [
        Received(
            0, n, record.timestamp_ms, timestamp_type, record.key, record.value, (*record.headers,)
        )
        for n, record in enumerate(sent)
    ]


@pytest.mark.parametrize(
    ("codec", "writer"), some_pairs(CODECS, CLIENTS), ids=lambda each: getattr(each, "name", each)
)
def test_what_one_client_writes_all_clients_read(
    writer: KafkaClient, codec: str, broker: RunningBroker
) -> None:
    sent = records(40)
    delivered = writer.produce(broker.address, "t", sent, codec=codec)
    assert [one.offset for one in delivered] == list(range(len(sent)))
    if writer.name != "aiokafka":  # it reports the time of the batch's first record for all
        assert [one.timestamp_ms for one in delivered] == [one.timestamp_ms for one in sent]
    for reader in CLIENTS:
        assert reader.consume(broker.address, "t", len(sent)) == expected(sent)
    stored = {header.codec.name.lower() for header in broker.headers("t")}
    assert stored == {codec}


def test_a_transactional_producer_commits_and_aborts(broker: RunningBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    for value in b"first", b"aborted", b"last":
        producer.begin_transaction()
        producer.produce("t", value)
        assert producer.flush(PATIENCE_S) == 0  # an abort drops what has not been sent
        if value == b"aborted":
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    read = Confluent().consume(broker.address, "t", 2)  # read_committed by default
    assert [(record.offset, record.value) for record in read] == [(0, b"first"), (4, b"last")]


@every_client
def test_idempotent_producers_are_served(client: KafkaClient, broker: RunningBroker) -> None:
    sent = records(30)
    client.produce(broker.address, "t", sent, enable_idempotence=True)
    assert client.consume(broker.address, "t", len(sent)) == expected(sent)
    assert all(header.producer_id >= 0 for header in broker.headers("t"))


@every_client
@pytest.mark.parametrize("acks", [1, "all"])
def test_acknowledgements_are_given(
    client: KafkaClient, acks: object, broker: RunningBroker
) -> None:
    config = {} if client.name == "aiokafka" else {"enable_idempotence": False}
    delivered = client.produce(broker.address, "t", records(5), acks=acks, **config)
    assert [one.offset for one in delivered] == list(range(5))


@every_client
def test_append_time_reaches_producer_and_consumer(
    client: KafkaClient, broker: RunningBroker
) -> None:
    broker.create_topic("t", message_timestamp_type="LogAppendTime")
    before_ms = broker.clock.now_ms()
    sent = records(10)
    delivered = client.produce(broker.address, "t", sent)
    received = client.consume(broker.address, "t", len(sent))
    after_ms = broker.clock.now_ms()
    assert [one.value for one in received] == [record.value for record in sent]
    for one, told in zip(received, delivered, strict=True):
        assert one.timestamp_type == 1
        assert before_ms <= one.timestamp_ms <= after_ms
        assert told.timestamp_ms == one.timestamp_ms


@every_client
def test_a_record_out_of_bounds_is_rejected_with_error_32(
    client: KafkaClient, broker: RunningBroker
) -> None:
    broker.create_topic("t", message_timestamp_before_max_ms="60000")
    now_ms = broker.clock.now_ms()
    client.produce(broker.address, "t", [Sent(b"k", b"v", now_ms)])
    with pytest.raises(Rejected) as rejected:
        client.produce(broker.address, "t", [Sent(b"k", b"v", now_ms - 120_000)])
    assert rejected.value.code == 32
    with pytest.raises(Rejected) as rejected:
        client.produce(broker.address, "t", [Sent(b"k", b"v", now_ms + 3_700_000)])
    assert rejected.value.code == 32
    assert len(client.consume(broker.address, "t", 1)) == 1
    assert broker.log("t").log_end_offset == 1


@every_client
def test_a_batch_that_is_too_large_is_rejected_with_error_10(
    client: KafkaClient, broker: RunningBroker
) -> None:
    broker.create_topic("t", max_message_bytes="1000")
    with pytest.raises(Rejected) as rejected:
        client.produce(broker.address, "t", [Sent(None, b"x" * 1500)])
    assert rejected.value.code == 10
