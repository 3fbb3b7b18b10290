"""Clients made from Kafka's client properties."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from horolog.client.config import ClientConfig
from horolog.client.security import SECURITY_SETTINGS, Security
from horolog.errors import Misconfigured

BOOTSTRAP: Final = "bootstrap.servers"
_CLIENT_ID: Final = "client.id"
_TIMEOUTS: Final = {
    "default.api.timeout.ms": "timeout_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
}
OBEYED: Final = frozenset({*SECURITY_SETTINGS, *_TIMEOUTS, _CLIENT_ID, BOOTSTRAP})


def config_of_properties(
    bootstrap: str, given: Mapping[str, str], client_id: str | None = None
) -> ClientConfig:
    """Return the configuration of a client with these properties.

    Raises:
        Misconfigured: a property that no connection could be made with.
    """
    options: dict[str, Any] = {
        field: _milliseconds(name, given[name])
        for name, field in _TIMEOUTS.items()
        if name in given
    }
    chosen_id = given.get(_CLIENT_ID, client_id)
    if chosen_id is not None:
        options["client_id"] = chosen_id
    return ClientConfig(bootstrap_servers=bootstrap, security=Security.of(given), **options)


def require_effect(names: Iterable[str], option: str) -> None:
    """Refuse properties without effect on a client.

    Raises:
        Misconfigured: names the option, the property, and one that may be meant.
    """
    for name in names:
        if name not in OBEYED and not name.startswith(("ssl.", "sasl.")):
            close = difflib.get_close_matches(name, OBEYED, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise Misconfigured(f"{option} {name} has no effect on this client{hint}")


def _milliseconds(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 31):
        raise Misconfigured(f"{name}={text}: write milliseconds, from 1 to {(1 << 31) - 1}")
    return int(text)
