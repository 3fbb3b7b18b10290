"""The client against an Apache Kafka that requires TLS, SASL or both."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import PASSWORD, Certificates
from command_runner import run_command
from mirror_lab import NO_SPARK, MirrorLab, produce, records, rows_of, without_offsets
from pyspark.errors import PySparkException
from running_broker import MakeBroker
from tools.peers.kafka import Kafka, run_tool

from horolog.client import EARLIEST, LATEST, AuthenticationFailed, Client, NoAnswer
from horolog.errors import HorologError
from horolog.jobs.comparing import compare
from horolog.record import LogRecord, build_batch, read_records
from horolog.sources import scan

PACKAGE = "org.apache.kafka.common.security"
PLAIN_USER = f'{PACKAGE}.plain.PlainLoginModule required username="alice" password="p,=;\\"q";'
SCRAM_USER = f'{PACKAGE}.scram.ScramLoginModule required username="cram" password="pencil";'
UNSECURED = (
    f'{PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";'
)
LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "PLAIN": "SASL_PLAINTEXT",
    "SCRAM": "SASL_SSL",
    "TOKEN": "SASL_PLAINTEXT",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: Any, certificates: Certificates) -> Iterator[Kafka]:
    plain = f'{PACKAGE}.plain.PlainLoginModule required user_alice="p,=;\\"q";'
    settings = {
        "log.retention.ms": "-1",  # for a record of 1970
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(certificates.p12("broker")),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(certificates.trusted_p12),
        "ssl.truststore.password": PASSWORD,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": plain.replace("\\", "\\\\"),
        "listener.name.plain.connections.max.reauth.ms": "1000",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": (
            f"{PACKAGE}.scram.ScramLoginModule required;"
        ),
        "listener.name.scram.scram-sha-512.sasl.jaas.config": (
            f"{PACKAGE}.scram.ScramLoginModule required;"
        ),
        "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.token.oauthbearer.sasl.jaas.config": UNSECURED,
    }
    scram = [
        argument
        for bits in (256, 512)
        for argument in (
            "--add-scram",
            f'SCRAM-SHA-{bits}=[name="cram",password="pencil"]',
        )
    ]
    with Kafka(
        tmp_path_factory.mktemp("kafka"),
        settings=settings,
        listeners=LISTENERS,
        format_arguments=scram,
    ) as running:
        yield running


def trust(certificates: Certificates) -> dict[str, str]:
    return {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
    }


def round_trip(client: Client, topic: str) -> None:
    client.create_topics({topic: 1})
    batch = build_batch([LogRecord(1_700_000_000_000, b"k", b"v" * 300_000)])
    assert client.produce(topic, 0, batch).base_offset == 0
    (record,) = read_records(client.fetch(topic, 0, 0).records)
    assert record.value == b"v" * 300_000
    assert client.list_offsets({(topic, 0): LATEST})[topic, 0].offset == 1


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tls_is_spoken(kafka: Kafka, certificates: Certificates, topic: Any, version: str) -> None:
    security = {
        "security.protocol": "SSL",
        "ssl.enabled.protocols": version,
        **trust(certificates),
    }
    with Client(kafka.address_of("TLS"), security=security) as client:
        round_trip(client, topic("tls"))


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
def test_client_certificates_from_every_store(
    kafka: Kafka, certificates: Certificates, topic: Any, kind: str, tmp_path: Path
) -> None:
    key, trusted = certificates.p12("client"), certificates.trusted_p12
    if kind == "JKS":
        key, trusted = tmp_path / "key.jks", tmp_path / "trusted.jks"
        for made, source in (
            (key, certificates.p12("client")),
            (trusted, certificates.trusted_p12),
        ):
            convert_to_jks(source, made)
    security = {
        "security.protocol": "SSL",
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(key),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(trusted),
        "ssl.truststore.password": PASSWORD,
    }
    if kind == "PEM":
        security = {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.encrypted_pem("client")),
            "ssl.key.password": PASSWORD,
            **trust(certificates),
        }
    with Client(kafka.address_of("MUTUAL"), security=security) as client:
        round_trip(client, topic("mutual"))


def test_a_missing_client_certificate_is_named(kafka: Kafka, certificates: Certificates) -> None:
    security = {"security.protocol": "SSL", **trust(certificates)}
    with (
        Client(kafka.address_of("MUTUAL"), security=security) as client,
        pytest.raises(AuthenticationFailed, match=r"certificate.*ssl\.keystore\.location"),
    ):
        client.metadata()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_over_tls(
    kafka: Kafka, certificates: Certificates, topic: Any, mechanism: str
) -> None:
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": SCRAM_USER,
        **trust(certificates),
    }
    with Client(kafka.address_of("SCRAM"), security=security) as client:
        round_trip(client, topic("scram"))
    wrong = {**security, "sasl.jaas.config": SCRAM_USER.replace("pencil", "pen")}
    with (
        Client(kafka.address_of("SCRAM"), security=wrong) as client,
        pytest.raises(AuthenticationFailed, match=r"[Aa]uthentication failed") as refused,
    ):
        client.metadata()
    assert '"pen"' not in str(refused.value)


def test_commands_take_the_properties_file_of_kafkas_own_tools(
    kafka: Kafka, certificates: Certificates, topic: Any, tmp_path: Path
) -> None:
    """The same file serves Kafka's console producer and horolog's commands."""
    name, file = topic("commands"), tmp_path / "client.properties"
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": SCRAM_USER,
        **trust(certificates),
        "linger.ms": "1",
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    servers = kafka.address_of("SCRAM")

    def run(*args: object, stdin: str | None = None) -> str:
        done = run_command(*args, "-b", servers, "--command-config", file, stdin=stdin)
        assert done.code == 0, done.err
        assert "linger.ms" in done.err
        assert "pencil" not in done.out + done.err
        return done.out

    assert run("topics", "create", name, "--partitions", 1) == f"created {name}\n"
    run("produce", name, "--timestamp", 1000, stdin="from horolog\n")
    to_servers = "--bootstrap-server", servers, "--topic", name, "--command-config", str(file)
    run_tool("producer", *to_servers, stdin=b"from kafka\n")
    values = [line.split("\t")[3] for line in run("consume", name).splitlines()]
    assert values == ["from horolog", "from kafka"]
    assert "retention.ms" in run("topics", "describe", name, "--all")
    assert run("offsets", name, "--at", 1000, "--json")
    without = run_command("topics", "list", "-b", servers)
    assert (without.code, "security.protocol" in without.err) == (1, True)


def test_plain_goes_on_after_a_session_has_ended(kafka: Kafka, topic: Any) -> None:
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": PLAIN_USER,
    }
    name = topic("plain")
    with Client(kafka.address_of("PLAIN"), security=security) as client:
        round_trip(client, name)
        # connections.max.reauth.ms: Kafka closes a session that is longer than a second.
        for _ in range(4):
            client.fetch(name, 0, 1, max_wait_ms=500)
        assert client.list_offsets({(name, 0): EARLIEST})[name, 0].offset == 0


def test_an_unsecured_token_and_one_of_a_function(kafka: Kafka, topic: Any) -> None:
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": UNSECURED,
    }
    with Client(kafka.address_of("TOKEN"), security=security) as client:
        round_trip(client, topic("token"))
    del security["sasl.jaas.config"]
    with (
        Client(
            kafka.address_of("TOKEN"), security=security, oauth_token=lambda: "not.a.token"
        ) as client,
        pytest.raises(AuthenticationFailed, match="invalid_token"),
    ):
        client.metadata()


def test_the_wrong_protocol_is_reported_as_such(kafka: Kafka, certificates: Certificates) -> None:
    security = {"security.protocol": "SSL", **trust(certificates)}
    with (
        Client(kafka.bootstrap, security=security, timeout_ms=5_000) as client,
        pytest.raises((AuthenticationFailed, NoAnswer), match=r"TLS|SSL"),
    ):
        client.metadata()
    with (
        Client(kafka.address_of("TLS"), timeout_ms=5_000) as client,
        pytest.raises(NoAnswer, match=r"security\.protocol"),
    ):
        client.metadata()
    with (
        Client(kafka.address_of("PLAIN"), timeout_ms=5_000) as client,
        pytest.raises(NoAnswer, match=r"security\.protocol"),
    ):
        client.metadata()


def convert_to_jks(source: Path, target: Path) -> None:
    subprocess.run(
        [
            "keytool",
            "-importkeystore",
            *("-srckeystore", str(source), "-srcstoretype", "PKCS12"),
            *("-srcstorepass", PASSWORD, "-deststorepass", PASSWORD),
            *("-destkeystore", str(target), "-deststoretype", "JKS", "-noprompt"),
        ],
        check=True,
        capture_output=True,
    )


@pytest.mark.spark
def test_spark_writes_batches_and_streams_over_tls_with_scram(
    spark: Any, kafka: Kafka, certificates: Certificates, topic: Any, tmp_path: Path
) -> None:
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": SCRAM_USER,
        **trust(certificates),
    }
    options = {f"kafka.{name}": value for name, value in security.items()}
    options["kafka.bootstrap.servers"] = kafka.address_of("SCRAM")
    first, second = topic("written"), topic("streamed")
    rows = spark.range(50).selectExpr("cast(id as string) value")
    rows.write.format("horolog").options(**options).option("topic", first).save()
    stream = spark.readStream.format("horolog").options(**options)
    stream = stream.options(subscribe=first, startingOffsets="earliest").load()
    stream = stream.writeStream.format("horolog").options(**options).option("topic", second)
    stream = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    stream.start().awaitTermination()
    with Client(kafka.address_of("SCRAM"), security=security) as client:
        for name in (first, second):
            values = scan(client, name, columns=("value",)).read_all().column("value")
            assert sorted(map(int, values.to_pylist())) == [*range(50)]
    wrong = {"kafka.sasl.jaas.config": SCRAM_USER.replace("pencil", "crayon")}
    with pytest.raises(PySparkException) as refused:
        rows.write.format("horolog").options(**{**options, **wrong}).option("topic", "t").save()
    assert "authentication" in str(refused.value).splitlines()[0].lower()
    assert "crayon" not in str(refused.value)


def test_a_mirror_reads_and_writes_with_tls_and_scram_and_keeps_no_secret(
    kafka: Kafka,
    certificates: Certificates,
    topic: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_broker: MakeBroker,
) -> None:
    lab = MirrorLab(tmp_path, monkeypatch)
    name, ours = topic("mirror"), make_broker()
    ours.create_topic(name, 1, retention_ms="-1")
    produce(ours.address, name, 0, records(0, 10))
    security = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": SCRAM_USER,
        **{f"kafka.{setting}": value for setting, value in trust(certificates).items()},
    }
    secured = kafka.address_of("SCRAM")
    there = lab.run(ours.address, secured, name, target_settings=security)
    back = lab.run(
        secured,
        ours.address,
        name,
        settings=security,
        rename=r"(.*)=back.\1",
        state=tmp_path / "back",
    )
    assert not there.errors
    assert not back.errors
    back_again, before = (rows_of(ours.address, each) for each in (f"back.{name}", name))
    assert without_offsets(back_again) == without_offsets(before)
    compared = compare(
        NO_SPARK,
        source=ours.address,
        target=secured,
        topics=name,
        target_settings=security,
        mirror_state=lab.state,
    )
    assert compared.is_equal
    for path in [*lab.state.iterdir(), *(tmp_path / "back").iterdir()]:
        assert b"pencil" not in path.read_bytes()
    bad = {**security, "kafka.sasl.jaas.config": SCRAM_USER.replace("pencil", "crayon")}
    with pytest.raises(HorologError) as refused:
        lab.run(ours.address, secured, name, target_settings=bad, state=tmp_path / "bad")
    assert "crayon" not in str(refused.value)
