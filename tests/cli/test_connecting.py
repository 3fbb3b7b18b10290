"""Commands that connect to brokers behind TLS, with the properties that Kafka's tools take."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import PASSWORD, Certificates
from command_runner import Ran, run_command
from overrides import override
from proxy import TlsProxy
from running_broker import RunningBroker


@pytest.fixture(scope="module")
def secured(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsProxy]:
    """A broker whose clients connect in TLS, with a certificate of their own."""
    with TlsProxy(certificates) as proxy:
        broker = RunningBroker(
            tmp_path_factory.mktemp("secured"),
            {"advertised.listeners": f"PLAINTEXT://{proxy.address}"},
        )
        host, _, port = broker.address.rpartition(":")
        proxy.targets.append((host, int(port)))
        yield proxy
        broker.stop()


@pytest.fixture(scope="module")
def properties(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user has for Kafka's own tools."""
    file = tmp_path_factory.mktemp("properties") / "client.properties"
    file.write_text(
        "# for every tool\n"
        "security.protocol = SSL\n"
        f"ssl.truststore.type=PKCS12\nssl.truststore.location={certificates.trusted_p12}\n"
        f"ssl.truststore.password={PASSWORD}\n"
        f"ssl.keystore.type=PKCS12\nssl.keystore.location={certificates.p12('client')}\n"
        f"ssl.keystore.password={PASSWORD}\nclient.id=deploy\n"
    )
    return file


def test_every_command_that_asks_a_broker_takes_client_properties(
    secured: TlsProxy, properties: Path, tmp_path: Path
) -> None:
    def run(*args: object, stdin: str | None = None) -> Ran:
        given = *args, "-b", secured.address, "--command-config", properties
        done = run_command(*given, stdin=stdin)
        assert done.code == 0, (args, done.err)
        assert done.err == "" or args[0] in ("produce", "consume")
        return done

    table = tmp_path / "rows.csv"
    table.write_text("value\nfrom a table\n")
    run("topics", "create", "clicks")
    run("topics", "alter", "clicks", "-c", "retention.ms=-1")
    run("produce", "clicks", "--timestamp", "1000", stdin="from a line\n")
    run("produce", "clicks", "--from", table)
    assert "from a line" in run("consume", "clicks").out
    assert run("offsets", "clicks", "--at", "1000").code == 0
    assert run("retention", "explain", "clicks").out.startswith("clicks-0")
    assert "retention.ms" in run("topics", "describe", "clicks").out
    run("topics", "reset-append-time", "clicks")
    run("topics", "delete", "clicks")
    assert run("topics", "list").lines == ["no topics"]


def test_without_them_the_reason_is_one_sentence(
    secured: TlsProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.client", FIRST_CONTACT_MS=200)
    refused = run_command("topics", "list", "-b", secured.address)
    assert refused.code == 1
    assert "security.protocol" in refused.err
    assert "Traceback" not in refused.err


def test_a_property_of_the_command_overrides_the_file_whose_path_may_be_in_the_environment(
    secured: TlsProxy, properties: Path, certificates: Certificates
) -> None:
    def run(*args: object) -> Ran:
        given = "topics", "list", "-b", secured.address, *args
        return run_command(*given, HOROLOG_COMMAND_CONFIG=str(properties))

    assert run().code == 0
    wrong = run("--command-property", "ssl.keystore.location=/nowhere.p12")
    assert (wrong.code, "/nowhere.p12" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("security.protocl=SSL", "did you mean security.protocol?"),
        ("linger.ms=5", "--command-property linger.ms has no effect on this client"),
        ("ssl.ca.location=/ca.pem", "is a setting of librdkafka"),
        ("default.api.timeout.ms=soon", "write milliseconds, from 1 to 2147483647"),
        ("default.api.timeout.ms=0", "write milliseconds"),
        ("bootstrap.servers=elsewhere:9092", "are other brokers than --bootstrap-server"),
        ("security.protocol", "write --command-property NAME=VALUE"),
    ],
)
def test_a_property_that_cannot_be_obeyed_is_a_usage_error(given: str, said: str) -> None:
    refused = run_command("topics", "list", "-b", "127.0.0.1:1", "--command-property", given)
    assert refused.code == 2
    assert said in " ".join(refused.err.split())


def test_properties_of_a_file_that_are_for_other_tools_are_named(
    broker: RunningBroker, tmp_path: Path
) -> None:
    """One file is for all tools; settings of SASL without effect are not worth a word."""
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers={broker.address}\ncompression.type=lz4\nacks=all\n"
        "default.api.timeout.ms=20000\nsasl.jaas.config=not.used password=secret\n"
    )
    done = run_command("topics", "list", "-b", broker.address, "--command-config", file)
    assert done.code == 0
    assert done.err == f"{file}: without effect on this command: acks, compression.type\n"


def test_a_file_that_is_no_text_is_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"ssl.key.password=\xff\xfe")
    refused = run_command("topics", "list", "-b", "127.0.0.1:1", "--command-config", file)
    assert (refused.code, "is not UTF-8 text" in refused.err) == (2, True)
