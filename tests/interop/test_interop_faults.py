"""Clients in Java, Go and JavaScript under faults on demand: they retry, are fenced, time out."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import horolog.testing

RECORDS = [[1_700_000_000_000 + at, f"key-{at}", f"value-{at}"] for at in range(5)]


@pytest.fixture(scope="module")
def faulty() -> Iterator[horolog.testing.Broker]:
    with horolog.testing.Broker() as broker:
        yield broker


@pytest.fixture
def broker(faulty: horolog.testing.Broker) -> SimpleNamespace:
    return SimpleNamespace(name="horolog", bootstrap=faulty.bootstrap_servers)


def values(client, broker, name):
    told = client.ask(broker, "consume", topic=name)
    return [row["value"] for row in told["records"]]


@pytest.mark.parametrize(
    "fault",
    [
        lambda it, name: it.fail("Produce", "NOT_ENOUGH_REPLICAS", topic=name),
        lambda it, name: it.not_leader(name),
        lambda it, name: it.lose_answer("Produce", topic=name),
        lambda it, name: it.disconnect("Produce", 7, topic=name),
        lambda it, name: it.delay("Produce", "500ms", topic=name),
        lambda it, name: it.fail("Metadata", "LEADER_NOT_AVAILABLE", topic=name),
    ],
    ids=["fail", "not leader", "lose answer", "disconnect", "delay", "metadata"],
)
def test_idempotent_producers_write_each_record_once(faulty, broker, client, topic, fault):
    name = topic("faults")
    client.ask(broker, "create", topic=name, config={"retention.ms": "-1"})
    fault(faulty, name)
    if client.name == "node":  # KafkaJS retries, but is not idempotent: the answer may be lost once
        sent = client.ask(broker, "produce", topic=name, records=RECORDS)["records"]
        assert sent
        assert set(values(client, broker, name)) == {row[2] for row in RECORDS}
        return
    sent = client.ask(broker, "produce", topic=name, records=RECORDS)["records"]
    assert [row.get("offset") for row in sent] == list(range(len(RECORDS))), sent
    assert values(client, broker, name) == [row[2] for row in RECORDS]


@pytest.mark.parametrize(
    "fault",
    [
        lambda it, name: it.not_leader(name),
        lambda it, name: it.lose_answer("Fetch", topic=name),
        lambda it, name: it.disconnect("Fetch", 50, topic=name),
        lambda it, name: it.fail("Fetch", "UNKNOWN_LEADER_EPOCH", topic=name),
        lambda it, name: it.fail("ListOffsets", "NOT_LEADER_OR_FOLLOWER", topic=name),
    ],
    ids=["not leader", "lose answer", "disconnect", "epoch", "list offsets"],
)
def test_consumers_read_each_record_once(faulty, broker, client, topic, fault, request):
    if request.node.callspec.id == "node-list offsets":
        pytest.skip("KafkaJS asks for offsets once")
    name = topic("faults")
    client.ask(broker, "create", topic=name, config={"retention.ms": "-1"})
    client.ask(broker, "produce", topic=name, records=RECORDS)
    fault(faulty, name)
    assert values(client, broker, name) == [row[2] for row in RECORDS]


def test_a_producer_is_fenced_as_its_transaction_ends(faulty, broker, java_client, topic):
    name = topic("fenced")
    java_client.ask(broker, "create", topic=name)
    faulty.fail("EndTxn", "INVALID_PRODUCER_EPOCH")
    with pytest.raises(AssertionError, match=r"ProducerFenced|InvalidProducerEpoch"):
        java_client.ask(
            broker,
            "transact",
            topic=name,
            id=name,
            transactions=[{"records": RECORDS, "end": "commit"}],
        )
