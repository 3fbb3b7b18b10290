"""Faults on demand: what clients see of them, and what the broker has done of the request."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from command_runner import run_command
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka_clients import kafka
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection, fetch_fields, produce_fields

from horolog.client import Client
from horolog.errors import RequestRefused
from horolog.record import LogRecord, build_batch, read_records
from horolog.testing import Broker
from horolog.wire import ApiKey

BATCH = build_batch([LogRecord(1_700_000_000_000, b"k", b"v")])


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker, request: pytest.FixtureRequest) -> Broker:
    """A broker with a topic of the test's name."""
    shared.create_topic(topic_of(request), partitions=2)
    return shared


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return topic_of(request)


def topic_of(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:200]


@pytest.fixture
def connection(broker: Broker) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap_servers) as connection:
        yield connection


def produce(connection: RawConnection, topic: str, partition: int = 0) -> Any:
    answer = connection.ask(ApiKey.PRODUCE, 9, **produce_fields(topic, {partition: BATCH}))
    return answer.responses[0].partition_responses[0]


def records_in(broker: Broker, topic: str, partition: int = 0) -> int:
    with RawConnection(broker.bootstrap_servers) as connection:
        fields = fetch_fields(topic, {partition: 0})
        answer = connection.ask(ApiKey.FETCH, 11, **fields)
    records = answer.responses[0].partitions[0].records
    return sum(1 for _ in read_records(records)) if records else 0


