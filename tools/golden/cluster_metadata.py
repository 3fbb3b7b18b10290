"""Metadata logs and snapshots of Apache Kafka with every kind of record that one node makes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tools.golden.scenarios import QUIET
from tools.peers.kafka import BEFORE_NEWEST, LAST_WITH_OLD_FORMATS, NEWEST, Kafka, run_tool

PEERS = (NEWEST, BEFORE_NEWEST, LAST_WITH_OLD_FORMATS)
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "metadata.log.max.snapshot.interval.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
METADATA = "__cluster_metadata-0"


def write(work: Path, kept: Path) -> dict[str, Any]:
    """Let each release write a metadata log; what 4.x's dump tool says of each file."""
    told: dict[str, Any] = {}
    for peer in PEERS:
        kafka = Kafka(work / peer, peer=peer, settings=SETTINGS)
        with kafka:
            live(kafka)
        with kafka:
            _live_on(kafka)
        release = ".".join(kafka.version.split(".")[:2])
        shutil.copytree(kafka.log_dir / METADATA, kept / release / METADATA)
        shutil.copy2(kafka.log_dir / "meta.properties", kept / release)
        for path in sorted((kafka.log_dir / METADATA).iterdir()):
            if path.suffix in (".log", ".checkpoint"):
                told[f"{release}/{METADATA}/{path.name}"] = records(path)
    return told


def records(path: Path) -> list[list[Any]]:
    """Type, version and fields of each record as Kafka's dump tool prints it."""
    arguments = ("--cluster-metadata-decoder", "--skip-record-metadata", "--files", str(path))
    done = run_tool("dump", *arguments)
    rows = []
    for line in done.stdout.decode().splitlines():
        before, is_record, payload = line.partition("payload: ")
        if not is_record or before not in ("| ", "") or not payload.startswith('{"type"'):
            continue
        said = json.loads(payload)
        rows.append([said["type"], said["version"], said["data"]])
    return rows


def live(kafka: Kafka) -> None:
    """Have it write every kind of record that one node makes."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    topics = [
        NewTopic("plain", 1, 1),
        NewTopic("settings", 3, 1, config={"retention.ms": "123456", "cleanup.policy": "compact"}),
        NewTopic("goes", 2, 1, config={"retention.ms": "1"}),
    ]
    _done(admin.create_topics(topics))
    _done(admin.delete_topics(["goes"]))
    _done(admin.create_topics([NewTopic("goes", 1, 1)]))
    _done(admin.create_partitions([NewPartitions("plain", 4)]))
    change = ConfigResource(
        "topic",
        "settings",
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    _done(admin.incremental_alter_configs([change]))
    kafka.tool(
        "configs", "--alter", "--add-config", "horolog.note=kept", "--entity-type", "brokers",
        "--entity-default",
    )  # fmt: skip
    acls = [
        AclBinding(
            ResourceType.TOPIC, name, ResourcePatternType.LITERAL, "User:alice", "*",
            AclOperation.READ, AclPermissionType.ALLOW,
        )
        for name in ("plain", "settings")
    ]  # fmt: skip
    _done(admin.create_acls(acls))
    sha = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for user in ("alice", "bob"):
        upsert = UserScramCredentialUpsertion(user, sha, b"secret", b"salt of twelve")
        _done(admin.alter_user_scram_credentials([upsert]))
    kafka.tool(
        "configs", "--alter", "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048",
        "--entity-type", "users", "--entity-name", "alice",
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, **QUIET})
    producer.produce("plain", b"value")
    producer.flush()


def _live_on(kafka: Kafka) -> None:
    """In the next leader epoch."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    gone = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)
    _done(admin.alter_user_scram_credentials([gone]))
    _done(admin.create_topics([NewTopic("later", 1, 1)]))


def _done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result()
