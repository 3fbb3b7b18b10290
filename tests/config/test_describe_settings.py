"""What DescribeConfigs tells."""

import pytest

from horolog.config import (
    DescribedSetting,
    SettingKind,
    Settings,
    SettingSource,
    Synonym,
    describe_broker,
    describe_cluster,
    describe_group,
    describe_topic,
)


def one(entries: list[DescribedSetting]) -> DescribedSetting:
    (entry,) = entries
    return entry


def test_a_topics_value_names_its_source_and_the_values_it_overrides() -> None:
    settings = Settings(
        static={"log.retention.hours": "5"}, dynamic_default={"log.retention.ms": "7"}
    )
    entry = one(describe_topic(settings, {"retention.ms": "9"}, ["retention.ms"]))
    assert (entry.value, entry.source, entry.kind) == ("9", SettingSource.TOPIC, SettingKind.LONG)
    assert not entry.read_only
    assert not entry.is_default
    assert entry.synonyms == (
        Synonym("retention.ms", "9", SettingSource.TOPIC),
        Synonym("log.retention.ms", "7", SettingSource.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.hours", "5", SettingSource.STATIC_BROKER),
        Synonym("log.retention.hours", "168", SettingSource.DEFAULT),
    )


def test_an_inherited_value_is_shown_in_the_topics_own_unit() -> None:
    settings = Settings(static={"log.retention.hours": "5"}, dynamic_broker={"log.roll.ms": "7"})
    entry = one(describe_topic(settings, {}, ["retention.ms"]))
    assert entry.value == "18000000"
    assert (entry.source, entry.synonyms) == (SettingSource.DEFAULT, ()), "as Kafka shows it"
    entry = one(describe_topic(settings, {"retention.ms": "9"}, ["retention.ms"]))
    assert entry.synonyms == (Synonym("retention.ms", "9", SettingSource.TOPIC),)
    entry = one(describe_topic(settings, {}, ["segment.ms"]))
    assert (entry.value, entry.source) == ("7", SettingSource.DYNAMIC_BROKER)
    assert [it.name for it in entry.synonyms] == ["log.roll.ms", "log.roll.hours"]


def test_a_bound_that_a_difference_decides_is_described_as_such() -> None:
    overrides = {"max.message.time.difference.ms": "5"}
    entry = one(describe_topic(Settings(), overrides, ["message.timestamp.after.max.ms"]))
    assert (entry.value, entry.source) == ("5", SettingSource.TOPIC)
    assert entry.synonyms[0].name == "max.message.time.difference.ms"


def test_a_topic_shows_what_kafka_4_shows_and_the_rest_only_where_it_is_given() -> None:
    shown = {entry.name for entry in describe_topic(Settings(), {})}
    assert {"segment.ms", "cleanup.policy", "remote.storage.enable"} <= shown
    hidden = {"internal.segment.bytes", "message.timestamp.difference.max.ms"}
    assert not hidden & shown
    given = {"internal.segment.bytes": "99", "message.timestamp.difference.max.ms": "5"}
    assert hidden <= {entry.name for entry in describe_topic(Settings(), given)}


def test_a_broker_shows_its_settings_and_hides_its_secrets() -> None:
    settings = Settings(static={"ssl.key.password": "", "num.partitions": "3"})
    entries = {entry.name: entry for entry in describe_broker(settings)}
    assert len(entries) > 300
    assert "zookeeper.connect" not in entries
    partitions = entries["num.partitions"]
    assert (partitions.value, partitions.source) == ("3", SettingSource.STATIC_BROKER)
    assert partitions.read_only
    assert not entries["log.retention.ms"].read_only
    assert entries["log.retention.ms"].value is None
    password = entries["ssl.key.password"]
    assert password.sensitive
    assert password.value is None
    assert password.synonyms == (Synonym("ssl.key.password", None, SettingSource.STATIC_BROKER),)


def test_the_documentation_of_a_setting_describes_its_effect_here() -> None:
    entry = one(describe_broker(Settings(), ["num.io.threads"]))
    assert "Accepted without effect: one event loop" in entry.documentation


def test_the_cluster_shows_only_what_was_set_for_it() -> None:
    settings = Settings(
        static={"num.partitions": "3"},
        dynamic_default={"message.max.bytes": "5"},
        dynamic_broker={"message.max.bytes": "6"},
    )
    shown = {entry.name: (entry.value, entry.source) for entry in describe_cluster(settings)}
    assert shown == {
        "message.max.bytes": ("5", SettingSource.DYNAMIC_DEFAULT_BROKER),
        "min.insync.replicas": ("1", SettingSource.DYNAMIC_DEFAULT_BROKER),
    }, "a Kafka stores the second one when a cluster begins"
    for entry in describe_cluster(settings):
        assert [it.source for it in entry.synonyms] == [SettingSource.DYNAMIC_DEFAULT_BROKER]


@pytest.mark.parametrize("static", ["1", "2"])
def test_min_insync_replicas_has_the_source_that_kafka_4_gives(static: str) -> None:
    settings = Settings(static={"min.insync.replicas": static})
    for described in (describe_topic(settings, {}), describe_broker(settings)):
        (entry,) = [each for each in described if each.name == "min.insync.replicas"]
        assert (entry.value, entry.source) == (static, SettingSource.DYNAMIC_DEFAULT_BROKER)
    own = describe_topic(settings, {"min.insync.replicas": "3"}, ["min.insync.replicas"])
    assert [(each.value, each.source) for each in own] == [("3", SettingSource.TOPIC)]


def test_controllers_of_kafka_3_have_not_stored_min_insync_replicas() -> None:
    assert describe_cluster(Settings(is_of_cluster=True)) == []
    (entry,) = describe_topic(Settings(is_of_cluster=True), {}, ["min.insync.replicas"])
    assert entry.is_default


def test_settings_are_described_in_the_order_asked() -> None:
    names = ["segment.ms", "retention.ms", "cleanup.policy", "segment.ms"]
    assert [each.name for each in describe_topic(Settings(), {}, names)] == names[:3]


def test_unknown_names_are_skipped() -> None:
    assert describe_topic(Settings(), {}, ["nonsense"]) == []


def test_settings_of_one_listener_are_described_where_they_are_given() -> None:
    prefix = "listener.name.users"
    given = {
        f"{prefix}.connections.max.reauth.ms": "5000",
        f"{prefix}.plain.sasl.jaas.config": "hush-hush",
        f"{prefix}.ssl.keystore.password": "hush-hush",
        f"{prefix}.ssl.keystore.location": "/store",
        "super.users": "User:a",
    }
    described = {it.name: it for it in describe_broker(Settings(given))}
    shown = {name: (described[name].value, described[name].sensitive) for name in given}
    assert shown == {
        f"{prefix}.connections.max.reauth.ms": ("5000", False),
        f"{prefix}.plain.sasl.jaas.config": (None, True),
        f"{prefix}.ssl.keystore.password": (None, True),
        f"{prefix}.ssl.keystore.location": ("/store", False),
        "super.users": (None, True),
    }
    assert "hush-hush" not in repr(described)
    asked = f"{prefix}.connections.max.reauth.ms"
    (one,) = describe_broker(Settings(given), [asked])
    assert [(it.name, it.value) for it in one.synonyms] == [(asked, "5000")]
    assert not [name for name in map(str, describe_broker(Settings())) if prefix in name]


def test_a_groups_value_names_its_source_and_the_broker_s() -> None:
    name = "consumer.session.timeout.ms"
    settings = Settings(static={f"group.{name}": "46000"})
    (own,) = describe_group(settings, {name: "50000"}, [name, "no.such"])
    assert (own.value, own.source) == ("50000", SettingSource.GROUP)
    assert [(it.name, it.value, it.source) for it in own.synonyms] == [
        (name, "50000", 8),
        (f"group.{name}", "46000", 4),
        (f"group.{name}", "45000", 5),
    ]
    (inherited,) = describe_group(settings, {}, [name])
    assert (inherited.value, inherited.source) == ("46000", SettingSource.STATIC_BROKER)


def test_a_group_shows_what_kafka_4_shows() -> None:
    names = {entry.name for entry in describe_group(Settings(), {})}
    assert len(names) == 21
    assert "consumer.assignor.offload.enable" not in names
    given = describe_group(Settings(), {"consumer.assignor.offload.enable": "false"})
    assert {entry.name for entry in given} - names == {"consumer.assignor.offload.enable"}
