"""Access control entries over the protocol: made, found, deleted, kept, and what they end."""

import logging
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import rights_matrix as matrix
from raw_connection import RawConnection, fetch_fields, produce_fields
from running_broker import MakeBroker, RunningBroker

from horolog.groups import GroupChange, OffsetRow
from horolog.history import AskGroupHistory
from horolog.record import LogRecord, build_batch
from horolog.schemas.group_records import AssignedTopic, CurrentKey, CurrentValue
from horolog.wire import HISTORY_GROUP, ApiKey, ResourceType

DESCRIBE, CREATE, DELETE = ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS
TOPIC, GROUP, CLUSTER, TRANSACTION = 2, 3, 4, 5
LITERAL, PREFIXED, MATCH, ANY = 3, 4, 2, 1
READ, WRITE, ALLOW, DENY = 3, 4, 3, 2
SETTINGS = {**matrix.OURS, "connection.failed.authentication.delay.ms": "0"}
READER = 0  # of the users of the matrix


def entry(name: str = "t", operation: int = READ, **more: Any) -> dict[str, Any]:
    return {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": f"User:{matrix.user(READER)}",
        "host": "*",
        "operation": operation,
        "permission_type": ALLOW,
        **more,
    }


def which(**more: Any) -> dict[str, Any]:
    """A filter of all entries, or of some."""
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **more,
    }


def create(connection: RawConnection, *entries: dict[str, Any]) -> list[int]:
    answer = connection.ask(CREATE, 3, creations=entries)
    return [one.error_code for one in answer.results]


def names(connection: RawConnection, **more: Any) -> list[str]:
    answer = connection.ask(DESCRIBE, 3, **which(**more))
    assert answer.error_code == 0
    return [resource.resource_name for resource in answer.resources for _ in resource.acls]


def admin(broker: RunningBroker) -> RawConnection:
    return matrix.login(broker.connect(), matrix.ADMIN)


@pytest.fixture
def broker(make_broker: MakeBroker) -> RunningBroker:
    broker = make_broker(**SETTINGS)
    with admin(broker) as connection:
        topics = [{"name": "t", "num_partitions": 1, "replication_factor": 1}]
        assert connection.ask(ApiKey.CREATE_TOPICS, 7, topics=topics).topics[0].error_code == 0
    return broker


@pytest.fixture
def connection(broker: RunningBroker) -> Iterator[RawConnection]:
    with admin(broker) as connection:
        yield connection


@pytest.fixture
def reader(broker: RunningBroker) -> Iterator[RawConnection]:
    with matrix.login(broker.connect(), matrix.user(READER)) as connection:
        yield connection


def looked_up(connection: RawConnection) -> int:
    """The error of a lookup in the topic."""
    partitions = [{"partition_index": 0, "timestamp": -1}]
    answer = connection.ask(
        ApiKey.LIST_OFFSETS, 7, topics=[{"name": "t", "partitions": partitions}]
    )
    return int(answer.topics[0].partitions[0].error_code)


def test_an_entry_counts_at_the_next_request_and_no_more_when_it_is_deleted(
    connection: RawConnection, reader: RawConnection
) -> None:
    assert looked_up(reader) == 29
    assert create(connection, entry()) == [0]
    assert looked_up(reader) == 0
    answer = connection.ask(DELETE, 3, filters=[which(resource_name_filter="t")])
    (deleted,) = answer.filter_results[0].matching_acls
    assert (deleted.resource_name, deleted.principal) == ("t", f"User:{matrix.user(READER)}")
    assert looked_up(reader) == 29


def test_a_repeated_commit_is_refused_once_the_right_is_taken(
    connection: RawConnection, reader: RawConnection
) -> None:
    """Its answer is remembered by the connection."""
    group = entry("g", resource_type=GROUP)
    assert create(connection, entry(), group) == [0, 0]

    def commit(offset: int) -> int:
        partitions = [{"partition_index": 0, "committed_offset": offset}]
        answer = reader.ask(
            ApiKey.OFFSET_COMMIT, 8, group_id="g", topics=[{"name": "t", "partitions": partitions}]
        )
        return int(answer.topics[0].partitions[0].error_code)

    assert [commit(offset) for offset in range(6)] == [0] * 6
    connection.ask(DELETE, 3, filters=[which(resource_type_filter=GROUP)])
    assert commit(7) == 30
    assert create(connection, group) == [0]
    connection.ask(DELETE, 3, filters=[which(resource_type_filter=TOPIC)])
    assert commit(8) == 29


