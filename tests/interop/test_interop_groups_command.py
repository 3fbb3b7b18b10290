"""`horolog groups` beside Apache Kafka, with groups of both types."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from command_runner import run_command
from patience import eventually
from tools.peers.kafka import Kafka

from horolog.client import Client
from horolog.record import LogRecord, build_batch
from horolog.sources import Cut, CutEntry
from horolog.storage import kafka_uuid


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
    for name, epoch in (("classic", None), ("consumer", 2)):
        (member,) = described[name]["members"]
        assert member["assigned"] == [{"topic": "t", "partition": 0}]
        assert member["epoch"] == epoch
    assert described["consumer"]["state"] == "Stable"
    for each in described.values():
        assert each["offsets"][0]["committed"] == 1
    assert (shown.code, "consumer, uniform" in shown.out, "t-0" in shown.out) == (0, True, True)
    assert (lag.code, lag.err.count("there is no group")) == (1, 1)
    assert "there is no group nosuch" in lag.err
    assert (missing.code, missing.out) == (1, "")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_kafka_is_set_to_the_file_of_a_cut(kafka: Kafka, protocol: str) -> None:
    topic, group = f"cut-{protocol}", f"cut-by-{protocol}"
    with Client(kafka.bootstrap) as client:
        client.create_topics({topic: 2})
        for number in (0, 1):
            values = [LogRecord(-1, None, b"%d of %d" % (at, number)) for at in range(4)]
            client.produce(topic, number, build_batch(values))
        entries = tuple(
            CutEntry(topic, topic_id_of(client, topic), number, 3 - number, 3 - number, True, None)
            for number in (0, 1)
        )
        file = kafka.log_dir.parent / f"{topic}.json"
        file.write_bytes(Cut(client.metadata([]).cluster_id, 0, 0, entries).to_bytes())
    at = {"HOROLOG_BOOTSTRAP": kafka.bootstrap}
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group}
    settings |= {"group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.5) is not None)
        refused = run_command("groups", "reset", group, "--to", file, "--topics", topic, **at)
    finally:
        consumer.close()
    assert refused.code == 1
    assert f"group {group} is Stable" in refused.err
    assert run_command("groups", "reset", group, "--to", file, "--topics", topic, **at).code == 0
    consumer = confluent_kafka.Consumer(settings | {"auto.offset.reset": "error"})
    try:
        consumer.subscribe([topic])
        messages = consumer.consume(3, timeout=60) + consumer.consume(1, timeout=1)
    finally:
        consumer.close()
    assert sorted(message.value() for message in messages) == [b"2 of 1", b"3 of 0", b"3 of 1"]
    for args in (
        ("groups", "reset", group, "--as-of", "-1h"),
        ("consume", topic, "--as-of", str(file)),
        ("cut", "--at", "-1h"),
    ):
        refused = run_command(*args, **at)
        assert refused.code == 1
        assert "keeps no append times" in refused.err


def topic_id_of(client: Client, topic: str) -> str:
    topic_id = client.metadata([topic]).topics[topic].topic_id
    assert topic_id is not None
    return kafka_uuid(topic_id)
