"""Clients of 2016 to 2019, which know formats v0 and v1 only, as they were released."""

import json
import subprocess
from typing import Any

import pytest
from tests.interop.conftest import CLIENTS, PEERS

from horolog.client import Client
from horolog.sources import scan

T0_MS = 1_479_000_000_000
ROWS = [[T0_MS, "a", "one"], [T0_MS + 2, None, "two"], [T0_MS + 1, "c", None]]
FOREVER = {"retention.ms": "-1"}
TIMEOUT_S = 300

KAFKA_PYTHON = [
    ("kafka-python==1.0.2", [0, 8, 2], ["none", "gzip", "snappy"]),  # its lz4 is no package here
    ("kafka-python==1.0.2", [0, 9], ["none", "gzip", "snappy"]),
    ("kafka-python==1.3.5", [0, 9], ["none", "gzip", "snappy", "lz4"]),
    ("kafka-python==1.3.5", [0, 10], ["none", "gzip", "snappy", "lz4"]),
]
LIBRDKAFKA = [
    ("confluent-kafka==0.11.6", "0.8.2", ["none", "gzip", "snappy", "lz4"]),
    ("confluent-kafka==0.11.6", "0.10.0", ["none", "gzip", "snappy", "lz4"]),
    ("confluent-kafka==1.0.0", "0.9.0", ["none", "gzip", "snappy"]),  # its own assertion fails: lz4
    ("confluent-kafka==1.0.0", "0.10.0", ["none", "gzip", "snappy", "lz4"]),
    ("confluent-kafka==1.0.0", None, ["none", "gzip", "snappy", "lz4"]),
]


def run(client: str, program: str, what: str, bootstrap: str, **asked: Any) -> Any:
    python = PEERS / "old-clients" / client / "bin" / "python"
    assert python.exists(), "no peer old-clients: run `make peers`"
    done = subprocess.run(
        [str(python), str(CLIENTS / "old" / program), what, bootstrap, json.dumps(asked)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{client} {what}: {done.stderr[-3000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def created(bootstrap: str, name: str, **config: str) -> None:
    with Client(bootstrap) as client:
        client.create_topics({name: 1}, configs=FOREVER | config)


def stored(bootstrap: str, name: str) -> list[list[Any]]:
    with Client(bootstrap) as client:
        rows = scan(client, name).read_all().to_pylist()
    return [
        [
            row["timestamp_ms"],
            row["key"] and row["key"].decode(),
            row["value"] and row["value"].decode(),
        ]
        for row in rows
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_the_simple_client_of_2016_writes_and_reads(broker, topic, codec):
    name = topic(f"simple-{codec}")
    created(broker.bootstrap, name)
    ask = ("kafka-python==0.9.5", "simple.py")
    assert run(*ask, "produce", broker.bootstrap, topic=name, records=ROWS, codec=codec) == {
        "offset": 0
    }
    read = run(*ask, "consume", broker.bootstrap, topic=name, count=3)["records"]
    assert read == [[at, key, value] for at, (_, key, value) in enumerate(ROWS)]
    assert stored(broker.bootstrap, name) == [[-1, key, value] for _, key, value in ROWS]


def test_the_simple_client_commits_and_asks_for_offsets(broker, topic):
    name = topic("simple-offsets")
    created(broker.bootstrap, name)
    ask = ("kafka-python==0.9.5", "simple.py")
    run(*ask, "produce", broker.bootstrap, topic=name, records=ROWS)
    group = {"topic": name, "group": f"of-{name}"}
    assert run(*ask, "committed", broker.bootstrap, **group)["error"] == 3
    assert run(*ask, "commit", broker.bootstrap, **group, offset=2) == {"error": 0}
    assert run(*ask, "committed", broker.bootstrap, **group) == {
        "offset": 2,
        "error": 0,
        "metadata": "of old",
    }
    offsets = [
        run(*ask, "offsets", broker.bootstrap, topic=name, time=time, most=9)["offsets"]
        for time in (-1, -2, 0)
    ]
    assert offsets == [[3, 0], [0], []]


@pytest.mark.parametrize(
    ("client", "version", "codec"),
    [(name, version, codec) for name, version, codecs in KAFKA_PYTHON for codec in codecs],
)
def test_kafka_python_of_2016_and_2017_writes_reads_and_commits(
    broker, topic, client, version, codec
):
    name = topic(f"kp-{codec}")
    created(broker.bootstrap, name)
    told = {"topic": name, "version": version}
    ask = (client, "kafka_python.py")
    sent = run(*ask, "produce", broker.bootstrap, **told, records=ROWS, codec=codec)["records"]
    assert [offset for offset, _ in sent] == [0, 1, 2]
    timed = version >= [0, 10]
    read = run(*ask, "consume", broker.bootstrap, **told, count=3, group=f"of-{name}")
    assert read["committed"] == 3
    assert read["records"] == [
        [at, key, value, time if timed else None, 0 if timed else None]
        for at, (time, key, value) in enumerate(ROWS)
    ]
    times = [time if timed else -1 for time, _, _ in ROWS]
    assert stored(broker.bootstrap, name) == [
        [time, key, value] for time, (_, key, value) in zip(times, ROWS, strict=True)
    ]


@pytest.mark.parametrize(
    ("client", "version", "codec"),
    [(name, version, codec) for name, version, codecs in LIBRDKAFKA for codec in codecs],
)
def test_librdkafka_of_2018_and_2019_writes_and_reads(broker, topic, client, version, codec):
    name = topic(f"rd-{codec}")
    created(broker.bootstrap, name)
    told = {"topic": name, "version": version}
    ask = (client, "librdkafka.py")
    sent = run(*ask, "produce", broker.bootstrap, **told, records=ROWS, codec=codec)["records"]
    assert sent[-1][0] == 2
    timed = version not in ("0.8.2", "0.9.0")
    read = run(*ask, "consume", broker.bootstrap, **told, count=3)["records"]
    assert read == [
        [at, key, value, time if timed else None, 0 if timed else None]
        for at, (time, key, value) in enumerate(ROWS)
    ]


def test_old_clients_see_the_brokers_time_where_the_topic_has_it(broker, topic):
    name = topic("stamped")
    created(broker.bootstrap, name, **{"message.timestamp.type": "LogAppendTime"})
    ask = ("kafka-python==1.3.5", "kafka_python.py")
    told = {"topic": name, "version": [0, 10]}
    sent = run(*ask, "produce", broker.bootstrap, **told, records=ROWS, codec="gzip")["records"]
    read = run(*ask, "consume", broker.bootstrap, **told, count=3)["records"]
    (time,) = {row[3] for row in read}
    assert time > T0_MS
    assert {row[4] for row in read} == {1}
    assert [row[1] for row in sent] == [time] * 3
