"""Registration of a broker with the controllers: what is claimed, and what is checked before.

Controllers check little of it. A wrong listener name or the id of a controller is refused here, and
a refusal of the controllers names the feature and what to do.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from horolog.config import BrokerConfig, Endpoint
from horolog.errors import ErrorCode, HorologError, Misconfigured
from horolog.metadata.image import Image
from horolog.wire.api import Versions
from horolog.wire.features import REPLICATION

__all__ = ["CLAIMS", "Registration", "check_before_registering", "refusal_of"]

METADATA_VERSION: Final = "metadata.version"
CLAIMS: Final = MappingProxyType(
    {
        METADATA_VERSION: Versions(21, 33),  # 3.9-IV0 to 4.4-IV2
        "kraft.version": Versions(0, 1),
        "group.version": Versions(0, 1),
        "transaction.version": Versions(0, 2),
        "eligible.leader.replicas.version": Versions(0, 1),
        "share.version": Versions(0, 2),
        "streams.version": Versions(0, 1),
        REPLICATION: Versions(0, 1),
    }
)
"""Features that this broker can have finalised, with their levels (docs/cluster.md)."""
_CAPS: Final = "kafka-features --bootstrap-server HOST:PORT downgrade --feature {}={}"
_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_RESERVED: Final = 100
"""Ids of directories below this are Kafka's."""


class Registration(NamedTuple):
    """Identity and endpoints of a broker, as it registers them."""

    node_id: int
    cluster_id: str
    incarnation: UUID
    """Made anew by each process."""
    directory_id: UUID
    endpoints: tuple[Endpoint, ...]
    """Advertised endpoints with their ports."""
    config: BrokerConfig

    def request(self, previous_epoch: int) -> Mapping[str, Any]:
        """Return the fields of BrokerRegistration.

        Args:
            previous_epoch: broker epoch of the last clean stop; -1 if it was not clean.
        """
        return {
            "broker_id": self.node_id,
            "cluster_id": self.cluster_id,
            "incarnation_id": self.incarnation,
            "listeners": [
                {
                    "name": endpoint.name,
                    "host": endpoint.host,
                    "port": endpoint.port,
                    "security_protocol": _PROTOCOLS[protocol_of(self.config, endpoint.name)],
                }
                for endpoint in self.endpoints
            ],
            "features": [
                {"name": name, "min_supported_version": low, "max_supported_version": high}
                for name, (low, high) in CLAIMS.items()
            ],
            "rack": self.config.broker_rack,
            "is_migrating_zk_broker": False,
            "log_dirs": [self.directory_id],
            "previous_broker_epoch": previous_epoch,
        }


def protocol_of(config: BrokerConfig, listener: str) -> str:
    """Return the security protocol of a listener."""
    encrypted = listener in config.tls
    if listener in config.logins:
        return "SASL_SSL" if encrypted else "SASL_PLAINTEXT"
    return "SSL" if encrypted else "PLAINTEXT"


def advertised(config: BrokerConfig, bound: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the advertised endpoints; a port of 0 is that which the listener is bound to."""
    ports = {endpoint.name: endpoint.port for endpoint in bound}
    return tuple(
        endpoint if endpoint.port else endpoint._replace(port=ports[endpoint.name])
        for endpoint in config.advertised_listeners
    )


def check_before_registering(
    registration: Registration, image: Image, controllers: Iterable[int]
) -> Iterator[str]:
    """Check what controllers do not check; yield a sentence for each doubt.

    Args:
        image: state of the cluster; it may be that before a record or two.
        controllers: ids of all controllers.

    Raises:
        Misconfigured: clients or brokers could not use this broker, or it would replace another.
    """
    config, node_id = registration.config, registration.node_id
    if node_id in {*controllers, *image.controllers}:
        raise Misconfigured(f"node.id={node_id} is that of a controller; brokers need their own")
    if registration.directory_id.int < _RESERVED:
        raise Misconfigured(
            f"directory.id {registration.directory_id} in meta.properties is Kafka's"
        )
    for name, level in image.features.items():
        claim = CLAIMS.get(name)
        if level and (claim is None or not claim.min <= level <= claim.max):
            raise Misconfigured(_unclaimed(name, level))
    others = {number: it for number, it in image.brokers.items() if number != node_id}
    for number, broker in others.items():
        if registration.directory_id in broker.log_dirs:
            raise Misconfigured(
                f"directory.id in meta.properties is that of broker {number}: a copied directory "
                "needs an id of its own, and its partitions belong to that broker"
            )
    names = {endpoint.name for it in others.values() for endpoint in it.endpoints}
    between = config.inter_broker_listener_name
    if others and between not in names:
        raise Misconfigured(
            f"inter.broker.listener.name={between}: no other broker has a listener of this name; "
            f"theirs are {', '.join(sorted(names))}, and brokers find each other by it"
        )
    own = {endpoint.name for endpoint in registration.endpoints}
    for name in sorted(own - names if others else ()):
        yield f"no other broker has a listener {name}: its clients can use this broker alone"
    for name in sorted(names - own):
        yield f"this broker has no listener {name}, so that clients of {name} cannot use it"


def refusal_of(code: int, registration: Registration, image: Image) -> HorologError | None:
    """Return the error of a refusal that stays, whenever it is tried again; None for others."""
    if code == ErrorCode.inconsistent_cluster_id:
        return Misconfigured(
            f"the controllers are not of cluster {registration.cluster_id}, of which the log "
            "directory is by its meta.properties"
        )
    if code == ErrorCode.unsupported_version:
        levels = ", ".join(f"{name}={level}" for name, level in sorted(image.features.items()))
        claims = ", ".join(f"{name} {low} to {high}" for name, (low, high) in CLAIMS.items())
        return Misconfigured(
            f"the controllers refuse the features of this broker ({claims}); finalised are "
            f"{levels or 'unknown ones'}: `{_CAPS.format('NAME', 'LEVEL')}` lowers one"
        )
    if code == ErrorCode.invalid_registration:
        return Misconfigured(
            f"the controllers refuse the registration of broker {registration.node_id}: its "
            f"directory id {registration.directory_id} is another broker's, or metadata.version "
            "is older than 3.7-IV2 (`kafka-features upgrade --release-version 3.9`)"
        )
    return None


def _unclaimed(name: str, level: int) -> str:
    claim = CLAIMS.get(name)
    if claim is None:
        return (
            f"the feature {name} is finalised at level {level}, and horolog does not have it: "
            f"`{_CAPS.format(name, 0)}` before this broker joins"
        )
    what = f"the feature {name} is finalised at level {level}; horolog has {claim.min} to"
    if level > claim.max:
        return f"{what} {claim.max}: `{_CAPS.format(name, claim.max)}` before this broker joins"
    return (
        f"{what} {claim.max}: `kafka-features --bootstrap-server HOST:PORT upgrade --feature "
        f"{name}={claim.min}` before this broker joins"
    )