def test_a_failed_request_is_answered_and_not_done(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    failed = [produce(connection, topic) for _ in range(3)]
    assert [answer.error_code for answer in failed] == [19, 19, 0]
    assert "on purpose" in failed[0].error_message
    assert failed[0].base_offset == -1
    assert records_in(broker, topic) == 1


def test_faults_apply_in_the_order_in_which_they_were_set(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    broker.fail("Produce", 7)
    broker.fail(0, "not_leader_or_follower", times=2)
    assert [produce(connection, topic).error_code for _ in range(4)] == [7, 6, 6, 0]


def test_a_fault_of_a_topic_and_partition_spares_others(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    broker.fail("Produce", 6, topic=topic, partition=1, times=None)
    assert produce(connection, topic, 0).error_code == 0
    assert produce(connection, topic, 1).error_code == 6
    assert produce(connection, f"{topic[:100]}-other", 1).error_code != 6
    broker.clear_faults()
    assert produce(connection, topic, 1).error_code == 0


def test_a_topic_is_known_by_its_id(broker: Broker, topic: str, connection: RawConnection) -> None:
    described = connection.ask(ApiKey.METADATA, 12, topics=[{"name": topic}]).topics[0]
    broker.fail("Produce", 6, topic=topic)
    fields = produce_fields(described.topic_id, {0: BATCH})
    answer = connection.ask(ApiKey.PRODUCE, 13, **fields).responses[0]
    assert answer.topic_id == described.topic_id
    assert answer.partition_responses[0].error_code == 6


def test_the_newest_versions_and_errors_can_be_had(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    described = connection.ask(ApiKey.METADATA, 12, topics=[{"name": topic}]).topics[0]
    broker.fail("TxnOffsetCommit", "STALE_MEMBER_EPOCH", topic=topic)
    offsets = [{"partition_index": 1, "committed_offset": 5}]
    topics = [{"topic_id": described.topic_id, "partitions": offsets}]
    (refused,) = connection.ask(ApiKey.TXN_OFFSET_COMMIT, 6, topics=topics).topics
    assert refused.topic_id == described.topic_id
    assert [(it.partition_index, it.error_code) for it in refused.partitions] == [(1, 113)]
    broker.fail("DeleteGroups", "GROUP_DELETION_FAILED")
    (group,) = connection.ask(ApiKey.DELETE_GROUPS, 3, groups_names=["g"]).results
    assert (group.group_id, group.error_code) == ("g", 134)
    assert "on purpose" in group.error_message
    broker.fail("ApiVersions", "REBOOTSTRAP_REQUIRED")
    assert connection.ask(ApiKey.API_VERSIONS, 5).error_code == 129
    assert connection.ask(ApiKey.API_VERSIONS, 5).error_code == 0


def test_not_leader_fails_the_next_produce_or_fetch(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    broker.not_leader(topic)
    fields = fetch_fields(topic, {0: 0, 1: 0})
    first = connection.ask(ApiKey.FETCH, 11, **fields).responses[0].partitions
    assert [partition.error_code for partition in first] == [6, 6]
    assert produce(connection, topic).error_code == 0


def test_an_incremental_fetch_names_its_partitions_first(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    fields = fetch_fields(topic, {0: 0}, max_wait_ms=0)
    begun = connection.ask(ApiKey.FETCH, 11, **fields, session_id=0, session_epoch=0)
    assert begun.session_id
    broker.fail("Fetch", "OFFSET_OUT_OF_RANGE", topic=topic)
    nothing = {"topics": [], "max_wait_ms": 0}
    ask = {"session_id": begun.session_id, "session_epoch": 1}
    assert connection.ask(ApiKey.FETCH, 11, **nothing, **ask).error_code == 70
    again = connection.ask(ApiKey.FETCH, 11, **fields, session_id=0, session_epoch=0)
    assert again.responses[0].partitions[0].error_code == 1
    assert (again.error_code, again.session_id) == (0, 0)
    after = connection.ask(ApiKey.FETCH, 11, **fields, session_id=0, session_epoch=0)
    assert after.responses[0].partitions[0].error_code == 0


def test_a_failed_produce_without_acks_closes_the_connection(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    broker.fail("Produce", 6)
    connection.send(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: BATCH}, acks=0))
    assert connection.is_closed()
    assert records_in(broker, topic) == 0


def test_failed_metadata_still_names_the_broker(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    broker.fail("Metadata", "LEADER_NOT_AVAILABLE")
    answer = connection.ask(ApiKey.METADATA, 12, topics=[{"name": topic}])
    assert [known.node_id for known in answer.brokers] == [1]
    assert [(told.name, told.error_code) for told in answer.topics] == [(topic, 5)]


def test_api_versions_can_be_refused_as_too_new(broker: Broker, connection: RawConnection) -> None:
    broker.fail("ApiVersions", "UNSUPPORTED_VERSION")
    connection.socket.sendall(connection.packed(ApiKey.API_VERSIONS, 0, {}))
    answer = connection.receive()[1]
    assert answer.error_code == 35
    assert answer.api_keys


def test_a_lost_answer_belongs_to_a_request_that_was_done(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    broker.lose_answer("Produce")
    connection.send(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: BATCH}))
    assert connection.is_closed()
    assert records_in(broker, topic) == 1


@pytest.mark.parametrize("after_bytes", [1, 4, 20, 10_000, 1 << 30])
@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH], ids=lambda key: key.title)
def test_a_connection_closes_within_an_answer(
    key: ApiKey, after_bytes: int, broker: Broker, topic: str, connection: RawConnection
) -> None:
    large = build_batch([LogRecord(1_700_000_000_000, b"k", b"v" * 300_000)])
    connection.ask(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: large}))
    if key is ApiKey.FETCH:
        request = connection.packed(key, 11, fetch_fields(topic, {0: 0}))
    else:
        request = connection.packed(key, 9, produce_fields(topic, {0: BATCH}))
    whole = _received(connection, request, until_closed=False)
    broker.disconnect(key.title, after_bytes)
    cut = _received(connection, request, until_closed=True)
    if key is ApiKey.FETCH:
        assert cut == whole[:after_bytes]
    else:
        assert len(cut) == len(whole[:after_bytes])


def _received(connection: RawConnection, request: bytes, *, until_closed: bool) -> bytes:
    connection.socket.sendall(request)
    if not until_closed:
        length = connection.exactly(4)
        return length + connection.exactly(int.from_bytes(length, "big"))
    received = bytearray()
    while piece := connection.socket.recv(1 << 20):
        received += piece
    return bytes(received)


def test_a_delayed_request_is_done_at_once_and_answered_later(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    broker.delay("Produce", "300ms")
    begun = time.monotonic()
    connection.send(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: BATCH}))
    eventually(lambda: records_in(broker, topic) == 1)
    connection.receive()
    assert time.monotonic() - begun >= 0.3


def test_requests_wait_for_the_end_of_a_pause_in_their_order(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    broker.pause()
    for _ in range(3):
        connection.send(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: BATCH}))
    assert connection.is_silent(0.2)
    broker.resume()
    offsets = [
        connection.receive()[1].responses[0].partition_responses[0].base_offset for _ in range(3)
    ]
    assert offsets == [0, 1, 2]


