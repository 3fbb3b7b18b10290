"""Every topic setting that is said to be obeyed makes its difference, however it is given."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import compaction_checks
import pytest
import topic_checks
from examples import some_of
from setting_checks import OF_TOPICS, Seen
from settings_lab import BROKER, WHOLE_CLUSTER, Lab

from horolog.clock import HOUR_MS
from horolog.config import Setting, Status, UpdateMode, broker_settings, topic_settings

# Importing them has entered their checks.
assert compaction_checks
assert topic_checks

OBEYED = [s for s in topic_settings().values() if s.status is Status.OBEYED]
NAMES = [setting.name for setting in OBEYED]
_numbers = itertools.count()


class Way(NamedTuple):
    """A topic setting, and a broker setting through which it is given."""

    setting: Setting
    given_as: str

    @property
    def fallback(self) -> Setting:
        (found,) = (s for s in broker_settings().values() if self.given_as in (s.name, *s.aliases))
        return found

    def __str__(self) -> str:
        return f"{self.given_as}->{self.setting.name}"


WAYS = [
    Way(setting, given_as)
    for setting in OBEYED
    for fallback in setting.falls_back_to
    for given_as in (fallback, *broker_settings()[fallback].aliases)
]
WHILE_RUNNING = [way for way in WAYS if way.fallback.update is UpdateMode.CLUSTER_WIDE]


def new_name() -> str:
    return f"t{next(_numbers)}"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "lab") as lab:
        yield lab


def test_those_settings_have_a_check_that_are_said_to_be_obeyed() -> None:
    assert set(OF_TOPICS) == set(NAMES)


def test_a_fallback_in_another_unit_has_values_in_that_unit() -> None:
    in_other_units = {
        fallback
        for setting in OBEYED
        for fallback in setting.falls_back_to
        if fallback.endswith((".hours", ".minutes"))
    }
    assert in_other_units == {name for check in OF_TOPICS.values() for name in check.of_fallback}


@pytest.mark.parametrize("name", some_of(NAMES, 2))
def test_a_topic_obeys_what_it_is_created_with(name: str, lab: Lab) -> None:
    check = OF_TOPICS[name]
    for given_as in (name, *topic_settings()[name].aliases):
        for value, expected in check.seen.items():
            trial = lab.topic(new_name(), {**check.beside, given_as: value})
            assert check.look(trial) == expected, f"{given_as}={value}"


@pytest.mark.parametrize("name", some_of(reversed(NAMES), 2))  # the other half
def test_a_topic_obeys_what_it_is_given_later(name: str, lab: Lab) -> None:
    check = OF_TOPICS[name]
    for value, other in _two_values(check.seen):
        trial = lab.topic(new_name(), {**check.beside, name: other})
        trial.put_at(trial.now_ms)
        trial.alter({name: value})
        assert check.look(trial) == check.seen[value], f"{name}={value} after {other}"


def test_a_topic_obeys_after_a_restart_what_it_was_given_before(lab: Lab) -> None:
    trials = []
    for name, check in OF_TOPICS.items():
        for value, other in _two_values(check.seen):
            trials.append((name, value, lab.topic(new_name(), {**check.beside, name: other})))
            trials[-1][2].alter({name: value})
    lab.restart()
    for name, value, trial in trials:
        check = OF_TOPICS[name]
        assert check.look(trial) == check.seen[value], f"{name}={value}"


@pytest.mark.parametrize("way", some_of(WAYS, 2), ids=str)
def test_a_topic_obeys_what_the_broker_is_started_with(way: Way, tmp_path: Path) -> None:
    check = OF_TOPICS[way.setting.name]
    for at, (value, expected) in enumerate(check.seen_through(way.given_as).items()):
        with Lab(tmp_path / str(at), {way.given_as: value}) as lab:
            trial = lab.topic("t", check.beside)
            assert check.look(trial) == expected, f"{way.given_as}={value}"


@pytest.mark.parametrize("way", some_of(WHILE_RUNNING, 3), ids=str)
def test_a_topic_obeys_what_the_broker_is_given_later(way: Way, lab: Lab) -> None:
    """For the whole cluster, then for this broker, then on the topic: the nearest wins."""
    check = OF_TOPICS[way.setting.name]
    name = way.given_as.replace(".", "_")
    seen = check.seen_through(way.given_as)
    trial = lab.topic(new_name(), check.beside)
    trial.put_at(trial.now_ms)
    for value, other in _two_values(seen):
        lab.alter(WHOLE_CLUSTER, **{name: value})
        assert check.look(trial) == seen[value], f"cluster: {way.given_as}={value}"
        lab.alter(WHOLE_CLUSTER, **{name: other})
        lab.alter(BROKER, **{name: value})
        assert check.look(trial) == seen[value], f"broker: {way.given_as}={value}"
        lab.alter(BROKER, **{name: other})
        own = lab.topic(new_name(), {**check.beside, way.setting.name: value})
        assert check.look(own) == seen[value], f"topic: {way.setting.name}={value}"
        lab.alter(BROKER, **{name: None})


# What is stored is the same whatever its name; each is also given at a start, and later.
@pytest.mark.parametrize("way", some_of(WHILE_RUNNING, 4), ids=str)
def test_a_topic_obeys_after_a_restart_what_the_broker_was_given_before(way: Way, lab: Lab) -> None:
    check = OF_TOPICS[way.setting.name]
    seen = check.seen_through(way.given_as)
    (value, other), _ = _two_values(seen)
    trial = lab.topic(new_name(), check.beside)
    trial.put_at(trial.now_ms)
    name = way.given_as.replace(".", "_")
    lab.alter(WHOLE_CLUSTER, **{name: value})
    lab.restart()
    assert check.look(trial) == seen[value], f"cluster: {way.given_as}={value}"
    lab.alter(BROKER, **{name: other})
    lab.restart()
    assert check.look(trial) == seen[other], f"broker: {way.given_as}={other}"


def _two_values(seen: Seen) -> list[tuple[str, str]]:
    """Two values that are seen differently: each as the new one, and the other as the old."""
    first, *others = seen
    second = next(other for other in others if seen[other] != seen[first])
    return [(first, second), (second, first)]


def test_the_segment_that_a_restart_finds_has_its_share_of_jitter(lab: Lab) -> None:
    trial = lab.topic("t", {"segment.ms": str(HOUR_MS), "segment.jitter.ms": str(HOUR_MS)})
    trial.put_at(trial.now_ms - HOUR_MS)
    lab.restart()
    trial.put_at(trial.now_ms)
    assert trial.segments == 2
