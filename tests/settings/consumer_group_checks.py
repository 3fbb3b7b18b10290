"""For every broker setting about consumer groups (KIP-848), the difference it makes."""

from typing import Any

from group_checks import join
from patience import eventually
from raw_connection import RawConnection
from setting_checks import REFUSED, of_broker
from settings_lab import Lab

from horolog.storage import CONSUMER_OFFSETS
from horolog.wire import ApiKey

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
UNSUPPORTED_VERSION = 35
GROUP_ID_NOT_FOUND = 69
GROUP_MAX_SIZE_REACHED = 81
UNSUPPORTED_ASSIGNOR = 112
SUBSCRIBES_TO_T = bytes.fromhex("0000 00000001 0001 74 ffffffff")  # of version 0
SHORT = {"group.consumer.min.session.timeout.ms": "1"}
QUICK = {"group.consumer.min.heartbeat.interval.ms": "1"}


def beat(connection: RawConnection, member: str = "m", **fields: Any) -> Any:
    asked = {
        "group_id": "g",
        "member_id": member,
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return connection.ask(HEARTBEAT, 1, **(asked | fields))


def is_empty(connection: RawConnection) -> bool:
    """Whether the group has no members."""
    asked = {"group_ids": ["g"], "include_authorized_operations": False}
    (group,) = connection.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **asked).groups
    return bool(group.group_state == "Empty")


def stay(connection: RawConnection, epoch: int, **fields: Any) -> Any:
    """Keep the membership; what is not given is as it was."""
    nothing = {"subscribed_topic_names": None, "topic_partitions": None, "rebalance_timeout_ms": -1}
    return beat(connection, member_epoch=epoch, **(nothing | fields))


@of_broker("group.coordinator.rebalance.protocols", {"classic": UNSUPPORTED_VERSION, "consumer": 0})
def what_a_member_is_told(lab: Lab) -> Any:
    with lab.connect() as connection:
        return int(beat(connection).error_code)


@of_broker(
    "group.consumer.assignors",
    {"uniform,range": 0, "uniform": UNSUPPORTED_ASSIGNOR, "sticky": REFUSED},
)
def what_a_member_that_wants_ranges_is_told(lab: Lab) -> Any:
    with lab.connect() as connection:
        return int(beat(connection, server_assignor="range").error_code)


@of_broker("group.consumer.heartbeat.interval.ms", {"7000": 7000, "9000": 9000, "15001": REFUSED})
def when_the_next_heartbeat_is_to_come(lab: Lab) -> Any:
    with lab.connect() as connection:
        return int(beat(connection).heartbeat_interval_ms)


@of_broker("group.consumer.min.heartbeat.interval.ms", {"5000": 5000, "5001": REFUSED})
def when_it_is_to_come_at_the_least(lab: Lab) -> Any:
    return when_the_next_heartbeat_is_to_come(lab)


@of_broker(
    "group.consumer.max.heartbeat.interval.ms", {"5000": 5000, "4999": REFUSED}, beside=QUICK
)
def when_it_is_to_come_at_the_most(lab: Lab) -> Any:
    return when_the_next_heartbeat_is_to_come(lab)


@of_broker(
    "group.consumer.session.timeout.ms",
    {"30": True, "45000": False, "60001": REFUSED},
    beside=SHORT | QUICK | {"group.consumer.heartbeat.interval.ms": "10"},
)
def whether_a_silent_member_is_removed_soon(lab: Lab) -> Any:
    with lab.connect() as connection:
        assert beat(connection).error_code == 0
        return eventually(lambda: is_empty(connection), 10 * lab.soon_s)


@of_broker("group.consumer.min.session.timeout.ms", {"45000": 0, "45001": REFUSED})
def whether_sessions_may_be_as_short(lab: Lab) -> Any:
    return what_a_member_is_told(lab)


@of_broker("group.consumer.max.session.timeout.ms", {"45000": 0, "44999": REFUSED}, beside=SHORT)
def whether_sessions_may_be_as_long(lab: Lab) -> Any:
    return what_a_member_is_told(lab)


@of_broker("group.consumer.assignment.interval.ms", {"0": 3, "15000": 2, "15001": REFUSED})
def epoch_of_a_second_member(lab: Lab) -> Any:
    lab.topic("t")
    with lab.connect() as connection:
        assert beat(connection).member_epoch == 2
        return int(beat(connection, "n").member_epoch)


@of_broker("group.consumer.min.assignment.interval.ms", {"1000": 0, "1001": REFUSED})
def whether_assignments_may_come_as_soon(lab: Lab) -> Any:
    return what_a_member_is_told(lab)


@of_broker("group.consumer.max.assignment.interval.ms", {"1000": 0, "999": REFUSED})
def whether_assignments_may_come_as_late(lab: Lab) -> Any:
    return what_a_member_is_told(lab)


@of_broker(
    "group.consumer.regex.refresh.interval.ms",
    {"10000": True, "600000": False, "9999": REFUSED},
    beside={"offsets.topic.num.partitions": "1"},
)
def whether_a_pattern_is_resolved_again_within_11_seconds(lab: Lab) -> Any:
    lab.topic("t")
    with lab.connect() as connection:
        pattern: Any = {"subscribed_topic_names": [], "subscribed_topic_regex": "t"}
        assert beat(connection, **pattern).error_code == 0
        assert eventually(lambda: stay(connection, epoch=1).member_epoch > 1)
        epoch = stay(connection, epoch=1, topic_partitions=[]).member_epoch
        written = lab.broker.log(CONSUMER_OFFSETS).log_end_offset
        lab.advance_timers(11)
        assert stay(connection, epoch).member_epoch == epoch

        def is_resolved() -> bool:
            return lab.broker.log(CONSUMER_OFFSETS).log_end_offset > written

        return eventually(is_resolved, lab.soon_s)


@of_broker("group.consumer.max.size", {"1": GROUP_MAX_SIZE_REACHED, "2": 0})
def what_a_second_member_is_told(lab: Lab) -> Any:
    with lab.connect() as connection:
        assert beat(connection).error_code == 0
        return int(beat(connection, "n").error_code)


@of_broker(
    "group.consumer.migration.policy",
    {"upgrade": 0, "Downgrade": GROUP_ID_NOT_FOUND},
    beside={"group.initial.rebalance.delay.ms": "0"},
)
def what_a_member_that_joins_classic_ones_is_told(lab: Lab) -> Any:
    with lab.connect() as connection:
        assert join(connection, metadata=SUBSCRIBES_TO_T).error_code == 0
        return int(beat(connection).error_code)
