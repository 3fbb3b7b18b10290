"""Transactions at our broker: clients of others write and read, Kafka's tools look."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import transactional
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from moving import tool
from running_broker import RunningBroker, a_broker
from tools.peers.kafka import run_tool

pytestmark = pytest.mark.timeout(600)
broker = a_broker("t", partitions=2, now_ms=None)
unverified = a_broker(
    "t", partitions=2, now_ms=None, transaction_partition_verification_enable="false"
)


def producer(address: str, transactional_id: str = "x") -> Producer:
    settings = {"bootstrap.servers": address, "transactional.id": transactional_id}
    made = Producer({**settings, "transaction.timeout.ms": 900_000})  # tools take their time
    made.init_transactions(30)
    return made


def values(address: str, isolation: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"g{time.monotonic_ns()}",
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    found: list[bytes] = []
    try:
        while len(found) < count:
            (message,) = consumer.consume(1, 30) or [None]
            assert message is not None, f"{len(found)} of {count}"
            found.append(message.value())
        assert not consumer.consume(1, 1)
    finally:
        consumer.close()
    return sorted(found)


@pytest.fixture
def written(broker: RunningBroker) -> Producer:
    """A producer that has committed "a" and aborted "b", and has "c" open."""
    made = producer(broker.address)
    for value, commit in ((b"a", True), (b"b", False)):
        made.begin_transaction()
        made.produce("t", value, partition=0)
        made.flush(30)
        (made.commit_transaction if commit else made.abort_transaction)(30)
    made.begin_transaction()
    made.produce("t", b"c", partition=1)
    made.flush(30)
    return made


def test_committed_readers_see_what_is_committed(broker: RunningBroker, written: Producer) -> None:
    assert values(broker.address, "read_committed", 1) == [b"a"]
    assert values(broker.address, "read_uncommitted", 3) == [b"a", b"b", b"c"]
    written.commit_transaction(30)
    assert values(broker.address, "read_committed", 2) == [b"a", b"c"]


def test_producer_that_another_has_replaced_is_fenced(
    broker: RunningBroker, written: Producer
) -> None:
    successor = producer(broker.address)
    with pytest.raises(KafkaException) as refused:
        written.commit_transaction(30)
    assert refused.value.args[0].fatal()
    successor.begin_transaction()
    successor.produce("t", b"d", partition=1)
    successor.commit_transaction(30)
    assert values(broker.address, "read_committed", 2) == [b"a", b"d"]


def test_transaction_goes_on_over_a_restart(broker: RunningBroker, written: Producer) -> None:
    broker.restart()
    written.produce("t", b"e", partition=1)
    written.commit_transaction(60)
    assert values(broker.address, "read_committed", 3) == [b"a", b"c", b"e"]


def test_kafkas_tool_lists_and_describes_transactions(
    broker: RunningBroker, written: Producer
) -> None:
    listed = tool(broker.address, "transactions", "list")
    assert "x" in listed.split()
    assert "Ongoing" in listed.split()
    described = tool(broker.address, "transactions", "describe", "--transactional-id", "x")
    assert "t-1" in described
    assert "Ongoing" in described
    producer(broker.address, "another")
    assert ids(broker, "--transactional-id-pattern", "[a-w].*") == {"another"}
    assert ids(broker, "--transactional-id-pattern", "x|another") == {"x", "another"}
    assert ids(broker, "--duration-filter", "1") == {"x"}
    assert ids(broker, "--duration-filter", "600000") == set()


def ids(broker: RunningBroker, *filters: str) -> set[str]:
    """The transactional ids that Kafka's tool lists."""
    lines = tool(broker.address, "transactions", "list", *filters).splitlines()
    return {line.split()[0] for line in lines[1:] if line}


def test_kafkas_tool_terminates_a_transaction(broker: RunningBroker, written: Producer) -> None:
    named = ("--transactionalId", "x")
    tool(broker.address, "transactions", "forceTerminateTransaction", *named)
    with pytest.raises(KafkaException):
        written.commit_transaction(30)
    assert values(broker.address, "read_committed", 1) == [b"a"]


