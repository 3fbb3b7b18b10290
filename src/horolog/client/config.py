"""Configuration of a client, as plain values that can be pickled."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from horolog.client.security import PLAINTEXT, Security
from horolog.config.listeners import host_port
from horolog.errors import Misconfigured


class Address(NamedTuple):
    """Host and port of a broker; an IPv6 host has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_port(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Configuration of a client, under the names of Kafka's own client settings.

    `timeout_ms` bounds each call as a whole, retries included. `oauth_token` gives a bearer token
    when it is called; to be pickled it must be a function of a module.
    """

    bootstrap_servers: str
    client_id: str = "horolog"
    timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    max_response_bytes: int = 512 << 20
    security: Security = PLAINTEXT
    oauth_token: Callable[[], str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            Misconfigured: names the setting, its value and what is allowed.
        """
        parse_bootstrap_servers(self.bootstrap_servers)
        self.security.check_sasl(has_token_callback=self.oauth_token is not None)
        for name in ("timeout_ms", "connect_timeout_ms", "max_response_bytes"):
            if getattr(self, name) <= 0:
                raise Misconfigured(f"{name}={getattr(self, name)}: must be greater than 0")


def parse_bootstrap_servers(text: str) -> tuple[Address, ...]:
    """Read `host:port,[::1]:9092`.

    Raises:
        Misconfigured: nothing given, or something that is no address.
    """
    addresses = tuple(_address(part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise Misconfigured("bootstrap.servers is empty: give host:port, or several with commas")
    return addresses


def _address(text: str) -> Address:
    host, _, port = text.rpartition("://")[2].rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if is_bracketed:
        host = host[1:-1]
    if not host or (":" in host and not is_bracketed):
        raise Misconfigured(
            f"bootstrap.servers={text}: not an address; write host:port, or [::1]:9092 for IPv6"
        )
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= 65_535):
        raise Misconfigured(f"bootstrap.servers={text}: the port must be a number from 1 to 65535")
    return Address(host, int(port))
