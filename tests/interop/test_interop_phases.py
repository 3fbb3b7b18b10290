"""KIP-32, phases 1 and 2, with clients of their day: what one writes all read, in any format."""

import os
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from bench.sides import horolog
from tests.interop.conftest import PEERS, TIMEOUT_S
from tests.interop.test_interop_old_clients import run
from tools.peers.kafka import SHORT_LIVED

from horolog.client import Client
from horolog.record import iter_headers

T0_MS = 1_479_000_000_000
ROWS = [[T0_MS, "a", "one"], [T0_MS + 2, None, "two"], [T0_MS + 1, "c", None]]
RELEASES = {"0.9.0": 0, "0.10.2": 1, "0.11.0": 2}


class OldClient(NamedTuple):
    """A client, the program that asks it, and the release that it takes the broker for."""

    name: str
    program: str
    version: Any
    has_times: bool


CLIENTS = [
    OldClient("kafka-python==1.3.5", "kafka_python.py", [0, 9], False),
    OldClient("kafka-python==1.3.5", "kafka_python.py", [0, 10], True),
    OldClient("confluent-kafka==0.11.6", "librdkafka.py", "0.10.0", True),
    OldClient("confluent-kafka==1.0.0", "librdkafka.py", None, True),
]
IDS = ["kafka-python 0.9", "kafka-python 0.10", "librdkafka 0.10", "librdkafka 1.0"]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: Any) -> Iterator[str]:
    """A broker that obeys message.format.version."""
    directory = tmp_path_factory.mktemp("phases")
    with horolog({"inter.broker.protocol.version": "2.8"}, directory) as side:
        yield side.bootstrap


def created(bootstrap: str, topic: str, release: str) -> None:
    configs = {"retention.ms": "-1", "message.format.version": release}
    with Client(bootstrap) as client:
        client.create_topics({topic: 1}, configs=configs)


def formats_in(bootstrap: str, topic: str) -> set[int]:
    """Of what is stored: this fetch converts nothing."""
    with Client(bootstrap) as client:
        return {header.magic for _, header in iter_headers(client.fetch(topic, 0, 0).records)}


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("writer", CLIENTS, ids=IDS)
def test_what_a_client_writes_every_client_reads(bootstrap, topic, writer, release, codec):
    name = topic(f"phase-{release}-{codec}")
    created(bootstrap, name, release)
    ask = {"topic": name, "version": writer.version}
    sent = run(writer.name, writer.program, "produce", bootstrap, **ask, records=ROWS, codec=codec)[
        "records"
    ]
    assert sent[-1][0] == 2
    # librdkafka 1.0 writes v2 where the broker speaks it; what is stored is the topic's.
    assert formats_in(bootstrap, name) == {RELEASES[release]}
    timed = writer.has_times and release != "0.9.0"
    for number, reader in enumerate(CLIENTS):
        asked = {"topic": name, "version": reader.version, "count": 3}
        more = {"group": f"of-{name}-{number}"} if reader.program == "kafka_python.py" else {}
        read = run(reader.name, reader.program, "consume", bootstrap, **asked, **more)["records"]
        assert [[offset, key, value] for offset, key, value, *_ in read] == [
            [at, key, value] for at, (_, key, value) in enumerate(ROWS)
        ]
        times = [row[3] for row in read]
        if timed and reader.has_times:
            assert times == [ms for ms, _, _ in ROWS]
        else:
            assert set(times) <= {None, -1}


def old_jvm(main_class: str, *arguments: str, stdin: str = "") -> str:
    """A tool of Kafka 0.10.0.1, with the client of that release."""
    jars = PEERS / "old" / "kafka-0.10.0.1"
    if not list(jars.glob("*.jar")):
        pytest.skip("no peer kafka-0.10.0.1: run `make .peers/old/kafka-0.10.0.1/.complete`")
    command = ["java", "-Xmx128m", *SHORT_LIVED, "-cp", f"{jars}{os.sep}*", main_class, *arguments]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
@pytest.mark.parametrize("release", RELEASES)
def test_javas_client_of_0_10_writes_and_reads_every_format(bootstrap, topic, release, codec):
    name = topic(f"java-{release}-{codec}")
    created(bootstrap, name, release)
    lines = "".join(f"k{at}:value {at}\n" for at in range(20))
    old_jvm(
        "kafka.tools.ConsoleProducer",
        *("--broker-list", bootstrap, "--topic", name, "--compression-codec", codec),
        *("--property", "parse.key=true", "--property", "key.separator=:"),
        stdin=lines,
    )
    assert formats_in(bootstrap, name) == {RELEASES[release]}
    printed = old_jvm(
        "kafka.tools.ConsoleConsumer",
        *("--new-consumer", "--bootstrap-server", bootstrap, "--topic", name),
        *("--from-beginning", "--max-messages", "20", "--timeout-ms", "120000"),
        *("--property", "print.key=true", "--property", "key.separator=:"),
        *("--property", "print.timestamp=true"),
    )
    rows = [line.split("\t")[-1] for line in printed.splitlines()]
    assert [line[line.index("k") :] for line in rows] == lines.splitlines()
    kinds = {line.split(":")[0] for line in printed.splitlines()}
    assert ("CreateTime" in next(iter(kinds))) == (release != "0.9.0")
