"""Topics and their settings: creation, changes, descriptions, promotions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple
from uuid import UUID

from horolog.client.asking import Ask
from horolog.client.brokers import Brokers
from horolog.client.configs import ConfigResource, alter, describe_request, refuse_any, title_of
from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.metadata import ClusterMetadata, refuse
from horolog.client.retrying import RetriedCalls
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.wire.api import ApiKey
from horolog.wire.config_resources import ResourceType
from horolog.wire.questions import (
    ALL_PARTITIONS,
    ALL_TOPICS,
    APPEND_TIME_RESET,
    APPEND_TIMES_AHEAD,
    DEMOTE,
    PROMOTE,
    PROMOTED,
    STAMP_CLOCK_RESET,
    AppendTimesAhead,
    AskPromoted,
    Demotion,
    PromotedEntry,
)

_DESCRIBED_AT_ONCE: Final = 100  # topics of one request, each with dozens of settings
_MOST_TOPICS: Final = 25  # of long names, in one question or action
_METADATA_TOPIC: Final = "__cluster_metadata"
_FIRST_WITH_TIMES: Final = 1  # of DescribeQuorum
_FIRST_WITH_DEFAULTS: Final = 4  # of CreateTopics (KIP-464, Apache Kafka 2.4)


class ConfigEntry(NamedTuple):
    """Setting of a resource; `source` is 1 topic, 2 broker, 3 cluster, 4 file or 5 default."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """True if the setting has its default value."""
        return self.source == 5

    @property
    def is_given(self) -> bool:
        """True if the setting was chosen for the topic, and is not one of the broker's own."""
        return not self.is_default and (self.source == _OF_TOPIC or self.name not in _OF_BROKERS)


_OF_TOPIC: Final = 1
_OF_BROKERS: Final = frozenset({"message.format.version", "min.insync.replicas"})
_TOPIC_DEFAULTS: Final = ("num.partitions", "default.replication.factor")


