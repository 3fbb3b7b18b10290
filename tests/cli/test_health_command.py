"""`horolog health`: its output and its exit codes."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from command_runner import run_command as run
from overrides import override
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker
from scripted_broker import Raw, ScriptedBroker, Silence

from horolog.clock import ManualClock
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

broker = a_broker("t")


def test_a_healthy_broker_gives_0(broker: RunningBroker) -> None:
    ran = run("health", "-b", broker.address)
    assert ran.code == 0
    assert ran.out == "broker 1 is ready: 1 partitions, nothing is wrong\n"
    ran = run("health", "-b", broker.address, "--json")
    assert json.loads(ran.out) == {
        "ready": True,
        "healthy": True,
        "brokers": [{"broker": 1, "partitions": 1, "wrong": [], "without_numba": None}],
    }


def test_something_wrong_gives_1_and_is_named(broker: RunningBroker, clock: ManualClock) -> None:
    broker.append("t", build_batch([LogRecord(NOW_MS, None, b"v")]))
    clock.step("-2h")
    ran = run("health", "-b", broker.address)
    assert ran.code == 1
    assert "append-time-ahead" in ran.out
    assert "t-0" in ran.out
    ran = run("health", "-b", broker.address, "--json")
    assert ran.code == 1
    found = json.loads(ran.out)
    assert not found["healthy"]
    (wrong,) = found["brokers"][0]["wrong"]
    assert (wrong["kind"], wrong["subject"], wrong["value"]) == (
        "append-time-ahead",
        "t-0",
        7_200_000,
    )


def test_no_broker_gives_1_and_misuse_2(broker: RunningBroker) -> None:
    address = broker.address
    broker.stop()
    ran = run("health", "-b", address, "--command-property", "default.api.timeout.ms=500")
    assert ran.code == 1
    assert run("health", "--nonsense").code == 2


def test_a_broker_with_findings_is_alive(broker: RunningBroker, clock: ManualClock) -> None:
    broker.append("t", build_batch([LogRecord(NOW_MS, None, b"v")]))
    clock.step("-2h")
    assert run("health", "-b", broker.address).code == 1
    ran = run("health", "--alive", "-b", broker.address)
    assert ran == (0, f"{broker.address} answers\n", "")
    assert run("health", "--alive", "--json", "-b", broker.address).json == {"alive": True}


def test_a_port_that_refuses_connections_is_not_alive(broker: RunningBroker) -> None:
    address = broker.address
    broker.stop()
    said = f"horolog: no broker answered: {address} (connection refused)\n"
    assert run("health", "--alive", "-b", address) == (1, "", said)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Silence(), "did not answer ApiVersions (no answer in time)"),
        (Raw(b"HTTP/1.1 400 Bad Request"), "Is it a Kafka broker's plaintext port?"),
        ({"error_code": 42, "api_keys": []}, "answered ApiVersions with error 42"),
    ],
    ids=["nothing", "HTTP", "an error"],
)
def test_a_port_that_does_not_answer_apiversions_is_not_alive(
    monkeypatch: pytest.MonkeyPatch, answer: Any, why: str
) -> None:
    override(monkeypatch, "horolog.cli", ALIVE_WITHIN_MS=300)
    with ScriptedBroker({ApiKey.API_VERSIONS: answer}) as stuck:
        ran = run("health", "--alive", "-b", stuck.bootstrap)
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert why in ran.err


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_broker_that_authenticates_is_asked_without_a_login(
    certificates: Certificates, tmp_path: Path, protocol: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol={protocol}\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=Plain required username="monitor" password="wrong";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificates.authority}\n"
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates.pem("broker"))
    with ScriptedBroker(tls=tls if protocol == "SASL_SSL" else None) as secured:
        ran = run("health", "--alive", "-b", secured.bootstrap, "--command-config", file)
    assert (ran.code, ran.err) == (0, "")
    assert {seen.api_key for seen in secured.seen} == {ApiKey.API_VERSIONS}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("asked", ["none", "required"])
def test_a_certificate_of_the_broker_is_answer_enough(
    make_broker: MakeBroker, certificates: Certificates, version: str, asked: str
) -> None:
    broker = make_broker(
        listeners="SSL://127.0.0.1:0",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(certificates.pem("broker")),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(certificates.authority),
        ssl_client_auth=asked,
        ssl_enabled_protocols=version,
    )
    ran = run("health", "--alive", "-b", broker.address)
    assert ran == (0, f"{broker.address} answers\n", "")


def test_a_check_that_runs_every_few_seconds_imports_little() -> None:
    """The client of requests, tables of output and numpy would take three times its time."""
    source = (
        "import sys; from horolog.cli import main\n"
        "sys.argv = ['horolog', 'health', '--alive', '-b', '127.0.0.1:1']\n"
        "try:\n    main()\n"
        "except SystemExit:\n    print(*sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    heavy = {"horolog.client.client", "horolog.config.settings", "horolog.record.batch", "numpy"}
    assert not heavy & set(ran.stdout.split())
    assert "connection refused" in ran.stderr
