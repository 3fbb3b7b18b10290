"""Keeps Kafka's internal topics on Kafka's brokers, as long as no horolog coordinates in a cluster.

Controllers would spread a missing internal topic over all brokers at its first use. So each horolog
creates the missing ones by assignment to brokers of Apache Kafka, and cordons its directory until
they exist (KIP-1066). It does so once a broker of Kafka has registered: the first client of that
one may be faster than the next heartbeat here. Before `metadata.version` 30 directories cannot be
cordoned: the broker stays fenced instead. Where no other broker than horolog exists, no internal
topic is made.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from horolog.broker.cluster.controllers import AskController
from horolog.broker.cluster.placement import is_horolog
from horolog.config import BrokerConfig
from horolog.errors import ErrorCode, HorologError
from horolog.metadata.image import Image
from horolog.metadata.image_changes import Changes
from horolog.storage.names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from horolog.wire.api import ApiKey

FIRST_WITH_CORDONS: Final = 30
"""Level of `metadata.version` from which on directories can be cordoned, 4.3-IV0."""
WAIT_MS: Final = 60_000
"""Time to wait for as many brokers of Apache Kafka as the replication factor asks for.

So long a fenced one counts as starting; later, or once it was alive, it is down.
"""
CREATE_MS: Final = 30_000
_LOOK_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 10.0
_MOST_MOVES: Final = 20
_ALWAYS: Final = "true"
_IF_MISSING: Final = "auto"

_logger = logging.getLogger(__name__)


class WantedTopic(NamedTuple):
    """An internal topic as a broker of Apache Kafka would create it."""

    name: str
    partitions: int
    replication_factor: int
    min_isr: int | None
    settings: Mapping[str, str]


class InternalState(NamedTuple):
    """Findings about internal topics in an image."""

    missing: tuple[WantedTopic, ...]
    here: tuple[tuple[str, int, tuple[int, ...]], ...]
    """Topic, partition and replicas where this broker is a replica."""
    kafkas: tuple[int, ...]
    """Brokers of Apache Kafka that are alive."""
    has_cordons: bool


def wanted_topics(config: BrokerConfig, features: Mapping[str, int]) -> tuple[WantedTopic, ...]:
    """Return the internal topics that a cluster with these features needs."""
    cluster = config.cluster
    assert cluster is not None
    topics = [
        WantedTopic(
            CONSUMER_OFFSETS,
            config.offsets_topic_num_partitions,
            cluster.offsets_topic_replication_factor,
            None,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        ),
        WantedTopic(
            TRANSACTION_STATE,
            config.transaction_state_log_num_partitions,
            cluster.transaction_state_log_replication_factor,
            cluster.transaction_state_log_min_isr,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        ),
    ]
    if features.get("share.version", 0) > 0:
        topics.append(
            WantedTopic(
                SHARE_GROUP_STATE,
                cluster.share_coordinator_state_topic_num_partitions,
                cluster.share_coordinator_state_topic_replication_factor,
                cluster.share_coordinator_state_topic_min_isr,
                {
                    "cleanup.policy": "delete",
                    "compression.type": "producer",
                    "retention.ms": "-1",
                    "segment.bytes": str(cluster.share_coordinator_state_topic_segment_bytes),
                },
            )
        )
    return tuple(topics)


def internal_state(image: Image, node_id: int, wanted: Iterable[WantedTopic]) -> InternalState:
    """Look for internal topics, and for brokers that can have them."""
    topics = tuple(wanted)
    return InternalState(
        tuple(topic for topic in topics if topic.name not in image.topics),
        tuple(
            (topic.name, index, partition.replicas)
            for topic in topics
            if topic.name in image.topics
            for index, partition in sorted(image.topics[topic.name].partitions.items())
            if node_id in partition.replicas
        ),
        tuple(
            broker_id
            for broker_id, broker in sorted(image.brokers.items())
            if not broker.fenced and not broker.in_controlled_shutdown and not is_horolog(broker)
        ),
        image.metadata_version >= FIRST_WITH_CORDONS,
    )


def creation(topic: WantedTopic, brokers: tuple[int, ...]) -> dict[str, Any]:
    """Return the part of CreateTopics that creates a topic on some brokers."""
    count = min(topic.replication_factor, len(brokers))
    settings = dict(topic.settings)
    if topic.min_isr is not None:
        settings["min.insync.replicas"] = str(min(topic.min_isr, count))
    return {
        "name": topic.name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {
                "partition_index": index,
                "broker_ids": [brokers[(index + step) % len(brokers)] for step in range(count)],
            }
            for index in range(topic.partitions)
        ],
        "configs": [{"name": name, "value": value} for name, value in sorted(settings.items())],
    }


class InternalTopics:
    """Creates missing internal topics, and says what keeps new partitions away from this broker.

    For the event loop's thread; others may read `cordoned` and `keeps_fenced`.
    """

    def __init__(
        self,
        node_id: int,
        directory_id: UUID,
        config: BrokerConfig,
        ask: AskController,
        monotonic_ms: Callable[[], int],
    ) -> None:
        assert config.cluster is not None
        self._node_id = node_id
        self._directory_id = directory_id
        self._config = config
        self._ask = ask
        self._monotonic_ms = monotonic_ms
        self._state = InternalState((), (), (), has_cordons=True)
        self._since_ms: int | None = None  # when it began to wait for brokers
        self._starting: dict[tuple[int, int], int | None] = {}
        """By id and epoch of each broker of Kafka: since when it starts; None once it was alive."""
        self._refusal: str | None = None
        self._changed = asyncio.Event()
        self._pause_s = _LOOK_S
        self.cordoned: tuple[UUID, ...] = ()
        """Directories that the next heartbeat cordons."""
        self.keeps_fenced: str | None = None
        """Reason why the broker must not be unfenced yet; None without one."""
        if config.cluster.horolog_cluster_cordoned == _ALWAYS:
            self.cordoned = (directory_id,)

    def look(self, image: Image, changes: Changes | None = None) -> None:
        """Decide by an image; nothing is done where the changes are empty."""
        if changes is not None and changes.is_empty:
            return
        wanted = wanted_topics(self._config, image.features)
        state = self._state = internal_state(image, self._node_id, wanted)
        now_ms = self._monotonic_ms()
        if not state.missing or not state.kafkas:
            self._since_ms = None
        elif self._since_ms is None:
            self._since_ms = now_ms
        self._starting = {
            (it.broker_id, it.broker_epoch): self._starting.get(
                (it.broker_id, it.broker_epoch), now_ms
            )
            if it.fenced
            else None
            for it in image.brokers.values()
            if not is_horolog(it)
        }
        self._decide()
        self._changed.set()

    @property
    def _is_awaited(self) -> bool:
        """True if an internal topic is missing that a broker of Kafka has, or will soon have."""
        return bool(self._state.missing) and (bool(self._state.kafkas) or self._is_one_starting)

    @property
    def _is_one_starting(self) -> bool:
        now_ms = self._monotonic_ms()
        since = (ms for ms in self._starting.values() if ms is not None)
        return any(now_ms - ms < WAIT_MS for ms in since)

    def _decide(self) -> None:
        """Decide whether new partitions are kept away."""
        state, cluster, is_awaited = self._state, self._config.cluster, self._is_awaited
        assert cluster is not None
        asked = cluster.horolog_cluster_cordoned
        is_cordoned = asked == _ALWAYS or (asked == _IF_MISSING and is_awaited)
        self.cordoned = (self._directory_id,) if is_cordoned and state.has_cordons else ()
        self.keeps_fenced = None
        if (
            not state.has_cordons
            and not cluster.horolog_cluster_internal_replicas
            and (is_awaited or (state.kafkas and state.here))
        ):
            self.keeps_fenced = next(self._problems())

    @property
    def complaints(self) -> list[str]:
        """Sentences about internal topics that are missing or here, for `horolog health`."""
        found = list(self._problems())
        if self._refusal is not None and self._state.missing:
            found.append(self._refusal)
        return found

    def _problems(self) -> Iterator[str]:
        state = self._state
        if self._is_awaited:
            names = ", ".join(topic.name for topic in state.missing)
            asked = max(topic.replication_factor for topic in state.missing)
            waits = ""
            if not state.kafkas:
                waits = "; a broker of Apache Kafka has registered, and is not alive yet"
            elif len(state.kafkas) < asked:
                waits = (
                    f"; {len(state.kafkas)} of {asked} brokers of Apache Kafka are alive, after a "
                    "minute it is created with those"
                )
            held = ""
            if self.cordoned:
                held = (
                    ". Until then this broker's directory is cordoned: a topic may be refused with "
                    "INVALID_REPLICATION_FACTOR or INVALID_REPLICA_ASSIGNMENT"
                )
            yield f"{names} does not exist yet{waits}{held}"
        if state.here:
            yield (
                f"{len(state.here)} replicas of internal topics are on this broker, which does not "
                "coordinate groups or transactions: move them with `kafka-reassign-partitions "
                f"--execute --reassignment-json-file FILE`; FILE: {self._moves()}"
            )

    def _moves(self) -> str:
        """Return the reassignment that moves replicas from here to brokers of Apache Kafka."""
        moves = []
        for number, (topic, index, replicas) in enumerate(self._state.here[:_MOST_MOVES]):
            others = [broker for broker in replicas if broker != self._node_id]
            free = [broker for broker in self._state.kafkas if broker not in others]
            if free:
                others.append(free[number % len(free)])
            moves.append({"topic": topic, "partition": index, "replicas": others})
        text = json.dumps({"version": 1, "partitions": moves}, separators=(",", ":"))
        more = len(self._state.here) - _MOST_MOVES
        return text if more <= 0 else f"{text}, and {more} more"

    async def run(self) -> None:
        """Create what is missing, until cancelled."""
        while True:
            self._changed.clear()
            if self._is_due():
                await self._create()
                await asyncio.sleep(self._pause_s)
            elif self._is_awaited:
                await asyncio.sleep(_LOOK_S)
                self._decide()
            else:
                await self._changed.wait()

    def _is_due(self) -> bool:
        state = self._state
        if not state.missing or not state.kafkas or self._since_ms is None:
            return False
        asked = max(topic.replication_factor for topic in state.missing)
        waited_ms = self._monotonic_ms() - self._since_ms
        return len(state.kafkas) >= asked or waited_ms >= WAIT_MS

    async def _create(self) -> None:
        """Ask the controllers once to create what is missing."""
        state = self._state
        topics = [creation(topic, state.kafkas) for topic in state.missing]
        fields = {"topics": topics, "timeout_ms": CREATE_MS, "validate_only": False}
        refusal: str | None = None
        try:
            body = await self._ask(ApiKey.CREATE_TOPICS, fields, timeout_ms=CREATE_MS)
        except HorologError as error:
            refusal = f"internal topics are not created: {error}"
        else:
            for row in body.topics:
                code = row.error_code
                if code == ErrorCode.none:
                    _logger.info("created %s on brokers %s", row.name, list(state.kafkas))
                elif code != ErrorCode.topic_already_exists:
                    refusal = f"{row.name} is not created: {row.error_message or f'error {code}'}"
        if refusal is not None and refusal != self._refusal:
            _logger.warning("%s", refusal)
        self._refusal = refusal
        self._pause_s = _LOOK_S if refusal is None else min(2 * self._pause_s, _LONGEST_PAUSE_S)
