"""TLS with a scripted broker, and the stores that certificates come from."""

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from certificates import PASSWORD, Certificates, joined, make_certificates
from examples import some_of
from overrides import override
from scripted_broker import ScriptedBroker

from horolog.client import (
    Address,
    AuthenticationFailed,
    Client,
    Connection,
    Deadline,
    Link,
    NoAnswer,
    Security,
    Tls,
    identity_of,
)
from horolog.errors import Misconfigured
from horolog.wire import ApiKey, MalformedResponse

STORES = Path(__file__).parent / "stores"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    override(monkeypatch, "horolog.client", FIRST_CONTACT_MS=200)


def broker_of(certificates: Certificates, *, mutual: bool = False) -> ScriptedBroker:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.pem("broker"))
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.authority)
    return ScriptedBroker(tls=context)


def trusting(certificates: Certificates, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        **more,
    }


def inline(certificates: Certificates) -> dict[str, str]:
    key, _, chain = certificates.pem("client").read_text().partition("-----BEGIN CERTIFICATE")
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": joined(certificates.authority.read_text()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": joined(key),
        "ssl.keystore.certificate.chain": joined("-----BEGIN CERTIFICATE" + chain),
    }


def pem_files(certificates: Certificates) -> dict[str, str]:
    return trusting(
        certificates,
        **{
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.encrypted_pem("client")),
            "ssl.key.password": PASSWORD,
        },
    )


def pkcs12(certificates: Certificates) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(certificates.trusted_p12),
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": str(certificates.p12("client")),
        "ssl.keystore.password": PASSWORD,
    }


@pytest.mark.parametrize("settings", [inline, pem_files, pkcs12])
def test_each_side_proves_itself_with_a_certificate(settings, certificates: Certificates) -> None:
    with (
        broker_of(certificates, mutual=True) as broker,
        Client(broker.bootstrap, security=settings(certificates)) as client,
    ):
        assert set(client.metadata().brokers) == {1}
        assert set(client.metadata().brokers) == {1}  # on the same connection
        assert len(broker.asked(ApiKey.API_VERSIONS)) == 1


def test_a_key_and_its_certificate_are_read_from_a_java_key_store(tmp_path: Path) -> None:
    security = {
        "security.protocol": "SSL",
        "ssl.keystore.location": str(STORES / "key.jks"),
        "ssl.keystore.password": "store secret",
        "ssl.key.password": "key secret",
        "ssl.truststore.location": str(STORES / "trusted.jks"),
        "ssl.truststore.password": "store secret",
    }
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    identity = identity_of(Security.of(security))
    assert identity is not None
    assert "BEGIN" not in repr(identity)
    ours = STORES / "c.pem"
    written = tmp_path / "key.pem"
    written.write_text(identity.pem)
    context.load_cert_chain(written)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(ours)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    security["ssl.endpoint.identification.algorithm"] = ""
    with (
        ScriptedBroker(tls=context) as broker,
        Client(broker.bootstrap, security=security) as client,
    ):
        assert set(client.metadata().brokers) == {1}


def test_a_trust_store_without_its_password_is_read_as_java_does(
    certificates: Certificates,
) -> None:
    security = {"security.protocol": "SSL", "ssl.truststore.location": str(STORES / "trusted.jks")}
    with (
        broker_of(certificates) as broker,
        Client(broker.bootstrap, security=security) as client,
        pytest.raises(AuthenticationFailed, match="certificate is not trusted"),
    ):
        client.metadata()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ssl.truststore.location": "/nowhere"}, "ssl.truststore.location=/nowhere: No such file"),
        ({"ssl.truststore.location": "{p12}"}, "its password is missing"),
        ({"ssl.truststore.location": "{p12}", "ssl.truststore.password": "hush"}, "is wrong"),
        ({"ssl.truststore.location": "{jks}", "ssl.truststore.password": "hush"}, "is wrong"),
        ({"ssl.truststore.location": "{jceks}"}, "JCEKS are not supported"),
        ({"ssl.truststore.location": "{pem}"}, "neither a JKS nor a PKCS12"),
        ({"ssl.truststore.location": "{key}", "ssl.truststore.password": "store secret"},
         "no trusted certificate"),
        ({"ssl.truststore.location": "{p12}", "ssl.truststore.type": "PEM"}, "no PEM text"),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "x"},
         "holds no certificate"),
        ({"ssl.keystore.location": "{jks}", "ssl.keystore.password": "store secret"},
         "holds no private key"),
        ({"ssl.keystore.location": "{key}", "ssl.keystore.password": "store secret"},
         "ssl.key.password .* does not open its key"),
        ({"ssl.keystore.location": "{encrypted}", "ssl.keystore.type": "PEM"},
         "give ssl.key.password"),
        ({"ssl.keystore.location": "{encrypted}", "ssl.keystore.type": "PEM",
          "ssl.key.password": "hush"}, "ssl.key.password is wrong"),
        ({"ssl.keystore.location": "{authority}", "ssl.keystore.type": "PEM"},
         "no usable private key"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "supported are TLSv1.2 and TLSv1.3"),
        ({"ssl.protocol": "SSLv3"}, "ssl.protocol=SSLv3"),
        ({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}, "has none that"),
    ],
)  # fmt: skip
def test_a_store_that_cannot_be_used_is_named(
    certificates: Certificates, settings: dict[str, str], said: str
) -> None:
    paths = {
        "{p12}": certificates.trusted_p12,
        "{pem}": certificates.authority,
        "{authority}": certificates.authority,
        "{encrypted}": certificates.encrypted_pem("client"),
        "{jks}": STORES / "trusted.jks",
        "{key}": STORES / "key.jks",
        "{jceks}": STORES / "secret.jceks",
    }
    given = {name: str(paths.get(value, value)) for name, value in settings.items()}
    with (
        Client("127.0.0.1:9", security={"security.protocol": "SSL", **given}) as client,
        pytest.raises(Misconfigured, match=said) as refused,
    ):
        client.metadata()
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("size", some_of(range(0, 528, 7), 9))
def test_a_damaged_java_key_store_is_refused(tmp_path: Path, size: int) -> None:
    data = bytearray((STORES / "key.jks").read_bytes())
    cut, flipped = tmp_path / "cut.jks", tmp_path / "flipped.jks"
    cut.write_bytes(data[:size])
    data[size] ^= 0x41
    flipped.write_bytes(data)
    for store in (cut, flipped):
        security = {
            "security.protocol": "SSL",
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": "store secret",
            "ssl.key.password": "key secret",
        }
        with Client("127.0.0.1:9", security=security) as client, pytest.raises(Misconfigured):
            client.metadata()
        trust = {"security.protocol": "SSL", "ssl.truststore.location": str(store)}
        with Client("127.0.0.1:9", security=trust) as client, pytest.raises(Misconfigured):
            client.metadata()


