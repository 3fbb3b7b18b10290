"""Changes while the broker runs."""

import pytest

from horolog.config import (
    Operation,
    SettingChange,
    Settings,
    alter_broker,
    alter_group,
    alter_topic,
    check_topic,
)
from horolog.errors import ErrorCode, RequestRefused

SET, DELETE, APPEND, SUBTRACT = Operation


def test_settings_are_set_and_deleted() -> None:
    changes = [SettingChange("segment.ms", SET, "5"), SettingChange("retention.ms", DELETE, None)]
    after = alter_topic(Settings(), {"retention.ms": "9", "segment.bytes": "99"}, changes)
    assert after == {"segment.ms": "5", "segment.bytes": "99"}


def test_lists_are_appended_to_and_subtracted_from() -> None:
    name = "leader.replication.throttled.replicas"
    after = alter_topic(Settings(), {name: "1:1,2:2"}, [SettingChange(name, APPEND, "2:2,3:3")])
    assert after == {name: "1:1,2:2,3:3"}
    assert alter_topic(Settings(), after, [SettingChange(name, SUBTRACT, "1:1,9:9")]) == {
        name: "2:2,3:3"
    }


def test_a_list_starts_from_what_it_inherits() -> None:
    change = SettingChange("cleanup.policy", SUBTRACT, "delete")
    assert alter_topic(Settings(), {}, [change]) == {"cleanup.policy": ""}


@pytest.mark.parametrize(
    ("changes", "code", "complaint"),
    [
        ([SettingChange("segment.ms", SET, "x")], ErrorCode.invalid_config, "not a whole number"),
        (
            [SettingChange("nonsense", SET, "1")],
            ErrorCode.invalid_config,
            "Unknown topic config name",
        ),
        ([SettingChange("segment.ms", APPEND, "1")], ErrorCode.invalid_config, "type is not LIST"),
        ([SettingChange("segment.ms", SET, None)], ErrorCode.invalid_request, "Null value"),
        (
            [SettingChange("cleanup.policy", APPEND, "keep")],
            ErrorCode.invalid_config,
            "compact, delete",
        ),
        (
            [SettingChange("segment.ms", SET, "1"), SettingChange("segment.ms", DELETE, None)],
            ErrorCode.invalid_request,
            "duplicate config keys: segment.ms",
        ),
    ],
)
def test_a_topics_bad_change_is_refused(
    changes: list[SettingChange], code: ErrorCode, complaint: str
) -> None:
    with pytest.raises(RequestRefused, match=complaint) as refusal:
        alter_topic(Settings(), {}, changes)
    assert refusal.value.code is code


def test_a_new_topics_settings_are_checked_as_a_whole() -> None:
    assert check_topic(Settings(), {"segment.ms": "5"}).segment_ms == 5
    with pytest.raises(RequestRefused, match="Null value"):
        check_topic(Settings(), {"segment.ms": None})


def test_broker_settings_change_for_one_or_for_all() -> None:
    change = [SettingChange("log.message.timestamp.after.max.ms", SET, "77")]
    for_all = alter_broker(Settings(), change, cluster_wide=True)
    assert for_all.dynamic_default == {"log.message.timestamp.after.max.ms": "77"}
    assert for_all.topic_config().message_timestamp_after_max_ms == 77
    for_one = alter_broker(Settings(), change, cluster_wide=False)
    assert for_one.dynamic_broker == {"log.message.timestamp.after.max.ms": "77"}
    undone = [SettingChange("log.message.timestamp.after.max.ms", DELETE, None)]
    assert alter_broker(for_all, undone, cluster_wide=True) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "cluster_wide", "complaint"),
    [
        ("num.partitions", "3", True, "Cannot update these configs dynamically: num.partitions"),
        ("sasl.jaas.config", "", True, "broker id must be specified: sasl.jaas.config"),
        ("sasl.jaas.config", "x", False, r"sasl\.jaas\.config=\[hidden\] is refused"),
        ("message.max.bytes", "-1", True, "allowed is an int, at least 0"),
    ],
)
def test_a_brokers_bad_change_is_refused(
    name: str, value: str, cluster_wide: bool, complaint: str
) -> None:
    with pytest.raises(RequestRefused, match=complaint) as refusal:
        alter_broker(Settings(), [SettingChange(name, SET, value)], cluster_wide=cluster_wide)
    assert refusal.value.code is ErrorCode.invalid_request


