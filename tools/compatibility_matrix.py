"""Which test shows which feature through which client: the rows of docs/compatibility.md.

Outcomes are not here but in tests/compatibility/runs.json, which tools/compatibility.py writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_RECORDS = "tests/clients/test_records.py"
_GROUPS = "tests/clients/test_groups_with_clients.py"
_TIMES = "tests/clients/test_times.py"
_ADMIN = "tests/clients/test_admin.py"
_MORE = "tests/compatibility/test_more_of_python_clients.py"
_INTEROP = "tests/interop/test_interop_clients.py"
_INTEROP_MORE = "tests/interop/test_interop_more.py"
_SESSIONS = "tests/clients/test_fetch_sessions.py"
_INTEROP_SESSIONS = "tests/interop/test_interop_fetch_sessions.py"
_TOKENS = "tests/clients/test_token_clients.py"
_INTEROP_TOKENS = "tests/interop/test_interop_tokens.py"
_COPIES = (
    "tests/interop/test_interop_exactly_once_clients.py"
    "::test_records_are_copied_exactly_once_whatever_is_killed"
)
_OUR_TRANSACTIONS = "tests/interop/test_interop_our_transactions.py"
_TOOLS = "tests/interop/test_interop_tools.py"


class Client(NamedTuple):
    """A client library: how the page calls it, and how the tests do."""

    title: str
    test_id: str
    is_python: bool


CLIENTS = (
    Client("kafka-python", "kafka-python", True),
    Client("aiokafka", "aiokafka", True),
    Client("confluent-kafka", "confluent-kafka", True),
    Client("Java", "java", False),
    Client("franz-go", "go", False),
    Client("KafkaJS", "node", False),
)

Shown: TypeAlias = "tuple[str, ...] | str"
"""The tests that show a feature through a client, or in a sentence why none can."""


class Feature(NamedTuple):
    """What people do with a client, and for each client of `CLIENTS` what shows it."""

    title: str
    shown: Mapping[str, Shown]
    remark: str
    """What a client leaves out of it, or needs help with."""


def _feature(
    title: str,
    python: tuple[str, ...] = (),
    others: tuple[str, ...] = (),
    remark: str = "",
    **instead: Shown,
) -> Feature:
    """Tests that take the client as a parameter (`{}` its name), or others by client."""
    shown: dict[str, Shown] = {}
    for client in CLIENTS:
        tests = python if client.is_python else others
        own = instead.get(client.test_id.replace("-", "_"))
        shown[client.title] = own or tuple(test.format(client.test_id) for test in tests)
    return Feature(title, shown, remark)


_EVERY_CODEC = f"{_RECORDS}::test_what_one_client_writes_all_clients_read"
_EVERY_CODEC_OF_OTHERS = f"{_INTEROP}::test_what_one_client_sends_in_any_codec_every_client_reads"
_COMMITTED = f"{_GROUPS}::test_a_group_goes_on_where_it_stopped_also_after_a_restart_of_the_broker"
_SHARED_OUT = f"{_GROUPS}::test_partitions_are_assigned_again_when_members_come_and_go"
_GROUP_OF_OTHERS = f"{_INTEROP}::test_a_group_shares_partitions_when_a_member_joins[horolog-{{}}]"
_REFUSED = (
    f"{_INTEROP}::test_a_time_out_of_bounds_is_refused_as_the_client_reports_it[horolog-{{}}]"
)

_CODEC_REMARKS = {
    "snappy": "KafkaJS with kafkajs-snappy",
    "lz4": (
        "KafkaJS with lz4js, of whose frames a flag has to be put right: as they are, no Java "
        "consumer could read them, and horolog refuses them"
    ),
    "zstd": "KafkaJS with @bokuweb/zstd-wasm",
}

FEATURES = (
    *(
        _feature(
            f"records, {codec}" if codec != "none" else "records, not compressed",
            (f"{_EVERY_CODEC}[{{}}-{codec}]",),
            (f"{_EVERY_CODEC_OF_OTHERS}[horolog-{{}}-{codec}]",),
            _CODEC_REMARKS.get(codec, ""),
        )
        for codec in CODECS
    ),
    _feature(
        "explicit timestamps",
        (f"{_EVERY_CODEC}[{{}}-none]",),
        (f"{_EVERY_CODEC_OF_OTHERS}[horolog-{{}}-none]",),
        "aiokafka's producer reports the time of a batch's first record for all of them",
    ),
    _feature(
        "headers",
        (f"{_EVERY_CODEC}[{{}}-none]",),
        (f"{_INTEROP_MORE}::test_headers_come_back_through_every_client[horolog-{{}}]",),
    ),
    _feature(
        "groups, with a rebalance",
        others=(_GROUP_OF_OTHERS,),
        kafka_python=(
            f"{_MORE}::test_kafka_python_shares_out_partitions_when_members_come_and_go",
        ),
        aiokafka=(f"{_MORE}::test_aiokafka_shares_out_partitions_when_members_come_and_go",),
        confluent_kafka=tuple(
            f"{_SHARED_OUT}[{strategy}]"
            for strategy in ("range", "roundrobin", "cooperative-sticky")
        ),
    ),
    _feature(
        "groups that the broker assigns (KIP-848), whatever is killed",
        kafka_python="kafka-python speaks the classic protocol only",
        aiokafka="aiokafka speaks the classic protocol only",
        confluent_kafka=(f"{_COPIES}[confluent-kafka, consumer protocol]",),
        java=(f"{_COPIES}[Java 4.4, consumer protocol]",),
        go=(f"{_COPIES}[franz-go, consumer protocol]",),
        node="KafkaJS speaks the classic protocol only",
        remark="franz-go is told to with ServerSideBalancer",
    ),
    _feature("committed offsets", (f"{_COMMITTED}[{{}}]",), (_GROUP_OF_OTHERS,)),
    _feature(
        "offsets for times",
        (f"{_TIMES}::test_lookups_equal_a_scan[{{}}]",),
        (f"{_INTEROP}::test_offsets_are_found_by_time_exactly[horolog-{{}}]",),
        "confluent-kafka and KafkaJS give the offset without the record's time",
    ),
    _feature(
        "record with the largest timestamp",
        others=(f"{_INTEROP}::test_the_largest_time_is_found[horolog-{{}}]",),
        kafka_python=(f"{_MORE}::test_kafka_python_finds_the_record_with_the_largest_time",),
        aiokafka="aiokafka asks in ListOffsets v5 at most, which has no such question",
        confluent_kafka=(f"{_TIMES}::test_the_record_with_the_largest_time",),
        node="KafkaJS asks in ListOffsets v3 at most, which has no such question",
    ),
    _feature(
        "topics: create, add partitions, list, delete",
        others=(f"{_INTEROP_MORE}::test_topics_are_made_widened_listed_and_deleted[horolog-{{}}]",),
        kafka_python=(f"{_ADMIN}::test_kafka_python_administers",),
        aiokafka=(f"{_ADMIN}::test_aiokafka_administers",),
        confluent_kafka=(f"{_ADMIN}::test_confluent_makes_grows_and_deletes_topics",),
    ),
    _feature(
        "settings: change, read back",
        others=(f"{_INTEROP}::test_settings_change_and_are_read_back[horolog-{{}}]",),
        kafka_python=(f"{_ADMIN}::test_kafka_python_administers",),
        aiokafka=(f"{_MORE}::test_aiokafka_changes_settings",),
        confluent_kafka=(f"{_ADMIN}::test_confluent_changes_settings_that_are_obeyed_at_once",),
    ),
    _feature(
        "rejection of a time out of bounds (error 32)",
        (f"{_RECORDS}::test_a_record_out_of_bounds_is_rejected_with_error_32[{{}}]",),
        (_REFUSED,),
        kafka_python=(
            f"{_RECORDS}::test_a_record_out_of_bounds_is_rejected_with_error_32[kafka-python]",
            f"{_MORE}::test_kafka_python_names_the_record_at_fault",
        ),
        remark="Java and kafka-python distinguish the record at fault from those refused with it",
    ),
    _feature(
        "idempotent producer",
        (f"{_RECORDS}::test_idempotent_producers_are_served[{{}}]",),
        (f"{_INTEROP}::test_an_idempotent_producer_appends_once[horolog-{{}}]",),
    ),
    _feature(
        "transactions with a group's offsets, whatever is killed",
        (f"{_COPIES}[{{}}]",),
        java=tuple(f"{_COPIES}[Java {each} flow]" for each in ("4.4, second", "3.9, first")),
        go=tuple(f"{_COPIES}[franz-go, {each} flow]" for each in ("second", "first")),
        node=(f"{_COPIES}[KafkaJS]",),
        remark=(
            "aiokafka and KafkaJS do not name the group's member with the offsets: each was run "
            "as its only member; Java and franz-go in both flows of KIP-890"
        ),
    ),
    _feature(
        "LogAppendTime",
        (f"{_RECORDS}::test_append_time_reaches_producer_and_consumer[{{}}]",),
        (f"{_INTEROP}::test_append_time_reaches_producer_and_consumer[horolog-{{}}]",),
        "franz-go's producer keeps the time it was given; KafkaJS does not return a time's type",
    ),
    _feature(
        "fetch sessions (KIP-227)",
        (f"{_SESSIONS}::test_all_is_read_once_and_in_order_also_where_sessions_are_lost[{{}}]",),
        tuple(
            f"{_INTEROP_SESSIONS}::test_a_consumer_reads_all_in_sessions[{{}}-{each}]"
            for each in ("kept", "lost")
        ),
        aiokafka="aiokafka asks for none",
        confluent_kafka="librdkafka asks for none",
        node="KafkaJS asks for none",
    ),
    _feature(
        "login by a token (OAUTHBEARER)",
        (f"{_TOKENS}::test_a_client_logs_in_with_a_token[{{}}]",),
        (f"{_INTEROP_TOKENS}::test_a_client_logs_in_with_a_token[{{}}]",),
        java=(f"{_INTEROP_TOKENS}::test_javas_clients_log_in_with_a_token_in_a_file",),
    ),
)

# Command line tools: what was done with each, and the test.
TOOLS: Mapping[str, Mapping[str, str]] = {
    "Apache Kafka's": {
        "kafka-topics": f"{_TOOLS}::test_topics_are_made_listed_described_widened_and_deleted",
        "kafka-configs, topics": f"{_TOOLS}::test_settings_are_changed_and_removed",
        "kafka-configs, cluster-wide": (
            f"{_TOOLS}::test_a_cluster_wide_bound_on_time_is_changed_while_running"
        ),
        "kafka-console-producer, kafka-console-consumer": (
            f"{_TOOLS}::test_the_console_producer_and_consumer_speak_to_each_other"
        ),
        "kafka-get-offsets, by time and largest": f"{_TOOLS}::test_the_offset_tool_finds_moments",
        "kafka-consumer-groups, reset to a moment": (
            f"{_TOOLS}::test_the_group_tool_lists_describes_and_moves_groups_to_a_moment"
        ),
        "kafka-delete-records": f"{_TOOLS}::test_records_are_deleted_up_to_an_offset",
        "kafka-log-dirs": f"{_TOOLS}::test_log_directories_are_described",
        "kafka-broker-api-versions": f"{_TOOLS}::test_versions_are_reported",
        "kafka-producer-perf-test": f"{_TOOLS}::test_the_performance_tool_runs",
        "kafka-producer-perf-test, in transactions": (
            f"{_OUR_TRANSACTIONS}::test_producer_of_kafka_commits_many_transactions"
        ),
        "kafka-transactions, list by pattern and duration, describe": (
            f"{_OUR_TRANSACTIONS}::test_kafkas_tool_lists_and_describes_transactions"
        ),
        "kafka-transactions, end one": (
            f"{_OUR_TRANSACTIONS}::test_kafkas_tool_terminates_a_transaction"
        ),
        "kafka-transactions, describe producers, abort": (
            f"{_OUR_TRANSACTIONS}::test_kafkas_tool_finds_producers_and_aborts_what_hangs"
        ),
        "kafka-transactions, find and abort what hangs": (
            f"{_OUR_TRANSACTIONS}::test_kafkas_tool_finds_what_hangs"
        ),
        "Kafka Connect 4.3, a source's lines, whatever is killed": (
            "tests/interop/test_interop_connect.py"
            "::test_a_source_writes_each_line_once_whatever_is_killed"
        ),
        "Kafka Streams, counts with state, whatever is killed": (
            "tests/interop/test_interop_streams.py"
            "::test_each_word_is_counted_exactly_once_whatever_is_killed"
        ),
    },
    "Flink": {
        "copying a topic in transactions, whatever is killed": (
            "tests/interop/test_interop_flink.py"
            "::test_flink_copies_records_exactly_once_whatever_is_killed"
        ),
    },
    "kcat": {
        "producing and consuming, every codec": f"{_TOOLS}::test_kcat_sends_and_reads_every_codec",
        "offsets by time, consuming from a time": f"{_TOOLS}::test_kcat_asks_for_a_moment",
        "listing": f"{_TOOLS}::test_kcat_lists_the_broker",
    },
}

# Why Kafka serves an API and we do not. A test holds that each is named once.
NOT_SERVED: Mapping[str, tuple[str, ...]] = {
    "there are no delegation tokens": (
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
    ),
    "the broker is the only one, with one log directory": (
        "AlterReplicaLogDirs",
        "UpdateFeatures",
        "UnregisterBroker",
        "UnregisterController",
        "AddRaftVoter",
        "RemoveRaftVoter",
    ),
    "there are no share groups and no streams groups": (
        "StreamsGroupHeartbeat",
        "StreamsGroupDescribe",
        "StreamsGroupTopologyDescriptionUpdate",
        "ShareGroupHeartbeat",
        "ShareGroupDescribe",
        "ShareFetch",
        "ShareAcknowledge",
        "InitializeShareGroupState",
        "ReadShareGroupState",
        "WriteShareGroupState",
        "DeleteShareGroupState",
        "ReadShareGroupStateSummary",
        "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets",
        "DeleteShareGroupOffsets",
    ),
}
