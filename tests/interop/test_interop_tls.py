"""Java's clients and tools of Apache Kafka over TLS, and certificates of Java's own stores."""

import subprocess
from pathlib import Path

import pytest
from certificates import PASSWORD, Certificates, client_context, make_certificates
from raw_connection import RawConnection
from running_broker import MakeBroker, RunningBroker
from tls_meetings import LISTENERS, SECURED, as_at_kafka, meetings, secured_settings
from tools.peers.kafka import Kafka, run_tool

from horolog.client import Client
from horolog.wire import ApiKey

NAME = 'CN=Zoë \\"the\\" #1\\, Ops, OU=b+OU=a, O=Sons \\+ Co, EMAILADDRESS=z@x.org, C=DE'
PRINCIPAL = (
    'User:CN=Zoë \\"the\\" \\#1\\, Ops,OU=a+OU=b,O=Sons \\+ Co,'
    "1.2.840.113549.1.9.1=#16077a40782e6f7267,C=DE"
)


def keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments, "-storepass", PASSWORD], check=True, capture_output=True)


def java_store(path: Path, name: str, kind: str) -> Path:
    """A key of Java's own making, whose certificate it signs itself."""
    keytool(
        *("-genkeypair", "-alias", "it", "-keyalg", "RSA", "-keysize", "2048", "-dname", name),
        *("-ext", "san=ip:127.0.0.1", "-keystore", str(path), "-storetype", kind),
        *("-keypass", PASSWORD),
    )
    keytool("-exportcert", "-alias", "it", "-keystore", str(path), "-file", f"{path}.der")
    return path


def trusting(path: Path, source: Path) -> Path:
    arguments = ("-importcert", "-noprompt", "-alias", "it", "-file", f"{source}.der")
    keytool(*arguments, "-keystore", str(path), "-storetype", "JKS")
    return path


@pytest.fixture(params=["JKS", "PKCS12"])
def secured(
    make_broker: MakeBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> tuple[RunningBroker, Path]:
    """A broker with stores of Java, and properties of a client that shows its certificate."""
    ours = java_store(tmp_path / "broker.store", "CN=broker", request.param)
    theirs = java_store(tmp_path / "client.store", NAME, request.param)
    broker = make_broker(
        listeners="SSL://127.0.0.1:0",
        ssl_client_auth="required",
        ssl_keystore_type=request.param,
        ssl_keystore_location=str(ours),
        ssl_keystore_password=PASSWORD,
        ssl_truststore_location=str(trusting(tmp_path / "trusted.jks", theirs)),
        ssl_truststore_password=PASSWORD,
    )
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SSL\n"
        f"ssl.keystore.type={request.param}\n"
        f"ssl.keystore.location={theirs}\nssl.keystore.password={PASSWORD}\n"
        f"ssl.truststore.location={trusting(tmp_path / 'brokers.jks', ours)}\n"
        f"ssl.truststore.password={PASSWORD}\n"
    )
    return broker, properties


def test_java_clients_produce_and_consume_with_certificates(
    secured: tuple[RunningBroker, Path],
) -> None:
    broker, properties = secured
    address = ("--bootstrap-server", broker.address)
    lines = [b"record %d" % index for index in range(100)]
    run_tool(
        "producer", *address, "--topic", "t", "--command-config", str(properties),
        stdin=b"\n".join(lines) + b"\n",
    )  # fmt: skip
    done = run_tool(
        "consumer", *address, "--topic", "t", "--from-beginning", "--max-messages", "100",
        "--command-config", str(properties),
    )  # fmt: skip
    assert done.stdout.split(b"\n")[:100] == lines


def test_the_name_of_a_certificate_is_javas(secured: tuple[RunningBroker, Path]) -> None:
    broker, properties = secured
    settings = dict(line.split("=", 1) for line in properties.read_text().splitlines())
    with Client(broker.address, security=settings) as client:
        client.metadata()
        (connection,) = broker.service.connections
        assert connection.peer.principal == PRINCIPAL


UNHEEDED = {
    "client.auth": "required",
    "enabled.protocols": "TLSv1.2",
    "principal.mapping.rules": "RULE:x/y/",
}
"""Settings that Apache Kafka takes while it runs, without any effect; refused here."""


def altered(connection: RawConnection, broker: str, *changes: tuple[str, str]) -> int:
    configs = [{"name": name, "config_operation": 0, "value": value} for name, value in changes]
    resource = {"resource_type": 4, "resource_name": broker, "configs": configs}
    asked = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    return int(asked.responses[0].error_code)


def changes(address: str, ours: Certificates) -> dict[str, int]:
    """The errors of changes of the listener TLS."""
    told: dict[str, int] = {}
    prefix = "listener.name.tls.ssl"
    with RawConnection(address, tls=client_context(ours)) as connection:
        added = (
            (f"{prefix}.truststore.type", "PEM"),
            (f"{prefix}.truststore.location", str(ours.authority)),
        )
        told["a trust store"] = altered(connection, "1", *added)
        for broker, name, value in (
            *((("1", f"{prefix}.{name}", value)) for name, value in UNHEEDED.items()),
            ("1", "ssl.keystore.location", str(ours.p12("renewed"))),
            ("", f"{prefix}.keystore.location", str(ours.p12("renewed"))),
            ("1", f"{prefix}.keystore.location", "/nowhere"),
            ("1", f"{prefix}.keystore.password", "wrong"),
            ("1", f"{prefix}.keystore.location", str(ours.p12("client"))),
            ("1", f"{prefix}.keystore.location", str(ours.p12("unnamed"))),
            ("1", f"{prefix}.keystore.location", str(ours.p12("renewed"))),
            ("1", f"{prefix}.keystore.location", str(ours.p12("renewed"))),
        ):
            told[f"{len(told)}: {name}={Path(value).name} of {broker}"] = altered(
                connection, broker, (name, value)
            )
    return told


def test_certificates_and_changes_meet_what_they_do_at_kafka(
    make_broker: MakeBroker, tmp_path: Path, certificates: Certificates
) -> None:
    (tmp_path / "others").mkdir()
    others = make_certificates(tmp_path / "others")
    given = secured_settings(certificates)
    with Kafka(tmp_path / "kafka", settings=given, listeners=SECURED) as kafka:
        addresses = {name: kafka.address_of(name) for name in SECURED}
        assert list(meetings(addresses, certificates, others)) == list(as_at_kafka())
        theirs = changes(addresses["TLS"], certificates)
    broker = make_broker(**LISTENERS, **given)
    mine = changes(broker.address, certificates)
    differing = {name: (mine[name], its) for name, its in theirs.items() if mine[name] != its}
    unheeded = {name for name in differing if any(f".ssl.{it}=" in name for it in UNHEEDED)}
    assert {differing.pop(name) for name in unheeded} == {(42, 0)}
    assert differing == {}
