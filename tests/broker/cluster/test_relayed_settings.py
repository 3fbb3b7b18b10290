"""Settings are changed by the controllers; loggers, actions and `horolog.*` of topics here."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from relayed import Relayed, Relaying

from horolog.errors import ErrorCode, HorologError
from horolog.schemas.metadata import Config
from horolog.storage import kafka_uuid
from horolog.wire import ApiKey, ResourceType

TOPIC, BROKER, LOGGER, GROUP = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.GROUP,
)
RETENTION, BY = "retention.ms", "horolog.retention.by"
LOGGED = "horolog.broker.cleaner"
SET, DELETE = 0, 1


def resource(kind: int, name: str, /, *changes: tuple[str, int, str | None]) -> dict[str, Any]:
    configs = [{"name": n, "config_operation": op, "value": value} for n, op, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


class Settings:
    """Controllers that refuse what is in `refused`, and a client of the broker."""

    def __init__(self, relaying: Relaying) -> None:
        self.relaying = relaying
        self.refused: dict[tuple[int, str], int] = {}
        self.shared: list[tuple[str, int, str | None]] = []
        self.controllers = relaying.controllers
        relaying.controllers.answer = self.answer
        relaying.controllers.plain = self.plain

    def answer(self, relayed: Relayed) -> dict[str, Any]:
        responses = [
            {
                "error_code": self.refused.get((it.resource_type, it.resource_name), 0),
                "error_message": None,
                "resource_type": it.resource_type,
                "resource_name": it.resource_name,
            }
            for it in relayed.body.resources
        ]
        return {"responses": responses}

    def plain(self, api_key: ApiKey, fields: Any) -> Any:
        assert api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS
        (its,) = fields["resources"]
        assert (its["resource_type"], its["resource_name"]) == (BROKER, "")
        self.shared += [(it["name"], it["config_operation"], it["value"]) for it in its["configs"]]
        return SimpleNamespace(responses=[SimpleNamespace(error_code=0, error_message=None)])

    def alter(self, *resources: dict[str, Any], validate_only: bool = False) -> list[int]:
        fields = {"resources": list(resources), "validate_only": validate_only}
        body = self.relaying.decoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)
        return [it.error_code for it in body.responses]

    def replace(self, *resources: dict[str, Any]) -> list[int]:
        for one in resources:
            for config in one["configs"]:
                config.pop("config_operation")
        fields = {"resources": list(resources), "validate_only": False}
        body = self.relaying.decoded(ApiKey.ALTER_CONFIGS, 2, fields)
        return [it.error_code for it in body.responses]

    def relayed(self) -> list[tuple[int, str, list[str]]]:
        """Resources of the requests that the controllers got, with their settings."""
        return [
            (it.resource_type, it.resource_name, [config.name for config in it.configs])
            for seen in self.controllers.seen
            for it in seen.body.resources
        ]


@pytest.fixture
def settings(relaying: Relaying) -> Settings:
    return Settings(relaying)


@pytest.fixture
def level() -> Iterator[logging.Logger]:
    logger = logging.getLogger(LOGGED)
    before = logger.level
    yield logger
    logger.setLevel(before)


def keep(settings: Settings, **shared: str) -> None:
    """Let all brokers have settings."""
    for name, value in shared.items():
        settings.relaying.image.apply(Config(BROKER, "", name, value))


def topic_state(settings: Settings) -> tuple[str, int, str]:
    topic = settings.relaying.broker.broker.topics.find("t")
    text = f'"id":"{kafka_uuid(topic.topic_id)}"'
    return "horolog.state.topic.t", SET, text


def test_settings_of_kafka_are_relayed_in_the_frame_as_it_came(settings: Settings) -> None:
    changes = [
        resource(TOPIC, "t", (RETENTION, SET, "1000"), ("cleanup.policy", DELETE, None)),
        resource(BROKER, "", ("log.retention.ms", SET, "1000")),
        resource(BROKER, "1", ("horolog.history.ms", SET, "1000")),
        resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "45000")),
        resource(ResourceType.CLIENT_METRICS, "m", ("interval.ms", SET, "1000")),
    ]
    assert settings.alter(*changes) == [0] * 5
    (seen,) = settings.controllers.seen
    fields = {"resources": changes, "validate_only": False}
    assert seen.frame == settings.relaying.frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)
    assert settings.replace(resource(TOPIC, "t", (RETENTION, SET, "1000"))) == [0]
    assert not settings.shared


def test_loggers_are_changed_here_and_the_rest_is_relayed(
    settings: Settings, level: logging.Logger
) -> None:
    changes = resource(LOGGER, "1", (LOGGED, SET, "DEBUG"))
    assert settings.alter(changes, validate_only=True) == [0]
    assert level.level != logging.DEBUG
    assert settings.alter(changes, resource(TOPIC, "t", (RETENTION, SET, "1"))) == [0, 0]
    assert level.level == logging.DEBUG
    assert settings.relayed() == [(TOPIC, "t", [RETENTION])]
    others = resource(LOGGER, "2", (LOGGED, SET, "INFO"))
    assert settings.alter(others, resource(TOPIC, "t", (RETENTION, SET, "2"))) == [42, 0]
    assert level.level == logging.DEBUG


def test_settings_of_horolog_on_a_topic_are_written_to_all_brokers_bound_to_its_id(
    settings: Settings,
) -> None:
    both = resource(TOPIC, "t", (BY, SET, "append-time"), (RETENTION, SET, "1000"))
    assert settings.alter(both, validate_only=True) == [0]
    assert not settings.shared
    assert settings.alter(both) == [0]
    assert settings.relayed()[-1] == (TOPIC, "t", [RETENTION])
    (name, value), state = settings.shared[0][::2], settings.shared[1]
    assert (name, value) == (f"horolog.topic.t.{BY}", "append-time")
    assert state[0] == topic_state(settings)[0]
    assert topic_state(settings)[2] in (state[2] or "").replace(" ", "")


def test_what_an_earlier_topic_of_that_name_has_left_is_removed_at_once(
    settings: Settings,
) -> None:
    """Otherwise it would count for the topic that there is now."""
    index = "horolog.topic.t.horolog.roll.by"
    left = {index: "append-time", "horolog.state.topic.t": '{"id": "AAAAAAAAAAAAAAAAAAAAAA"}'}
    keep(settings, **left, **{"horolog.topic.u.horolog.retention.by": "append-time"})
    assert settings.alter(resource(TOPIC, "t", (BY, SET, "append-time"))) == [0]
    names = {(name, operation) for name, operation, _ in settings.shared}
    kept = {(f"horolog.topic.t.{BY}", SET), ("horolog.state.topic.t", SET)}
    assert names == {*kept, (index, DELETE)}


def test_they_alone_need_no_other_request(settings: Settings) -> None:
    assert settings.alter(resource(TOPIC, "t", (BY, SET, "append-time"))) == [0]
    assert not settings.controllers.seen
    assert len(settings.shared) == 2


def test_they_are_removed_by_their_deletion_and_by_a_replacement(settings: Settings) -> None:
    broker = settings.relaying.broker
    with_by = {BY: "append-time"}

    def configured() -> None:
        topics = broker.broker.topics
        topic = topics.find("t")
        topics.put(
            type(topic)(name="t", topic_id=topic.topic_id, partitions=(0,), overrides=with_by)
        )

    broker.call(configured)
    keep(settings, **{f"horolog.topic.t.{BY}": "append-time", "horolog.state.topic.t": "{}"})
    assert settings.alter(resource(TOPIC, "t", (BY, DELETE, None))) == [0]
    removed = [("horolog.state.topic.t", DELETE, None), (f"horolog.topic.t.{BY}", DELETE, None)]
    assert settings.shared == removed
    assert settings.replace(resource(TOPIC, "t", (RETENTION, SET, "5"))) == [0]
    assert settings.shared == 2 * removed
    assert settings.relayed() == [(TOPIC, "t", [RETENTION])]


def test_ours_is_left_undone_where_the_controllers_refuse_theirs(settings: Settings) -> None:
    settings.refused[TOPIC, "t"] = ErrorCode.invalid_config
    both = resource(TOPIC, "t", (BY, SET, "append-time"), (RETENTION, SET, "x"))
    assert settings.alter(both) == [ErrorCode.invalid_config]
    settings.controllers.failure = HorologError("no controller")
    assert settings.alter(both) == [ErrorCode.request_timed_out]
    assert not settings.shared


def test_what_this_broker_cannot_obey_is_refused_before_it_is_relayed(settings: Settings) -> None:
    refused = [
        resource(BROKER, "2", ("log.retention.ms", SET, "1")),
        resource(BROKER, "1", ("log.dirs", SET, "/tmp")),
        resource(BROKER, "", ("horolog.state.home", SET, "1")),
        resource(TOPIC, "t", (BY, SET, "nonsense")),
    ]
    codes = settings.alter(*refused, resource(TOPIC, "u", (RETENTION, SET, "1")))
    assert codes == [42, 42, 42, 40, 0]
    assert settings.relayed() == [(TOPIC, "u", [RETENTION])]


def test_a_resource_that_is_there_twice_is_refused(settings: Settings) -> None:
    twice = resource(TOPIC, "t", (RETENTION, SET, "1"))
    assert settings.alter(twice, twice) == [42, 42]
    assert not settings.controllers.seen