def test_without_the_extra_a_pkcs12_store_is_refused_by_its_name(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        __import__("sys").modules, "cryptography.hazmat.primitives.serialization.pkcs12", None
    )
    with (
        Client("127.0.0.1:9", security=pkcs12(certificates)) as client,
        pytest.raises(Misconfigured, match=r"pip install 'horolog\[security\]'"),
    ):
        client.metadata()


def test_a_broker_that_is_not_trusted_is_refused_at_once(
    certificates: Certificates, tmp_path: Path
) -> None:
    other = make_certificates(tmp_path)
    with (
        broker_of(certificates) as broker,
        Client(broker.bootstrap, security=trusting(other)) as client,
        pytest.raises(AuthenticationFailed, match=r"not trusted .* see ssl\.truststore\.location"),
    ):
        client.metadata()
    with (
        broker_of(certificates) as broker,
        Client(broker.bootstrap, security={"security.protocol": "SSL"}) as client,
        pytest.raises(AuthenticationFailed, match="not trusted"),
    ):
        client.metadata()


def test_a_certificate_of_another_host_is_refused_unless_asked(certificates: Certificates) -> None:
    with broker_of(certificates) as broker:
        elsewhere = f"localhost:{broker.port}"
        with (
            Client(elsewhere, security=trusting(certificates)) as client,
            pytest.raises(AuthenticationFailed, match="certificate is not for localhost"),
        ):
            client.metadata()
        anyone = trusting(certificates, **{"ssl.endpoint.identification.algorithm": ""})
        with Client(elsewhere, security=anyone) as client:
            assert set(client.metadata().brokers) == {1}


def test_a_missing_client_certificate_is_reported(certificates: Certificates) -> None:
    with (
        broker_of(certificates, mutual=True) as broker,
        Client(broker.bootstrap, security=trusting(certificates)) as client,
        pytest.raises(AuthenticationFailed, match=r"ssl\.keystore\.location"),
    ):
        client.metadata()


def test_why_a_broker_has_hung_up_is_reported_however_late_a_request_is_sent(
    certificates: Certificates,
) -> None:
    """In TLS 1.3 it looks at a client's certificate once the client's handshake is over."""
    tls = Tls(Security.of(trusting(certificates)))
    context = broker_of(certificates, mutual=True).tls
    assert context is not None
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def refuse() -> None:
            with pytest.raises(ssl.SSLError):
                context.wrap_socket(listener.accept()[0], server_side=True)

        refused, deadline = pool.submit(refuse), Deadline.after_ms(60_000)
        connection = Connection.open(
            Address(*listener.getsockname()),
            deadline,
            client_id="late",
            max_response_bytes=1 << 20,
            tls=tls,
        )
        refused.result()
        with pytest.raises(AuthenticationFailed, match=r"ssl\.keystore\.location"):
            Link.negotiate(connection, deadline)


def test_a_listener_that_hangs_up_during_the_handshake_may_want_another_protocol(
    certificates: Certificates,
) -> None:
    """As a plaintext listener does: the first bytes of TLS are no request to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        address = Address(*listener.getsockname())

        def hang_up() -> None:
            with listener.accept()[0] as accepted:
                accepted.recv(1 << 16)

        hung_up = pool.submit(hang_up)
        with pytest.raises(NoAnswer) as refused:
            Connection.open(
                address,
                Deadline.after_ms(60_000),
                client_id="early",
                max_response_bytes=1 << 20,
                tls=Tls(Security.of(trusting(certificates))),
            )
        hung_up.result()
    assert str(refused.value) == (
        f"{address} (no TLS handshake: the broker closed the connection; "
        "does its listener require another security.protocol?)"
    )


def test_a_listener_of_the_other_kind_is_reported_as_such(certificates: Certificates) -> None:
    with (
        ScriptedBroker() as broker,
        Client(broker.bootstrap, security=trusting(certificates), connect_timeout_ms=300) as client,
        pytest.raises((AuthenticationFailed, NoAnswer), match="TLS"),
    ):
        client.metadata()
    with (
        broker_of(certificates) as broker,
        Client(broker.bootstrap) as client,
        pytest.raises((MalformedResponse, NoAnswer), match=r"security\.protocol"),
    ):
        client.metadata()
