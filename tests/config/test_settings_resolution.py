"""Which of several values counts."""

import subprocess
import sys

import pytest

from horolog.config import LONG_MAX, Endpoint, Settings
from horolog.config.releases import replica_fetch_version
from horolog.errors import Misconfigured
from horolog.record import TimestampType

HOUR_MS = 3_600_000
BEFORE = "message.timestamp.before.max.ms"
AFTER = "message.timestamp.after.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"


def test_the_nearest_value_counts() -> None:
    layers = Settings(
        static={"log.roll.ms": "4"},
        dynamic_default={"log.roll.ms": "3"},
        dynamic_broker={"log.roll.ms": "2"},
    )
    assert layers.topic_config({"segment.ms": "1"}).segment_ms == 1
    assert layers.topic_config().segment_ms == 2
    assert Settings(layers.static, layers.dynamic_default).topic_config().segment_ms == 3
    assert Settings(layers.static).topic_config().segment_ms == 4


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1", "log.retention.hours": "2"}, -1),
        ({}, 168 * HOUR_MS),
    ],
)
def test_milliseconds_win_over_minutes_and_minutes_over_hours(
    static: dict[str, str], retention_ms: int
) -> None:
    assert Settings(static).topic_config().retention_ms == retention_ms


FORMAT = "message.format.version"
PROTOCOL = "inter.broker.protocol.version"


@pytest.mark.parametrize(
    ("static", "topic", "magic"),
    [
        # Ignored from inter-broker protocol 3.0 on, which is the default.
        ({}, {}, 2),
        ({f"log.{FORMAT}": "0.9.0"}, {FORMAT: "0.10.0"}, 2),
        ({PROTOCOL: "3.0-IV0"}, {FORMAT: "0.9.0"}, 2),
        # Obeyed below.
        ({PROTOCOL: "2.8"}, {}, 2),
        ({PROTOCOL: "2.8-IV1"}, {FORMAT: "0.8.2"}, 0),
        ({PROTOCOL: "2.8"}, {FORMAT: "0.9.0.1"}, 0),
        ({PROTOCOL: "2.8"}, {FORMAT: "0.10.0-IV0"}, 1),
        ({PROTOCOL: "2.8"}, {FORMAT: "0.10.2.2"}, 1),
        ({PROTOCOL: "2.8"}, {FORMAT: "0.11.0"}, 2),
        ({PROTOCOL: "2.8"}, {FORMAT: "3.6"}, 2),
        ({PROTOCOL: "2.8", f"log.{FORMAT}": "0.10.0"}, {}, 1),
        ({PROTOCOL: "2.8", f"log.{FORMAT}": "0.10.0"}, {FORMAT: "0.9.0"}, 0),
        # What a topic asks for does not count where brokers cannot read it yet.
        ({PROTOCOL: "0.10.0", f"log.{FORMAT}": "0.9.0"}, {FORMAT: "0.11.0"}, 0),
        ({PROTOCOL: "0.10.0", f"log.{FORMAT}": "0.9.0"}, {FORMAT: "0.10.0"}, 1),
    ],
)
def test_a_record_format_is_stored_where_the_protocol_is_older_than_3_0(
    static: dict[str, str], topic: dict[str, str], magic: int
) -> None:
    assert Settings(static).topic_config(topic).message_format_version == magic


@pytest.mark.parametrize(
    ("protocol", "taken"),
    [
        ("0.9.0", False),
        ("0.11.0", False),
        ("2.0", False),
        ("2.0-IV1", False),
        ("2.1-IV0", True),
        ("2.1", True),
        ("2.8", True),
        ("3.9", True),
    ],
)
def test_zstd_is_taken_from_inter_broker_protocol_2_1_on(protocol: str, taken: bool) -> None:
    settings = Settings({PROTOCOL: protocol, f"log.{FORMAT}": "0.9.0"})
    assert settings.topic_config().may_store_zstd is taken


@pytest.mark.parametrize(
    "static",
    [
        {PROTOCOL: "0.10.2"},
        {PROTOCOL: "0.9.0", f"log.{FORMAT}": "0.10.0"},
        {PROTOCOL: "5.0"},
        {PROTOCOL: "2"},
        {f"log.{FORMAT}": "0.10"},
        {f"log.{FORMAT}": "2.8-IV2"},
    ],
)
def test_a_broker_with_a_record_format_that_cannot_be_is_refused(static: dict[str, str]) -> None:
    with pytest.raises(Misconfigured, match=r"version"):
        Settings(static).broker_config()


def test_rolling_and_its_jitter_may_be_given_in_hours() -> None:
    config = Settings({"log.roll.hours": "2", "log.roll.jitter.hours": "1"}).topic_config()
    assert (config.segment_ms, config.segment_jitter_ms) == (2 * HOUR_MS, HOUR_MS)


