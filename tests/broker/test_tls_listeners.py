"""Listeners with TLS (SSL, SASL_SSL): clients, stores, certificates, and what is refused."""

import ssl
from pathlib import Path

import pytest
import rights_matrix as matrix
from certificates import PASSWORD, Certificates, client_context, joined, make_certificates
from confluent_kafka import Consumer, Producer
from patience import PATIENCE_S, eventually
from running_broker import MakeBroker, RunningBroker
from tls_meetings import LISTENERS as LISTENERS_WITH_TLS
from tls_meetings import SECURED, as_at_kafka, meetings, secured_settings

from horolog.client import AuthenticationFailed, Client
from horolog.config import Settings
from horolog.errors import Misconfigured
from horolog.record import LogRecord, build_batch, read_records
from horolog.wire import ApiKey

STORES = Path(__file__).parents[1] / "client" / "security" / "stores"
LISTENERS = {"listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}


def pem(certificates: Certificates) -> dict[str, str]:
    return {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": str(certificates.pem("broker")),
    }


def encrypted_pem(certificates: Certificates) -> dict[str, str]:
    return {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": str(certificates.encrypted_pem("broker")),
        "ssl_key_password": PASSWORD,
    }


def inline(certificates: Certificates) -> dict[str, str]:
    key, begin, chain = certificates.pem("broker").read_text().partition("-----BEGIN CERT")
    return {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_key": joined(key),
        "ssl_keystore_certificate_chain": joined(begin + chain),
    }


def pkcs12(certificates: Certificates) -> dict[str, str]:
    return {
        "ssl_keystore_location": str(certificates.p12("broker")),
        "ssl_keystore_password": PASSWORD,
    }


def trusting(certificates: Certificates, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.fixture
def broker(make_broker: MakeBroker, certificates: Certificates) -> RunningBroker:
    return make_broker(**LISTENERS, **pem(certificates))


def round_trip(broker: RunningBroker, security: dict[str, str], size: int) -> None:
    with Client(broker.address, security=security, timeout_ms=int(PATIENCE_S * 1000)) as client:
        client.create_topics({"t": 1})
        client.produce("t", 0, build_batch([LogRecord(1, b"k", b"v" * size)]))
        (record,) = read_records(client.fetch("t", 0, 0).records)
        assert record.value == b"v" * size


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("size", [1, 16_384, 900_000])
def test_records_go_in_and_out(
    broker: RunningBroker, certificates: Certificates, version: str, size: int
) -> None:
    round_trip(broker, trusting(certificates, ssl_enabled_protocols=version), size)


@pytest.mark.parametrize("stored", [encrypted_pem, inline, pkcs12])
def test_keys_come_from_every_store(
    make_broker: MakeBroker, certificates: Certificates, stored
) -> None:
    round_trip(make_broker(**LISTENERS, **stored(certificates)), trusting(certificates), 10)


@pytest.mark.parametrize(
    "stored",
    [
        {"location": "key.jks", "password": "store secret"},
        {"location": "pbes1.pem", "type": "PEM"},
    ],
)
def test_a_key_has_a_password_of_its_own(make_broker: MakeBroker, stored: dict[str, str]) -> None:
    """In a Java key store, and in PKCS#5 1, which is all that Java 17 reads."""
    stored = {**stored, "location": str(STORES / stored["location"])}
    broker = make_broker(
        **LISTENERS,
        **{f"ssl_keystore_{name}": value for name, value in stored.items()},
        ssl_key_password="key secret",
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with broker.connect(context) as connection:
        assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0


def test_listeners_stand_side_by_side(broker: RunningBroker, certificates: Certificates) -> None:
    round_trip(broker, trusting(certificates), 10)
    with Client(f"127.0.0.1:{broker.bound[1].port}") as client:
        assert client.metadata(["t"]).topics["t"].partitions


def test_librdkafka_produces_and_consumes(
    broker: RunningBroker, certificates: Certificates
) -> None:
    security = {
        "bootstrap.servers": broker.address,
        "security.protocol": "ssl",
        "ssl.ca.location": str(certificates.authority),
    }
    producer = Producer(security)
    for index in range(2_000):
        producer.produce("t", b"%d" % index * 300)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**security, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    messages = consumer.consume(2_000, PATIENCE_S)
    consumer.close()
    assert [message.value() for message in messages] == [b"%d" % i * 300 for i in range(2_000)]


def principal_of(broker: RunningBroker) -> str:
    (connection,) = broker.service.connections
    return str(connection.peer.principal)


@pytest.mark.parametrize(
    ("asked", "shown", "principal"),
    [
        ("none", "client", "User:ANONYMOUS"),
        ("requested", None, "User:ANONYMOUS"),
        ("requested", "client", "User:CN=client"),
        ("required", "client", "User:CN=client"),
        ("required", None, None),
    ],
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_principal_is_the_name_in_the_certificate(
    make_broker: MakeBroker,
    certificates: Certificates,
    asked: str,
    shown: str | None,
    principal: str | None,
    version: ssl.TLSVersion,
) -> None:
    broker = make_broker(
        **LISTENERS,
        **pem(certificates),
        ssl_client_auth=asked,
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(certificates.authority),
    )
    context = client_context(certificates, shown, newest=version)
    if principal is None:
        with pytest.raises(OSError), broker.connect(context) as connection:  # noqa: PT011
            connection.ask(ApiKey.API_VERSIONS, 0)
        return
    for _ in range(2):
        with broker.connect(context) as connection:
            connection.ask(ApiKey.API_VERSIONS, 0)
            (served,) = [it for it in broker.service.connections if not it.peer.is_gone]
            assert served.peer.principal == principal
            assert served.peer.host == "127.0.0.1"
        assert eventually(lambda: not broker.service.connections)


def test_each_certificate_meets_what_it_does_at_kafka(
    make_broker: MakeBroker, tmp_path: Path, certificates: Certificates
) -> None:
    broker = make_broker(**LISTENERS_WITH_TLS, **secured_settings(certificates))
    ports = zip(SECURED, broker.bound, strict=True)
    addresses = {name: f"127.0.0.1:{bound.port}" for name, bound in ports}
    others = make_certificates(tmp_path)
    assert list(meetings(addresses, certificates, others)) == list(as_at_kafka())


def test_a_refused_certificate_does_not_wait_as_a_refused_login_does(
    make_broker: MakeBroker, certificates: Certificates
) -> None:
    broker = make_broker(
        **LISTENERS,
        **pem(certificates),
        ssl_client_auth="required",
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(certificates.authority),
        connection_failed_authentication_delay_ms="600000",
    )
    with pytest.raises(OSError), broker.connect(client_context(certificates)) as connection:  # noqa: PT011
        connection.ask(ApiKey.API_VERSIONS, 0)


def test_a_session_is_resumed(broker: RunningBroker, certificates: Certificates) -> None:
    context = client_context(certificates, newest=ssl.TLSVersion.TLSv1_2)
    with broker.connect(context) as connection:
        assert isinstance(connection.socket, ssl.SSLSocket)
        session = connection.socket.session
    with broker.connect() as connection:
        connection.socket = context.wrap_socket(connection.socket, session=session)
        assert connection.socket.session_reused


def test_a_name_that_no_rule_fits_is_refused(
    make_broker: MakeBroker, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    broker = make_broker(
        **LISTENERS,
        **pem(certificates),
        ssl_client_auth="required",
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(certificates.authority),
        ssl_principal_mapping_rules="RULE:^CN=alice$/alice/",
    )
    with pytest.raises(OSError), broker.connect(client_context(certificates, "client")) as it:  # noqa: PT011
        it.ask(ApiKey.API_VERSIONS, 0)
    assert eventually(lambda: "Failed authentication with /127.0.0.1" in caplog.text)
    assert "no rule of ssl.principal.mapping.rules fits the name CN=client" in caplog.text


@pytest.fixture
def with_logins(make_broker: MakeBroker, certificates: Certificates) -> RunningBroker:
    ours = {**matrix.OURS, "listener.security.protocol.map": f"{matrix.LISTENER}:SASL_SSL"}
    return make_broker(**ours, **pem(certificates), ssl_client_auth="required")


def login(certificates: Certificates, password: str) -> dict[str, str]:
    return {
        **trusting(certificates),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{matrix.ADMIN}" password="{password}";'
        ),
    }


def test_clients_log_in_over_tls(with_logins: RunningBroker, certificates: Certificates) -> None:
    """The setting of all listeners asks for no certificate there, as in Kafka."""
    good = login(certificates, matrix.PASSWORD(matrix.ADMIN))
    with Client(with_logins.address, security=good) as client:
        client.create_topics({"t": 1})
        assert principal_of(with_logins) == f"User:{matrix.ADMIN}"
    with (
        Client(with_logins.address, security=login(certificates, "wrong")) as client,
        pytest.raises(AuthenticationFailed, match="Invalid username or password"),
    ):
        client.metadata()


SECRET = "pass word 7"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, r"has no key and certificate: give ssl\.keystore\.location"),
        ({"location": "/nowhere"}, r"ssl\.keystore\.location=/nowhere: No such file"),
        ({"location": "{p12}"}, "its password is missing"),
        ({"location": "{jks}", "key": "key secret"}, r"ssl\.keystore\.password is missing"),
        ({"location": "{p12}", "password": SECRET}, r"ssl\.keystore\.location=.*password is wrong"),
        ({"location": "{encrypted}", "type": "PEM"}, r"encrypted: give ssl\.key\.password"),
        ({"location": "{encrypted}", "type": "PEM", "key": SECRET}, r"ssl\.key\.password is wrong"),
        ({"location": "{authority}", "type": "PEM"}, "no usable private key"),
        ({"location": "{pem}", "type": "PEM", "password": SECRET}, "has no meaning for PEM"),
        ({"location": "{pem}", "type": "BCFKS"}, r"ssl\.keystore\.type=BCFKS: supported are"),
        ({"location": "{authority}"}, "neither a JKS nor a PKCS12 store"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_at_the_start(
    make_broker: MakeBroker, certificates: Certificates, settings: dict[str, str], complaint: str
) -> None:
    files = {
        "p12": certificates.p12("broker"),
        "pem": certificates.pem("broker"),
        "encrypted": certificates.encrypted_pem("broker"),
        "authority": certificates.authority,
        "jks": STORES / "key.jks",
    }
    names = {"key": "ssl_key_password"}
    given = {
        names.get(name, f"listener.name.ssl.ssl.keystore.{name}"): value.format(**files)
        for name, value in settings.items()
    }
    with pytest.raises(Misconfigured, match=f"the listener SSL: .*{complaint}") as refused:
        make_broker(listeners="SSL://127.0.0.1:0", **given)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("ssl.engine.factory.class", "com.example.Engine", "names a class of the JVM"),
        ("ssl.provider", "BCFIPS", "names a class of the JVM"),
        ("listener.name.ssl.ssl.provider", "BCFIPS", "names a class of the JVM"),
        ("listener.name.ssl.ssl.unknown", "1", "Unknown broker config name"),
        ("ssl.client.auth", "maybe", "allowed is"),
        ("listener.name.ssl.ssl.client.auth", "maybe", "allowed is"),
        ("ssl.principal.mapping.rules", "RULE:(/a/", "the pattern"),
    ],
)
def test_settings_that_are_not_served_are_refused(name: str, value: str, complaint: str) -> None:
    with pytest.raises(Misconfigured, match=complaint):
        Settings({"listeners": "SSL://127.0.0.1:0", name: value}).broker_config()


@pytest.mark.parametrize(
    ("suites", "protocols", "complaint"),
    [
        ("TLS_AES_128_GCM_SHA256", "TLSv1.2,TLSv1.3", "none can be left out here"),
        ("TLS_AES_128_GCM_SHA256", "TLSv1.2", "has no suite of TLS 1.2"),
        ("ALL", "TLSv1.2", "names ALL, which"),
        ("TLS_RSA_WITH_NULL_SHA", "TLSv1.2", "names TLS_RSA_WITH_NULL_SHA, which"),
    ],
)
def test_suites_that_cannot_be_chosen_are_refused(
    make_broker: MakeBroker,
    certificates: Certificates,
    suites: str,
    protocols: str,
    complaint: str,
) -> None:
    with pytest.raises(Misconfigured, match=complaint):
        make_broker(
            **LISTENERS,
            **pem(certificates),
            ssl_cipher_suites=suites,
            ssl_enabled_protocols=protocols,
        )
