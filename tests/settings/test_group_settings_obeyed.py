"""Every setting of a single group that is said to be obeyed makes its difference (KIP-848).

It counts from the next heartbeat on, and stays over a restart, also of a group that is not there.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from consumer_group_checks import beat, is_empty, stay
from patience import eventually
from raw_connection import RawConnection
from settings_lab import BROKER, Lab

from horolog.client import ResourceType
from horolog.config import Status, broker_settings, group_settings
from horolog.wire import ApiKey

SESSION, INTERVAL, ASSIGNMENT = (
    f"consumer.{name}.ms"
    for name in ("session.timeout", "heartbeat.interval", "assignment.interval")
)
WIDE = {
    "group.consumer.min.session.timeout.ms": "1",
    "group.consumer.min.heartbeat.interval.ms": "1",
    "group.consumer.heartbeat.interval.ms": "20",
    "group.consumer.max.assignment.interval.ms": "30000",
}


def alter(lab: Lab, **settings: str | None) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    lab.client.alter_configs({(ResourceType.GROUP, "g"): named})


def listed(connection: RawConnection) -> list[tuple[int, str]]:
    found = connection.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[32]).config_resources
    return [(it.resource_type, it.resource_name) for it in found]


def whether_a_silent_member_is_removed_soon(lab: Lab) -> Any:
    with lab.connect() as connection:
        assert beat(connection).error_code == 0
        return eventually(lambda: is_empty(connection), 10 * lab.soon_s)


def when_the_next_heartbeat_is_to_come(lab: Lab) -> Any:
    with lab.connect() as connection:
        return int(beat(connection).heartbeat_interval_ms)


def epoch_of_a_second_member(lab: Lab) -> Any:
    with lab.connect() as connection:
        assert beat(connection).member_epoch == 2
        return int(beat(connection, "n").member_epoch)


LOOKS: dict[str, tuple[Callable[[Lab], Any], dict[str | None, Any]]] = {
    SESSION: (whether_a_silent_member_is_removed_soon, {"30": True, "50000": False}),
    INTERVAL: (when_the_next_heartbeat_is_to_come, {"7": 7, "9000": 9000, None: 20}),
    ASSIGNMENT: (epoch_of_a_second_member, {"0": 3, "30000": 2, None: 2}),
}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "lab", WIDE) as lab:
        lab.topic("t")
        yield lab


def test_each_that_is_said_to_be_obeyed_has_a_look() -> None:
    assert {*LOOKS} == {s.name for s in group_settings().values() if s.status is Status.OBEYED}


def test_each_falls_back_to_a_setting_of_the_broker_with_the_same_default() -> None:
    for setting in group_settings().values():
        for name in setting.falls_back_to:
            assert broker_settings()[name].default == setting.default, name


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (_, seen) in LOOKS.items() for value in seen]
)
@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a restart"])
def test_a_group_obeys_what_it_is_given(
    lab: Lab, name: str, value: str | None, again: bool
) -> None:
    look, seen = LOOKS[name]
    if value is None:
        alter(lab, **{name: "15"})
    alter(lab, **{name: value})
    if again:
        lab.restart()
    assert look(lab) == seen[value]


def test_a_member_obeys_a_change_from_its_next_heartbeat_on(lab: Lab) -> None:
    with lab.connect() as connection:
        epoch = beat(connection).member_epoch
        alter(lab, **{INTERVAL: "3000"})
        assert stay(connection, epoch).heartbeat_interval_ms == 3000
        alter(lab, **{SESSION: "4000"})
        lab.advance_timers(30)  # the session that runs is of the broker's 45 seconds
        assert stay(connection, epoch).error_code == 0
        lab.advance_timers(4.5)
        assert eventually(lambda: is_empty(connection))


def test_another_group_has_the_broker_s_values(lab: Lab) -> None:
    alter(lab, **{INTERVAL: "3000"})
    with lab.connect() as connection:
        assert beat(connection, group_id="other").heartbeat_interval_ms == 20


def test_a_value_that_narrower_bounds_do_not_allow_counts_as_the_nearest(tmp_path: Path) -> None:
    with Lab(tmp_path / "lab", WIDE) as lab:
        alter(lab, **{SESSION: "2000", INTERVAL: "7"})
    with Lab(tmp_path / "lab") as lab:
        assert when_the_next_heartbeat_is_to_come(lab) == 5000
        shown = lab.client.describe_configs([(ResourceType.GROUP, "g")])
        assert shown[ResourceType.GROUP, "g"][INTERVAL].value == "7"
        with lab.connect() as connection:
            assert not is_empty(connection)
            lab.advance_timers(44)
            assert not is_empty(connection)
            lab.advance_timers(2)
            assert eventually(lambda: is_empty(connection))


def test_settings_stay_where_their_group_is_deleted(lab: Lab) -> None:
    alter(lab, **{INTERVAL: "3000"})
    with lab.connect() as connection:
        assert beat(connection).error_code == 0
        assert stay(connection, epoch=-1).error_code == 0
        deleted = connection.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
        assert deleted.results[0].error_code == 0
        assert listed(connection) == [(32, "g")]
        assert beat(connection).heartbeat_interval_ms == 3000


def test_the_broker_s_own_value_changes_under_those_of_groups(lab: Lab) -> None:
    lab.alter(BROKER, group_consumer_assignment_interval_ms="0")
    assert epoch_of_a_second_member(lab) == 3