def test_flushing_falls_back_to_the_time_between_looks() -> None:
    static = {"log.flush.scheduler.interval.ms": "5"}
    assert Settings(static).topic_config().flush_ms == 5
    assert Settings(static | {"log.flush.interval.ms": "6"}).topic_config().flush_ms == 6


@pytest.mark.parametrize(
    ("static", "topic", "before", "after"),
    [
        # Nothing given: Kafka 4's defaults.
        ({}, {}, LONG_MAX, HOUR_MS),
        # A difference alone is both bounds; one hour for the future does not hide it.
        ({}, {DIFFERENCE: "5"}, 5, 5),
        ({}, {DIFFERENCE: str(2 * HOUR_MS)}, 2 * HOUR_MS, 2 * HOUR_MS),
        ({f"log.{DIFFERENCE}": "5"}, {}, 5, 5),
        # A bound of its own wins over it.
        ({}, {DIFFERENCE: "5", BEFORE: "9"}, 9, 5),
        ({}, {DIFFERENCE: "5", AFTER: "9"}, 5, 9),
        ({f"log.{DIFFERENCE}": "5"}, {AFTER: "9"}, 5, 9),
        ({f"log.{BEFORE}": "9"}, {DIFFERENCE: "5"}, 9, 5),
        # Unless it is 2^63-1.
        ({}, {DIFFERENCE: "5", BEFORE: str(LONG_MAX), AFTER: str(LONG_MAX)}, 5, 5),
        ({}, {BEFORE: str(LONG_MAX), AFTER: str(LONG_MAX)}, LONG_MAX, LONG_MAX),
        # The nearer difference counts, and the newer name of it.
        ({f"log.{DIFFERENCE}": "5"}, {DIFFERENCE: "7"}, 7, 7),
        ({}, {"max.message.time.difference.ms": "5"}, 5, 5),
        ({}, {"max.message.time.difference.ms": "5", DIFFERENCE: "7"}, 7, 7),
        ({"max.message.time.difference.ms": "5"}, {}, 5, 5),
        # Zero is a bound like any other.
        ({}, {BEFORE: "0", AFTER: "0"}, 0, 0),
    ],
)
def test_the_bounds_on_time_follow_kafkas_precedence(
    static: dict[str, str], topic: dict[str, str], before: int, after: int
) -> None:
    config = Settings(static).topic_config(topic)
    assert config.message_timestamp_before_max_ms == before
    assert config.message_timestamp_after_max_ms == after


def test_the_timestamp_type_comes_from_the_broker_unless_the_topic_has_its_own() -> None:
    broker = Settings({"log.message.timestamp.type": "LogAppendTime"})
    assert broker.topic_config().message_timestamp_type is TimestampType.LOG_APPEND_TIME
    own = broker.topic_config({"message.timestamp.type": "CreateTime"})
    assert own.message_timestamp_type is TimestampType.CREATE_TIME
    as_kip_32_says = Settings({"message.timestamp.type": "LogAppendTime"})
    assert as_kip_32_says.topic_config().message_timestamp_type is TimestampType.LOG_APPEND_TIME


def test_an_internal_segment_size_wins_as_in_kafka_4() -> None:
    config = Settings().topic_config({"internal.segment.bytes": "100", "segment.bytes": "5000000"})
    assert config.segment_bytes == 100
    assert Settings().topic_config({"segment.bytes": "14"}).segment_bytes == 14


def test_an_empty_cleanup_policy_keeps_everything() -> None:
    assert Settings().topic_config({"cleanup.policy": ""}).cleanup_policy == frozenset()


def test_the_brokers_number_may_be_given_by_its_older_name() -> None:
    assert Settings({"broker.id": "7"}).broker_config().node_id == 7
    assert Settings({"broker.id": "7", "node.id": "8"}).broker_config().node_id == 8
    assert Settings({"broker.id": "-1"}).broker_config().node_id == 1


def test_one_log_directory_is_served() -> None:
    assert Settings({"log.dir": "a"}).broker_config().log_dir == "a"
    assert Settings({"log.dir": "a", "log.dirs": "b"}).broker_config().log_dir == "b"
    with pytest.raises(Misconfigured, match=r"log\.dirs=a,b: only one directory is supported"):
        Settings({"log.dirs": "a, b"}).broker_config()


def test_limits_for_single_addresses() -> None:
    config = Settings({"max.connections.per.ip.overrides": "10.0.0.1:5, [::1]:6"}).broker_config()
    assert config.max_connections_per_ip_overrides == {"10.0.0.1": 5, "::1": 6}
    config = Settings({"max.connections.per.ip.overrides": "0:0:0:0:0:0:0:1:6"}).broker_config()
    assert config.max_connections_per_ip_overrides == {"::1": 6}


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:many", "10.0.0.1:-1", "localhost:5", ":5"])
def test_a_limit_for_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured, match="ADDRESS:COUNT with an IP address"):
        Settings({"max.connections.per.ip.overrides": text}).broker_config()


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("", []),
        (" ", []),
        ("User:bob;User:ann ", ["User:bob", "User:ann"]),
        (";  User:bob  ;; User:ann ;", ["User:bob", "User:ann"]),
        ("User:CN=bob,O=Org,C=DE;User:a,b", ["User:CN=bob,O=Org,C=DE", "User:a,b"]),
        ("Group:x;user:bob;:y", ["Group:x", "user:bob", ":y"]),
    ],
)
def test_super_users_are_parted_by_semicolons_alone(text: str, users: list[str]) -> None:
    assert Settings({"super.users": text}).broker_config().super_users == frozenset(users)


