"""Membership in an Apache Kafka (KRaft) cluster: controllers, listeners and times.

process.roles=broker                                 joins the cluster of these controllers
controller.quorum.bootstrap.servers=HOST:PORT,...    or controller.quorum.voters=ID@HOST:PORT,...
controller.listener.names=CONTROLLER

A node is alone without `process.roles`, and with both roles and itself as the only controller.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from horolog.config.listeners import (
    INTER_MECHANISM,
    PROTOCOLS,
    Endpoint,
    of_listener,
    parse_endpoint,
)
from horolog.config.logins import JAAS

__all__ = ["ClusterConfig", "ControllerAddress", "parse_cluster"]

ROLES: Final = "process.roles"
VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"
CONTROLLER_LISTENERS: Final = "controller.listener.names"
CONTROLLER_MECHANISM: Final = "sasl.mechanism.controller.protocol"
_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w-]+\]|[^:/\[\]\s@]+):(?P<port>[0-9]{1,5})")
_OF_A_NODE_ALONE: Final = (
    "horolog.cluster.id",
    "horolog.follow",
    "horolog.state.dir",
    "horolog.take.over",
)
_CLIENT_TLS: Final = (
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
_CLIENT_LOGIN: Final = (
    "sasl.login.callback.handler.class",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
)


class ControllerAddress(NamedTuple):
    """Host and port of a controller; an IPv6 host has no brackets."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClusterConfig:
    """Settings of a broker of a cluster, beside those of every broker. Times are milliseconds.

    Its `repr` has no password.
    """

    controllers: tuple[ControllerAddress, ...]
    voters: frozenset[int]
    """Ids of the controllers, where `controller.quorum.voters` names them."""
    controller_listener: str
    controller_security: Mapping[str, str]
    """Settings of Kafka's clients for connections to controllers."""
    broker_security: Mapping[str, str]
    """Settings of Kafka's clients for connections to other brokers."""

    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    initial_broker_registration_timeout_ms: int
    controlled_shutdown_enable: bool
    replica_lag_time_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    offsets_topic_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_replication_factor: int
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    horolog_cluster_cordoned: str
    horolog_cluster_internal_replicas: bool


OF_SETTINGS: Final = tuple(
    name
    for name in ClusterConfig.__dataclass_fields__
    if name
    not in {
        "controllers",
        "voters",
        "controller_listener",
        "controller_security",
        "broker_security",
    }
)
"""Fields that are the value of one setting as it is."""


def parse_cluster(
    value_of: Callable[[str], Any],
    given: Mapping[str, str],
    protocols: Mapping[str, str],
    listener: str,
    advertised: Sequence[Endpoint],
) -> ClusterConfig | None:
    """Return the settings of a broker of a cluster; None for a node alone.

    Args:
        value_of: returns the effective value of a setting.
        given: all settings; those of the strongest layer win.
        protocols: of listeners by name.
        listener: that between brokers.

    Raises:
        ValueError: Kafka has to run what is asked for, or a setting is missing or unusable.
    """
    if ROLES not in given:
        return None
    roles, node_id = set(value_of(ROLES)), value_of("node.id")
    voters = _voters(value_of(VOTERS) or ())
    servers = tuple(_address(text, BOOTSTRAP) for text in value_of(BOOTSTRAP) or ())
    if roles == {"controller"}:
        raise ValueError(
            f"{ROLES}=controller: Apache Kafka runs the controllers of a cluster, and horolog the "
            f"brokers; start Apache Kafka with this file, and horolog with {ROLES}=broker"
        )
    if "controller" in roles:
        _require_alone(node_id, voters, servers, given, value_of)
    if roles != {"broker"}:
        return None
    names = [name.upper() for name in value_of(CONTROLLER_LISTENERS) or ()]
    _require_joinable(value_of, given, names, voters, servers)
    if listener not in {endpoint.name for endpoint in advertised}:
        raise ValueError(
            f"{listener} is the listener between brokers, and {ROLES}=broker needs it among "
            "advertised.listeners; name another one as inter.broker.listener.name"
        )
    controller = names[0]
    of_controllers = _protocol_of(controller, protocols, given)
    return ClusterConfig(
        controllers=servers or tuple(voters.values()),
        voters=frozenset(voters),
        controller_listener=controller,
        controller_security=_client_settings(
            controller, of_controllers, value_of(CONTROLLER_MECHANISM), given
        ),
        broker_security=_client_settings(
            listener, protocols.get(listener, listener), value_of(INTER_MECHANISM), given
        ),
        **{name: value_of(name.replace("_", ".")) for name in OF_SETTINGS},
    )


