"""Java's clients and tools of Apache Kafka over TLS, and certificates of Java's own stores."""

import subprocess
from pathlib import Path

import pytest
from certificates import PASSWORD
from running_broker import MakeBroker, RunningBroker
from tools.peers.kafka import run_tool

from horolog.client import Client

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
