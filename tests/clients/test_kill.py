"""A broker that is killed while a client produces: nothing acknowledged is lost or doubled."""

import confluent_kafka
import pytest
from kafka_clients import CLIENTS
from patience import PATIENCE_S
from running_broker import BrokerProcess


@pytest.mark.slow
def test_an_idempotent_producer_loses_and_doubles_nothing_over_kills(
    broker_process: BrokerProcess,
) -> None:
    acknowledged: dict[int, int] = {}
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker_process.address,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 50,
            "log_level": 0,
        }
    )

    def on_delivery(error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        value = message.value()
        assert value is not None
        offset = message.offset()
        assert offset is not None
        acknowledged[int(value)] = offset

    sent = 0
    for kills in range(3):
        for _ in range(200):
            producer.produce("t", b"%d" % sent, partition=0, on_delivery=on_delivery)
            sent += 1
            producer.poll(0.001 if len(producer) < 1000 else 0.02)
        if kills < 2:
            broker_process.kill()
            broker_process.start_again()
    assert producer.flush(PATIENCE_S) == 0
    assert len(acknowledged) == sent
    for client in CLIENTS[:2]:
        received = client.consume(broker_process.address, "t", sent)
        assert [int(one.value or b"") for one in received] == list(range(sent))
        assert all(acknowledged[int(one.value or b"")] == one.offset for one in received)