def test_a_fetch_session_is_asked_again(connection: RawConnection, reader: RawConnection) -> None:
    create(connection, entry())
    topics = [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0}]}]
    first = reader.ask(ApiKey.FETCH, 12, session_epoch=0, topics=topics)
    assert (first.error_code, first.responses[0].partitions[0].error_code) == (0, 0)
    connection.ask(DELETE, 3, filters=[which()])
    again = reader.ask(ApiKey.FETCH, 12, session_id=first.session_id, session_epoch=1)
    assert again.responses[0].partitions[0].error_code == 29


def test_a_fetch_that_waits_gets_nothing_that_came_after_the_right_was_taken(
    broker: RunningBroker, connection: RawConnection, reader: RawConnection
) -> None:
    create(connection, entry())
    reader.send(ApiKey.FETCH, 12, **fetch_fields("t", {0: 0}, max_wait_ms=60_000))
    assert reader.is_silent(0.05)
    connection.ask(DELETE, 3, filters=[which()])
    batch = build_batch([LogRecord(1_700_000_000_000, None, b"not for the reader")])
    connection.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: batch}))
    _, answer = reader.receive()
    (partition,) = answer.responses[0].partitions
    assert (partition.error_code, partition.records) in ((29, None), (29, b""))


def test_every_kind_and_operation_is_kept_by_kafka_s_number(connection: RawConnection) -> None:
    named = {CLUSTER: "kafka-cluster"}
    made = [
        entry(named.get(kind, "t"), operation, resource_type=kind, permission_type=permission)
        for kind in range(TOPIC, 8)
        for operation in range(2, 16)
        for permission in (DENY, ALLOW)
    ]
    made += [
        entry(named.get(kind, "t"), resource_type=kind, resource_pattern_type=PREFIXED)
        for kind in range(TOPIC, 8)
    ]
    assert set(create(connection, *made)) == {0}
    answer = connection.ask(DESCRIBE, 3, **which())
    found = {
        (it.resource_type, it.pattern_type, it.resource_name, one.operation, one.permission_type)
        for it in answer.resources
        for one in it.acls
    }
    fields = ("resource_type", "resource_pattern_type", "resource_name", "operation")
    assert found == {(*(one[it] for it in fields), one["permission_type"]) for one in made}


def test_an_entry_that_is_there_is_made_once(connection: RawConnection) -> None:
    assert create(connection, entry(), entry(), entry("u")) == [0, 0, 0]
    assert create(connection, entry()) == [0]
    assert names(connection) == ["t", "u"]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"resource_name": ""}, 42),
        ({"resource_name": "", "resource_pattern_type": PREFIXED}, 42),
        ({"resource_type": CLUSTER}, 42),
        ({"principal": "nobody"}, 42),
        ({"host": ""}, 42),
        ({"host": "10.0.0.0/8"}, 35),
    ],
)
def test_a_wrong_entry_does_not_keep_its_neighbours(
    connection: RawConnection, wrong: dict[str, Any], code: int
) -> None:
    assert create(connection, entry("a"), entry(**wrong), entry("b")) == [0, code, 0]
    assert names(connection) == ["a", "b"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": ANY},
        {"resource_pattern_type": MATCH},
        {"resource_pattern_type": ANY},
        {"operation": ANY},
        {"permission_type": ANY},
    ],
)
def test_an_entry_of_a_filter_s_number_fails_the_request(
    connection: RawConnection, wrong: dict[str, Any]
) -> None:
    assert create(connection, entry("a"), entry(**wrong)) == [-1, -1]
    assert names(connection) == []


