"""Every broker setting that is said to be obeyed makes its difference, however it is given.

Those that are defaults of topic settings are shown in test_topic_settings_obeyed.py.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cluster_checks
import compaction_checks
import connection_checks
import consumer_group_checks
import following_checks
import group_checks
import log_dir_checks
import login_checks
import pytest
import quota_checks
import tls_checks
import token_checks
import topic_checks
import transaction_checks
from examples import some_of
from setting_checks import OF_BROKERS, OF_TOPICS, REFUSED, BrokerCheck
from settings_lab import BROKER, SOON_S, WHOLE_CLUSTER, Lab

from horolog.client import ResourceType
from horolog.config import Status, UpdateMode, broker_settings, topic_settings
from horolog.errors import ErrorCode, Misconfigured, RequestRefused

# Importing them has entered their checks.
assert cluster_checks
assert compaction_checks
assert connection_checks
assert following_checks
assert group_checks
assert consumer_group_checks
assert log_dir_checks
assert login_checks
assert quota_checks
assert tls_checks
assert token_checks
assert topic_checks
assert transaction_checks

OBEYED = {s.name: s for s in broker_settings().values() if s.status is Status.OBEYED}
OF_TOPIC_SETTINGS = {name for s in topic_settings().values() for name in s.falls_back_to}
OWN = [name for name in OBEYED if name not in OF_TOPIC_SETTINGS]
# What a broker does by itself may come late on a slow machine: it is then given more time.
SOON_ENOUGH_S = (SOON_S, 10 * SOON_S, 60 * SOON_S)
WHILE_RUNNING = [name for name in OWN if OBEYED[name].update is UpdateMode.CLUSTER_WIDE]


def test_each_setting_that_is_said_to_be_obeyed_has_a_check() -> None:
    of_topics = {
        name for s in topic_settings().values() if s.name in OF_TOPICS for name in s.falls_back_to
    }
    assert {*OWN} <= {*OF_BROKERS}
    assert {*OBEYED} - {*OWN} <= of_topics


def test_there_is_no_check_for_what_is_not_said_to_be_obeyed() -> None:
    assert set(OF_BROKERS) <= set(OWN)


@pytest.mark.parametrize("name", some_of(OWN, 2))
def test_a_broker_obeys_what_it_is_started_with(name: str, tmp_path: Path) -> None:
    check = OF_BROKERS[name]
    for at, (value, expected) in enumerate(check.seen.items()):
        for soon_s in SOON_ENOUGH_S:
            seen = look(check, tmp_path / f"{at}-{soon_s}", {name: value}, soon_s)
            if seen == expected:
                break
        assert seen == expected, f"{name}={value}"


@pytest.mark.parametrize("name", some_of(WHILE_RUNNING, 2))
@pytest.mark.parametrize(
    "resource",
    [
        pytest.param(WHOLE_CLUSTER, id="cluster"),
        pytest.param(BROKER, id="broker", marks=pytest.mark.slow),
    ],
)
def test_a_broker_obeys_what_it_is_given_later_and_remembers_it(
    name: str, resource: str, tmp_path: Path
) -> None:
    check = OF_BROKERS[name]
    first, *others = check.seen
    second = next(value for value in others if check.seen[value] != check.seen[first])
    for (value, other), again in itertools.product(
        ((first, second), (second, first)), (False, True)
    ):
        for soon_s in SOON_ENOUGH_S:
            directory = tmp_path / f"{value}-{again}-{soon_s}"
            weaker = {name: other} if resource == WHOLE_CLUSTER else {}
            with Lab(directory, {**check.beside, **weaker}, soon_s) as lab:
                if resource == BROKER:
                    lab.alter(WHOLE_CLUSTER, **{name.replace(".", "_"): other})
                lab.alter(resource, **{name.replace(".", "_"): value})
                if again:
                    lab.restart()
                seen = check.look(lab)
            if seen == check.seen[value]:
                break
        assert seen == check.seen[value], f"{name}={value}, restart: {again}"


def test_what_is_read_at_the_start_cannot_be_changed_while_running(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        for name, setting in OBEYED.items():
            if setting.update is not UpdateMode.READ_ONLY:
                continue
            for resource in (WHOLE_CLUSTER, BROKER):
                with pytest.raises(
                    RequestRefused, match=f"(dynamically|prefix): {name}"
                ) as refused:
                    lab.client.alter_configs(
                        {(ResourceType.BROKER, resource): {name: setting.default or "1"}}
                    )
                assert refused.value.code is ErrorCode.invalid_request


def look(check: BrokerCheck, directory: Path, static: Mapping[str, str], soon_s: float) -> Any:
    """What is seen of a broker that is started with these settings."""
    given = {**check.beside, **static}
    given = {name: value.replace("{dir}", str(directory)) for name, value in given.items()}
    try:
        lab = Lab(directory / "log", given, soon_s)
    except Misconfigured:
        return REFUSED
    with lab:
        return check.look(lab)
