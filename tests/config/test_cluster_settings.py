"""Who joins a cluster, who is alone, and what is refused in one sentence."""

import pytest

from horolog.config import ClusterConfig, ControllerAddress, Settings
from horolog.errors import Misconfigured

BROKER = {
    "process.roles": "broker",
    "node.id": "2",
    "controller.quorum.bootstrap.servers": "one:9093,[::1]:9094",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
}


def cluster_of(**changed: str | None) -> ClusterConfig | None:
    given: dict[str, str | None] = {**BROKER}
    given |= {name.replace("_", "."): value for name, value in changed.items()}
    return (
        Settings({name: value for name, value in given.items() if value is not None})
        .broker_config()
        .cluster
    )


def joined(**changed: str | None) -> ClusterConfig:
    cluster = cluster_of(**changed)
    assert cluster is not None
    return cluster


def test_a_broker_finds_its_controllers_by_addresses() -> None:
    cluster = joined()
    assert cluster.controllers == (ControllerAddress("one", 9093), ControllerAddress("::1", 9094))
    assert cluster.voters == frozenset()
    assert cluster.controller_security == {"security.protocol": "PLAINTEXT"}
    assert cluster.broker_security == {"security.protocol": "PLAINTEXT"}


def test_a_broker_finds_its_controllers_by_voters() -> None:
    cluster = joined(
        controller_quorum_bootstrap_servers=None,
        controller_quorum_voters="100@one:9093,101@two:9093",
    )
    assert cluster.controllers == (ControllerAddress("one", 9093), ControllerAddress("two", 9093))
    assert cluster.voters == {100, 101}


@pytest.mark.parametrize(
    "changed",
    [
        {"process_roles": None},
        {"process_roles": "broker,controller", "controller_quorum_bootstrap_servers": "one:9093"},
        {
            "process_roles": "broker,controller",
            "controller_quorum_bootstrap_servers": None,
            "controller_quorum_voters": "2@one:9093",
        },
    ],
)
def test_a_node_with_itself_as_its_only_controller_is_alone(changed: dict[str, str]) -> None:
    assert cluster_of(**changed) is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"process_roles": "controller"}, "Apache Kafka runs the controllers of a cluster, and"),
        ({"process_roles": "broker,controller"}, "with other controllers"),
        (
            {
                "process_roles": "broker,controller",
                "controller_quorum_bootstrap_servers": None,
                "controller_quorum_voters": "2@one:9093,3@two:9093",
            },
            "give process.roles=broker to join it",
        ),
        (
            {
                "process_roles": "broker,controller",
                "controller_quorum_bootstrap_servers": "other:9093",
                "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9999",
            },
            "with other controllers",
        ),
        ({"controller_quorum_bootstrap_servers": None}, "needs controller.quorum.bootstrap"),
        ({"controller_quorum_voters": "100@one:9093"}, "only one of both may be given"),
        (
            {
                "controller_quorum_bootstrap_servers": None,
                "controller_quorum_voters": "2@one:9093",
            },
            "node.id=2 is a controller's",
        ),
        ({"controller_quorum_bootstrap_servers": "one"}, "allowed is HOST:PORT"),
        (
            {"controller_quorum_bootstrap_servers": None, "controller_quorum_voters": "one:9093"},
            "write ID@HOST:PORT",
        ),
        ({"node_id": None}, "needs node.id"),
        ({"controller_listener_names": None}, "needs controller.listener.names"),
        ({"controller_listener_names": "PLAINTEXT"}, "which|names no listener for clients"),
        ({"metadata_log_dir": "/elsewhere"}, "the metadata log is kept in log.dirs"),
        ({"log_dirs": "/one,/two"}, "only one directory is supported"),
        ({"horolog_follow": "there:9092"}, "horolog.follow is for a node alone"),
        ({"horolog_take_over": "true"}, "horolog.take.over is for a node alone"),
        ({"listeners": "OTHER://127.0.0.1:9092"}, "no protocol is given for the name OTHER"),
        (
            {
                "listeners": "OTHER://127.0.0.1:9092",
                "listener_security_protocol_map": "OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            },
            "is the listener between brokers",
        ),
        (
            {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT"},
            "add it to listener.security.protocol.map as CONTROLLER:PLAINTEXT",
        ),
    ],
)
def test_what_cannot_join_is_refused(changed: dict[str, str | None], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        cluster_of(**changed)


def test_connections_to_controllers_have_their_listener_s_settings() -> None:
    cluster = joined(
        listeners="PLAINTEXT://127.0.0.1:9092",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
        sasl_mechanism_controller_protocol="SCRAM-SHA-512",
        **{
            "ssl.truststore.location": "/all.pem",
            "listener.name.controller.ssl.truststore.location": "/controllers.pem",
            "ssl.client.auth": "required",
            "listener.name.controller.scram-sha-512.sasl.jaas.config": "the login",
        },
    )
    assert cluster.controller_security == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "/controllers.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "the login",
    }
    assert "login" not in repr(cluster)