def test_the_number_0_closes_the_connection(broker: RunningBroker) -> None:
    asked: list[tuple[ApiKey, dict[str, Any]]] = [
        (CREATE, {"creations": [entry("a"), entry(operation=0)]}),
        (DESCRIBE, which(operation=0)),
        (DELETE, {"filters": [which(), which(pattern_type_filter=0)]}),
    ]
    for key, fields in asked:
        with admin(broker) as connection:
            connection.send(key, 3, **fields)
            assert connection.is_closed(), key
    with admin(broker) as connection:
        assert names(connection) == []


@pytest.mark.parametrize("number", [99, -1])
def test_other_unknown_numbers_fail_their_entry_or_filter_alone(
    connection: RawConnection, number: int
) -> None:
    numbers = ("resource_type", "resource_pattern_type", "operation", "permission_type")
    wrong = [entry(**{name: number}) for name in numbers]
    assert create(connection, entry("a"), *wrong, entry("b")) == [0, 42, 42, 42, 42, 0]
    filters = [
        which(**{name: number})
        for name in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
    ]
    assert [names(connection, **one) for one in filters] == [[]] * 4
    answer = connection.ask(DELETE, 3, filters=[*filters, which(resource_name_filter="a")])
    told = [(it.error_code, len(it.matching_acls)) for it in answer.filter_results]
    assert told == [(42, 0)] * 4 + [(0, 1)]
    assert names(connection) == ["b"]


def test_filters_find_what_they_say(connection: RawConnection) -> None:
    prefix = entry("t", resource_pattern_type=PREFIXED)
    create(connection, entry(), prefix, entry("*"), entry("tx"), entry("g", resource_type=GROUP))
    applies = {"resource_name_filter": "tx", "pattern_type_filter": MATCH}
    assert names(connection, resource_type_filter=TOPIC, **applies) == ["*", "t", "tx"]
    assert names(connection, resource_name_filter="t") == ["t", "t"]
    assert names(connection, resource_name_filter="t", pattern_type_filter=PREFIXED) == ["t"]
    assert names(connection, principal_filter="User:nobody") == []


def test_a_filter_that_takes_what_an_earlier_one_deletes_lists_it_too(
    connection: RawConnection,
) -> None:
    create(connection, entry())
    answer = connection.ask(DELETE, 3, filters=[which(), which(), which(operation=WRITE)])
    assert [len(one.matching_acls) for one in answer.filter_results] == [1, 1, 0]
    assert names(connection) == []


@pytest.mark.parametrize("crash", [False, True])
def test_entries_outlive_a_stop_and_a_crash(broker: RunningBroker, crash: bool) -> None:
    with admin(broker) as connection:
        create(connection, entry(), entry("gone"), entry("*", permission_type=DENY))
        connection.ask(DELETE, 3, filters=[which(resource_name_filter="gone")])
    broker.restart(crash=crash)
    with admin(broker) as connection:
        assert names(connection) == ["*", "t"]


def test_many_entries_come_and_go(connection: RawConnection) -> None:
    many = [entry(f"topic-{number}") for number in range(3_000)]
    assert set(create(connection, *many)) == {0}
    assert len(names(connection)) == 3_000
    answer = connection.ask(DELETE, 3, filters=[which()] * 3)
    assert [len(one.matching_acls) for one in answer.filter_results] == [3_000] * 3
    too_many = connection.ask(CREATE, 3, creations=[entry(str(n)) for n in range(10_001)])
    assert {one.error_code for one in too_many.results} == {44}
    assert names(connection) == []


def test_without_an_authorizer_there_are_no_entries(make_broker: MakeBroker) -> None:
    with make_broker().connect() as connection:
        assert connection.ask(DESCRIBE, 3, **which()).error_code == 54
        assert create(connection, entry()) == [54]
        (result,) = connection.ask(DELETE, 3, filters=[which()]).filter_results
        assert result.error_code == 54


