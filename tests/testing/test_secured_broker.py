"""A broker for tests with an authority, users and rights in one line."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from patience import PATIENCE_S

from horolog.client import AuthenticationFailed, Client
from horolog.errors import Misconfigured
from horolog.rights import AclFilter
from horolog.testing import Broker

Secured = Callable[..., Broker]


def test_users_do_what_they_may_and_nothing_else(horolog_secured: Secured) -> None:
    broker = horolog_secured(
        alice="write topic:orders", bob=["read topic:ord*", "read group:billing"]
    )
    broker.create_topic("orders")
    producer = confluent_kafka.Producer(broker.librdkafka("alice"))
    failed = []
    producer.produce("orders", b"tea")
    producer.produce("secret", b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(PATIENCE_S)
    assert [error.name() for error in failed] == ["TOPIC_AUTHORIZATION_FAILED"]
    consumer = confluent_kafka.Consumer(
        {**broker.librdkafka("bob"), "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    record = consumer.poll(PATIENCE_S)
    consumer.close()
    assert record is not None
    assert record.value() == b"tea"


def test_kafka_python_logs_in_too(horolog_secured: Secured) -> None:
    broker = horolog_secured(alice=["all topic:t*"])
    broker.create_topic("t")
    login = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": broker.password("alice"),
        "ssl_cafile": str(broker.ca_file),
    }
    with KafkaProducer(**login) as producer:
        assert producer.send("t", b"v").get(timeout=PATIENCE_S).offset == 0
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send("other", b"v").get(timeout=PATIENCE_S)
    with KafkaConsumer("t", auto_offset_reset="earliest", **login) as consumer:
        assert next(consumer).value == b"v"


def test_users_stay_over_restarts_and_passwords_are_random(horolog_secured: Secured) -> None:
    broker = horolog_secured(alice="describe cluster", bob="deny describe cluster")
    assert broker.password("alice") != broker.password("bob")
    properties = broker.properties("alice")
    servers = properties.pop("bootstrap.servers")
    broker.kill()
    broker.start()
    broker.clock.set("2180-01-01T00:00Z")
    with Client(servers, security=properties) as client:
        assert client.metadata().cluster_id
    wrong = {
        name: value.replace(broker.password("alice"), "wrong") for name, value in properties.items()
    }
    with Client(servers, security=wrong) as client, pytest.raises(AuthenticationFailed):
        client.metadata()


def test_nothing_is_left_behind_and_nothing_shows_a_password() -> None:
    with Broker(users={"alice": "all topic:*"}) as broker:
        password, ca_file, log_dir = broker.password("alice"), broker.ca_file, broker.log_dir
        assert "PRIVATE" not in ca_file.read_text()
        assert password not in repr(broker) + repr(vars(broker))
        written = [path for path in Path(log_dir).rglob("*") if path.is_file()]
        assert not any(password.encode() in path.read_bytes() for path in written)
        metadata = [path for path in written if path.parent.name == "__cluster_metadata-0"]
        assert metadata
        assert not any(stat.S_IMODE(path.stat().st_mode) & 0o077 for path in metadata)
    assert not ca_file.exists()
    assert not log_dir.exists()


@pytest.mark.parametrize(
    "right",
    ["", "read", "read topic:a b", "read topic:", "read queue:a", "eat topic:a", "deny read"],
)
def test_a_right_of_another_form_is_refused(right: str) -> None:
    with pytest.raises(Misconfigured):
        Broker(users={"alice": right})


def test_a_broker_without_users_has_none() -> None:
    with Broker() as broker, pytest.raises(AssertionError, match="give the broker users"):
        broker.password("alice")


def test_rights_that_a_test_removes_stay_removed_over_a_restart(horolog_secured: Secured) -> None:
    broker = horolog_secured(admin="all cluster", alice="read topic:t")
    with Client(broker.bootstrap_servers, **admin(broker)) as client:
        client.acls.remove(AclFilter(principal="User:alice"))
    broker.stop()
    broker.start()
    with Client(broker.bootstrap_servers, **admin(broker)) as client:
        assert {entry.principal for entry in client.acls.list()} == {"User:admin"}


def admin(broker: Broker) -> dict[str, Any]:
    properties = broker.properties("admin")
    return {"security": {key: properties[key] for key in properties if key != "bootstrap.servers"}}


@pytest.mark.parametrize("name", ['a"b', "a\\", "=,é "])
def test_any_name_logs_in(horolog_secured: Secured, name: str) -> None:
    broker = horolog_secured(**{name: "describe cluster"})
    properties = broker.properties(name)
    with Client(properties.pop("bootstrap.servers"), security=properties) as client:
        assert client.metadata().cluster_id


def test_a_start_that_fails_leaves_nothing_behind() -> None:
    broker = Broker({"node.id": "none"}, users={"alice": "all topic:*"})
    ca_file, log_dir = broker.ca_file, broker.log_dir
    with pytest.raises(Misconfigured, match=r"node\.id"), broker:
        pass
    assert not ca_file.parent.exists()
    assert not log_dir.exists()
