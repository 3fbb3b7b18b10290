"""A shadow of an Apache Kafka has its access control entries and quotas."""

from pathlib import Path
from typing import Any

import pytest
import rights_matrix as matrix
from command_runner import run_command
from patience import eventually
from running_broker import MakeBroker, RunningBroker
from tools.peers.kafka import Kafka

from horolog.client import Client
from horolog.rights import AclEntry, AclFilter
from horolog.wire import FOLLOWING, AclOperation, AclPattern, AclPermission, AclResource

SETTINGS = matrix.settings(f"User:{matrix.ADMIN};User:ANONYMOUS")
ALICE = frozenset({("user", "alice")})
ENTRIES = [
    AclEntry(
        AclResource.TOPIC,
        "t",
        AclPattern.PREFIXED,
        "User:alice",
        "10.0.0.0/8",
        AclOperation.READ,
        AclPermission.ALLOW,
    ),
    AclEntry(
        AclResource.GROUP,
        "*",
        AclPattern.LITERAL,
        "User:*",
        "*",
        AclOperation.READ,
        AclPermission.DENY,
    ),
]


def logs_in(path: Path, name: str) -> tuple[dict[str, str], Path]:
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{name}" password="{matrix.PASSWORD(name)}";'
        ),
    }
    file = path / f"{name}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in security.items()))
    return security, file


def quotas(client: Client) -> dict[Any, float]:
    return {(its.entity, its.key): its.value for its in client.quotas.list()}


def notes(broker: RunningBroker) -> str:
    following = broker.client.ask(FOLLOWING)
    assert following is not None
    return "\n".join(following.notes)


@pytest.mark.timeout(900)
def test_a_shadow_follows_rights_and_quotas_of_a_kafka(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    kafka = Kafka(
        tmp_path / "kafka",
        settings=SETTINGS,
        listeners={matrix.LISTENER: "SASL_PLAINTEXT"},
        format_arguments=("--add-scram", "SCRAM-SHA-512=[name=alice,password=pencil]"),
    )
    _, u0 = logs_in(tmp_path, "u0")
    admin_security, _ = logs_in(tmp_path, matrix.ADMIN)
    (tmp_path / "shadow").mkdir()
    with kafka, Client(kafka.address_of(matrix.LISTENER), security=admin_security) as admin:
        admin.create_topics({"t": 1})
        allowed = ("--add", "--allow-principal", "User:u0", "--cluster", "--topic", "*")
        for operation in ("Describe", "DescribeConfigs"):
            kafka.tool("acls", *allowed, "--operation", operation)
        for_u0 = admin.acls.list()
        shadow = make_broker(
            log_dir=tmp_path / "shadow",
            horolog_follow=kafka.address_of(matrix.LISTENER),
            horolog_follow_config=str(u0),
            authorizer_class_name=matrix.AUTHORIZER,
            super_users="User:ANONYMOUS",
        )
        admin.acls.add(ENTRIES)
        users = ("--entity-type", "users", "--entity-name", "alice")
        kafka.tool("configs", "--alter", *users, "--add-config", "producer_byte_rate=1000")
        assert eventually(lambda: shadow.client.acls.list() == sorted([*ENTRIES, *for_u0]))
        assert eventually(lambda: quotas(shadow.client) == {(ALICE, "producer_byte_rate"): 1000.0})
        assert eventually(lambda: notes(shadow).endswith("users add`: alice"))
        asked = ("acls", "explain", "User:bob", "read", "group:g", "-b", shadow.address)
        assert "deny" in run_command(*asked).out

        admin.acls.remove(AclFilter(principal="User:alice"))
        kafka.tool("configs", "--alter", *users, "--delete-config", "producer_byte_rate")
        assert eventually(lambda: ENTRIES[0] not in shadow.client.acls.list())
        assert eventually(lambda: quotas(shadow.client) == {})

        before = shadow.client.acls.list()
        admin.acls.remove(AclFilter(principal="User:u0", resource_type=AclResource.CLUSTER))
        assert eventually(lambda: "needs DESCRIBE on the cluster" in notes(shadow))
        assert shadow.client.acls.list() == before
        address = kafka.address_of(matrix.LISTENER)
        refused = run_command("users", "list", "-b", address, "--command-config", str(u0))
        assert "needs DESCRIBE on the cluster" in refused.err, "Kafka itself does not answer"
