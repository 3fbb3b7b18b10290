"""Metrics by https: certificates of clients, hostile clients, certificates that change."""

import os
import shutil
import socket
import ssl
from pathlib import Path

import pytest
from certificates import PASSWORD, Certificates, client_context
from metrics_page import scrape
from overrides import override
from patience import PATIENCE_S, eventually
from running_broker import MakeBroker, RunningBroker

from horolog.config import Settings, require_closed
from horolog.errors import Misconfigured
from horolog.network import INCOMPLETE

REQUEST = b"GET /metrics HTTP/1.1\r\n\r\n"


def https(location: Path, **more: str) -> dict[str, str]:
    return {
        "horolog_metrics_port": "0",
        "horolog_metrics_protocol": "https",
        "horolog_metrics_ssl_keystore_type": "PEM",
        "horolog_metrics_ssl_keystore_location": str(location),
        **more,
    }


def asking(certificates: Certificates) -> dict[str, str]:
    return {
        "horolog_metrics_ssl_client_auth": "required",
        "horolog_metrics_ssl_truststore_type": "PEM",
        "horolog_metrics_ssl_truststore_location": str(certificates.authority),
    }


def connect(broker: RunningBroker) -> socket.socket:
    assert broker.service.metrics is not None
    host, _, port = broker.service.metrics.address.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def test_a_page_is_encrypted_and_whole(make_broker: MakeBroker, certificates: Certificates) -> None:
    broker = make_broker(**https(certificates.pem("broker")))
    for number in range(300):
        broker.create_topic(f"topic-{number}-{'x' * 150}", 1)
    page = scrape(broker, "?partitions=true", tls=client_context(certificates))
    assert page.value("kafka_server_replicamanager_partitioncount") == 300
    assert len(page.of("kafka_topic_partition_current_offset")) == 300
    with connect(broker) as plain:
        plain.sendall(REQUEST)
        assert b"HTTP" not in plain.recv(1 << 16)


def test_keys_are_those_of_the_listeners_without_own_ones(
    make_broker: MakeBroker, certificates: Certificates
) -> None:
    broker = make_broker(
        horolog_metrics_port="0",
        horolog_metrics_protocol="https",
        ssl_keystore_location=str(certificates.p12("broker")),
        ssl_keystore_password=PASSWORD,
        ssl_client_auth="required",  # of listeners: it does not lock Prometheus out
    )
    assert scrape(broker, tls=client_context(certificates))


def test_own_stores_take_no_password_of_those_of_the_listeners(
    make_broker: MakeBroker, certificates: Certificates
) -> None:
    broker = make_broker(
        **https(certificates.pem("broker"), **asking(certificates)),
        ssl_keystore_location=str(certificates.p12("broker")),
        ssl_keystore_password=PASSWORD,
        ssl_key_password=PASSWORD,
        ssl_truststore_password=PASSWORD,
    )
    assert scrape(broker, tls=client_context(certificates, "client"))


@pytest.mark.parametrize(
    ("name", "rules", "is_let_in"),
    [
        (None, "DEFAULT", False),
        ("client", "DEFAULT", True),
        ("client", "RULE:^CN=prometheus$/$0/", False),
        ("client", "RULE:^CN=client$/prometheus/", True),
    ],
)
def test_who_may_read_the_page_is_in_a_certificate(
    make_broker: MakeBroker,
    certificates: Certificates,
    name: str | None,
    rules: str,
    is_let_in: bool,
) -> None:
    broker = make_broker(
        **https(certificates.pem("broker"), **asking(certificates)),
        horolog_metrics_ssl_principal_mapping_rules=rules,
    )
    context = client_context(certificates, name)
    if is_let_in:
        assert scrape(broker, tls=context)
        return
    with pytest.raises(OSError):  # noqa: PT011 - the handshake, or the answer, ends in several ways
        scrape(broker, tls=context)


def test_stalled_handshakes_keep_nobody_out(
    make_broker: MakeBroker, certificates: Certificates
) -> None:
    broker = make_broker(**https(certificates.pem("broker")))
    stalled = [connect(broker) for _ in range(3 * INCOMPLETE)]
    stalled[-1].sendall(b"\x16\x03\x01\x02\x00half a hello")
    assert scrape(broker, tls=client_context(certificates))
    closed = stalled[: 2 * INCOMPLETE]
    assert all(client.recv(1) == b"" for client in closed)  # the oldest have lost their places
    for client in stalled:
        client.close()


def test_a_handshake_that_takes_too_long_is_ended(
    make_broker: MakeBroker, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.network", REQUEST_SECONDS=0.2)
    broker = make_broker(**https(certificates.pem("broker")))
    with connect(broker) as stalled:
        assert stalled.recv(1) == b""


def test_a_renewed_certificate_is_shown(
    make_broker: MakeBroker,
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    override(monkeypatch, "horolog.network", RELOAD_SECONDS=0.05)
    store = Path(shutil.copy(certificates.pem("broker"), tmp_path / "store.pem"))
    broker = make_broker(**https(store))

    def shown() -> bytes | None:
        with client_context(certificates).wrap_socket(connect(broker)) as client:
            return client.getpeercert(binary_form=True)

    first = shown()
    renewed = shutil.copy(certificates.pem("renewed"), tmp_path / "renewed.pem")
    os.replace(renewed, store)
    assert eventually(lambda: shown() != first)
    assert scrape(broker, tls=client_context(certificates))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "the listener METRICS: it has no key and certificate"),
        (
            {"horolog.metrics.ssl.keystore.location": "/none"},
            "METRICS: ssl.keystore.location=/none",
        ),
        ({"horolog.metrics.ssl.client.auth": "always"}, "allowed is a string, required or"),
        (
            {"horolog.metrics.ssl.keystore.password": "s3cret", "horolog.metrics.ssl.x": "1"},
            "ssl.x",
        ),
        ({"horolog.metrics.protocol": "ftp"}, "allowed is a string, http or https"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(
    make_broker: MakeBroker, given: dict[str, str], words: str
) -> None:
    static = {"horolog.metrics.port": "0", "horolog.metrics.protocol": "https", **given}
    with pytest.raises(Misconfigured, match=words) as refused:
        make_broker(**static)
    assert "s3cret" not in str(refused.value)


def test_https_alone_does_not_let_others_reach_the_page(certificates: Certificates) -> None:
    def check(**more: str) -> None:
        given = {**https(certificates.pem("broker")), "horolog_metrics_host": "10.1.2.3", **more}
        names = {name.replace("_", "."): value for name, value in given.items()}
        require_closed(Settings(names).broker_config())

    with pytest.raises(Misconfigured, match=r"ask for certificates .* or, if that is meant"):
        check()
    check(horolog_open_listeners="metrics")
    check(**asking(certificates))


def test_a_client_that_ends_its_side_early_gets_its_page_or_none(
    make_broker: MakeBroker, certificates: Certificates
) -> None:
    broker = make_broker(**https(certificates.pem("broker")))
    for _ in range(5):
        client = client_context(certificates).wrap_socket(connect(broker))
        client.sendall(REQUEST)
        client.close()
    assert isinstance(client, ssl.SSLSocket)
    assert scrape(broker, tls=client_context(certificates))
