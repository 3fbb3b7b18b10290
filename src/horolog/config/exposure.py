"""Listeners and metrics that strangers could use: they are opened on purpose only.

horolog.open.listeners=PLAINTEXT,metrics    these may be open to everyone who reaches them; * all
"""

from collections.abc import Iterator
from typing import Final

from horolog.config.broker import BrokerConfig
from horolog.errors import Misconfigured
from horolog.security.urls import is_loopback

_SETTING: Final = "horolog.open.listeners"
_EVERYTHING: Final = "*"
_METRICS: Final = "METRICS"


def require_closed(config: BrokerConfig) -> None:
    """Refuse a broker that others could use without a login, unless the operator opens it.

    Raises:
        Misconfigured: a listener without login and rights, or the metrics, can be reached from
            other machines, and `horolog.open.listeners` does not name it; or it names none that
            is there.
    """
    opened = {name.upper() for name in config.horolog_open_listeners}
    known = {endpoint.name for endpoint in config.listeners} | {_METRICS, _EVERYTHING}
    if unknown := sorted(opened - known):
        raise Misconfigured(
            f"{_SETTING} names {', '.join(unknown)}, and there is no such listener; it takes names "
            "of listeners, metrics, or *"
        )
    if _EVERYTHING in opened:
        return
    if complaints := [text for name, text in _exposed(config) if name not in opened]:
        raise Misconfigured("; ".join(complaints))


def _exposed(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Yield the name of each listener that everyone can use, and what to do about it."""
    for endpoint in config.listeners:
        tls = config.tls.get(endpoint.name)
        asks = (
            endpoint.name in config.logins
            or config.authorizer_class_name
            or (tls is not None and tls.requires_certificate)
        )
        if not asks and not is_loopback(endpoint.host):
            what = (
                f"listeners={endpoint} lets everyone who reaches it read, write and delete "
                "everything: add a login and rights (docs/security.md), or, if that is meant, the "
                f"line {_SETTING}={endpoint.name} (on the command line: --open)"
            )
            yield endpoint.name, what
    host = config.horolog_metrics_host
    asks = config.metrics_tls is not None and config.metrics_tls.requires_certificate
    if config.horolog_metrics_port is not None and not asks and not is_loopback(host):
        what = (
            f"horolog.metrics.host={host} lets everyone who reaches it read the metrics, names of "
            "topics and groups among them: ask for certificates (horolog.metrics.protocol=https "
            "and horolog.metrics.ssl.client.auth=required, docs/metrics.md), or, if that is meant, "
            f"add metrics to {_SETTING}"
        )
        yield _METRICS, what
