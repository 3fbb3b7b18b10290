"""A directory of Apache Kafka's that horolog adopts, and gives back (docs/moving-in-and-out.md)."""

import pytest
from bench.sides import horolog
from tools.peers.kafka import Kafka, run_tool

from horolog.client import Client, CommittedOffset, ResourceType
from horolog.errors import RequestRefused
from horolog.record import LogRecord, build_batch

EVERY_BROKER = ("--entity-type", "brokers", "--entity-default")


def groups_and_offsets(bootstrap: str, *groups: str) -> dict[str, int]:
    with Client(bootstrap) as client:
        found = {group: client.offset_fetch(group).get(("kept", 0)) for group in groups}
    return {group: each.offset for group, each in found.items() if each is not None}


@pytest.mark.timeout(3600)  # Kafka is started twice
def test_both_ways_everything_is_said_that_the_next_broker_does_not_know(tmp_path):
    kafka = Kafka(tmp_path)
    with kafka:
        with Client(kafka.bootstrap) as client:
            client.create_topics({"kept": 1, "dropped": 1, "grown": 1})
            batch = build_batch([LogRecord(1_700_000_000_000, b"k", b"v") for _ in range(5)])
            for topic in ("kept", "dropped", "grown"):
                client.produce(topic, 0, batch)
            client.offset_commit("theirs", {("kept", 0): CommittedOffset(3)})
            client.offset_commit("both", {("kept", 0): CommittedOffset(4)})
            client.alter_configs(
                {(ResourceType.TOPIC, "kept"): {"unclean.leader.election.enable": "true"}}
            )
        for entity, added in (
            (EVERY_BROKER, "log.retention.ms=86400000"),
            (("--entity-type", "users", "--entity-name", "a"), "producer_byte_rate=5"),
            (("--entity-type", "users", "--entity-name", "a"), "SCRAM-SHA-256=[password=p]"),
        ):
            where = ("--bootstrap-server", kafka.bootstrap, *entity)
            run_tool("configs", *where, "--alter", "--add-config", added)

    said = tmp_path / "horolog.err"
    with horolog({"horolog.open.listeners": "*"}, tmp_path) as side:
        assert "group 'theirs': the offsets that it committed with Kafka" in said.read_text()
        assert "kept-0 at 3" in said.read_text()
        assert "log.retention.ms=86400000 of every broker" in said.read_text()
        assert "unclean.leader.election.enable=true of topic kept" in said.read_text()
        assert "1 of SCRAM credential" in said.read_text()
        with Client(side.bootstrap) as client:
            quotas = client.quotas.list()
            assert [(quota.key, quota.value) for quota in quotas] == [("producer_byte_rate", 5.0)]
            with pytest.raises(RequestRefused, match="take the directory over"):
                client.quotas.change(quotas[0].entity, {"producer_byte_rate": 6.0})
        assert groups_and_offsets(side.bootstrap, "theirs", "both") == {}
        with Client(side.bootstrap) as client:
            left = client.left_behind("kept")
            assert left is not None
            assert left.offsets == [("both", 0, 4), ("theirs", 0, 3)]
        with Client(side.bootstrap) as client:
            for group, partition, offset in left.offsets:
                client.offset_commit(group, {("kept", partition): CommittedOffset(offset)})
        assert groups_and_offsets(side.bootstrap, "theirs", "both") == {"theirs": 3, "both": 4}
        with Client(side.bootstrap) as client:
            client.create_topics({"made": 1})
            client.produce("made", 0, batch)
            client.produce("kept", 0, batch)
            for topic in ("dropped", "grown"):
                client.alter_configs({(ResourceType.TOPIC, topic): {"retention.ms": "-1"}})
            client.delete_topics(["dropped"])
            client.create_partitions({"grown": 2})
            client.alter_configs({(ResourceType.TOPIC, "kept"): {"retention.ms": "777"}})
            client.offset_commit("both", {("kept", 0): CommittedOffset(9)})
    said.write_text("")
    with horolog({"horolog.open.listeners": "*"}, tmp_path):
        assert "(their directories become *-stray) made; " in said.read_text()
        assert (
            "settings of topics grown, kept; offsets of groups 'both', 'theirs'" in said.read_text()
        )

    with kafka:
        stray = sorted(path.name.split(".")[0] for path in kafka.log_dir.glob("*-stray"))
        with Client(kafka.bootstrap) as client:
            topics = {name: len(its.partitions) for name, its in client.metadata().topics.items()}
            ends = client.list_offsets({("kept", 0): -1, ("dropped", 0): -1})
            settings = client.describe_configs([(ResourceType.TOPIC, "kept")])
        offsets = groups_and_offsets(kafka.bootstrap, "theirs", "both")
    assert stray == ["grown-1", "made-0"]
    assert {name: count for name, count in topics.items() if not name.startswith("__")} == {
        "kept": 1,
        "dropped": 1,
        "grown": 1,
    }
    assert {name: each.offset for (name, _), each in ends.items()} == {"kept": 10, "dropped": 0}
    assert settings[ResourceType.TOPIC, "kept"]["retention.ms"].value != "777"
    assert offsets == {"theirs": 3, "both": 4}
