"""Node that is its own controller: its metadata store, changes of topics, and following.

A broker is built around a `NodeParts`: this one, or that of a cluster (`cluster.node`).
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from horolog.broker.controller import Controller
from horolog.broker.coordinators.carrying_state import carry_groups, carry_transactions
from horolog.broker.follow_state import FollowState
from horolog.broker.opening import OpenedStorage
from horolog.broker.partitions import Partitions
from horolog.broker.placement.placement import Placement
from horolog.broker.placement.shadow import ShadowPlacement
from horolog.broker.producers import FIRST_PRODUCER_ID, ProducerIds
from horolog.broker.scheduling.metadata_thread import MetadataThread
from horolog.broker.settings import LiveSettings
from horolog.broker.shadow.access import FollowedAccess
from horolog.broker.shadow.shadow import Shadow
from horolog.errors import HorologError
from horolog.metadata.topics import Topic, TopicRegistry
from horolog.schemas.metadata import (
    CONSUMER_GROUPS,
    GROUP_VERSION,
    METADATA_VERSION,
    NEWEST_LEVEL,
    OLDEST_LEVEL,
    TRANSACTION_VERSION,
)
from horolog.schemas.transactions import FIRST_FLOW, SECOND_FLOW
from horolog.storage.directory.clean_shutdown import NO_BROKER_EPOCH
from horolog.wire.api import Versions

if TYPE_CHECKING:
    from horolog.broker.broker import BrokerParts

_LOG = logging.getLogger(__name__)

_CLAIMS: Final = {
    METADATA_VERSION: Versions(OLDEST_LEVEL, NEWEST_LEVEL),
    TRANSACTION_VERSION: Versions(FIRST_FLOW, SECOND_FLOW),
    GROUP_VERSION: Versions(0, CONSUMER_GROUPS),
}
LOADING_S: Final = 1.0
"""Longest wait of a start for groups. After that they are loaded while it serves."""


class GivesProducerIds(Protocol):
    """Allocates producer ids."""

    async def next(self) -> int:
        """Allocate an id.

        Raises:
            HorologError: that is not possible now.
        """
        ...


class NodeParts(Protocol):
    """Parts of a broker that a node alone and a broker of a cluster have in different ways."""

    @property
    def lost(self) -> tuple[str, ...]:
        """Sentences about metadata that could not be read."""
        ...

    @property
    def claims(self) -> Mapping[str, Versions]:
        """Features of Kafka, with the levels that this broker can have finalised."""
        ...

    @property
    def levels(self) -> Mapping[str, int]:
        """Finalised levels of features; 0 is absent."""
        ...

    @property
    def levels_epoch(self) -> int:
        """Version of the finalised levels, for clients that compare answers."""
        ...

    @property
    def follow_state(self) -> FollowState:
        """State of following another cluster."""
        ...

    @property
    def producer_ids(self) -> GivesProducerIds:
        """Source of producer ids."""
        ...

    def place(self, live: LiveSettings, topics: TopicRegistry, partitions: Partitions) -> Placement:
        """Return the part that answers who leads a partition."""
        ...

    async def ensure_internal(self, name: str) -> Topic:
        """Return an internal topic, which is created if it does not exist.

        Raises:
            RequestRefused, StorageFailed: it cannot be.
        """
        ...

    def compose(self, broker: "BrokerParts") -> None:
        """Build what needs all other parts. Called once, after they are built."""
        ...

    async def load(self) -> None:
        """Begin to load the state of the coordinators."""
        ...

    def lose_directory(self, why: str) -> None:
        """React to a log directory that is lost. Called once."""
        ...

    async def start(self) -> None:
        """Start what runs beside requests."""
        ...

    async def stop(self, *, is_clean: bool) -> None:
        """Stop it; unless it `is_clean`, at once, as a crash would."""
        ...

    @property
    def broker_epoch(self) -> int:
        """Broker epoch for the marker of a clean stop; -1 if the logs may not count as clean."""
        ...

    async def close(self) -> None:
        """Close files, after the logs are closed."""
        ...


class AloneNode:
    """The only broker of its cluster. For the event loop's thread only."""

    controller: Controller
    shadow: Shadow

    def __init__(self, opened: OpenedStorage) -> None:
        self._opened = opened
        self._store = store = opened.store
        self._metadata = MetadataThread(store)
        self.follow_state = FollowState(
            opened.stored,
            lambda source, forgotten: self._metadata.run(store.put_source, source, forgotten),
        )
        logs = opened.log_dir.logs.values()
        highest = max((log.producers.highest_id for log in logs), default=-1)
        if highest >= FIRST_PRODUCER_ID:
            # Of a horolog's log that was restored or copied. Its producers are forgotten once they
            # have been idle for long, and their ids must not be given out then either.
            store.raise_producer_ids(highest + 1)
        self.producer_ids = ProducerIds(self._metadata, store, highest + 1)
        self._warning: asyncio.Task[None] | None = None
        self._broker: BrokerParts

    @property
    def lost(self) -> tuple[str, ...]:
        """Sentences about metadata that could not be read."""
        return self._store.lost

    @property
    def claims(self) -> Mapping[str, Versions]:
        """Features of Kafka that a directory of this broker may have."""
        return _CLAIMS

    @property
    def levels(self) -> Mapping[str, int]:
        """Levels that the directory's metadata log has; 0 is absent."""
        store = self._store
        levels = {
            METADATA_VERSION: store.metadata_version,
            TRANSACTION_VERSION: store.transaction_version,
            GROUP_VERSION: store.group_version,
        }
        return {name: level for name, level in levels.items() if level}

    @property
    def levels_epoch(self) -> int:
        """Always 0."""
        return 0

    def place(self, live: LiveSettings, topics: TopicRegistry, partitions: Partitions) -> Placement:
        """Return the placement of a broker that may follow another cluster."""
        return ShadowPlacement(live, topics, partitions, self.follow_state)

    async def ensure_internal(self, name: str) -> Topic:
        """Return an internal topic, as `Controller.ensure_internal`."""
        return await self.controller.ensure_internal(name)

    def compose(self, broker: "BrokerParts") -> None:
        """Build the controller and the shadow."""
        catalogue, rights = broker.catalogue, broker.entries
        credentials, quotas = broker.credentials, broker.quotas.quotas
        self._broker = broker
        self.controller = Controller(
            catalogue, broker.groups, self._metadata, self._store, rights, credentials, quotas
        )
        copied_quotas = self._opened.stored.copied_quotas
        access = FollowedAccess(
            self.controller, broker.access.rights, credentials, quotas, copied_quotas
        )
        self.shadow = Shadow(
            catalogue,
            self.controller,
            broker.groups,
            broker.transactions,
            self.producer_ids,
            access,
        )

    async def load(self) -> None:
        """Begin to load the groups, and wait for a second at most until they are loaded."""
        broker, beside = self._broker, self._opened.beside
        states = beside.transactions()
        now_ms = broker.clock.now_ms()
        await carry_transactions(states, broker.transactions_topic, broker.partitions, now_ms)
        broker.groups.load(broker.offsets_topic, broker.topics.id_of, broker.readers)
        if beside:
            await broker.groups.tried()
            try:
                stored = beside.groups(broker.topics.id_of)
                await carry_groups(
                    stored, states.values(), broker.groups, broker.offsets_log, broker.partitions
                )
                await self._metadata.run(beside.remove)
            except HorologError as error:
                if states:
                    raise
                _LOG.error("the groups in %s are not taken over yet: %s", beside, error)
        self._warning = asyncio.create_task(self._warn_of_what_is_left_behind())
        await asyncio.wait({self._warning}, timeout=LOADING_S)

    async def _warn_of_what_is_left_behind(self) -> None:
        broker, opened = self._broker, self._opened
        await broker.groups.tried()
        offsets = broker.groups.offsets
        groups = sorted(map(repr, offsets.group_ids()))
        for warning in opened.left_behind.warnings(
            opened.topics,
            broker.settings,
            lambda *key: offsets.get(*key) is not None,
            {**opened.made_here, "offsets of groups": groups},
        ):
            _LOG.warning("%s", warning)

    def lose_directory(self, why: str) -> None:
        """Refuse changes of the metadata from now on."""
        self._store.refusal = why

    async def start(self) -> None:
        """Start to follow, and continue transactions."""
        if self.shadow.is_promoted_in_part:
            _LOG.warning(
                "a promotion was interrupted: `horolog promote` continues with it, and "
                "transactions continue after that"
            )
        else:
            self._broker.transactions.start()
        await self.shadow.start()

    async def stop(self, *, is_clean: bool) -> None:
        """Stop following."""
        if self._warning is not None:
            self._warning.cancel()
        await self.shadow.stop()

    @property
    def broker_epoch(self) -> int:
        """No epoch: no controller has registered this broker."""
        return NO_BROKER_EPOCH

    async def close(self) -> None:
        """Close the metadata store."""
        await self._metadata.close()
