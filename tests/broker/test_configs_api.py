"""Settings read and changed while the broker runs, for topics, this broker, and all brokers."""

from typing import Any

import pytest
from running_broker import BROKER, TOPIC, RunningBroker, a_broker

from horolog.broker import MOST_QUESTIONS
from horolog.wire import LOOKUP_WAY, ApiKey, AskLookup

SET, DELETE, APPEND, SUBTRACT = range(4)

broker = a_broker("t", of_topics={"retention_ms": "1000"}, now_ms=None)


def describe(broker: RunningBroker, kind: int, name: str, *keys: str) -> dict[str, Any]:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": list(keys) or None,
    }
    (result,) = broker.ask(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=[resource],
        include_synonyms=True,
        include_documentation=True,
    ).results
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def test_settings_are_described_with_their_source_and_what_stood_behind(
    broker: RunningBroker,
) -> None:
    found = describe(broker, TOPIC, "t")
    assert len(found) > 20
    retention = found["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("1000", 1, False)
    assert next((s.name, s.source) for s in retention.synonyms) == ("retention.ms", 1)
    assert retention.config_type == 5
    assert retention.documentation
    assert found["segment.ms"].config_source == 5
    assert set(describe(broker, TOPIC, "t", "retention.ms", "no.such")) == {"retention.ms"}


def test_single_settings_of_a_topic_are_changed_and_obeyed_at_once(broker: RunningBroker) -> None:
    changes = (("retention.ms", DELETE, None), ("segment.bytes", SET, "2000000"))
    assert broker.alter("t", *changes).error_code == 0
    for _ in range(2):
        assert broker.log("t").config.retention_ms == 604_800_000
        assert broker.log("t").config.segment_bytes == 2_000_000
        broker.restart()


def test_validate_only_checks_and_changes_nothing(broker: RunningBroker) -> None:
    ok = ("retention.ms", SET, "5")
    assert broker.alter("t", ok, validate_only=True).error_code == 0
    bad = ("retention.ms", SET, "five")
    assert broker.alter("t", bad, validate_only=True).error_code == 40
    assert broker.log("t").config.retention_ms == 1000


@pytest.mark.parametrize(
    ("kind", "name", "change", "code", "text"),
    [
        (TOPIC, "t", ("retention.ms", SET, "five"), 40, "retention.ms"),
        (TOPIC, "t", ("no.such", SET, "1"), 40, "no.such"),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), 40, "LIST"),
        (TOPIC, "t", ("retention.ms", SET, None), 42, "Null"),
        (TOPIC, "t", ("retention.ms", 9, "1"), 42, "operation"),
        (TOPIC, "t", ("cleanup.policy", APPEND, "keep"), 40, "compact"),
        (TOPIC, "none", ("retention.ms", SET, "5"), 3, "none"),
        (BROKER, "77", ("log.retention.ms", SET, "5"), 42, "Unexpected broker id"),
        (BROKER, "1", ("log.dirs", SET, "/x"), 42, "dynamically"),
        (BROKER, "", ("listeners", SET, "PLAINTEXT://:1"), 42, ""),
        (BROKER, "", ("log.cleanup.policy", SET, "keep"), 42, "compact"),
        (77, "x", ("a", SET, "b"), 42, "resource type 77"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    broker: RunningBroker,
    kind: int,
    name: str,
    change: tuple[str, int, str | None],
    code: int,
    text: str,
) -> None:
    refused = broker.alter(name, change, kind=kind)
    assert (refused.error_code, text in refused.error_message) == (code, True), refused
    assert broker.log("t").config.retention_ms == 1000


def test_one_bad_change_keeps_back_the_good_ones(broker: RunningBroker) -> None:
    changes = (("segment.bytes", SET, "2000000"), ("retention.ms", SET, "x"))
    assert broker.alter("t", *changes).error_code == 40
    assert broker.log("t").config.segment_bytes != 2_000_000


def test_a_cluster_wide_default_reaches_topics_that_say_nothing_themselves(
    broker: RunningBroker,
) -> None:
    broker.create_topic("plain")
    change = ("log.retention.ms", SET, "777")
    assert broker.alter("", change, kind=BROKER).error_code == 0
    for _ in range(2):
        assert broker.log("plain").config.retention_ms == 777
        assert broker.log("t").config.retention_ms == 1000
        assert set(describe(broker, BROKER, "")) == {"log.retention.ms", "min.insync.replicas"}
        assert describe(broker, BROKER, "1")["log.retention.ms"].config_source == 3
        assert describe(broker, TOPIC, "plain")["retention.ms"].config_source == 3
        broker.restart()
    assert broker.alter("", ("log.retention.ms", DELETE, None), kind=BROKER).error_code == 0
    assert broker.log("plain").config.retention_ms == 604_800_000


def test_this_brokers_own_setting_is_stronger_than_the_clusters(broker: RunningBroker) -> None:
    broker.create_topic("plain")
    broker.alter("", ("log.retention.ms", SET, "777"), kind=BROKER)
    broker.alter("1", ("log.retention.ms", SET, "888"), kind=BROKER)
    assert broker.log("plain").config.retention_ms == 888
    assert describe(broker, BROKER, "1")["log.retention.ms"].config_source == 2


def replace(broker: RunningBroker, kind: int, name: str, **settings: str) -> Any:
    configs = [{"name": k.replace("_", "."), "value": v} for k, v in settings.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    (response,) = broker.ask(ApiKey.ALTER_CONFIGS, 2, resources=[resource]).responses
    return response


def test_all_settings_are_replaced_by_the_older_call(broker: RunningBroker) -> None:
    assert replace(broker, TOPIC, "t", segment_bytes="2000000").error_code == 0
    assert broker.log("t").config.segment_bytes == 2_000_000
    assert broker.log("t").config.retention_ms == 604_800_000
    assert replace(broker, TOPIC, "t", segment_bytes="x").error_code == 40
    assert replace(broker, BROKER, "", log_retention_ms="5").error_code == 0
    assert replace(broker, BROKER, "").error_code == 0
    assert set(describe(broker, BROKER, "")) == {"min.insync.replicas"}


def test_a_request_of_too_many_questions_is_refused_and_its_neighbours_are_not(
    broker: RunningBroker,
) -> None:
    broker.create_topic("other")
    questions = [LOOKUP_WAY.key(AskLookup(0, n)) for n in range(MOST_QUESTIONS + 1)]
    too_many, other = broker.ask(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=[
            {"resource_type": TOPIC, "resource_name": name, "configuration_keys": keys}
            for name, keys in (("t", questions), ("other", questions[1:]))
        ],
    ).results
    assert (too_many.error_code, list(too_many.configs)) == (42, [])
    assert str(MOST_QUESTIONS) in too_many.error_message
    assert (other.error_code, len(other.configs)) == (0, MOST_QUESTIONS)


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "1")])
def test_whatever_is_described_can_be_set_again_as_it_is(
    broker: RunningBroker, kind: int, name: str
) -> None:
    described = {
        key: config.value
        for key, config in describe(broker, kind, name).items()
        if not config.read_only
        and (kind == TOPIC or config.value is not None)
        and not key.startswith("ssl.")  # only with the prefix of a listener, as in Kafka
    }
    assert None not in described.values()
    configs = [{"name": key, "value": value} for key, value in described.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    (replaced,) = broker.ask(ApiKey.ALTER_CONFIGS, 2, resources=[resource]).responses
    assert (replaced.error_code, replaced.error_message) == (0, None)
    again = describe(broker, kind, name)
    assert {key: again[key].value for key in described} == described


def test_a_setting_of_a_login_that_is_not_there_is_accepted_as_by_kafka(
    broker: RunningBroker,
) -> None:
    relogin = "sasl.kerberos.min.time.before.relogin"
    assert broker.alter("1", (relogin, SET, "58000"), kind=BROKER).error_code == 0
    assert describe(broker, BROKER, "1", relogin)[relogin].value == "58000"
