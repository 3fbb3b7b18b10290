"""Endpoints of the broker: `listeners` and `advertised.listeners`.

    listeners=PLAINTEXT://127.0.0.1:9092,PLAINTEXT://[::1]:9092
              name        host      port

Port 0 binds a free port; an advertised port of 0 means the bound port.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

_ENDPOINT = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[0-9A-Fa-f:.]*(?:%[\w.-]+)?\]|[^:/\[\]\s]*):(?P<port>[0-9]{1,5})"
)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
INT_MAX = (1 << 31) - 1
INTER_BROKER = "inter.broker.listener.name"
INTER_PROTOCOL = "security.inter.broker.protocol"
INTER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - named to be refused


class ListenerLimits(NamedTuple):
    """Limits of one listener, beside those of the broker."""

    max_connections: int = INT_MAX
    max_connection_creation_rate: int = INT_MAX


class Endpoint(NamedTuple):
    """Name, host and port of a listener. The host has no brackets; empty means every address."""

    name: str
    host: str
    port: int

    @property
    def is_wildcard(self) -> bool:
        """True if the listener binds every address."""
        return self.host in _WILDCARDS

    def __str__(self) -> str:
        return f"{self.name}://{host_port(self.host, self.port)}"


def host_port(host: str, port: int) -> str:
    """Format host and port, with IPv6 addresses in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def of_listener(listener: str, key: str, mechanism: str | None = None) -> str:
    """Return the name of a setting of one listener, or of one of its mechanisms."""
    of_mechanism = "" if mechanism is None else f"{mechanism.lower()}."
    return f"listener.name.{listener.lower()}.{of_mechanism}{key}"


def parse_endpoint(text: str, setting: str) -> Endpoint:
    """Parse NAME://HOST:PORT; `ValueError` names the setting and the allowed form."""
    match = _ENDPOINT.fullmatch(text)
    if not match or int(match["port"]) > 65535:
        raise ValueError(
            f"Invalid value {text} for configuration {setting}: "
            "allowed is NAME://HOST:PORT, with an IPv6 address in brackets"
        )
    return Endpoint(match["name"].upper(), match["host"].strip("[]"), int(match["port"]))


def parse_protocols(text: str) -> dict[str, str]:
    """Parse `listener.security.protocol.map`: NAME:PROTOCOL,NAME:PROTOCOL."""
    protocols = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = part.partition(":")
        if protocol.upper() not in PROTOCOLS:
            raise ValueError(
                f"Invalid value {part} for configuration listener.security.protocol.map: "
                f"allowed is NAME:PROTOCOL, the protocol one of {', '.join(PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def resolve_listeners(
    listeners: Iterable[str],
    advertised: Iterable[str],
    protocols: Mapping[str, str],
    controllers: Collection[str],
) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    """Return the endpoints to bind and the endpoints to advertise, without controller listeners.

    A listener without an advertised endpoint is advertised as it is.

    Raises:
        ValueError: A listener is unsupported, or clients cannot connect to an advertised address.
    """
    skipped = {name.upper() for name in controllers}
    served = _serving(listeners, "listeners", skipped)
    if not served:
        raise ValueError("listeners names no listener for clients; add one: PLAINTEXT://HOST:PORT")
    for endpoint in served:
        _require_served(endpoint, protocols)
    _require_distinct(served)
    announced = _serving(advertised, "advertised.listeners", skipped)
    _require_usable(announced, {endpoint.name for endpoint in served})
    names = {endpoint.name for endpoint in announced}
    rest = tuple(endpoint for endpoint in served if endpoint.name not in names)
    for endpoint in rest:
        _require_address(endpoint)
    return served, announced + rest


def _serving(texts: Iterable[str], setting: str, skipped: Collection[str]) -> tuple[Endpoint, ...]:
    endpoints = (parse_endpoint(text, setting) for text in texts)
    return tuple(endpoint for endpoint in endpoints if endpoint.name not in skipped)


def _require_served(endpoint: Endpoint, protocols: Mapping[str, str]) -> None:
    protocol = protocols.get(endpoint.name, endpoint.name)
    if protocol not in PROTOCOLS:
        raise ValueError(
            f"listeners={endpoint}: no protocol is given for the name {endpoint.name}; "
            f"add it to listener.security.protocol.map as {endpoint.name}:PLAINTEXT"
        )


def _require_distinct(endpoints: Sequence[Endpoint]) -> None:
    # One name may serve both IPv4 and IPv6 (KIP-797).
    names = Counter((endpoint.name, ":" in endpoint.host) for endpoint in endpoints)
    ports = Counter((endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.port)
    for endpoint in endpoints:
        if names[endpoint.name, ":" in endpoint.host] > 1:
            raise ValueError(f"listeners: the name {endpoint.name} is given twice")
        if ports[endpoint.host, endpoint.port] > 1:
            raise ValueError(f"listeners: {endpoint} has the port of another listener")


def _require_usable(advertised: Sequence[Endpoint], served: Collection[str]) -> None:
    for endpoint in advertised:
        if endpoint.name not in served:
            raise ValueError(
                f"advertised.listeners={endpoint}: there is no listener {endpoint.name}; "
                f"allowed are {', '.join(sorted(served))}"
            )
        if endpoint.is_wildcard:
            raise ValueError(
                f"advertised.listeners={endpoint}: clients cannot connect to this address; "
                "give one that they can reach"
            )


def _require_address(endpoint: Endpoint) -> None:
    if endpoint.is_wildcard:
        raise ValueError(
            f"listeners={endpoint} listens on every address, and clients need one to connect to. "
            f"Add the line advertised.listeners={endpoint.name}://HOST:{endpoint.port} "
            f"(on the command line: --advertise HOST:{endpoint.port}), HOST being localhost for "
            "clients on this machine and this machine's name or address for others"
        )


def inter_broker_listener(
    given: Mapping[str, str], protocols: Mapping[str, str], advertised: Sequence[Endpoint]
) -> str:
    """Return the name of the listener that brokers use among themselves.

    Raises:
        ValueError: both settings are given, or there is no such listener. Without either of them
            none has to be there.
    """
    name, protocol = given.get(INTER_BROKER, "").strip(), given.get(INTER_PROTOCOL, "").strip()
    if name and protocol:
        raise ValueError(f"Only one of {INTER_BROKER} and {INTER_PROTOCOL} should be set.")
    listener = (name or protocol or "PLAINTEXT").upper()
    if name and listener not in protocols:
        raise ValueError(
            f"Listener with name {listener} defined in {INTER_BROKER} not found in "
            "listener.security.protocol.map."
        )
    names = {endpoint.name for endpoint in advertised}
    if (name or protocol) and listener not in names:
        raise ValueError(
            f"{INTER_BROKER} must be a listener name defined in advertised.listeners. The valid "
            f"options based on currently configured listeners are {','.join(sorted(names))}"
            + (f"; {INTER_PROTOCOL}={protocol} names {listener}" if protocol else "")
        )
    return listener


def check_early(names: Iterable[str], known: Collection[str]) -> None:
    """Refuse a listener of `early.start.listeners` that does not exist.

    Raises:
        ValueError: names it.
    """
    for name in filter(None, names):
        if name.upper() not in known:
            raise ValueError(
                f"early.start.listeners contains listener {name.upper()}, but this is not "
                "contained in listeners or controller.listener.names"
            )