def test_a_pause_drops_requests_whose_connection_was_closed(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    with RawConnection(broker.bootstrap_servers) as closed:
        broker.pause()
        closed.send(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: BATCH}))
    connection.send(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: BATCH}))
    assert connection.is_silent(0.2)
    broker.resume()
    assert connection.receive()[1].responses[0].partition_responses[0].base_offset == 0
    assert records_in(broker, topic) == 1


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_paused_broker_can_be_ended(end: str) -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with RawConnection(broker.bootstrap_servers) as connection:
            broker.pause()
            broker.delay("Metadata", "1h")
            connection.send(ApiKey.PRODUCE, 9, **produce_fields("t", {0: BATCH}))
            assert connection.is_silent(0.1)
            getattr(broker, end)()
        broker.start()
        assert records_in(broker, "t") == (1 if end == "stop" else 0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda it: it.fail("Produces", 6), "write one of AddOffsetsToTxn, "),
        (lambda it: it.fail("UpdateFeatures", 6), "write one of AddOffsetsToTxn, "),
        (lambda it: it.fail(True, 6), "not served"),
        (lambda it: it.fail(999, 6), "not served"),
        (lambda it: it.fail("Produce", "NO_SUCH_ERROR"), "NOT_LEADER_OR_FOLLOWER"),
        (lambda it: it.fail("Produce", 0), "is no error"),
        (lambda it: it.fail("Produce", 6, times=0), "times=0"),
        (lambda it: it.fail("Heartbeat", 6, topic="t"), "Heartbeat requests name no topic"),
        (lambda it: it.fail("CreateTopics", 6, partition=1), "names no partition"),
        (lambda it: it.fail("Fetch", 6, partition=-1), "partition=-1"),
        (lambda it: it.delay("Fetch", "soon"), "not a duration"),
        (lambda it: it.delay("Fetch", -1), "allowed are 0 to"),
        (lambda it: it.disconnect("Fetch", -1), "after_bytes=-1"),
        (lambda it: it.not_leader(""), "name of a topic"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(shared: Broker, wrong: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        wrong(shared)


# --- clients ------------------------------------------------------------------------------


def test_confluent_kafka_retries_an_idempotent_batch_whose_answer_was_lost(
    broker: Broker, topic: str
) -> None:
    broker.lose_answer("Produce", topic=topic)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "retry.backoff.ms": 10,
        }
    )
    errors: list[object] = []
    producer.produce(topic, b"once", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None]
    assert records_in(broker, topic) == 1


def test_confluent_kafka_looks_for_a_new_leader(broker: Broker, topic: str) -> None:
    broker.not_leader(topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10}
    )
    errors: list[object] = []
    producer.produce(topic, b"v", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None]


def test_confluent_kafka_is_fenced(broker: Broker, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    producer.flush(PATIENCE_S)
    broker.fail("EndTxn", "PRODUCER_FENCED")
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()


def test_confluent_kafka_times_out_while_the_broker_is_paused(broker: Broker, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 500}
    )
    assert topic in producer.list_topics(topic, PATIENCE_S).topics
    broker.pause()
    errors: list[Any] = []
    producer.produce(topic, b"v", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert errors[0].code() == confluent_kafka.KafkaError._MSG_TIMED_OUT
    broker.resume()


def test_aiokafka_retries(broker: Broker, topic: str) -> None:
    broker.fail("Produce", "NOT_ENOUGH_REPLICAS", topic=topic, times=2)

    async def send() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=10, acks="all"
        )
        await producer.start()
        broker.disconnect("Metadata", 10)
        try:
            return int((await producer.send_and_wait(topic, b"v", partition=0)).offset)
        finally:
            await producer.stop()

    assert asyncio.run(send()) == 0


def test_kafka_python_retries(broker: Broker, topic: str) -> None:
    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic, times=2)
    with kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=10, retries=5
    ) as producer:
        sent = producer.send(topic, b"v", partition=0).get(timeout=PATIENCE_S)
    assert sent.offset == 0


def test_a_consumer_continues_after_each_fault_of_its_fetches(broker: Broker, topic: str) -> None:
    with RawConnection(broker.bootstrap_servers) as connection:
        for _ in range(5):
            produce(connection, topic)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=None,
        retry_backoff_ms=10,
        reconnect_backoff_ms=10,
    )
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    faults = (
        lambda: broker.not_leader(topic),
        lambda: broker.lose_answer("Fetch", topic=topic),
        lambda: broker.disconnect("Fetch", 30, topic=topic),
        lambda: broker.fail("Fetch", "UNKNOWN_LEADER_EPOCH", topic=topic),
    )
    try:
        for set_fault in faults:
            set_fault()
            consumer.seek(partition, 0)
            offsets: list[int] = []
            while len(offsets) < 5:
                for records in consumer.poll(timeout_ms=100).values():
                    offsets += [record.offset for record in records]
            assert offsets == [0, 1, 2, 3, 4]
    finally:
        consumer.close(autocommit=False)


