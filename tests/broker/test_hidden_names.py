"""What a client may not describe is answered with the bytes of what does not exist."""

from typing import Any
from uuid import UUID

import pytest
import rights_matrix as matrix
from every_request import requests
from raw_connection import RawConnection
from running_broker import RunningBroker, a_broker

from horolog.broker import served
from horolog.wire import QUESTIONS, SUPPORTED, ApiKey, Question, ResourceType

broker = a_broker(now_ms=None, scope="module", **matrix.OURS)
TOPIC, GROUP, TRANSACTION = 2, 3, 5
HIDDEN = {TOPIC: "hid", GROUP: "ghi", TRANSACTION: "xhi"}
MISSING = {TOPIC: "mis", GROUP: "gmi", TRANSACTION: "xmi"}
WITHOUT = [
    {TOPIC, GROUP, TRANSACTION},
    {TOPIC, GROUP},
    {TOPIC, TRANSACTION},
    {GROUP, TRANSACTION},
    {TOPIC},
    {GROUP},
    {TRANSACTION},
]
"""Kinds of resources with which each user may do nothing."""
KINDS = {ResourceType.TOPIC: TOPIC, ResourceType.GROUP: GROUP}
# An id tells that its topic is there, as in Kafka.
BY_ID = {ApiKey.PRODUCE: 13, ApiKey.FETCH: 13, ApiKey.OFFSET_COMMIT: 10, ApiKey.OFFSET_FETCH: 10}
BEFORE_A_LOGIN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
OF_NONE = {ApiKey.DELETE_TOPICS: TOPIC, ApiKey.DELETE_GROUPS: GROUP, ApiKey.OFFSET_DELETE: GROUP}


def renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: renamed(one, names) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [renamed(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


def names_of(kinds: dict[int, str], key: ApiKey) -> dict[str, str]:
    topic, group, transaction = kinds[TOPIC], kinds[GROUP], kinds[TRANSACTION]
    names = {"t": topic, "g": group, "simple": group, "x": transaction}
    of_none = OF_NONE.get(key)
    if of_none is not None:
        names["none"] = kinds[of_none]
    elif key is ApiKey.TXN_OFFSET_COMMIT:
        names["none"] = transaction
    return names


def entry(user: str, kind: int, name: str) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": 3,
        "principal": f"User:{user}",
        "host": "*",
        "operation": 2,
        "permission_type": 3,
    }


@pytest.fixture(scope="module")
def topic_id(broker: RunningBroker) -> UUID:
    """Make what is hidden, and give the users everything else."""
    with matrix.login(broker.connect(), matrix.ADMIN) as admin:
        topics = [{"name": HIDDEN[TOPIC], "num_partitions": 1, "replication_factor": 1}]
        made = admin.ask(ApiKey.CREATE_TOPICS, 7, topics=topics).topics[0]
        committed = [{"partition_index": 0, "committed_offset": 0}]
        admin.ask(
            *(ApiKey.OFFSET_COMMIT, 9),
            group_id=HIDDEN[GROUP],
            topics=[{"name": HIDDEN[TOPIC], "partitions": committed}],
        )
        admin.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=HIDDEN[TRANSACTION])
        entries = [
            entry(matrix.user(number), kind, names[kind])
            for number, kinds in enumerate(WITHOUT)
            for kind in HIDDEN.keys() - kinds
            for names in (HIDDEN, MISSING)
        ]
        answer = admin.ask(ApiKey.CREATE_ACLS, 3, creations=entries)
        assert all(one.error_code == 0 for one in answer.results)
        found: UUID = made.topic_id
        return found


def answered(connection: RawConnection, key: ApiKey, version: int, fields: Any) -> bytes:
    connection.socket.sendall(connection.packed(key, version, fields))
    frame = connection.exactly(int.from_bytes(connection.exactly(4), "big"))
    return frame[4:]


@pytest.mark.parametrize("number", range(len(WITHOUT)), ids=lambda it: str(WITHOUT[it]))
@pytest.mark.parametrize(
    "key", [it for it in served() if it not in BEFORE_A_LOGIN], ids=lambda it: it.title
)
def test_a_hidden_name_is_answered_as_a_missing_one(
    key: ApiKey, number: int, broker: RunningBroker, topic_id: UUID
) -> None:
    kinds = WITHOUT[number]
    missing = HIDDEN | {kind: MISSING[kind] for kind in kinds}
    with matrix.login(broker.connect(), matrix.user(number)) as connection:
        for version in range(SUPPORTED[key].min, BY_ID.get(key, SUPPORTED[key].max + 1)):
            fields = requests(topic_id)[key]
            given = fields(version) if callable(fields) else fields
            of_hidden, of_missing = (
                renamed(given, names_of(names, key)) for names in (HIDDEN, missing)
            )
            if of_hidden == of_missing:
                continue
            said = answered(connection, key, version, of_hidden)
            for kind in kinds:
                said = said.replace(HIDDEN[kind].encode(), MISSING[kind].encode())
            assert said == answered(connection, key, version, of_missing), version


@pytest.mark.parametrize(
    "question", [it for it in QUESTIONS if it.about in KINDS], ids=lambda it: it.name
)
def test_a_question_about_a_hidden_name_is_answered_as_about_a_missing_one(
    question: Question[Any, Any], broker: RunningBroker, topic_id: UUID
) -> None:
    kind = KINDS[question.about]
    with matrix.login(broker.connect(), matrix.user(0)) as connection:
        said = []
        for name in (HIDDEN[kind], MISSING[kind]):
            asked = {"resource_type": question.about, "resource_name": name}
            keys = [question.name, f"{question.name}/{{}}", "retention.ms"]
            resources = [{**asked, "configuration_keys": keys}]
            said.append(answered(connection, ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources}))
    assert said[0].replace(HIDDEN[kind].encode(), MISSING[kind].encode()) == said[1]
