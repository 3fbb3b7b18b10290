"""The tables against what Apache Kafka itself prints (tools/KafkaSettings.java)."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from other_defaults import OTHER_DEFAULTS

import horolog
from horolog.config import (
    BrokerConfig,
    ClusterConfig,
    Settings,
    Status,
    TopicConfig,
    UpdateMode,
)
from horolog.config.describe import documentation
from horolog.config.tables import broker_setting, broker_settings, topic_setting, topic_settings

KAFKA_LIST = Path(__file__).with_name("kafka_4.4.0_settings.txt")
OURS = {scope: table() for scope, table in (("topic", topic_settings), ("broker", broker_settings))}

OTHER_RULES = {
    "authorizer.class.name",  # Kafka loads any class
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "offsets.topic.compression.codec",  # Kafka ends at its start with a stack trace
    "segment.bytes",  # small segments are allowed, see docs/settings.md
    "log.segment.bytes",
    "internal.segment.bytes",  # Kafka checks nothing
    # Kafka checks these later, in words of its own:
    "log.retention.ms",
    "log.retention.minutes",
    "log.retention.hours",
}
OTHER_MODES = {
    "listeners",  # sockets are opened once
    "listener.security.protocol.map",
    "config.providers",  # a client could read the broker's files
}


class KafkaRow(NamedTuple):
    scope: str
    name: str
    kind: str
    default: str
    valid: str
    mode: str
    internal: str


def kafka_rows() -> list[KafkaRow]:
    lines = KAFKA_LIST.read_text().splitlines()
    assert lines[0].startswith("# Apache Kafka 4.")
    return [KafkaRow(*(cell.strip() for cell in line.split(" | "))) for line in lines[1:]]


def in_our_words(valid: str) -> str:
    """Kafka's words for what is valid, as our table has them."""
    if re.fullmatch(r"|non-.*", valid):
        return ""
    if valid == "[1,...,9] or -1":
        return "1 to 9, or -1"
    if valid.startswith("[partitionId]"):
        return "* or partition:broker,partition:broker,..."
    if match := re.fullmatch(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\]", valid):
        return f"{match[1]} to {match[2]}" if match[2] else f"at least {match[1]}"
    if match := re.fullmatch(r"\(case insensitive\) \[(.*)\]", valid):
        return " or ".join(match[1].split(", ")) + ", in any case"
    return " or ".join(valid.strip("[]").split(", "))


def test_a_setting_of_kafka_is_in_our_table_as_in_kafkas() -> None:
    for row in kafka_rows():
        ours = OURS[row.scope][row.name]
        assert ours.kind.name.lower() == row.kind, row
        assert ours.internal == (row.internal == "internal"), row
        assert not ours.gone, row
        if row.name not in OTHER_DEFAULTS:
            assert (ours.default or "") == row.default, row
        if row.name not in OTHER_RULES:
            words = ours.rule.words if ours.rule else ""
            if words.startswith("any of "):
                allowed = words.removeprefix("any of ").split(", ")
                assert sorted(allowed) == sorted(row.valid.strip("[]").split(", ")), row
            else:
                assert words == in_our_words(row.valid), row
        if row.scope == "broker" and row.name not in OTHER_MODES:
            assert ours.update.value == row.mode, row