@pytest.mark.parametrize(
    ("static", "complaint"),
    [
        ({"nonsense": "1"}, "Unknown broker config name: nonsense"),
        ({"num.partitions": "0"}, "num.partitions: allowed is an int, at least 1"),
        ({"log.retention.ms": "0"}, "at least 1, or -1"),
        ({"log.cleanup.policy": "keep"}, "any of compact, delete"),
        ({"zookeeper.connect": "localhost:2181"}, "there is no ZooKeeper"),
        ({"sasl.jaas.config": "x"}, "belongs to a mechanism of a listener"),
        ({"super.users": "bob;:ann"}, "bob is no principal"),
        ({"super.users": "root"}, "root is no principal; write User:root"),
        (
            {"sasl.kerberos.service.name": "kafka"},
            "of SASL, PLAIN, SCRAM and OAUTHBEARER are served",
        ),
    ],
)
def test_a_broker_does_not_start_with_what_it_cannot_obey(
    static: dict[str, str], complaint: str
) -> None:
    with pytest.raises(Misconfigured, match=complaint):
        Settings(static).broker_config()


def test_all_that_a_broker_cannot_start_with_is_named_at_once() -> None:
    static = {
        "num.partitions": "0",
        "confluent.telemetry.enabled": "true",
        "sasl.kerberos.service.name": "kafka",
        "segment.ms": "5",
        "listener.name.out.max.connexions": "5",
    }
    with pytest.raises(Misconfigured) as refused:
        Settings(static).broker_config()
    assert all(name in str(refused.value) for name in static)
    assert str(refused.value).endswith("ignores unknown names, as Apache Kafka does)")


def test_unknown_settings_are_ignored_on_request_and_wrong_values_are_not() -> None:
    ignoring = {"horolog.ignore.unknown.settings": "true", "confluent.telemetry.enabled": "true"}
    settings = Settings({**ignoring, "segment.ms": "5", "num.partitions": "3"})
    assert settings.broker_config().num_partitions == 3
    assert settings.unknown() == [
        "Unknown broker config name: confluent.telemetry.enabled",
        "Unknown broker config name: segment.ms. Did you mean log.roll.ms?",
    ]
    with pytest.raises(Misconfigured, match=r"num.partitions: allowed is an int, at least 1$"):
        Settings({**ignoring, "num.partitions": "0"}).broker_config()


# What Apache Kafka ships as config/server.properties, without its comments.
KAFKA_4_FILE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "log.dirs": "/tmp/kraft-combined-logs",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
}


def test_the_file_that_kafka_ships_is_enough() -> None:
    config = Settings(KAFKA_4_FILE).broker_config()
    assert config.listeners == (Endpoint("PLAINTEXT", "", 9092),)
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "localhost", 9092),)
    assert config.log_dir == "/tmp/kraft-combined-logs"


def test_importing_the_settings_reads_no_table_and_no_heavy_library() -> None:
    code = (
        "import sys, horolog.config\n"
        "from horolog.config.tables import broker_settings, topic_settings\n"
        "assert not topic_settings.cache_info().currsize\n"
        "assert not broker_settings.cache_info().currsize\n"
        "print(sorted({'numpy', 'numba', 'pyarrow', 'typer', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("protocol", "version"),
    [
        ("0.8.2.2", 0),
        ("0.9.0.1", 1),
        ("0.10.0-IV0", 2),
        ("0.10.0", 2),
        ("0.10.1-IV0", 2),
        ("0.10.1-IV1", 3),
        ("0.10.2", 3),
        ("0.11.0-IV0", 4),
        ("0.11.0", 5),
        ("1.0", 5),
        ("1.1", 7),
        ("2.0-IV0", 7),
        ("2.0", 8),
        ("2.1-IV1", 8),
        ("2.1", 10),
        ("2.2", 10),
        ("2.3-IV0", 10),
        ("2.3", 11),
        ("2.7-IV0", 11),
        ("2.8", 12),
        ("3.0", 12),
        ("3.1", 13),
        ("3.5-IV0", 14),
        ("3.5", 15),
        ("3.7-IV3", 15),
        ("3.7", 16),
        ("3.9", 17),
    ],
)
def test_a_follower_asks_with_the_fetch_of_its_protocol(protocol: str, version: int) -> None:
    assert replica_fetch_version(protocol) == version