class Topics(RetriedCalls):
    """Requests to the controller, and to brokers about themselves."""

    def __init__(self, brokers: Brokers) -> None:
        super().__init__(brokers)
        self._ask = Ask(brokers)

    def metadata(
        self,
        topics: Sequence[str] | None = None,
        *,
        auto_create: bool = False,
        node: int | None = None,
    ) -> ClusterMetadata:
        """Return brokers and topics of the cluster, from `node` or any broker; `None`: all topics.

        A missing topic is in the result with its error, also if `auto_create` made the broker
        create it just now.

        Raises:
            NoAnswer: no broker answers; a given `node` is tried once.
        """
        names = None if topics is None else list(topics)
        if node is not None:
            deadline = Deadline.after_ms(self.config.timeout_ms)
            return self.brokers.metadata(names, deadline, node=node)
        return self._persist(
            lambda deadline: self.brokers.metadata(names, deadline, auto_create=auto_create)
        )

    def create(
        self,
        topics: Mapping[str, int],
        *,
        configs: Mapping[str, str] | None = None,
        replication_factor: int = -1,
        validate_only: bool = False,
    ) -> dict[str, UUID | None]:
        """Create topics with a number of partitions (-1: the broker's default) and these settings.

        Returns their ids; None from brokers without topic ids.
        """
        if -1 in {replication_factor, *topics.values()}:
            count, replicas = self._defaults_of_topics()
            topics = {name: count if n == -1 else n for name, n in topics.items()}
            if replication_factor == -1:
                replication_factor = replicas
        settings = [{"name": name, "value": value} for name, value in (configs or {}).items()]
        new = [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": replication_factor,
                "assignments": (),
                "configs": settings,
            }
            for name, partitions in topics.items()
        ]
        body = self._ask_controller(
            ApiKey.CREATE_TOPICS,
            {"topics": new, "validate_only": validate_only},
            "topics",
        )
        return {topic.name: getattr(topic, "topic_id", None) for topic in body.topics}

    def _defaults_of_topics(self) -> tuple[int, int]:
        """Return the defaults behind -1 if the controller does not know -1; otherwise -1."""
        controller = self._persist(self.brokers.controller)
        if controller.version(ApiKey.CREATE_TOPICS) >= _FIRST_WITH_DEFAULTS:
            return -1, -1
        broker = (ResourceType.BROKER, str(self.metadata([]).controller_id))
        settings = self.describe_configs([broker], names=_TOPIC_DEFAULTS)[broker]
        partitions, replicas = (int(settings[name].value or -1) for name in _TOPIC_DEFAULTS)
        return partitions, replicas

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics with their records."""
        self._ask_controller(
            ApiKey.DELETE_TOPICS,
            {"topics": [{"name": name, "topic_id": None} for name in names], "topic_names": names},
            "responses",
        )

    def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Increase the number of partitions of topics to the given total."""
        topics = [
            {"name": name, "count": count, "assignments": None} for name, count in counts.items()
        ]
        self._ask_controller(
            ApiKey.CREATE_PARTITIONS,
            {"topics": topics, "validate_only": validate_only},
            "results",
        )

    def describe_configs(
        self, resources: Sequence[ConfigResource], *, names: Sequence[str] | None = None
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the settings of topics and brokers, defaults included; `names` selects some.

        Raises:
            RequestRefused: a resource that does not exist.
        """

        def attempt(deadline: Deadline) -> dict[ConfigResource, dict[str, ConfigEntry]]:
            described = {}
            for resource in resources:
                link = self._about(resource, deadline)
                request = describe_request({resource: names}, with_documentation=True)
                body = link.ask(ApiKey.DESCRIBE_CONFIGS, request, deadline)
                refuse_any((title_of(resource), result) for result in body.results)
                entries = [_entry(entry) for result in body.results for entry in result.configs]
                described[resource] = {entry.name: entry for entry in entries}
            return described

        return self._persist(attempt)

    @contextmanager
    def naming_size_limit(self, topic: str) -> Iterator[None]:
        """Add `max.message.bytes` of the topic to the error of a batch that exceeds it."""
        try:
            yield
        except RequestRefused as refusal:
            if refusal.code is not ErrorCode.message_too_large:
                raise
            limit = None
            with suppress(HorologError):
                resource = (ResourceType.TOPIC, topic)
                limit = self.describe_configs([resource])[resource]["max.message.bytes"].value
            if limit is None:
                raise
            raise RequestRefused(refusal.code, f"{refusal}, of {limit} bytes") from None

    def settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return settings of topics, or of their brokers, without the defaults of the software.

        The stored format (KIP-32) and `min.insync.replicas`, which Kafka 4 stores for the cluster
        (KIP-966), are left out unless they are set for the topic. Topics that do not exist or may
        not be described are missing in the result.
        """
        settings: dict[str, dict[str, str]] = {}
        for start in range(0, len(topics), _DESCRIBED_AT_ONCE):
            some = topics[start : start + _DESCRIBED_AT_ONCE]
            request = describe_request(dict.fromkeys((ResourceType.TOPIC, name) for name in some))

            def attempt(deadline: Deadline, request: Mapping[str, Any] = request) -> Any:
                return self.brokers.any(deadline).ask(ApiKey.DESCRIBE_CONFIGS, request, deadline)

            body = self._persist(attempt)
            for result in body.results:
                if result.error_code == ErrorCode.none:
                    entries = map(_entry, result.configs)
                    settings[result.resource_name] = {
                        entry.name: entry.value
                        for entry in entries
                        if entry.value is not None and entry.is_given
                    }
        return settings

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set some settings, and leave the others; None restores the default.

        Raises:
            RequestRefused: a setting or value that the broker does not take, with its reason.
        """
        for resource, settings in changes.items():

            def attempt(
                deadline: Deadline,
                resource: ConfigResource = resource,
                settings: Mapping[str, str | None] = settings,
            ) -> None:
                link = self._about(resource, deadline)
                alter(link, resource, settings, deadline, validate_only=validate_only)

            self._persist(attempt)

    def cluster_time_ms(self) -> int | None:
        """Return the time of the active controller, in milliseconds (KIP-836).

        None from clusters with ZooKeeper, clusters before Kafka 3.3, and clusters that this client
        may not describe.
        """

        def attempt(deadline: Deadline) -> int | None:
            link = self.brokers.any(deadline)
            partitions = [{"partition_index": 0}]
            request = {"topics": [{"topic_name": _METADATA_TOPIC, "partitions": partitions}]}
            body = link.ask(ApiKey.DESCRIBE_QUORUM, request, deadline, lowest=_FIRST_WITH_TIMES)
            refuse(body.error_code, "the quorum", getattr(body, "error_message", None))
            for topic in body.topics:
                for partition in topic.partitions:
                    refuse(partition.error_code, "the quorum", None)
                    for voter in partition.current_voters:
                        if voter.replica_id == partition.leader_id:
                            caught_up_ms = int(voter.last_caught_up_timestamp)
                            return caught_up_ms if caught_up_ms >= 0 else None
            return None

        try:
            return self._persist(attempt)
        except RequestRefused as error:
            if error.code.retriable:
                raise
            return None

    def numbers(self, topic: str, *, auto_create: bool = False) -> list[int]:
        """Return the numbers of a topic's partitions, in order."""
        return self._persist(
            lambda deadline: sorted(
                self.brokers.topic(topic, deadline, auto_create=auto_create).partitions
            )
        )

    def promote(self, topics: Sequence[str] | None) -> None:
        """Make a horolog broker lead topics that it follows.

        Without names it leads all of them, and follows nothing any more. It may be called again:
        topics that are led stay so.
        """
        if topics is None:
            self._ask.act(PROMOTE, "", ALL_TOPICS)
        for some in _parts(topics or ()):
            self._ask.act(PROMOTE, "", json.dumps(some))

    def promoted(self, topics: Sequence[str] = ()) -> list[PromotedEntry] | None:
        """Return the outcome of promotions of these topics, or all, since the start of a broker.

        None from a broker that does not report it.
        """
        entries: list[PromotedEntry] = []
        for some in _parts(topics) or [[]]:
            answer = self._ask(PROMOTED, "", AskPromoted(tuple(some)))
            if answer is None:
                return None
            entries += answer.entries
        return entries

    def demote(self, servers: str, topics_pattern: str = ".*") -> None:
        """Make a horolog broker follow a cluster, also in topics that it leads.

        Args:
            servers: the bootstrap servers of the cluster, as the broker reaches it.
            topics_pattern: regular expression in RE2's syntax, matched against whole names.
        """
        self._ask.act(DEMOTE, "", json.dumps(Demotion(servers, topics_pattern)._asdict()))

    def append_times_ahead(self, topic: str) -> AppendTimesAhead:
        """Return how far a topic's append times are ahead of the clock of a horolog broker."""
        return self._ask.needed(APPEND_TIMES_AHEAD, topic)

    def reset_append_times(self, topic: str, partitions: Sequence[int] | None = None) -> None:
        """Lower the append times of a topic, or some of its partitions, to the broker's clock."""
        value = ALL_PARTITIONS if partitions is None else ",".join(map(str, partitions))
        self._ask.act(APPEND_TIME_RESET, topic, value)

    def lower_append_time_clock(self) -> None:
        """Lower the clock of append times to the broker's clock; no partition is reset."""
        self._ask.act(STAMP_CLOCK_RESET, "", ALL_PARTITIONS)

    def _about(self, resource: ConfigResource, deadline: Deadline) -> Link:
        """Return the broker to ask about a resource: a broker about itself, any about the rest."""
        kind, name = resource
        if kind is ResourceType.BROKER and name:
            return self.brokers.node(int(name), deadline)
        return self.brokers.any(deadline)

    def _ask_controller(self, api_key: ApiKey, request: Mapping[str, Any], results: str) -> Any:
        """Change topics; `results` is the field of the response with a result for each."""

        def attempt(deadline: Deadline) -> Any:
            timed = {**request, "timeout_ms": deadline.left_ms()}
            body = self.brokers.controller(deadline).ask(api_key, timed, deadline)
            refuse_any((f"topic {result.name}", result) for result in getattr(body, results))
            return body

        body = self._persist(attempt, may_repeat=False)
        self.brokers.forget()
        return body


def _parts(topics: Sequence[str]) -> list[list[str]]:
    """Split topics into groups that fit one request."""
    return [list(topics[at : at + _MOST_TOPICS]) for at in range(0, len(topics), _MOST_TOPICS)]


def _entry(each: Any) -> ConfigEntry:
    return ConfigEntry(
        each.name,
        each.value,
        each.config_source,
        each.read_only,
        each.is_sensitive,
        getattr(each, "documentation", None),
    )
