"""Requests of principals that have one right each, for answers with and without it.

Each principal has a topic, a group and a transactional id of its own, so that what one deletes is
there for the others. Run against horolog and against Apache Kafka (tests/interop).
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from batches import numbered_batch
from patience import eventually
from raw_connection import RawConnection
from secrets_kept import password

from horolog.wire import AclOperation, AclPattern, AclPermission, AclResource, ApiKey

TOPIC, GROUP, CLUSTER, TRANSACTION = (
    AclResource.TOPIC,
    AclResource.GROUP,
    AclResource.CLUSTER,
    AclResource.TRANSACTIONAL_ID,
)
LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
ADMIN = "admin"
PASSWORD = password


class Right(NamedTuple):
    """A right of a principal; `#` in a name stands for the principal's number."""

    kind: AclResource
    name: str
    operation: AclOperation
    pattern: AclPattern = LITERAL
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    principal: str = ""
    """Another one than the principal itself."""

    @property
    def title(self) -> str:
        no = "" if self.permission is AclPermission.ALLOW else "no-"
        star = "*" if self.pattern is PREFIXED else ""
        place = "" if self.host == "*" else f"@{self.host}"
        whose = self.principal and f"{self.principal}-"
        return f"{no}{whose}{self.operation.name}-{self.kind.name}:{self.name}{star}{place}"


_OP = AclOperation
_OF_TOPICS = (
    *(_OP.ALL, _OP.READ, _OP.WRITE, _OP.CREATE, _OP.DELETE, _OP.ALTER, _OP.DESCRIBE),
    *(_OP.DESCRIBE_CONFIGS, _OP.ALTER_CONFIGS),
)
_OF_CLUSTER = (
    *(_OP.ALL, _OP.CREATE, _OP.ALTER, _OP.DESCRIBE, _OP.CLUSTER_ACTION, _OP.DESCRIBE_CONFIGS),
    *(_OP.ALTER_CONFIGS, _OP.IDEMPOTENT_WRITE),
)
_OF_GROUPS = (
    *(_OP.ALL, _OP.READ, _OP.DESCRIBE, _OP.DELETE, _OP.DESCRIBE_CONFIGS),
    _OP.ALTER_CONFIGS,
)
_ALL = [
    Right(TOPIC, "t#", _OP.ALL),
    Right(GROUP, "g#", _OP.ALL),
    Right(TRANSACTION, "x#", _OP.ALL),
]


def _denied(
    kind: AclResource, name: str, operation: AclOperation, host: str = "*", principal: str = ""
) -> Right:
    return Right(kind, name, operation, LITERAL, AclPermission.DENY, host, principal)


_EVERYTHING = [
    *(Right(kind, "*", _OP.ALL) for kind in (TOPIC, GROUP, TRANSACTION)),
    Right(CLUSTER, "kafka-cluster", _OP.ALL),
]
_HERE, _ELSEWHERE = "127.0.0.1", "10.0.0.1"


PRINCIPALS: list[list[Right]] = [
    [],
    *([Right(TOPIC, "t#", operation)] for operation in _OF_TOPICS),
    *([Right(GROUP, "g#", operation)] for operation in _OF_GROUPS),
    *([Right(TRANSACTION, "x#", operation)] for operation in (_OP.ALL, _OP.WRITE, _OP.DESCRIBE)),
    *([Right(CLUSTER, "kafka-cluster", operation)] for operation in _OF_CLUSTER),
    [Right(TOPIC, "*", _OP.READ)],
    [Right(TOPIC, "t", _OP.WRITE, PREFIXED)],
    [Right(TOPIC, "t#", _OP.WRITE), Right(TRANSACTION, "x#", _OP.WRITE)],
    [Right(TOPIC, "t#", _OP.READ), Right(GROUP, "g#", _OP.READ)],
    [
        Right(TOPIC, "t#", _OP.READ),
        Right(GROUP, "g#", _OP.READ),
        Right(TRANSACTION, "x#", _OP.WRITE),
    ],
    _ALL,
    [*_ALL, _denied(TOPIC, "t#", _OP.READ)],
    [*_ALL, _denied(TOPIC, "*", _OP.DESCRIBE)],
    [*_ALL, _denied(GROUP, "g#", _OP.READ)],
    [*_ALL, _denied(TOPIC, "t#", _OP.ALL)],
    _EVERYTHING,
    [*_EVERYTHING, _denied(CLUSTER, "kafka-cluster", _OP.DESCRIBE)],
    [*_EVERYTHING, _denied(TOPIC, "t#", _OP.DESCRIBE), _denied(TRANSACTION, "x#", _OP.WRITE)],
    [Right(GROUP, "g", _OP.READ, PREFIXED), Right(TRANSACTION, "x", _OP.WRITE, PREFIXED)],
    [Right(TOPIC, "t#", _OP.ALL, host=_HERE), Right(GROUP, "g#", _OP.READ, host=_ELSEWHERE)],
    [*_ALL, _denied(TOPIC, "t#", _OP.READ, host=_ELSEWHERE)],
    [*_ALL, _denied(GROUP, "g#", _OP.DESCRIBE, host=_HERE)],
    [Right(TOPIC, "t#", _OP.READ, principal="User:*"), Right(GROUP, "g#", _OP.READ)],
    [*_ALL, _denied(TRANSACTION, "x#", _OP.ALL, principal="User:*")],
    [Right(TOPIC, "t#", _OP.ALTER), Right(CLUSTER, "kafka-cluster", _OP.ALTER_CONFIGS)],
    [Right(TOPIC, "t#", _OP.READ, principal="user:u#")],
]
"""The rights of each principal."""


