"""A cluster whose brokers and controllers log in over TLS, with Kafka's StandardAuthorizer."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from certificates import PASSWORD, Certificates
from tools.cluster import Cluster, ServerProcess
from tools.peers.kafka import run_tool

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.errors import HorologError
from horolog.record import LogRecord, build_batch, read_records

PACKAGE = "org.apache.kafka.common.security"
SCRAM = f'{PACKAGE}.scram.ScramLoginModule required username="{{}}" password="{{}}";'
PLAIN = (
    f"{PACKAGE}.plain.PlainLoginModule required "
    'username="broker" password="broker-pw" user_broker="broker-pw";'
)
READY_S = 240.0
NOW_MS = SystemClock().now_ms()


def secured(cluster: Cluster, certificates: Certificates) -> None:
    """Let controllers be logged in to with PLAIN, and brokers with SCRAM, both over TLS."""
    common = {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,SECURED:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": PLAIN,
        "listener.name.secured.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.secured.scram-sha-256.sasl.jaas.config": SCRAM.format("broker", "broker-pw"),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(certificates.p12("broker")),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(certificates.trusted_p12),
        "ssl.truststore.password": PASSWORD,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker;User:admin",
    }
    for controller in cluster.controllers:
        controller.settings |= common
    for node in cluster.nodes:
        address = f"SECURED://127.0.0.1:{node.port}"
        node.settings |= {
            **common,
            "listeners": address,
            "advertised.listeners": address,
            "inter.broker.listener.name": "SECURED",
        }


def as_user(name: str, certificates: Certificates) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": SCRAM.format(name, f"{name}-pw"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
    }


def client_of(node: ServerProcess, name: str, certificates: Certificates) -> Client:
    return Client(node.address, security=as_user(name, certificates), timeout_ms=20_000)


def await_brokers(cluster: Cluster, certificates: Certificates) -> None:
    """Wait until each broker names all of them as alive."""
    wanted, deadline = {node.node_id for node in cluster.nodes}, time.monotonic() + READY_S
    for node in cluster.nodes:
        said: object = None
        while said != wanted:
            assert time.monotonic() < deadline, f"{said}\n{node.tail()}"
            try:
                with closing(client_of(node, "admin", certificates)) as client:
                    said = set(client.topics.metadata([]).brokers)
            except HorologError as error:
                said = error
                time.sleep(0.2)
    while True:  # until internal topics exist, brokers of ours are given no partitions
        assert time.monotonic() < deadline
        try:
            with closing(client_of(cluster.nodes[0], "admin", certificates)) as client:
                client.topics.create({"any": 1}, replication_factor=3, validate_only=True)
        except HorologError:
            time.sleep(0.5)
        else:
            return


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: Any, certificates: Certificates) -> Iterator[Cluster]:
    users = [
        argument
        for name in ("broker", "admin", "alice", "mallory")
        for argument in ("--add-scram", f"SCRAM-SHA-256=[name={name},password={name}-pw]")
    ]
    made = Cluster(tmp_path_factory.mktemp("secured"), "khh", format_arguments=users)
    secured(made, certificates)
    try:
        made.start()
        await_brokers(made, certificates)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def properties(tmp_path_factory: Any, certificates: Certificates) -> Path:
    """A file of properties of the administrator, for Kafka's tools."""
    file: Path = tmp_path_factory.mktemp("properties") / "admin.properties"
    given = as_user("admin", certificates)
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return file


def test_records_are_replicated_between_brokers_that_log_in(
    cluster: Cluster, certificates: Certificates
) -> None:
    batch = build_batch([LogRecord(NOW_MS, b"k", b"v")])
    with closing(client_of(cluster.nodes[1], "admin", certificates)) as client:
        client.create_topics({"copied": 6}, replication_factor=3)
        for partition in range(6):
            client.produce("copied", partition, batch)
    for node in cluster.nodes:
        node.stop()  # each leads some of the partitions until it stops
        with closing(
            client_of(next(it for it in cluster.nodes if it.is_running), "admin", certificates)
        ) as client:
            for partition in range(6):
                (record,) = read_records(client.fetch("copied", partition, 0).records)
                assert record.value == b"v"
        node.start()
        await_brokers(cluster, certificates)


def test_entries_of_the_cluster_count_on_every_broker(
    cluster: Cluster, certificates: Certificates, properties: Path
) -> None:
    batch = build_batch([LogRecord(NOW_MS, b"k", b"v")])
    with closing(client_of(cluster.nodes[0], "admin", certificates)) as client:
        client.create_topics({"guarded": 3}, replication_factor=3)
    # By a broker of ours, which relays it in the name of the administrator.
    run_tool(
        "acls",
        *("--bootstrap-server", cluster.nodes[1].address, "--command-config", str(properties)),
        *("--add", "--allow-principal", "User:alice", "--producer", "--consumer"),
        *("--topic", "guarded", "--group", "*"),
    )
    for node in cluster.nodes:
        with closing(client_of(node, "alice", certificates)) as alice:
            for partition in range(3):
                alice.produce("guarded", partition, batch)
        with closing(client_of(node, "mallory", certificates)) as mallory:
            for partition in range(3):
                with pytest.raises(HorologError, match=r"(?i)authoriz"):
                    mallory.produce("guarded", partition, batch)
            with pytest.raises(HorologError, match=r"(?i)authoriz"):
                mallory.create_topics({f"of-mallory-{node.node_id}": 1})


def test_a_password_that_is_changed_through_a_broker_of_ours_counts_on_all(
    cluster: Cluster, certificates: Certificates, properties: Path
) -> None:
    run_tool(
        "configs",
        *("--bootstrap-server", cluster.nodes[2].address, "--command-config", str(properties)),
        *("--alter", "--entity-type", "users", "--entity-name", "bob"),
        *("--add-config", "SCRAM-SHA-256=[password=bob-pw]"),
    )
    for node in cluster.nodes:
        deadline = time.monotonic() + 30
        while True:
            try:
                with closing(client_of(node, "bob", certificates)) as bob:
                    assert bob.topics.metadata([]).brokers
            except HorologError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            else:
                break
