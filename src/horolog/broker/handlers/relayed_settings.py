"""Settings in a cluster: changed by the controllers, but for our own part.

AlterConfigs, IncrementalAlterConfigs and CreateTopics are split. Kafka's brokers likewise change
their loggers themselves. Here remain as well:

- actions of horolog (docs/wire.md), which the broker performs that is asked;
- settings `horolog.*` of a topic, which controllers refuse on a topic. They are written to the
  resource of all brokers, bound to the topic's id (`metadata.state`), with this broker's rights.

A request without these is relayed as it is. Of a resource with both, the controllers' part is
first, and ours is left undone if that is refused. Imported only in a cluster.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from horolog.broker.broker import BrokerParts
from horolog.broker.cluster.relaying import Relay
from horolog.broker.control.table import check_rights, needs_of_changes, split_actions
from horolog.broker.dispatch import Request
from horolog.broker.handlers.configs import (
    changes_of,
    check_broker,
    check_logger_broker,
    refuse_repeated,
    without_settings,
)
from horolog.broker.handlers.results import PartOutcome, each, outcome_of
from horolog.broker.loggers import alter_loggers
from horolog.config import SettingChange, alter_broker, alter_topic, check_topic
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.metadata.state import is_hidden, shared_changes
from horolog.metadata.topics import unknown_topic
from horolog.network.reply import Reply
from horolog.wire.api import ApiKey
from horolog.wire.config_resources import ResourceType

__all__ = ["alter_in_cluster", "create_in_cluster"]

_OURS: Final = "horolog."


@dataclass(slots=True)
class _Resource:
    """A resource of the request, with the changes that are the controllers' and those here."""

    kind: int
    name: str
    theirs: list[Any]
    is_sent: bool = True
    perform: Callable[[], Awaitable[None]] | None = None
    outcome: PartOutcome = field(default_factory=PartOutcome)

    @property
    def is_theirs_alone(self) -> bool:
        return self.is_sent and self.perform is None and not self.outcome.error_code

    @property
    def key(self) -> tuple[int, str]:
        return self.kind, self.name


async def alter_in_cluster(
    request: Request[Any], broker: BrokerParts, relay: Relay, *, replaces: bool
) -> Mapping[str, Any] | Reply:
    """Make our changes, and have the controllers make the others.

    Raises:
        Hangup: as `Relay.answer`.
    """
    resources = [
        _Resource(asked.resource_type, asked.resource_name, list(asked.configs))
        async for asked in each(request, request.body.resources)
    ]
    times = Counter(resource.key for resource in resources)
    splitting = _Splitting(request, broker, relay, replaces=replaces)
    for resource in resources:
        await request.checkpoint()
        is_repeated = times[resource.key] > 1
        resource.outcome = await outcome_of(splitting.split(resource, is_repeated=is_repeated))
    if all(resource.is_theirs_alone for resource in resources):
        return await relay.body_for(request.frame, request.peer)
    await splitting.relay([one for one in resources if one.is_sent and not one.outcome.error_code])
    for resource in resources:
        if resource.perform is not None and not resource.outcome.error_code:
            resource.outcome = await outcome_of(resource.perform())
    return {
        "responses": [
            {
                "error_code": resource.outcome.error_code,
                "error_message": resource.outcome.message,
                "resource_type": resource.kind,
                "resource_name": resource.name,
            }
            for resource in resources
        ]
    }


