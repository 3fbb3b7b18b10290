"""Apache Kafka continues a metadata log that horolog wrote, and horolog with Kafka's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bench.sides import horolog
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from patience import eventually
from tools.golden import cluster_metadata
from tools.golden.scenarios import QUIET
from tools.peers.kafka import (
    BEFORE_NEWEST,
    CLUSTER_ID,
    LAST_WITH_OLD_FORMATS,
    NEWEST,
    Kafka,
    PeerFailed,
    run_tool,
)

from horolog.client import Client
from horolog.config import BrokerConfig, TopicConfig
from horolog.errors import Misconfigured
from horolog.metadata import BROKER, TOPIC, MetadataLog, open_store
from horolog.record import LogRecord, build_batch
from horolog.schemas import metadata as m
from horolog.schemas.metadata import METADATA_VERSION, NEW_LOG_LEVEL, NEWEST_LEVEL
from horolog.storage import (
    Files,
    LogDir,
    MetaProperties,
    kafka_uuid,
    prepare,
    write_meta_properties,
)

NOW = 1_795_000_000_000
COMPLAINTS = ("isvalid: false", "could not", "unable", "error", "mismatch", "exception")
DIRECTORY, INCARNATION = uuid4(), uuid4()
TOPICS = {name: uuid4() for name in ("plain", "settings")}


def write_directory(path: Path, level: int = NEW_LOG_LEVEL, *, snapshot: bool) -> list[bytes]:
    """A log directory from nothing: two topics with records; the image of its metadata."""
    path.mkdir(parents=True)
    config = TopicConfig()
    log_dir = LogDir.open(
        path, broker_config=BrokerConfig(), topic_config=lambda _: config, now_ms=NOW
    )
    for name, topic_id in TOPICS.items():
        log = log_dir.create(name, 0, topic_id, config, NOW)
        batch = build_batch([LogRecord(NOW, b"key", name.encode())])
        log.append(prepare(batch, config, NOW), NOW)
    log_dir.close()
    files = Files()
    meta = MetaProperties(CLUSTER_ID, 1, kafka_uuid(DIRECTORY), {})
    write_meta_properties(files, str(path / "meta.properties"), meta)
    log = MetadataLog.open(files, str(path), node_id=1)
    log.append([m.FeatureLevel(METADATA_VERSION, level)], NOW)
    epoch = log.next_offset
    log.append(
        [
            m.RegisterBroker(
                1, False, INCARNATION, epoch, (m.BrokerEndpoint("PLAINTEXT", "localhost", 9092),),
                (m.Supported(METADATA_VERSION, 7, level),), log_dirs=(DIRECTORY,),
            ),
            m.BrokerChange(1, epoch, fenced=-1),
        ],
        NOW,
    )  # fmt: skip
    if level >= NEWEST_LEVEL:
        log.append([m.RegisterController(2, INCARNATION, False, (), ())], NOW)
        log.append([m.UnregisterController(2)], NOW)
    for name, topic_id in TOPICS.items():
        records: list[m.Record] = [
            m.TopicRecord(name, topic_id),
            m.PartitionRecord(0, topic_id, (1,), (1,), (), (), 1, 0, 0, 0, (DIRECTORY,)),
            m.Config(TOPIC, name, "retention.ms", "-1"),
        ]
        if name == "settings":
            records.append(m.Config(TOPIC, name, "segment.bytes", "2097152"))
        log.append(records, NOW)
        if snapshot and name == "plain":
            log.snapshot(NOW)
    log.append([m.Config(BROKER, "", "horolog.state.home", "horolog")], NOW)
    log.append([m.ProducerIdsRecord(1, epoch, 5000)], NOW)
    image = list(log.image.records())
    log.close()
    return image


def dumped(path: Path, peer: str = NEWEST) -> str:
    done = run_tool("dump", "--cluster-metadata-decoder", "--files", str(path), peer=peer)
    return (done.stdout + done.stderr).decode()


def values_of(kafka: Kafka, topic: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": f"reads-{topic}-{uuid4()}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    found = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error():
            break
        found.append(message.value())
    consumer.close()
    return found


def settings_of(admin: AdminClient, topic: str) -> dict[str, Any]:
    resource = ConfigResource("topic", topic)
    entries = admin.describe_configs([resource])[resource].result()
    return {name: entry.value for name, entry in entries.items() if not entry.is_default}


@pytest.mark.parametrize("snapshot", [False, True], ids=["log", "snapshot"])
@pytest.mark.parametrize(
    ("peer", "level"),
    [
        (NEWEST, NEWEST_LEVEL),
        (NEWEST, NEW_LOG_LEVEL),
        (BEFORE_NEWEST, NEW_LOG_LEVEL),
        (LAST_WITH_OLD_FORMATS, 21),
    ],
    ids=["4.4, its own level", "4.4", "4.3", "3.9"],
)
def test_kafka_opens_a_directory_that_horolog_wrote_and_works_on(
    tmp_path: Path, peer: str, level: int, snapshot: bool
) -> None:
    kafka = Kafka(tmp_path / "kafka", peer=peer)
    write_directory(kafka.log_dir, level, snapshot=snapshot)
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
        for name in TOPICS:
            assert values_of(kafka, name) == [name.encode()]
        assert settings_of(admin, "settings")["segment.bytes"] == "2097152"
        admin.create_topics([NewTopic("later", 2, 1)])["later"].result()
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, **QUIET}
        )
        producer.produce("plain", b"more")
        producer.flush()
        assert values_of(kafka, "plain") == [b"plain", b"more"]
    log = MetadataLog.open(Files(), str(kafka.log_dir), node_id=1)
    assert log.damage == ()
    assert {"plain", "settings", "later"} <= set(log.image.topics)
    assert {name: log.image.topics[name].topic_id for name in TOPICS} == TOPICS
    assert log.image.next_producer_id > 5000
    assert log.image.settings_of(BROKER, "")["horolog.state.home"] == "horolog"
    assert log.image.metadata_version == level
    assert list(kafka.log_dir.glob("*stray*")) == []
    # And back: what horolog appends behind Kafka's records, Kafka knows.
    log.append([m.Config(TOPIC, "plain", "retention.ms", "123456789012")], NOW)
    if snapshot:
        log.snapshot(NOW)
    log.append([m.Config(TOPIC, "later", "retention.ms", "123456789013")], NOW)
    log.close()
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
        assert settings_of(admin, "plain")["retention.ms"] == "123456789012"
        assert kept_by(kafka)["quotas"] == ["consumer_byte_rate=77"]
        assert settings_of(admin, "later")["retention.ms"] == "123456789013"
        assert values_of(kafka, "plain") == [b"plain", b"more"]
    again = MetadataLog.open(Files(read_only=True), str(kafka.log_dir), node_id=1)
    assert again.damage == ()
    assert again.leader_epoch > log.leader_epoch + 1


@pytest.mark.parametrize("level", [NEW_LOG_LEVEL, NEWEST_LEVEL])
@pytest.mark.parametrize("snapshot", [False, True], ids=["log", "snapshot"])
def test_kafkas_dump_tool_finds_nothing_to_say_of_it(
    tmp_path: Path, snapshot: bool, level: int
) -> None:
    write_directory(tmp_path / "data", level, snapshot=snapshot)
    paths = [
        path
        for path in sorted((tmp_path / "data" / "__cluster_metadata-0").iterdir())
        if path.suffix in (".log", ".checkpoint", ".index", ".timeindex")
    ]
    assert len(paths) == 3 + snapshot
    for path in paths:
        said = dumped(path)
        for complaint in COMPLAINTS:
            assert complaint not in said.lower(), path
        if path.suffix in (".log", ".checkpoint"):
            assert said.count("payload: ") >= 3


def test_a_dynamic_quorum_keeps_its_voters(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path / "kafka", format_arguments=("--standalone",))
    kafka.set(
        {
            "controller.quorum.voters": "",
            "controller.quorum.bootstrap.servers": kafka.controller,
            "metadata.log.max.record.bytes.between.snapshots": "1500",
        }
    )
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
        admin.create_topics([NewTopic("plain", 1, 1)])["plain"].result()
    log = MetadataLog.open(Files(), str(kafka.log_dir), node_id=1)
    assert log.damage == ()
    assert [voter.voter_id for voter in log.voters] == [1]
    assert log.voters[0].directory is not None
    log.append([m.Config(TOPIC, "plain", "retention.ms", "123456789012")], NOW)
    log.snapshot(NOW)
    log.close()
    for path in sorted((kafka.log_dir / "__cluster_metadata-0").iterdir()):
        if path.suffix in (".log", ".checkpoint"):
            assert not [each for each in COMPLAINTS if each in dumped(path).lower()], path
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
        assert settings_of(admin, "plain")["retention.ms"] == "123456789012"
    again = MetadataLog.open(Files(read_only=True), str(kafka.log_dir), node_id=1)
    assert (again.damage, again.voters) == ((), log.voters)


def test_a_controller_that_kafka_unregistered_is_forgotten(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path / "kafka", format_arguments=("--standalone",))
    dynamic = {
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": kafka.controller,
    }
    kafka.set(dynamic)
    second = Kafka(tmp_path / "second", format_arguments=("--no-initial-controllers",))
    listener = f"CONTROLLER://{second.bootstrap}"
    second.set(
        {
            **dynamic,
            "process.roles": "controller",
            "node.id": "2",
            "listeners": listener,
            "advertised.listeners": listener,
        }
    )

    def controllers() -> set[int]:
        log = MetadataLog.open(Files(read_only=True), str(kafka.log_dir), node_id=1)
        assert log.damage == ()
        return {*log.image.controllers}

    with kafka:
        with second:
            assert eventually(lambda: controllers() == {1, 2})
        with pytest.raises(Misconfigured, match="node 2 is a voter"):
            open_store(Files(read_only=True), kafka.log_dir, 1, lambda: NOW, take_over=True)
        run_tool(
            *("cluster", "unregister-controller", "--id", "2"),
            *("--bootstrap-controller", kafka.controller),
        )
        assert controllers() == {1}
    assert open_store(Files(), kafka.log_dir, 1, lambda: NOW, take_over=True).takes_over


def test_what_kafka_formatted_keeps_its_level_and_the_kafka_before_refuses_it(
    tmp_path: Path,
) -> None:
    kafka = Kafka(tmp_path / "kafka")
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
        admin.create_topics([NewTopic("plain", 1, 1)])["plain"].result()
    taken_over = horolog({"horolog.take.over": "true"}, kafka.directory)
    with taken_over as side, Client(side.bootstrap) as client:
        client.create_topics({"ours": 1})
    log = MetadataLog.open(Files(read_only=True), str(kafka.log_dir), node_id=1)
    assert log.image.metadata_version == NEWEST_LEVEL
    before = Kafka(kafka.directory, peer=BEFORE_NEWEST)
    with pytest.raises(PeerFailed, match=f"metadata.version|version {NEWEST_LEVEL}"), before:
        pass
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
        assert {"plain", "ours"} <= set(admin.list_topics().topics)


def test_kafka_goes_on_after_horolog_was_killed(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path / "kafka")
    write_directory(kafka.log_dir, snapshot=True)
    log = MetadataLog.open(Files(), str(kafka.log_dir), node_id=1)
    log.append([m.Config(TOPIC, "plain", "retention.ms", "123456789012")], NOW)
    quota = m.ClientQuota((m.QuotaEntity("user", "carol"),), "consumer_byte_rate", 77.0)
    log.append([quota], NOW)
    torn = max((kafka.log_dir / "__cluster_metadata-0").glob("*.log"))
    with torn.open("ab") as file:  # and within the next append
        file.write(torn.read_bytes()[:60])
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
        assert settings_of(admin, "plain")["retention.ms"] == "123456789012"
        assert values_of(kafka, "plain") == [b"plain"]
    again = MetadataLog.open(Files(read_only=True), str(kafka.log_dir), node_id=1)
    assert again.damage == ()
    assert set(TOPICS) <= set(again.image.topics)


@pytest.mark.parametrize("peer", [NEWEST, LAST_WITH_OLD_FORMATS])
def test_a_snapshot_of_horolog_loses_nothing_that_kafka_kept(tmp_path: Path, peer: str) -> None:
    kafka = Kafka(tmp_path / "kafka", peer=peer, settings=cluster_metadata.SETTINGS)
    with kafka:
        cluster_metadata.live(kafka)
        kept = kept_by(kafka)
        assert len(kept["acls"]) == len(kept["users"]) == 2
        assert "producer_byte_rate=1024" in kept["quotas"]
        assert kept["topics"]["settings"]["min.insync.replicas"] == "1"
    log = MetadataLog.open(Files(), str(kafka.log_dir), node_id=1)
    assert log.damage == ()
    log.append([m.Config(BROKER, "", "horolog.state.home", "horolog")], NOW)
    log.snapshot(NOW)
    log.close()
    directory = kafka.log_dir / "__cluster_metadata-0"
    newest = max(directory.glob("*.checkpoint"))
    for path in directory.iterdir():  # the snapshot is all that is left
        if path.suffix == ".checkpoint" and path != newest:
            path.unlink()
    assert not [each for each in COMPLAINTS if each in dumped(newest).lower()]
    with kafka:
        assert kept_by(kafka) == kept


def kept_by(kafka: Kafka) -> dict[str, Any]:
    """What a Kafka says of what its metadata log keeps."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    users = admin.describe_user_scram_credentials()
    said = kafka.tool("configs", "--describe", "--entity-type", "users").stdout.decode()
    topics = admin.list_topics().topics
    return {
        "acls": sorted(map(str, admin.describe_acls(anything).result())),
        "users": sorted(users.result()),
        "quotas": sorted(re.findall(r"[a-z_]+_byte_rate=\d+", said)),
        "topics": {
            name: {"partitions": len(each.partitions), **settings_of(admin, name)}
            for name, each in topics.items()
        },
    }
