"""Our table of settings against what Apache Kafka's DescribeConfigs tells of its own."""

from other_defaults import OTHER_DEFAULTS

from golden import answers
from horolog.config.settings import broker_settings, topic_settings

TOLD = answers("settings")
# What this node was started with, and what follows from the machine.
GIVEN = {
    name for settings in TOLD.values() for name, told in settings.items() if not told["is_default"]
}


def test_a_topic_setting_has_kafkas_default():
    names = sorted(set(TOLD["topic"]) - GIVEN)
    ours = {name: topic_settings()[name].default for name in names}
    assert ours == {name: TOLD["topic"][name]["value"] for name in names}


def test_every_broker_setting_of_kafka_is_in_the_table():
    assert set(TOLD["broker"]) - set(broker_settings()) == set()


def test_a_broker_setting_has_kafkas_default():
    told = {
        name: TOLD["broker"][name]["value"]
        for name in set(TOLD["broker"]) - GIVEN - OTHER_DEFAULTS
        if not TOLD["broker"][name]["is_sensitive"]
    }
    assert {name: broker_settings()[name].default for name in told} == told