class _Splitting:
    """Decides for one request what is done here."""

    def __init__(
        self, request: Request[Any], broker: BrokerParts, relay: Relay, *, replaces: bool
    ) -> None:
        self._request = request
        self._broker = broker
        self._relay = relay
        self._replaces = replaces
        self._validate_only: bool = request.body.validate_only
        self._api_key = ApiKey.ALTER_CONFIGS if replaces else ApiKey.INCREMENTAL_ALTER_CONFIGS

    async def split(self, resource: _Resource, *, is_repeated: bool) -> None:
        """Find the changes of a resource that are made here, and check these.

        Raises:
            HorologError: the resource is refused.
        """
        refuse_repeated(is_repeated=is_repeated)
        kind, name, broker = resource.kind, resource.name, self._broker
        if kind == ResourceType.BROKER_LOGGER and not self._replaces:
            check_logger_broker(broker, name)
            changes = await changes_of(self._request, resource.theirs, replaces=False)
            self._check_rights(resource, changes)
            alter_loggers(changes, validate_only=True)
            resource.is_sent = False
            self._perform(resource, partial(_alter_loggers, changes))
        elif kind not in set(ResourceType):
            raise without_settings(kind)
        elif kind in (ResourceType.BROKER, ResourceType.TOPIC):
            is_of_all = kind == ResourceType.BROKER and check_broker(broker, name)
            changes = await changes_of(self._request, resource.theirs, replaces=self._replaces)
            perform, settings = split_actions(broker, ResourceType(kind), name, changes)
            if perform is not None:
                self._check_rights(resource, [it for it in changes if it not in settings])
                self._keep(resource, settings)
                self._perform(resource, perform)
            if kind == ResourceType.TOPIC:
                self._split_topic(resource, settings)
            else:
                _check_broker_settings(broker, settings, is_of_all, replaces=self._replaces)

    def _split_topic(self, resource: _Resource, settings: list[SettingChange]) -> None:
        """Take over the settings `horolog.*` of a topic; if all are replaced, those there are."""
        topic = self._broker.topics.find(resource.name)
        ours = [change for change in settings if change.name.startswith(_OURS)]
        if topic is None and ours:
            raise unknown_topic(resource.name)  # here; a client asks again
        before = {} if topic is None else _ours(topic.overrides)
        if topic is None or not (ours or (self._replaces and before)):
            return
        self._check_rights(resource, ours)
        others = {} if self._replaces else topic.overrides
        after = _ours(alter_topic(self._broker.settings, others, ours))
        self._keep(resource, [change for change in settings if change not in ours])
        shared = self._relay.shared
        changes = shared_changes(topic.name, topic.topic_id, after, shared)
        if changes:
            self._perform(resource, partial(self._relay.change_shared, changes))

    def _keep(self, resource: _Resource, settings: list[SettingChange]) -> None:
        """Leave these changes to the controllers, who are not asked if there are none."""
        names = {change.name for change in settings}
        resource.theirs = [config for config in resource.theirs if config.name in names]
        resource.is_sent = bool(resource.theirs) or self._replaces

    def _perform(self, resource: _Resource, perform: Callable[[], Awaitable[None]]) -> None:
        resource.perform = _nothing if self._validate_only else perform

    def _check_rights(self, resource: _Resource, changes: list[SettingChange]) -> None:
        needs = needs_of_changes(resource.kind, [change.name for change in changes])
        peer, key = self._request.peer, self._api_key
        check_rights(self._broker, peer, key, resource.kind, resource.name, needs)

    async def relay(self, resources: list[_Resource]) -> None:
        """Have the controllers change resources, and note what they answer."""
        if not resources:
            return
        by_key = {resource.key: resource for resource in resources}
        asked = [
            {
                "resource_type": resource.kind,
                "resource_name": resource.name,
                "configs": [config._asdict() for config in resource.theirs],
            }
            for resource in resources
        ]
        fields = {"resources": asked, "validate_only": self._validate_only}
        request = self._request
        lost = PartOutcome(ErrorCode.unknown_server_error, "the controller did not answer it")
        try:
            body = await self._relay.relay_fields(
                self._api_key, request.version, request.client_id, fields, request.peer
            )
        except HorologError as error:
            code = code_for(error)
            if not isinstance(error, RequestRefused):
                code = ErrorCode.request_timed_out
            lost, found = PartOutcome(code, str(error)), {}
        else:
            found = {(it.resource_type, it.resource_name): it for it in body.responses}
        for key, resource in by_key.items():
            its = found.get(key)
            resource.outcome = (
                lost if its is None else PartOutcome(its.error_code, its.error_message)
            )