def test_producer_of_kafka_commits_many_transactions(broker: RunningBroker) -> None:
    run_tool(
        "perf-producer",
        *("--topic", "t", "--num-records", "2000", "--throughput", "4000", "--record-size", "10"),
        *("--transactional-id", "java", "--transaction-duration-ms", "20"),
        *("--producer-props", f"bootstrap.servers={broker.address}"),
    )
    assert len(values(broker.address, "read_committed", 2000)) == 2000
    decoded = dump_of_states(broker)
    assert "java" in decoded
    assert '"clientTransactionVersion":2' in decoded, "the second flow of KIP-890"


def dump_of_states(broker: RunningBroker) -> str:
    logs = [
        str(path)
        for path in broker.log_dir.glob("__transaction_state-*/*.log")
        if path.stat().st_size
    ]
    named = ("--transaction-log-decoder", "--files", ",".join(logs))
    return run_tool("dump", *named).stdout.decode()


def test_offsets_are_committed_with_the_records_or_not_at_all(broker: RunningBroker) -> None:
    made = producer(broker.address, "transform")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "of-t",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    plain = Producer({"bootstrap.servers": broker.address})
    for value in (b"1", b"2"):
        plain.produce("t", value, partition=0)
    plain.flush(30)
    try:
        for offset, commit in ((1, True), (2, False)):
            message = consumer.poll(30)
            assert message is not None
            made.begin_transaction()
            made.produce("t", b"of " + message.value(), partition=1)
            made.send_offsets_to_transaction(
                [TopicPartition("t", 0, offset)], consumer.consumer_group_metadata(), 30
            )
            (made.commit_transaction if commit else made.abort_transaction)(30)
        (committed,) = consumer.committed([TopicPartition("t", 0)], 30)
        assert committed.offset == 1
    finally:
        consumer.close()
    assert values(broker.address, "read_committed", 3) == [b"1", b"2", b"of 1"]
    shown = tool(broker.address, "groups", "--describe", "--group", "of-t", "--offsets")
    assert "of-t" in shown


def test_kafkas_tool_finds_producers_and_aborts_what_hangs(
    broker: RunningBroker, written: Producer
) -> None:
    of_partition = ("--topic", "t", "--partition", "1")
    described = tool(broker.address, "transactions", "describe-producers", *of_partition)
    assert "None" not in described.splitlines()[-1].split()[-1:], "a transaction is open"
    hanging = tool(broker.address, "transactions", "find-hanging", "--broker-id", "0")
    assert "t" not in hanging.split(), "it is not older than the largest timeout"
    tool(broker.address, "transactions", "abort", *of_partition, "--start-offset", "0")
    assert values(broker.address, "read_committed", 1) == [b"a"]


def test_kafkas_tool_finds_what_hangs(unverified: RunningBroker) -> None:
    """What no transactional id has, and is older than any transaction may be."""
    open_one, lost = transactional.init(unverified), unverified.client.init_producer_id()
    hours_ago_ms = unverified.clock.now_ms() - 3 * 3_600_000
    assert transactional.write(unverified, open_one, version=12, partition=1) == 0
    left = SimpleNamespace(producer_id=lost.id, producer_epoch=lost.epoch)
    assert transactional.write(unverified, left, time_ms=hours_ago_ms) == 0
    hangs = tool(unverified.address, "transactions", "find-hanging", "--topic", "t")
    ((topic, partition, producer_id, *_),) = [line.split() for line in hangs.splitlines()[1:]]
    assert (topic, int(partition), int(producer_id)) == ("t", 0, lost.id)
    of_it = ("--topic", "t", "--partition", "0", "--start-offset", "0")
    tool(unverified.address, "transactions", "abort", *of_it)
    assert not tool(
        unverified.address, "transactions", "find-hanging", "--topic", "t"
    ).splitlines()[1:]
    assert unverified.client.list_offsets({("t", 0): -1}, read_committed=True)[("t", 0)].offset == 2
