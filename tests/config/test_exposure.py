"""A broker that strangers could use is started on purpose only."""

import pytest

from horolog.config import Settings, require_closed
from horolog.errors import Misconfigured

_LOGIN = {
    "listener.security.protocol.map": "IN:SASL_PLAINTEXT,OUT:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}
_METRICS = {"horolog.metrics.port": "0"}


def _check(**given: str) -> None:
    require_closed(
        Settings({name.replace("_", "."): text for name, text in given.items()}).broker_config()
    )


def _listener(host: str) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://{host}:9092",
        "advertised.listeners": "PLAINTEXT://example.org:9092",
    }


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.8.8", "localhost", "LocalHost", "[::1]", "[::ffff:127.0.0.1]"]
)
def test_this_machine_alone_is_served_without_a_login(host: str) -> None:
    _check(**_listener(host))


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "10.1.2.3", "[::]", "[fe80::1%eth0]", "[::ffff:10.1.2.3]", "my-host"]
)
def test_a_listener_that_others_reach_is_refused_with_the_line_to_add(host: str) -> None:
    with pytest.raises(Misconfigured, match=r"add a login.*horolog\.open\.listeners=PLAINTEXT"):
        _check(**_listener(host))
    for opened in ("PLAINTEXT", "plaintext", "*", "metrics,PLAINTEXT"):
        _check(**_listener(host), **{"horolog.open.listeners": opened})


def test_rights_or_a_login_close_a_listener() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    _check(**_listener("10.1.2.3"), **{"authorizer.class.name": authorizer})
    _check(**_LOGIN, listeners="IN://10.1.2.3:9092")


def test_each_open_listener_is_named() -> None:
    both = _LOGIN | {"listeners": "IN://10.1.2.3:9092,OUT://10.1.2.3:9093"}
    with pytest.raises(Misconfigured, match=r"listeners=OUT.*horolog\.open\.listeners=OUT "):
        _check(**both)
    _check(**both, **{"horolog.open.listeners": "OUT"})


def test_a_name_that_is_no_listener_is_refused() -> None:
    with pytest.raises(Misconfigured, match="names OTHER, and there is no such listener"):
        _check(**{"horolog.open.listeners": "other"})


def test_metrics_that_others_reach_are_opened_by_their_name() -> None:
    _check(**_METRICS)
    _check(**{"horolog.metrics.host": "10.1.2.3"})
    exposed = _METRICS | {"horolog.metrics.host": "10.1.2.3"}
    with pytest.raises(Misconfigured, match=r"add metrics to horolog\.open\.listeners"):
        _check(**exposed)
    for opened in ("metrics", "*"):
        _check(**exposed, **{"horolog.open.listeners": opened})


def test_a_certificate_that_is_required_closes_a_listener() -> None:
    given = {"listeners": "SSL://0.0.0.0:1", "advertised.listeners": "SSL://h:1"}
    _check(**given, **{"listener.name.ssl.ssl.client.auth": "required"})
    with pytest.raises(Misconfigured, match="add a login and rights"):
        _check(**given, **{"ssl.client.auth": "requested"})