# --- over the wire ------------------------------------------------------------------------


def set_fault(address: str, value: object) -> None:
    """Alter the broker as a client in any language does."""
    text = value if isinstance(value, str) else json.dumps(value)
    entry = ConfigEntry("horolog.fault", text, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": address})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def test_faults_are_set_and_cleared_over_the_wire(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    address = broker.bootstrap_servers
    set_fault(address, {"fail": "Produce", "error": "NOT_CONTROLLER", "topic": topic})
    set_fault(address, {"not_leader": topic})
    set_fault(address, {"fail": "Produce", "error": 7, "times": None})
    assert [produce(connection, topic).error_code for _ in range(3)] == [41, 6, 7]
    set_fault(address, {"clear": True})
    assert produce(connection, topic).error_code == 0
    set_fault(address, {"lose_answer": "Produce", "partition": 1})
    connection.send(ApiKey.PRODUCE, 9, **produce_fields(topic, {1: BATCH}))
    assert connection.is_closed()


def test_a_pause_over_the_wire_ends_by_itself_and_lets_faults_be_set(
    broker: Broker, topic: str, connection: RawConnection
) -> None:
    address = broker.bootstrap_servers
    broker.fail("ApiVersions", 7)
    broker.clear_faults()
    with ThreadPoolExecutor(1) as pool:
        set_fault(address, {"pause": "200ms"})
        waiting = pool.submit(produce, connection, topic)
        assert waiting.result(PATIENCE_S).error_code == 0
    # The connection of the alteration is there before the pause; a new one would wait for it.
    entry = {"resource_type": 4, "resource_name": "1"}

    def alter(value: object) -> Any:
        config = {"name": "horolog.fault", "config_operation": 0, "value": json.dumps(value)}
        fields = {"resources": [{**entry, "configs": [config]}]}
        return connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **fields).responses[0]

    broker.fail("IncrementalAlterConfigs", 7, times=None)
    assert alter({"pause": True}).error_code == 0
    assert alter({"resume": True}).error_code == 0
    assert alter({"clear": True}).error_code == 0
    assert produce(connection, topic).error_code == 0


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("no json", "horolog.fault"),
        ("[]", "JSON object with one of"),
        ({"fail": "Produce"}, "fail needs error"),
        ({"fail": "Produce", "delay": "Fetch"}, "one of"),
        ({"fail": "Produce", "error": 6, "by": 3}, "by does not go with fail"),
        ({"fail": ["Produce"], "error": 6}, "not served"),
        ({"fail": "Produce", "error": {"a": 1}}, "is no error"),
        ({"fail": "Produce", "error": 6, "times": "2"}, "times="),
        ({"delay": "Produce", "by": None}, "horolog.fault"),
        ({"delay": "Produce", "by": 1e400}, "horolog.fault"),
        ({"pause": "2 years"}, "horolog.fault"),
        ({"pause": -5}, "allowed are"),
        ({"resume": 1}, "allowed is true"),
        ({"not_leader": 5}, "name of a topic"),
    ],
)
def test_a_fault_over_the_wire_that_cannot_be_is_refused(
    shared: Broker, value: object, said: str
) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        set_fault(shared.bootstrap_servers, value)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.INVALID_CONFIG
    assert said in refused.value.args[0].str()


def test_serve_accepts_faults_only_with_a_manual_clock(tmp_path: Path) -> None:
    refused = run_command("serve", "--port", 0, "--log-dir", tmp_path, "--faults")
    assert refused.code == 2
    assert "add --clock manual" in refused.err


@pytest.mark.parametrize("faults", [True, False])
def test_a_served_broker_takes_faults_where_it_was_started_for_them(
    tmp_path: Path, faults: bool
) -> None:
    command = [sys.executable, "-m", "horolog", "serve", "--port", "0", "--log-dir", str(tmp_path)]
    command += ["--clock", "manual", *(["--faults"] if faults else [])]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[1]
            if faults:
                set_fault(address, {"fail": "CreateTopics", "error": "POLICY_VIOLATION"})
                with Client(address) as client, pytest.raises(RequestRefused, match="on purpose"):
                    client.topics.create({"t": 1})
            else:
                with pytest.raises(confluent_kafka.KafkaException, match="--faults"):
                    set_fault(address, {"clear": True})
        finally:
            process.terminate()
    assert process.returncode == 0
