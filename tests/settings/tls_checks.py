"""For every broker setting about TLS, the difference it makes."""

import ssl
from pathlib import Path
from tempfile import TemporaryDirectory

from certificates import PASSWORD, client_context, joined, make_certificates
from metrics_page import scrape
from patience import eventually
from setting_checks import REFUSED, of_broker
from settings_lab import Lab

from horolog.security import subject_name
from horolog.wire import ApiKey

_DIRECTORY = TemporaryDirectory(prefix="tls-checks-")  # until the process ends
CERTIFICATES = make_certificates(Path(_DIRECTORY.name))
_OTHERS = TemporaryDirectory(prefix="tls-checks-")
OTHERS = make_certificates(Path(_OTHERS.name))
LISTENER = {"listeners": "SSL://127.0.0.1:0"}
PEM = {
    **LISTENER,
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": str(CERTIFICATES.pem("broker")),
}
_TEXTS = {
    name: CERTIFICATES.pem(name).read_text().partition("-----BEGIN CERT")
    for name in ("broker", "client")
}
KEYS = {name: joined(key) for name, (key, _, _) in _TEXTS.items()}
CHAINS = {name: joined(begin + rest) for name, (_, begin, rest) in _TEXTS.items()}
REQUIRED = {**PEM, "ssl.client.auth": "required"}
TRUSTING = {
    **REQUIRED,
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": str(CERTIFICATES.authority),
}


def _connected(lab: Lab, name: str | None = None) -> ssl.SSLSocket | None:
    """A connection that was served; None if it was refused."""
    try:
        connection = lab.connect(client_context(CERTIFICATES, name))
    except OSError:
        return None
    assert isinstance(connection.socket, ssl.SSLSocket)
    try:
        connection.ask(ApiKey.API_VERSIONS, 0)
    except OSError:
        connection.socket.close()
        return None
    return connection.socket


def _name_of_broker(lab: Lab) -> str:
    with lab.connect(client_context(CERTIFICATES)) as connection:
        assert isinstance(connection.socket, ssl.SSLSocket)
        certificate = connection.socket.getpeercert(binary_form=True)
        assert certificate is not None
        return subject_name(certificate).removeprefix("CN=")


def _version(lab: Lab) -> str | None:
    sock = _connected(lab)
    assert sock is not None
    with sock:
        return sock.version()


def _accepts_certificate(lab: Lab) -> bool:
    sock = _connected(lab, "client")
    if sock is None:
        return False
    sock.close()
    return True


@of_broker(
    "ssl.cipher.suites",
    {
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_NONE": REFUSED,
    },
    beside={**PEM, "ssl.enabled.protocols": "TLSv1.2"},
)
def suite_that_is_spoken(lab: Lab) -> str:
    sock = _connected(lab)
    assert sock is not None
    with sock:
        suite = sock.cipher()
        assert suite is not None
        return suite[0]


@of_broker("ssl.client.auth", {"none": True, "required": False}, beside=TRUSTING)
def whether_a_client_without_a_certificate_is_served(lab: Lab) -> bool:
    sock = _connected(lab)
    if sock is None:
        return False
    sock.close()
    return True