def test_what_our_tables_have_beyond_kafka_is_named_as_such() -> None:
    kafka = {(row.scope, row.name) for row in kafka_rows()}
    dynamic_only = {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
    for scope, table in OURS.items():
        for name, setting in table.items():
            if (scope, name) not in kafka:
                assert setting.is_unlisted or name.startswith("horolog.") or name in dynamic_only, (
                    name
                )


def test_a_row_is_complete_and_its_default_is_allowed() -> None:
    for setting in (*topic_settings().values(), *broker_settings().values()):
        if setting.default is not None:
            setting.read(setting.default)
        assert setting.doc.endswith((".", "...")), setting
        assert bool(setting.why) == (setting.status is not Status.OBEYED), setting
        if setting.status is not Status.OBEYED:
            assert setting.why in documentation(setting), setting


def test_every_fallback_is_a_broker_setting_of_the_same_family() -> None:
    for setting in topic_settings().values():
        for name in setting.falls_back_to:
            assert broker_settings()[name].status is setting.status, name


def test_every_field_of_the_typed_settings_is_an_obeyed_setting_and_the_other_way_round() -> None:
    obeyed = {
        s.name.replace(".", "_") for s in topic_settings().values() if s.status is Status.OBEYED
    }
    resolved = {"message_timestamp_difference_max_ms", "internal_segment_bytes"}
    of_the_broker = {"may_store_zstd"}  # by inter.broker.protocol.version
    assert set(TopicConfig.__dataclass_fields__) == (obeyed - resolved) | of_the_broker

    fallbacks = {name for s in topic_settings().values() for name in s.falls_back_to}
    obeyed = {
        s.name.replace(".", "_")
        for s in broker_settings().values()
        if s.status is Status.OBEYED
        and s.name not in fallbacks
        and not s.name.startswith(("ssl.", "sasl.oauthbearer."))
    }
    resolved = {
        "broker_id",
        "config_providers",
        "connections_max_reauth_ms",
        "controller_listener_names",
        "controller_quorum_bootstrap_servers",
        "controller_quorum_voters",
        "listener_security_protocol_map",
        "log_dirs",
        "process_roles",
        "sasl_enabled_mechanisms",
        "sasl_mechanism_controller_protocol",
        "security_inter_broker_protocol",
    }
    read_too = {"log_flush_scheduler_interval_ms"}  # a fallback, and an interval of its own
    of_listeners = {"cluster", "listener_limits", "logins", "metrics_tls", "tls"}
    addressed = {
        "broker_security",
        "controller_listener",
        "controller_security",
        "controllers",
        "voters",
    }
    fields = {*BrokerConfig.__dataclass_fields__, *ClusterConfig.__dataclass_fields__} - addressed
    assert fields == (obeyed - resolved) | read_too | of_listeners


def test_every_obeyed_setting_is_read_by_the_code() -> None:
    source = Path(horolog.__file__).parent
    readers = (
        path for path in source.rglob("*.py") if "config" not in path.relative_to(source).parts
    )
    read = {name for path in readers for name in re.findall(r"\.(\w+)", path.read_text())}
    fields = {
        name
        for each in (TopicConfig, BrokerConfig, ClusterConfig)
        for name in each.__dataclass_fields__
    }
    assert fields - {"controller_listener"} <= read  # its protocol and login are read


def test_the_typed_defaults_are_those_of_the_table() -> None:
    assert Settings().topic_config() == TopicConfig()
    assert Settings().broker_config() == BrokerConfig()


def test_an_unknown_name_is_refused_with_the_likely_one() -> None:
    with pytest.raises(ValueError, match=r"Unknown topic config name: segmnt\.ms\. Did you mean s"):
        topic_setting("segmnt.ms")
    with pytest.raises(ValueError, match=r"Did you mean retention\.ms\?"):
        topic_setting("log.retention.ms")
    with pytest.raises(ValueError, match=r"Did you mean log\.roll\.ms\?"):
        broker_setting("segment.ms")
    with pytest.raises(ValueError, match=r"Unknown broker config name: nonsense$"):
        broker_setting("nonsense")
    with pytest.raises(ValueError, match=r"A listener can have sasl\.enabled"):
        broker_setting("listener.name.external.ssl.keystore.place")


def test_older_names_lead_to_their_settings() -> None:
    assert topic_setting("max.message.time.difference.ms").name == (
        "message.timestamp.difference.max.ms"
    )
    assert broker_setting("max.message.time.difference.ms").name == (
        "log.message.timestamp.difference.max.ms"
    )
    assert broker_setting("message.timestamp.type").name == "log.message.timestamp.type"


def test_the_bounds_on_time_may_change_cluster_wide_while_running() -> None:  # KIP-937
    for name in ("before.max.ms", "after.max.ms", "difference.max.ms", "type"):
        setting = broker_settings()[f"log.message.timestamp.{name}"]
        assert setting.update is UpdateMode.CLUSTER_WIDE