def test_an_unknown_broker_setting_is_refused() -> None:
    with pytest.raises(RequestRefused, match="Unknown broker config name"):
        alter_broker(Settings(), [SettingChange("nonsense", SET, "1")], cluster_wide=True)


def test_a_whole_layer_is_replaced_by_the_older_request() -> None:
    before = Settings(dynamic_default={"message.max.bytes": "5"})
    change = SettingChange("log.roll.ms", SET, "6")
    after = alter_broker(before, [change], cluster_wide=True, replaces=True)
    assert after.dynamic_default == {"log.roll.ms": "6"}
    change = SettingChange("num.partitions", SET, "6")
    with pytest.raises(RequestRefused, match="Cannot update"):
        alter_broker(before, [change], cluster_wide=True, replaces=True)


SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
NARROW = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
}


def test_settings_of_a_group_are_checked_together() -> None:
    settings = Settings(NARROW)
    both = [SettingChange(SESSION, SET, "2000"), SettingChange(INTERVAL, SET, "1999")]
    after = alter_group(settings, {}, both)
    assert after == {SESSION: "2000", INTERVAL: "1999"}
    with pytest.raises(RequestRefused, match=f"{SESSION} must be greater than {INTERVAL}"):
        alter_group(settings, after, [SettingChange(INTERVAL, DELETE, None)])
    assert alter_group(settings, after, [SettingChange(SESSION, DELETE, None)]) == {
        INTERVAL: "1999"
    }


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        (SESSION, "44999", "in the range 45000 to 60000 inclusive"),
        (SESSION, "60001", "in the range 45000 to 60000 inclusive"),
        (SESSION, "0", "at least 1"),
        (SESSION, "2147483648", "beyond 32 bits"),
        (SESSION, "", "not a whole number"),
        (INTERVAL, "4999", "in the range 5000 to 15000 inclusive"),
        ("consumer.assignment.interval.ms", "-1", "at least 0"),
        ("consumer.assignment.interval.ms", "15001", "in the range 0 to 15000 inclusive"),
        ("consumer.assignor.offload.enable", "maybe", "neither true nor false"),
        ("share.session.timeout.ms", "44999", "in the range 45000 to 60000 inclusive"),
        ("share.delivery.count.limit", "11", "in the range 2 to 10 inclusive"),
        ("share.auto.offset.reset", "by_duration:P", "earliest or latest or by_duration"),
        ("share.auto.offset.reset", "by_duration:P1DT", "earliest or latest or by_duration"),
        ("share.isolation.level", "serializable", "read_committed or read_uncommitted"),
        ("streams.heartbeat.interval.ms", "15001", "in the range 5000 to 15000 inclusive"),
        ("retention.ms", "1", "Unknown group config name: retention.ms"),
        (f"group.{SESSION}", "50000", f"Did you mean {SESSION}"),
    ],
)
def test_a_groups_bad_value_is_refused(name: str, value: str, complaint: str) -> None:
    with pytest.raises(RequestRefused, match=complaint) as refused:
        alter_group(Settings(), {}, [SettingChange(name, SET, value)])
    assert refused.value.code == ErrorCode.invalid_config


@pytest.mark.parametrize("value", ["earliest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S"])
def test_a_share_group_may_begin_anywhere(value: str) -> None:
    name = "share.auto.offset.reset"
    assert alter_group(Settings(), {}, [SettingChange(name, SET, value)]) == {name: value}
