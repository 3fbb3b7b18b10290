"""Our table of settings against what Apache Kafka's DescribeConfigs tells of its own."""

import pytest
from other_defaults import OTHER_DEFAULTS

from golden import answers
from horolog.config.settings import broker_settings, topic_settings

TOLD = answers("settings")
# What this node was started with, and what follows from the machine.
GIVEN = {
    name for settings in TOLD.values() for name, told in settings.items() if not told["is_default"]
}


@pytest.mark.parametrize("name", sorted(set(TOLD["topic"]) - GIVEN))
def test_a_topic_setting_has_kafkas_default(name):
    assert topic_settings()[name].default == TOLD["topic"][name]["value"]


def test_every_broker_setting_of_kafka_is_in_the_table():
    assert set(TOLD["broker"]) - set(broker_settings()) == set()


@pytest.mark.parametrize("name", sorted(set(TOLD["broker"]) - GIVEN - OTHER_DEFAULTS))
def test_a_broker_setting_has_kafkas_default(name):
    told = TOLD["broker"][name]
    ours = broker_settings().get(name)
    if told["is_sensitive"] or ours is None:
        return
    assert ours.default == told["value"]