def test_entries_keep_a_broker_without_an_authorizer_from_starting(broker: RunningBroker) -> None:
    with admin(broker) as connection:
        create(connection, entry())
    with pytest.raises(Exception, match="access control entries: 1"):
        broker.restart(authorizer_class_name="")
    broker.restart(authorizer_class_name="", horolog_open_listeners="*")
    broker.restart(authorizer_class_name=matrix.AUTHORIZER, horolog_open_listeners="")
    with admin(broker) as connection:
        assert names(connection) == ["t"]


@pytest.mark.parametrize("what", ["damaged", "gone"])
def test_a_broker_whose_entries_may_be_lost_does_not_start_unless_told(
    broker: RunningBroker, what: str
) -> None:
    """A denial may be among them, and an entry that was removed may be back."""
    with admin(broker) as connection:
        create(connection, entry())
        create(connection, entry(permission_type=DENY))
    broker.stop()
    (file,) = (broker.log_dir / "__cluster_metadata-0").glob("*.log")
    if what == "gone":
        shutil.rmtree(file.parent)
    else:
        found = bytearray(file.read_bytes())
        found[-1] ^= 1
        file.write_bytes(found)
    for _ in range(2):
        with pytest.raises(Exception, match=r"serve --open.*horolog acls list"):
            broker.restart()
    broker.restart(horolog_open_listeners="*")
    with admin(broker) as connection:
        assert names(connection) == (["t"] if what == "damaged" else [])
        create(connection, entry(permission_type=DENY))
    broker.restart(horolog_open_listeners="")
    with admin(broker) as connection:
        assert set(names(connection)) == {"t"}


def test_hidden_topics_and_missing_ones_are_answered_alike(reader: RawConnection) -> None:
    """Their names have one length; nothing else may differ."""

    def told(name: str, key: ApiKey, version: int, **fields: Any) -> str:
        return repr(reader.ask(key, version, **fields)).replace(repr(name), "NAME")

    for name_of in (
        lambda name: (name, ApiKey.METADATA, 9, {"topics": [{"name": name}]}),
        lambda name: (
            name,
            ApiKey.DESCRIBE_CONFIGS,
            4,
            {
                "resources": [
                    {
                        "resource_type": TOPIC,
                        "resource_name": name,
                        "configuration_keys": ["horolog.refused", 'horolog.times/{"partition":0}'],
                    }
                ]
            },
        ),
        lambda name: (name, ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": name}]}),
    ):
        answers = []
        for name in ("t", "z"):
            name, key, version, fields = name_of(name)
            answers.append(told(name, key, version, **fields))
        assert answers[0] == answers[1]


def test_a_question_needs_its_own_right_instead_of_that_of_settings(
    connection: RawConnection, reader: RawConnection
) -> None:
    def asked(*keys: str) -> int:
        resource = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": keys}
        answer = reader.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
        return int(answer.results[0].error_code)

    create(connection, entry(operation=8))  # DESCRIBE
    assert asked("horolog.refused") == 0
    assert asked("retention.ms") == 29
    assert asked("horolog.refused", "retention.ms") == 29
    create(connection, entry(operation=10))  # DESCRIBE_CONFIGS
    assert asked("horolog.refused", "retention.ms") == 0


def test_answers_leave_out_what_the_asker_may_not_describe(
    connection: RawConnection, reader: RawConnection
) -> None:
    create(connection, entry("g", 8, resource_type=GROUP))
    partitions = [{"partition_index": 0, "committed_offset": 0}]
    connection.ask(
        ApiKey.OFFSET_COMMIT, 8, group_id="g", topics=[{"name": "t", "partitions": partitions}]
    )

    def lags(asking: RawConnection) -> str:
        resource = {
            "resource_type": 32,
            "resource_name": "g",
            "configuration_keys": ["horolog.group.lag"],
        }
        answer = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
        assert answer.results[0].error_code == 0
        return str(answer.results[0].configs[0].value)

    assert '["g","t",0,' in lags(connection)
    assert '"lags":[]' in lags(reader)


def begin_transaction(connection: RawConnection) -> None:
    """Leave a transaction open that has written to the topic."""
    producer = connection.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="secret-id")
    while producer.error_code in (14, 15, 51):  # the coordinator loads
        producer = connection.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="secret-id")
    batch = build_batch(
        [LogRecord(1_700_000_000_000, None, b"v")],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    sent = produce_fields("t", {0: batch}, acks=-1, transactional_id="secret-id")
    (answer,) = connection.ask(ApiKey.PRODUCE, 12, **sent).responses
    assert answer.partition_responses[0].error_code == 0


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [(32, "g", "horolog.group.lag"), (2, "t", 'horolog.retention.explain/{"partition":0}')],
)
def test_a_transactional_id_is_told_to_those_who_may_describe_it(
    connection: RawConnection, reader: RawConnection, kind: int, name: str, key: str
) -> None:
    create(connection, entry("g", 8, resource_type=GROUP), entry("t", 8), entry("t", 10))
    committed = [{"partition_index": 0, "committed_offset": 0}]
    topics = [{"name": "t", "partitions": committed}]
    connection.ask(ApiKey.OFFSET_COMMIT, 8, group_id="g", topics=topics)
    begin_transaction(connection)

    def told(asking: RawConnection) -> str:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
        (result,) = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource]).results
        assert result.error_code == 0
        return str(result.configs[0].value)

    assert "secret-id" in told(connection)
    assert "secret-id" not in told(reader)
    create(connection, entry("secret-id", 8, resource_type=TRANSACTION))
    assert "secret-id" in told(reader)