def user(number: int) -> str:
    return f"u{number}"


def own(name: str, number: int) -> str:
    """A name of a principal."""
    return name.replace("#", f"{number:02}")


def creations(principals: list[list[Right]]) -> list[dict[str, Any]]:
    """The entries of all principals, for CreateAcls."""
    return [
        {
            "resource_type": right.kind,
            "resource_name": own(right.name, number),
            "resource_pattern_type": right.pattern,
            "principal": right.principal.replace("#", str(number)) or f"User:{user(number)}",
            "host": right.host,
            "operation": right.operation,
            "permission_type": right.permission,
        }
        for number, rights in enumerate(principals)
        for right in rights
    ]


class Question(NamedTuple):
    """A request of the matrix."""

    title: str
    key: ApiKey
    version: int
    fields: Mapping[str, Any]


def questions(number: int, topic_id: Any) -> Iterator[Question]:
    """Yield the requests of a principal, those that delete last.

    Args:
        topic_id: of its topic.
    """
    t, g, x, none = own("t#", number), own("g#", number), own("x#", number), f"z{number:02}"
    k = ApiKey
    batch = numbered_batch(1)
    partition = {"partition_index": 0}

    def q(title: str, api: ApiKey, version: int, /, **fields: Any) -> Question:
        return Question(title, api, version, fields)

    for name, which in ((t, ""), (none, " of none")):
        yield q(
            f"metadata{which}",
            *(k.METADATA, 12),
            topics=[{"name": name, "topic_id": None}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        yield q(
            f"produce{which}",
            *(k.PRODUCE, 9),
            acks=1,
            topic_data=[{"name": name, "partition_data": [{"index": 0, "records": batch}]}],
        )
        yield q(
            f"fetch{which}",
            *(k.FETCH, 12),
            topics=[{"topic": name, "partitions": [{"partition": 0, "fetch_offset": 0}]}],
        )
        yield q(
            f"list offsets{which}",
            *(k.LIST_OFFSETS, 7),
            topics=[{"name": name, "partitions": [{**partition, "timestamp": -1}]}],
        )
        yield q(
            f"epochs{which}",
            *(k.OFFSET_FOR_LEADER_EPOCH, 4),
            topics=[
                {
                    "topic": name,
                    "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                }
            ],
        )
        yield q(
            f"producers{which}",
            *(k.DESCRIBE_PRODUCERS, 0),
            topics=[{"name": name, "partition_indexes": [0]}],
        )
        yield q(
            f"partitions{which}",
            *(k.CREATE_PARTITIONS, 3),
            topics=[{"name": name, "count": 2, "assignments": None}],
            validate_only=True,
        )
        yield q(
            f"describe configs{which}",
            *(k.DESCRIBE_CONFIGS, 4),
            resources=[
                {"resource_type": 2, "resource_name": name, "configuration_keys": ["retention.ms"]}
            ],
        )
        yield q(
            f"alter configs{which}",
            *(k.INCREMENTAL_ALTER_CONFIGS, 1),
            resources=[
                {
                    "resource_type": 2,
                    "resource_name": name,
                    "configs": [{"name": "retention.ms", "config_operation": 0, "value": "99999"}],
                }
            ],
            validate_only=True,
        )
        yield q(
            f"commit{which}",
            *(k.OFFSET_COMMIT, 8),
            group_id=g,
            topics=[{"name": name, "partitions": [{**partition, "committed_offset": 1}]}],
        )
        yield q(
            f"offsets{which}",
            *(k.OFFSET_FETCH, 8),
            groups=[{"group_id": g, "topics": [{"name": name, "partition_indexes": [0]}]}],
        )
    unknown = UUID(int=7)
    for title, an_id in (("by id", topic_id), ("by unknown id", unknown)):
        partitions = [{"partition": 0, "fetch_offset": 0}]
        yield q(
            f"fetch {title}", k.FETCH, 13, topics=[{"topic_id": an_id, "partitions": partitions}]
        )
    yield q(
        "fetch of a replica",
        *(k.FETCH, 12),
        replica_id=99,
        topics=[{"topic": t, "partitions": [{"partition": 0, "fetch_offset": 0}]}],
    )
    in_transaction = numbered_batch(
        1, producer_id=999_999, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    for name in (t, none):
        yield q(
            f"produce in a transaction{'' if name == t else ' to none'}",
            *(k.PRODUCE, 9),
            transactional_id=x,
            acks=-1,
            topic_data=[
                {"name": name, "partition_data": [{"index": 0, "records": in_transaction}]}
            ],
        )
    yield q("metadata of all", k.METADATA, 12, topics=None)
    yield q("metadata by unknown id", k.METADATA, 12, topics=[{"name": None, "topic_id": unknown}])
    yield q("metadata by id", k.METADATA, 12, topics=[{"name": None, "topic_id": topic_id}])
    yield q(
        "metadata that creates",
        *(k.METADATA, 12),
        topics=[{"name": f"{t}-made", "topic_id": None}],
        allow_auto_topic_creation=True,
    )
    for asked_for in (t, none, None):
        yield q(
            f"partitions of {asked_for and asked_for.replace(t, 'one')}",
            *(k.DESCRIBE_TOPIC_PARTITIONS, 0),
            topics=[{"name": asked_for}] if asked_for else [],
            response_partition_limit=2000,
            cursor=None,
        )
    yield q(
        "metadata with bits", k.METADATA, 10, topics=[], include_cluster_authorized_operations=True
    )
    yield q(
        "cluster",
        k.DESCRIBE_CLUSTER,
        1,
        endpoint_type=1,
        include_cluster_authorized_operations=True,
    )
    yield q(
        "create",
        *(k.CREATE_TOPICS, 7),
        topics=[{"name": f"{t}-new"}, {"name": t}],
        validate_only=True,
    )
    yield q("coordinator", k.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[g])
    yield q("old coordinator", k.FIND_COORDINATOR, 3, key_type=0, key=g)
    yield q("coordinator of x", k.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[x])
    yield q(
        "join",
        k.JOIN_GROUP,
        5,
        group_id=g,
        session_timeout_ms=1,
        protocol_type="consumer",
        rebalance_timeout_ms=1,
        protocols=[{"name": "range", "metadata": b""}],
    )
    yield q("sync", k.SYNC_GROUP, 3, group_id=g, member_id="m", generation_id=9)
    yield q("heartbeat", k.HEARTBEAT, 3, group_id=g, member_id="m", generation_id=9)
    yield q("leave", k.LEAVE_GROUP, 3, group_id=g, members=[{"member_id": "m"}])
    for title, names in (("", None), (" of topics", [t]), (" of none", [none])):
        yield q(
            f"consumer heartbeat{title}",
            *(k.CONSUMER_GROUP_HEARTBEAT, 1),
            group_id=g,
            member_id="unknown-member",
            member_epoch=9,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=-1,
            subscribed_topic_names=names,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=None,
        )
    yield q(
        "describe consumer group",
        *(k.CONSUMER_GROUP_DESCRIBE, 1),
        group_ids=[g],
        include_authorized_operations=True,
    )
    yield q("offsets of all", k.OFFSET_FETCH, 8, groups=[{"group_id": g, "topics": None}])
    yield q(
        "old offsets", k.OFFSET_FETCH, 5, group_id=g, topics=[{"name": t, "partition_indexes": [0]}]
    )
    yield q("describe group", k.DESCRIBE_GROUPS, 5, groups=[g], include_authorized_operations=True)
    yield q("list groups", k.LIST_GROUPS, 4)
    yield q("producer id", k.INIT_PRODUCER_ID, 4, transactional_id=None)
    yield q(
        "transactional id", k.INIT_PRODUCER_ID, 4, transactional_id=x, transaction_timeout_ms=9000
    )
    yield q(
        "add partitions",
        *(k.ADD_PARTITIONS_TO_TXN, 3),
        v3_and_below_transactional_id=x,
        v3_and_below_producer_id=999_999,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[{"name": t, "partitions": [0]}],
    )
    yield q(
        "add partitions of several",
        *(k.ADD_PARTITIONS_TO_TXN, 3),
        v3_and_below_transactional_id=x,
        v3_and_below_producer_id=999_999,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[{"name": t, "partitions": [0]}, {"name": none, "partitions": [0]}],
    )
    yield q(
        "add partitions of an internal topic",
        *(k.ADD_PARTITIONS_TO_TXN, 3),
        v3_and_below_transactional_id=x,
        v3_and_below_producer_id=999_999,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[{"name": "__consumer_offsets", "partitions": [0]}],
    )
    yield q(
        "add partitions as a broker",
        *(k.ADD_PARTITIONS_TO_TXN, 5),
        transactions=[
            {
                "transactional_id": x,
                "producer_id": 999_999,
                "producer_epoch": 0,
                "verify_only": True,
                "topics": [{"name": t, "partitions": [0]}],
            }
        ],
    )
    yield q(
        "add offsets",
        k.ADD_OFFSETS_TO_TXN,
        3,
        transactional_id=x,
        producer_id=999_999,
        producer_epoch=0,
        group_id=g,
    )
    yield q(
        "commit in transaction",
        *(k.TXN_OFFSET_COMMIT, 3),
        transactional_id=x,
        group_id=g,
        producer_id=999_999,
        producer_epoch=0,
        generation_id=-1,
        topics=[{"name": t, "partitions": [{**partition, "committed_offset": 1}]}],
    )
    yield q(
        "end",
        k.END_TXN,
        3,
        transactional_id=x,
        producer_id=999_999,
        producer_epoch=0,
        committed=True,
    )
    yield q("describe transactions", k.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[x])
    yield q("list transactions", k.LIST_TRANSACTIONS, 0)
    yield q(
        "acls",
        k.DESCRIBE_ACLS,
        3,
        resource_type_filter=4,
        pattern_type_filter=1,
        operation=1,
        permission_type=1,
    )
    yield q(
        "make an acl",
        *(k.CREATE_ACLS, 3),
        creations=[
            {
                "resource_type": 2,
                "resource_name": "unused",
                "resource_pattern_type": 3,
                "principal": "User:nobody",
                "host": "*",
                "operation": 3,
                "permission_type": 3,
            }
        ],
    )
    yield q(
        "delete acls",
        *(k.DELETE_ACLS, 3),
        filters=[
            {
                "resource_type_filter": 2,
                "resource_name_filter": "no such",
                "operation": 1,
                "pattern_type_filter": 3,
                "permission_type": 1,
            }
        ],
    )
    yield q("quotas", k.DESCRIBE_CLIENT_QUOTAS, 1, components=[])
    yield q(
        "alter quotas",
        *(k.ALTER_CLIENT_QUOTAS, 1),
        entries=[
            {
                "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                "ops": [{"key": "producer_byte_rate", "value": 9e9, "remove": False}],
            }
        ],
        validate_only=True,
    )
    yield q("users", k.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": "nobody"}])
    yield q(
        "alter users",
        k.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        deletions=[{"name": "nobody", "mechanism": 1}, {"name": "none", "mechanism": 9}],
    )
    yield q("log dirs", k.DESCRIBE_LOG_DIRS, 4, topics=[])
    yield q("elections", k.ELECT_LEADERS, 2, election_type=0, topic_partitions=[])
    yield q("reassign", k.ALTER_PARTITION_REASSIGNMENTS, 0, topics=[])
    yield q("reassignments", k.LIST_PARTITION_REASSIGNMENTS, 0, topics=None)
    yield q(
        "quorum",
        k.DESCRIBE_QUORUM,
        1,
        topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
    )
    yield q("resources", k.LIST_CONFIG_RESOURCES, 0)
    for kind, name in ((4, "1"), (8, "1"), (16, "m"), (32, g)):
        resource = {"resource_type": kind, "resource_name": name}
        yield q(
            f"describe {kind}",
            k.DESCRIBE_CONFIGS,
            4,
            resources=[{**resource, "configuration_keys": ["none"]}],
        )
    for kind, name, setting, value in (
        (2, t, "retention.ms", "99999"),
        (4, "", "log.retention.ms", "99999"),
        (16, "m", "interval.ms", "60000"),
        (32, g, "consumer.session.timeout.ms", "50000"),
    ):
        yield q(
            f"replace settings of {kind}",
            *(k.ALTER_CONFIGS, 2),
            resources=[
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [{"name": setting, "value": value}],
                }
            ],
            validate_only=True,
        )
        yield q(
            f"alter settings of {kind}",
            *(k.INCREMENTAL_ALTER_CONFIGS, 1),
            resources=[
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [{"name": setting, "config_operation": 0, "value": value}],
                }
            ],
            validate_only=True,
        )
    yield q(
        "alter a logger",
        *(k.INCREMENTAL_ALTER_CONFIGS, 1),
        resources=[
            {
                "resource_type": 8,
                "resource_name": "1",
                "configs": [{"name": "no.such.logger", "config_operation": 0, "value": "INFO"}],
            }
        ],
        validate_only=True,
    )
    yield q(
        "alter a broker",
        *(k.INCREMENTAL_ALTER_CONFIGS, 1),
        resources=[
            {
                "resource_type": 4,
                "resource_name": "",
                "configs": [{"name": "log.retention.ms", "config_operation": 0, "value": "99999"}],
            }
        ],
        validate_only=True,
    )
    yield q(
        "markers",
        *(k.WRITE_TXN_MARKERS, 1),
        markers=[
            {
                "producer_id": 999_999,
                "producer_epoch": 0,
                "transaction_result": False,
                "topics": [{"name": none, "partition_indexes": [0]}],
                "coordinator_epoch": 0,
            }
        ],
    )
    yield q(
        "delete offsets",
        k.OFFSET_DELETE,
        0,
        group_id=g,
        topics=[{"name": t, "partitions": [partition]}],
    )
    yield q(
        "delete records",
        k.DELETE_RECORDS,
        2,
        topics=[{"name": t, "partitions": [{**partition, "offset": 0}]}],
    )
    yield q("delete group", k.DELETE_GROUPS, 2, groups_names=[g])
    yield q(
        "delete by unknown id", k.DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": unknown}]
    )
    yield q("delete by id", k.DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": topic_id}])
    yield q("delete", k.DELETE_TOPICS, 6, topics=[{"name": t, "topic_id": None}])
    yield q("delete none", k.DELETE_TOPICS, 6, topics=[{"name": none, "topic_id": None}])


_KEPT = (
    *("error_code", "partition_error_code", "topic_config_error_code", "name", "topic", "group_id"),
    *("topic_authorized_operations", "cluster_authorized_operations", "authorized_operations"),
    *("num_partitions", "replication_factor", "user", "transactional_id", "key", "topic_name"),
)


def told(answer: Any) -> Any:
    """What of an answer depends on rights: codes, names and bits."""
    if isinstance(answer, (list, tuple)) and not hasattr(answer, "_fields"):
        found = [told(one) for one in answer]
        return sorted((one for one in found if one), key=repr)
    said = {}
    for name in getattr(answer, "_fields", ()):
        value = getattr(answer, name)
        if name == "configs" and value:
            said[name] = "some"
        elif isinstance(value, (list, tuple)):
            if inner := told(value):
                said[name] = inner
        elif name in _KEPT and value not in (None, ""):
            said[name] = value
    return said


def login(connection: RawConnection, name: str) -> RawConnection:
    """Log in by PLAIN."""
    assert connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
    message = f"\0{name}\0{PASSWORD(name)}".encode()
    assert connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message).error_code == 0
    return connection


def jaas(count: int) -> str:
    """The login module of PLAIN with the administrator and the users of the matrix."""
    names = [ADMIN, *map(user, range(count))]
    users = " ".join(f'user_{name}="{PASSWORD(name)}"' for name in names)
    return (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{ADMIN}" password="{PASSWORD(ADMIN)}" {users};'
    )


def prepare(admin: RawConnection, principals: list[list[Right]]) -> dict[int, Any]:
    """Make the topics and entries; the ids of the topics by number."""
    names = [own("t#", number) for number in range(len(principals))]
    made = admin.ask(
        *(ApiKey.CREATE_TOPICS, 7),
        topics=[{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names],
        timeout_ms=30_000,
    )
    assert [one.error_code for one in made.topics] == [0] * len(names)
    answer = admin.ask(ApiKey.CREATE_ACLS, 3, creations=creations(principals))
    assert all(one.error_code == 0 for one in answer.results)
    ids = {one.name: one.topic_id for one in made.topics}
    return {number: ids[name] for number, name in enumerate(names)}


def asked(connection: RawConnection, number: int, topic_id: Any) -> dict[str, Any]:
    """What a principal is told, by request."""
    return {
        one.title: told(connection.ask(one.key, one.version, **one.fields))
        for one in questions(number, topic_id)
    }


AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LISTENER = "USERS"
_NOT_READY = (14, 15, 16)


def settings(super_users: str) -> dict[str, str]:
    """Settings of a broker, Kafka's or ours, with the users of the matrix on one listener."""
    name = f"listener.name.{LISTENER.lower()}"
    return {
        "authorizer.class.name": AUTHORIZER,
        "super.users": super_users,
        f"{name}.sasl.enabled.mechanisms": "PLAIN",
        f"{name}.plain.sasl.jaas.config": jaas(len(PRINCIPALS)),
    }


OURS = {
    **settings(f"User:{ADMIN}"),
    "listeners": f"{LISTENER}://127.0.0.1:0",
    "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Settings of a broker of ours."""


def told_by(address: str) -> dict[int, dict[str, Any]]:
    """What each principal is told, with `#` for its number in its own names."""
    with login(RawConnection(address), ADMIN) as connection:
        ids = prepare(connection, [*PRINCIPALS, []])
        last = len(PRINCIPALS)  # has a topic for the questions before
        for _ in range(60):
            first = repr(asked(connection, last, ids[last]))
            if not any(f"'error_code': {code}}}" in first for code in _NOT_READY):
                break
            time.sleep(1)
    found = {}
    for number in range(len(PRINCIPALS)):
        with login(RawConnection(address), user(number)) as connection:
            given = asked(connection, number, ids[number])
            answers = json.dumps(given, sort_keys=True)
        deleted = [given[title]["responses"][0] for title in ("delete", "delete by id")]
        if any(one.get("error_code") == 0 for one in deleted):
            _await_deletion(address, own("t#", number))
        for name in ("t#", "g#", "x#", "z#"):
            answers = answers.replace(f'"{own(name, number)}', f'"{name}')
        found[number] = json.loads(answers)
    return found


def _await_deletion(address: str, topic: str) -> None:
    """Wait until a topic is in no list; Apache Kafka answers before it is gone."""
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    with login(RawConnection(address), ADMIN) as connection:
        assert eventually(
            lambda: connection.ask(ApiKey.METADATA, 9, **asked).topics[0].error_code == 3
        )


def by_title(number: int) -> str:
    """The rights of a principal, for people."""
    return f"{number}: {', '.join(right.title for right in PRINCIPALS[number]) or 'none'}"


OTHERWISE = {
    *("describe 16", "alter settings of 16", "replace settings of 16", "replace settings of 4"),
    "fetch of a replica",
}
"""Requests that horolog answers otherwise where they are allowed, as of client metrics."""
_DENIALS = (29, 30, 31, 53)


def _denials(answer: Any) -> list[int]:
    """The errors of a right that is lacked."""
    return [code for code in _DENIALS if re.search(rf"error_code': {code}\b", repr(answer))]


def _is_as(mine: Any, theirs: Any, title: str) -> bool:
    return bool(mine == theirs or (title in OTHERWISE and _denials(mine) == _denials(theirs)))


def kept(told: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """What is kept of answers: all of the principal without rights, of others what differs."""
    first = told[0]
    return {
        by_title(number): {
            title: answer
            for title, answer in answers.items()
            if not number or answer != first[title]
        }
        for number, answers in told.items()
    }


def whole_of(golden: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Kept answers as `told_by` gives them."""
    first = golden[by_title(0)]
    return {number: {**first, **golden[by_title(number)]} for number in range(len(PRINCIPALS))}


def differences(
    ours: Mapping[int, Mapping[str, Any]], theirs: Mapping[int, Mapping[str, Any]]
) -> list[str]:
    """Say where two brokers answer differently."""
    return [
        f"{by_title(number)}: {title}: {ours[number][title]}, Kafka: {told}"
        for number, answers in theirs.items()
        for title, told in answers.items()
        if not _is_as(ours[number][title], told, title)
    ]