async def create_in_cluster(
    request: Request[Any], broker: BrokerParts, relay: Relay
) -> Mapping[str, Any] | Reply:
    """Have the controllers create topics, and give these their settings `horolog.*`.

    Raises:
        Hangup: as `Relay.answer`.
    """
    ours: dict[str, dict[str, str | None]] = {}
    for topic in request.body.topics:
        await request.checkpoint()
        if held := {it.name: it.value for it in topic.configs if it.name.startswith(_OURS)}:
            ours[topic.name] = held
    if not ours:
        return await relay.body_for(request.frame, request.peer)
    results: dict[str, dict[str, Any]] = {}
    for name, settings in ours.items():
        error_code, message = await outcome_of(_checked(broker, settings))
        if error_code:
            results[name] = _not_created(name, error_code, message)
    asked = []
    async for topic in each(request, request.body.topics):
        configs = [it._asdict() for it in topic.configs if not it.name.startswith(_OURS)]
        if topic.name not in results:
            assignments = [it._asdict() for it in topic.assignments]
            asked.append({**topic._asdict(), "assignments": assignments, "configs": configs})
    fields = {
        "topics": asked,
        "timeout_ms": request.body.timeout_ms,
        "validate_only": request.body.validate_only,
    }
    version = relay.offered()[ApiKey.CREATE_TOPICS].max  # its answer has the ids
    try:
        body = await relay.relay_fields(
            ApiKey.CREATE_TOPICS, version, request.client_id, fields, request.peer
        )
    except HorologError as error:
        code = code_for(error) if isinstance(error, RequestRefused) else ErrorCode.request_timed_out
        refused = [_not_created(it["name"], code, str(error)) for it in asked]
        return {"topics": [*results.values(), *refused]}
    for created in body.topics:
        result = _as_fields(created)
        settings = ours.get(created.name, {})
        if settings and not created.error_code and not request.body.validate_only:
            given = {name: value or "" for name, value in settings.items()}
            changes = shared_changes(created.name, created.topic_id, given, relay.shared)
            error_code, message = await outcome_of(relay.change_shared(changes))
            if error_code:
                text = f"the topic is created, without its settings {_OURS}*: {message}"
                result = _not_created(created.name, error_code, text)
        results[created.name] = result
    return {"topics": list(results.values())}


async def _checked(broker: BrokerParts, settings: Mapping[str, str | None]) -> None:
    check_topic(broker.settings, settings)


def _not_created(name: str, error_code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": None,
        "error_code": error_code,
        "error_message": message,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }


def _as_fields(structure: Any) -> Any:
    """Return a decoded structure as the fields that it is encoded from."""
    if hasattr(structure, "_asdict"):
        return {name: _as_fields(value) for name, value in structure._asdict().items()}
    return list(map(_as_fields, structure)) if isinstance(structure, tuple) else structure


def _ours(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name.startswith(_OURS)}


def _check_broker_settings(
    broker: BrokerParts, changes: list[SettingChange], is_of_all: bool, *, replaces: bool
) -> None:
    """Refuse what this broker could not obey, as Kafka's brokers do before they relay.

    Raises:
        RequestRefused: a setting is invalid, or contains state of horolog.
    """
    for change in changes:
        if is_hidden(change.name):
            raise RequestRefused(
                ErrorCode.invalid_request, f"{change.name} is kept by horolog, and is not set"
            )
    alter_broker(broker.settings, changes, cluster_wide=is_of_all, replaces=replaces)


async def _alter_loggers(changes: list[SettingChange]) -> None:
    alter_loggers(changes, validate_only=False)


async def _nothing() -> None:
    """Nothing, where a request is only validated."""