def test_a_transaction_is_described_without_topics_that_the_asker_may_not_see(
    connection: RawConnection, reader: RawConnection
) -> None:
    begin_transaction(connection)
    create(connection, entry("secret-id", 8, resource_type=TRANSACTION))

    def told() -> tuple[int, list[str]]:
        answer = reader.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["secret-id"])
        (transaction,) = answer.transaction_states
        return transaction.error_code, [it.topic for it in transaction.topics]

    assert told() == (0, [])
    create(connection, entry("t", 8))
    assert told() == (0, ["t"])


def test_a_denial_that_is_repeated_is_audited_ten_times_a_second(
    reader: RawConnection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    for _ in range(500):
        looked_up(reader)
    audited = [one.getMessage() for one in caplog.records if one.name == "kafka.authorizer.logger"]
    told = [int(line.split()[0]) for line in audited if "times more in a second" in line]
    written = len(audited) - len(told)
    assert written < 500
    assert written % 10 == 0 or written + sum(told) <= 500


def audited(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The lines of the audit with their levels, and what they all have left out."""
    return [
        (one.levelname, one.getMessage().replace(" from host = 127.0.0.1 on resource =", " of"))
        for one in caplog.records
        if one.name == "kafka.authorizer.logger"
    ]


def test_denials_are_audited_in_kafka_s_words(
    reader: RawConnection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    looked_up(reader)
    # What lists leave out is not audited.
    reader.ask(ApiKey.METADATA, 9, topics=None)
    reader.ask(ApiKey.LIST_GROUPS, 4)
    audited = [one.getMessage() for one in caplog.records if one.name == "kafka.authorizer.logger"]
    assert audited == [
        (
            f"Principal = User:{matrix.user(READER)} is Denied operation = DESCRIBE from host = "
            "127.0.0.1 on resource = Topic:LITERAL:t for request = ListOffsets with "
            "resourceRefCount = 1 based on rule DefaultDeny"
        )
    ]


def test_what_decides_is_audited(
    connection: RawConnection, reader: RawConnection, caplog: pytest.LogCaptureFixture
) -> None:
    """What is allowed at DEBUG."""
    create(connection, entry(), entry("g", 8, resource_type=GROUP, permission_type=DENY))
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    looked_up(connection)
    looked_up(reader)
    reader.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"])
    user, once = f"User:{matrix.user(READER)}", "with resourceRefCount = 1 based on rule"
    listed = f"operation = DESCRIBE of Topic:LITERAL:t for request = ListOffsets {once}"
    described = f"operation = DESCRIBE of Group:LITERAL:g for request = DescribeGroups {once}"
    acl = "MatchingAcl(acl=StandardAcl[resourceType={}, patternType=LITERAL, principal={}, host=*"
    of_topic, of_group = (
        acl.format("TOPIC, resourceName=t", user),
        acl.format("GROUP, resourceName=g", user),
    )
    allowed = "operation=READ, permissionType=ALLOW])"
    denied = "operation=DESCRIBE, permissionType=DENY])"
    assert audited(caplog) == [
        ("DEBUG", f"Principal = User:{matrix.ADMIN} is Allowed {listed} SuperUser"),
        (
            "DEBUG",
            f"Principal = {user} is Allowed {listed} {of_topic}, {allowed}",
        ),
        (
            "INFO",
            f"Principal = {user} is Denied {described} {of_group}, {denied}",
        ),
    ]


def test_where_nothing_is_about_a_resource_the_default_is_audited(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(**SETTINGS, allow_everyone_if_no_acl_found="true")
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    with matrix.login(broker.connect(), matrix.user(READER)) as connection:
        looked_up(connection)
    ((level, line),) = audited(caplog)
    assert (level, line.rpartition(" rule ")[2]) == ("DEBUG", "DefaultAllow")


def test_deletions_are_answered_in_the_order_of_the_request(
    connection: RawConnection, reader: RawConnection
) -> None:
    """So that places tell nothing of what is there; Apache Kafka gives them at random."""
    mine = {"num_partitions": 1, "replication_factor": 1}
    connection.ask(ApiKey.CREATE_TOPICS, 7, topics=[{"name": "mine", **mine}])
    create(connection, entry("mine", 6))
    names = ["none", "t", "nil", "mine", "not"]
    topics = [{"name": name, "topic_id": None} for name in names]
    answer = reader.ask(ApiKey.DELETE_TOPICS, 6, topics=topics)
    told = [(one.name, one.error_code) for one in answer.responses]
    assert told == [("none", 29), ("t", 29), ("nil", 29), ("mine", 0), ("not", 29)]


def test_what_is_decided_about_names_that_cannot_be_is_not_kept(
    broker: RunningBroker, reader: RawConnection
) -> None:
    """A client could fill the memory with them."""
    topics = [{"name": f"{number}-{'x' * 30_000}", "topic_id": None} for number in range(50)]
    answer = reader.ask(ApiKey.METADATA, 12, topics=topics)
    assert {topic.error_code for topic in answer.topics} == {29}
    kept = broker.broker.access._decisions
    assert sum(len(str(key)) for key in kept) < 30_000


def test_histories_of_groups_leave_out_topics_that_a_client_may_not_describe(
    broker: RunningBroker, connection: RawConnection, reader: RawConnection
) -> None:
    describe = {"operation": 8}
    assert create(connection, entry("g", resource_type=GROUP, **describe)) == [0]
    topic_id = broker.broker.topics.find("t").topic_id
    now_ms = broker.broker.clock.now_ms()
    change = GroupChange(
        offsets=[OffsetRow("g", "t", 0, 5, -1, "", now_ms)],
        records=[(CurrentKey("g", "m"), CurrentValue(2, 1, 0, (AssignedTopic(topic_id, (0,)),)))],
    )

    async def write() -> None:
        log = broker.broker.offsets_log
        await log.ready()
        written = log.write_groups([change])
        assert (written if isinstance(written, list) else await written) == [None]

    broker.run(write())

    def seen() -> list[tuple[str, str | None]]:
        key = HISTORY_GROUP.key(AskGroupHistory())
        asked = {"resource_type": ResourceType.GROUP, "resource_name": "g"}
        answer = reader.ask(
            ApiKey.DESCRIBE_CONFIGS, 4, resources=[{**asked, "configuration_keys": [key]}]
        )
        (result,) = answer.results
        (config,) = result.configs
        events = HISTORY_GROUP.read_value(config.value).events
        return [(event.aspect.value, event.topic) for event in events]

    assert seen() == [("assigned", None)]
    assert create(connection, entry("t", **describe)) == [0]
    assert seen() == [("assigned", None), ("assigned", "t"), ("committed", "t")]