def _require_alone(
    node_id: int,
    voters: Collection[int],
    servers: Sequence[ControllerAddress],
    given: Mapping[str, str],
    value_of: Callable[[str], Any],
) -> None:
    """Refuse both roles where another node is a controller, too."""
    own = {name.upper() for name in value_of(CONTROLLER_LISTENERS) or ()}
    endpoints = (parse_endpoint(text, "listeners") for text in value_of("listeners") or ())
    ports = {endpoint.port for endpoint in endpoints if endpoint.name in own}
    others = [server for server in servers if ports and server.port not in ports]
    if set(voters) - {node_id} or len(servers) > 1 or others:
        which = VOTERS if set(voters) - {node_id} else BOOTSTRAP
        raise ValueError(
            f"{ROLES}={given[ROLES]} with other controllers ({which}={given.get(which, '')}): "
            f"Apache Kafka runs the controllers of a cluster; give {ROLES}=broker to join it"
        )


def _require_joinable(
    value_of: Callable[[str], Any],
    given: Mapping[str, str],
    names: Sequence[str],
    voters: Collection[int],
    servers: Sequence[ControllerAddress],
) -> None:
    """Refuse a broker that could not join a cluster, or would be a node alone as well."""
    joins = f"{ROLES}=broker joins a cluster"
    node_id = value_of("node.id")
    if not voters and not servers:
        raise ValueError(f"{joins}, and needs {BOOTSTRAP}=HOST:PORT,... to find its controllers")
    if voters and servers:
        raise ValueError(f"{joins} by {BOOTSTRAP} or by {VOTERS}; only one of both may be given")
    if given.keys().isdisjoint(("node.id", "broker.id")) or node_id < 0:
        raise ValueError(f"{joins}, and needs node.id, the number of this broker there")
    if node_id in voters:
        raise ValueError(f"node.id={node_id} is a controller's in {VOTERS}; brokers need their own")
    if not names:
        raise ValueError(f"{joins}, and needs {CONTROLLER_LISTENERS}, as its controllers have it")
    listeners = (parse_endpoint(text, "listeners") for text in value_of("listeners") or ())
    if served := sorted({endpoint.name for endpoint in listeners} & {*names}):
        raise ValueError(f"listeners names {served[0]}, which is a listener of controllers")
    log_dir = value_of("log.dirs") or value_of("log.dir")
    metadata_dir = value_of("metadata.log.dir")
    if metadata_dir and (metadata_dir,) != tuple(log_dir):
        raise ValueError(
            f"metadata.log.dir={metadata_dir}: the metadata log is kept in log.dirs; leave it out"
        )
    for name in _OF_A_NODE_ALONE:
        if given.get(name, "").strip().lower() not in ("", "false"):
            raise ValueError(f"{name} is for a node alone, and {joins}; leave it out")


def _voters(texts: Sequence[str]) -> dict[int, ControllerAddress]:
    voters = {}
    for text in filter(None, texts):
        node_id, mark, address = text.partition("@")
        if not mark or not (node_id.isascii() and node_id.isdigit()):
            raise ValueError(f"Invalid value {text} for configuration {VOTERS}: write ID@HOST:PORT")
        voters[int(node_id)] = _address(address, VOTERS)
    return voters


def _address(text: str, setting: str) -> ControllerAddress:
    match = _ADDRESS.fullmatch(text.strip())
    if not match or not 0 < int(match["port"]) <= 65535:
        raise ValueError(
            f"Invalid value {text} for configuration {setting}: allowed is HOST:PORT, "
            "with an IPv6 address in brackets"
        )
    return ControllerAddress(match["host"].strip("[]"), int(match["port"]))


def _protocol_of(listener: str, protocols: Mapping[str, str], given: Mapping[str, str]) -> str:
    """Return the protocol of the controllers' listener, which is in no other setting."""
    if listener in protocols:
        return protocols[listener]
    if listener in PROTOCOLS:
        return listener
    if "listener.security.protocol.map" not in given:
        return "PLAINTEXT"
    raise ValueError(
        f"{CONTROLLER_LISTENERS}={listener}: no protocol is given for the name; add it to "
        f"listener.security.protocol.map as {listener}:PLAINTEXT"
    )


def _client_settings(
    listener: str, protocol: str, mechanism: str, given: Mapping[str, str]
) -> dict[str, str]:
    """Return settings of Kafka's clients for connections to a listener of another node."""
    settings = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        for name in _CLIENT_TLS:
            value = given.get(of_listener(listener, name), given.get(name))
            if value is not None:
                settings[name] = value
    if protocol.startswith("SASL_"):
        settings["sasl.mechanism"] = mechanism
        for name in (JAAS, *_CLIENT_LOGIN):
            names = of_listener(listener, name, mechanism), of_listener(listener, name), name
            value = next((given[it] for it in names if it in given), None)
            if value is not None:
                settings[name] = value
    return settings
