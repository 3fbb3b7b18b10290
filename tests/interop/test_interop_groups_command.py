"""`horolog groups` beside Apache Kafka, with groups of both types."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
from command_runner import run_command
from patience import eventually
from tools.peers.kafka import Kafka

from horolog.client import Client
from horolog.record import LogRecord, build_batch


def test_groups_of_both_types_are_listed_and_described(tmp_path: Path) -> None:
    with Kafka(tmp_path / "kafka") as kafka, Client(kafka.bootstrap) as client:
        client.create_topics({"t": 1})
        client.produce("t", 0, build_batch([LogRecord(-1, None, b"v")] * 3))
        consumers = []
        try:
            for protocol in ("classic", "consumer"):
                consumer = confluent_kafka.Consumer(
                    {
                        "bootstrap.servers": kafka.bootstrap,
                        "group.id": protocol,
                        "group.protocol": protocol,
                        "auto.offset.reset": "earliest",
                    }
                )
                consumers.append(consumer)
                consumer.subscribe(["t"])
                eventually(lambda: consumer.poll(0.5) is not None)  # noqa: B023
                consumer.commit(asynchronous=False)
            listed = run_command("groups", "list", "-b", kafka.bootstrap, "--json").json
            described = {
                name: run_command("groups", "describe", name, "-b", kafka.bootstrap, "--json").json
                for name in ("classic", "consumer")
            }
            shown = run_command("groups", "describe", "consumer", "-b", kafka.bootstrap)
            lag = run_command("lag", "consumer", "nosuch", "-b", kafka.bootstrap)
        finally:
            for consumer in consumers:
                consumer.close()
        missing = run_command("groups", "describe", "nosuch", "-b", kafka.bootstrap)
    assert [(each["group"], each["state"], each["type"].lower()) for each in listed] == [
        ("classic", "Stable", "classic"),
        ("consumer", "Stable", "consumer"),
    ]
    (member,) = described["classic"]["members"]
    assert member["assigned"] == [{"topic": "t", "partition": 0}]
    assert described["consumer"]["members"] is None
    assert described["consumer"]["state"] == "Stable"
    for each in described.values():
        assert each["offsets"][0]["committed"] == 1
    assert (shown.code, "members of groups of type" in shown.out) == (0, True)
    assert (lag.code, lag.err.count("there is no group")) == (1, 1)
    assert "there is no group nosuch" in lag.err
    assert (missing.code, missing.out) == (1, "")