of_broker(
    "ssl.enabled.protocols",
    {"TLSv1.2": "TLSv1.2", "TLSv1.3": "TLSv1.3", "TLSv1.1": REFUSED},
    beside=PEM,
)(_version)
of_broker("ssl.protocol", {"TLSv1.2": "TLSv1.2", "TLSv1.3": "TLSv1.3"}, beside=PEM)(_version)
of_broker(
    "ssl.key.password",
    {PASSWORD: "broker", "wrong": REFUSED},
    beside={**PEM, "ssl.keystore.location": str(CERTIFICATES.encrypted_pem("broker"))},
)(_name_of_broker)
of_broker(
    "ssl.keystore.certificate.chain",
    {CHAINS["broker"]: "broker", CHAINS["client"]: REFUSED},
    beside={**LISTENER, "ssl.keystore.type": "PEM", "ssl.keystore.key": KEYS["broker"]},
)(_name_of_broker)
of_broker(
    "ssl.keystore.key",
    {KEYS["client"]: "client", KEYS["broker"]: REFUSED},
    beside={
        **LISTENER,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CHAINS["client"],
    },
)(_name_of_broker)
of_broker(
    "ssl.keystore.location",
    {
        str(CERTIFICATES.pem("broker")): "broker",
        str(CERTIFICATES.pem("client")): "client",
        "/nowhere.pem": REFUSED,
    },
    beside=PEM,
)(_name_of_broker)
of_broker(
    "ssl.keystore.password",
    {PASSWORD: "broker", "wrong": REFUSED},
    beside={**LISTENER, "ssl.keystore.location": str(CERTIFICATES.p12("broker"))},
)(_name_of_broker)
of_broker("ssl.keystore.type", {"PEM": "broker", "JKS": REFUSED}, beside=PEM)(_name_of_broker)


@of_broker(
    "ssl.principal.mapping.rules",
    {"DEFAULT": "User:CN=client", "RULE:^CN=(.*)$/$1/U": "User:CLIENT", "RULE:a": REFUSED},
    beside=TRUSTING,
)
def principal_of_a_client(lab: Lab) -> str | None:
    sock = _connected(lab, "client")
    assert sock is not None
    with sock:
        assert eventually(lambda: len(lab.broker.service.connections) == 1)
        (connection,) = lab.broker.service.connections
        return str(connection.peer.principal)


of_broker(
    "ssl.truststore.certificates",
    {
        joined(CERTIFICATES.authority.read_text()): True,
        joined(OTHERS.authority.read_text()): False,
    },
    beside={**REQUIRED, "ssl.truststore.type": "PEM"},
)(_accepts_certificate)
of_broker(
    "ssl.truststore.location",
    {str(CERTIFICATES.authority): True, str(OTHERS.authority): False, "/nowhere": REFUSED},
    beside={**REQUIRED, "ssl.truststore.type": "PEM"},
)(_accepts_certificate)
of_broker(
    "ssl.truststore.password",
    {PASSWORD: True, "wrong": REFUSED},
    beside={**REQUIRED, "ssl.truststore.location": str(CERTIFICATES.trusted_p12)},
)(_accepts_certificate)
of_broker("ssl.truststore.type", {"PEM": True, "JKS": REFUSED}, beside=TRUSTING)(
    _accepts_certificate
)


def _takes_another(lab: Lab, name: str) -> bool:
    """Whether a running broker takes another certificate of its authority."""
    change = {
        "name": "listener.name.ssl.ssl.keystore.location",
        "config_operation": 0,
        "value": str(CERTIFICATES.pem(name)),
    }
    resource = {"resource_type": 4, "resource_name": "1", "configs": [change]}
    with lab.connect(client_context(CERTIFICATES)) as connection:
        (answer,) = connection.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]
        ).responses
    return bool(answer.error_code == 0)


@of_broker("ssl.allow.dn.changes", {"false": False, "true": True}, beside=PEM)
def whether_a_certificate_may_have_another_name(lab: Lab) -> bool:
    return _takes_another(lab, "client")


@of_broker("ssl.allow.san.changes", {"false": False, "true": True}, beside=PEM)
def whether_a_certificate_may_lack_names(lab: Lab) -> bool:
    return _takes_another(lab, "unnamed")


@of_broker(
    "horolog.metrics.protocol",
    {"http": "http", "https": "https"},
    beside={
        "horolog.metrics.port": "0",
        "horolog.metrics.ssl.keystore.type": "PEM",
        "horolog.metrics.ssl.keystore.location": str(CERTIFICATES.pem("broker")),
    },
)
def how_metrics_are_served(lab: Lab) -> str:
    assert lab.broker.service.metrics is not None
    url = lab.broker.service.metrics.url
    assert scrape(lab.broker, tls=client_context(CERTIFICATES))
    return url.partition(":")[0]
