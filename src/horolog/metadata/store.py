"""Durable state of a broker besides records and groups: topics, settings, reserved producer ids.

Rows in and out; beneath them the records of a `MetadataLog` (`mapping`, `state`). Every method is
one batch: a kill leaves all of it or nothing. It is synced before a method returns.

If metadata is damaged, settings that keep records may be lost. Then every topic is exempt from
retention until it is given settings, and producer ids continue beyond all possible ones. The
snapshot that replaces the damage contains both.

Not thread-safe. Never call it on the event loop, because every change is synced.
"""

import logging
import secrets
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Final
from uuid import UUID

from horolog.config.tables import secrets_among
from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.metadata import mapping, state
from horolog.metadata.home import OWN
from horolog.metadata.image import BROKER, GROUP, Image
from horolog.metadata.log import MetadataLog
from horolog.metadata.mapping import DirectoryNode
from horolog.metadata.reserve import Reserve
from horolog.metadata.rows import FollowedRow, SourceRow, Stored, TopicRow
from horolog.metadata.state import Identity
from horolog.quotas.entities import Entity
from horolog.rights.entries import AclEntry
from horolog.schemas.metadata import (
    CONSUMER_GROUPS,
    GROUP_VERSION,
    METADATA_VERSION,
    NEW_LOG_LEVEL,
    TRANSACTION_VERSION,
    AccessControlEntry,
    ClientQuota,
    FeatureLevel,
    ProducerIdsRecord,
    QuotaEntity,
    Record,
    RegisterBroker,
    RemoveAccessControlEntry,
    RemoveScramCredential,
    ScramCredential,
)
from horolog.schemas.transactions import SECOND_FLOW
from horolog.security.scram import Credential
from horolog.storage.directory.identity import Remembered

MOST_PRODUCER_ID: Final = (1 << 63) - 1
_WITH_SCRAM: Final = 11  # 3.5-IV2
_PRODUCER_IDS_A_MS: Final = 1000  # more than any broker can allocate

_logger = logging.getLogger(__name__)


class MetadataStore:
    """Open store of a log directory."""

    def __init__(
        self,
        log: MetadataLog,
        reserve: Reserve,
        state_dir: Path,
        is_own: bool,
        now_ms: Callable[[], int],
        first_producer_id: int = 0,
        beside: Image | None = None,
        present: Container[str] = (),
        *,
        remembered: Remembered = Remembered(),  # noqa: B008 - immutable
        is_lost: bool = False,
        succeeds_another: bool = False,
        entries: Mapping[UUID, AclEntry] | None = None,
        credentials: Mapping[tuple[str, int], Credential] | None = None,
        quotas: Mapping[tuple[Entity, str], float] | None = None,
    ) -> None:
        """Use an opened log.

        Nothing is written before the first change.

        Args:
            now_ms: clock for the time of each change.
            first_producer_id: lowest producer id to allocate after the metadata was lost.
            beside: state that was kept beside a log that is taken over now.
            present: topics that have directories then.
            is_lost: whether the directory had metadata that is gone.
            entries: access control entries of another product, which owns the directory.
            credentials: those of its users.
            quotas: those of its clients.
        """
        self._log = log
        self._reserve = reserve
        self.state_dir = state_dir
        """Directory of the metadata log and of the coordinators' topics."""
        self.is_own = is_own
        """Whether horolog owns the log directory, which is the state directory then."""
        self._beside = beside
        self._present = present
        self._others_entries = entries
        self._others_credentials = credentials
        self._others_quotas = quotas
        self._now_ms = now_ms
        self._node = DirectoryNode(0, UUID(int=0))
        self._guard: list[Record] = []
        self._registration: RegisterBroker | None = None  # until it is noted
        self._identity: Identity | None = None
        self.remembered = remembered
        """Identity of the directory as far as it is known without `meta.properties`."""
        self.succeeds_another = succeeds_another
        """Whether another broker led the partitions last, so that each is led in a new epoch."""
        self.refusal: str | None = None
        """Reason to refuse writes, because they could not be read back."""
        damage = [*log.damage, *(["The metadata log is gone"] if is_lost else [])]
        self.lost = tuple(damage)
        """Sentences about metadata that this start could not read; empty if it is whole."""
        if damage:
            self._exempt_all(damage, first_producer_id)

    def _exempt_all(self, damage: Sequence[str], first_producer_id: int) -> None:
        for what in damage:
            _logger.error("%s", what)
        _logger.error(
            "All topics are adopted, because some settings may be lost: their records are kept "
            "until the topics get settings again. Topics that are not known any more are adopted "
            "from their directories. Which cluster is followed, or what was promoted, may be lost: "
            "topics that were followed are not led here until they are followed again or promoted"
        )
        least = first_producer_id + self._now_ms() * _PRODUCER_IDS_A_MS
        least = min(max(least, self.image.next_producer_id), MOST_PRODUCER_ID)
        self._guard = [
            *mapping.guarded(self.image),
            ProducerIdsRecord(self._node.broker_id, -1, least),
        ]
        for record in self._guard:
            self.image.apply(record)  # so that no snapshot is without them

    @property
    def image(self) -> Image:
        """State after all records; to be read by the thread that calls the other methods."""
        return self._log.image

    def close(self) -> None:
        """Close the files."""
        self._log.close()

    @property
    def takes_over(self) -> bool:
        """True if the directory was a Kafka's and becomes horolog's with the first change."""
        return self._beside is not None

    def load(self) -> Stored:
        """Return all rows, including those that a log which is taken over will get."""
        image = self.image
        if self._beside is not None:
            image = deepcopy(image)
            for record in mapping.carried(image, self._beside, self._node, self._present):
                image.apply(record)
        stored = mapping.stored(image)
        return stored._replace(
            entries={**stored.entries, **(self._others_entries or {})},
            credentials={**stored.credentials, **(self._others_credentials or {})},
            quotas={**stored.quotas, **(self._others_quotas or {})},
        )

    def register(self, broker: RegisterBroker, identity: Identity | None = None) -> None:
        """Register the broker as the owner of the partitions, once at the start of a process.

        `identity`, if given, is what `meta.properties` says. It is kept here, too.

        Where the disk refuses it, it goes before the next change. A broker has to start on a full
        disk, so that topics can be deleted.

        Its epoch becomes the offset of its record, as Kafka's controller gives it.

        Raises:
            StorageFailed: the disk refused, and a directory was to be taken over.
        """
        self._node = DirectoryNode(broker.broker_id, broker.log_dirs[0])
        self._registration, self._identity = broker, identity
        if self._log.damage or _has_secrets(self.image):  # what is set aside may have some
            self._log.hide()
        try:
            self._append([])
        except StorageFailed as error:
            if self._beside is not None:
                raise
            _logger.error("The start is not noted in the metadata yet: %s", error)
        self._reserve.hold()

    # --- topics and settings ----------------------------------------------------------

    def put_topic(
        self,
        topic: TopicRow,
        overrides: Mapping[str, str] | None = None,
        followed: FollowedRow | None = None,
    ) -> None:
        """Create or replace a topic; `overrides`, if given, replace its settings.

        `followed`, if given, replaces the row of a followed topic. A topic that is `deleting` stays
        as a note until it is forgotten, or another topic of its name is created.

        Raises:
            StorageFailed: the disk refused; nothing has changed.
        """
        records = mapping.topic_records(self.image, self._node, topic, overrides, followed)
        if topic.deleting:
            self._append_by_reserve(records)
        else:
            self._append(records)

    def forget_topic(self, name: str) -> None:
        """Forget a deleted topic and its settings, except that it was promoted.

        That it was promoted is kept, and nothing else of that.

        Raises:
            StorageFailed: as `put_topic`.
        """
        self._append_by_reserve(mapping.forgotten(self.image, name))
        self._reserve.hold()

    def leader_epoch(self, topic_id: UUID, partition: int) -> int:
        """Return the stored leader epoch of a partition; -1 if there is none."""
        images = (self.image,) if self._beside is None else (self.image, self._beside)
        topics = (image.by_id.get(topic_id) for image in images)
        found = (topic.partitions.get(partition) for topic in topics if topic is not None)
        return max((its.leader_epoch for its in found if its is not None), default=-1)

    def raise_epochs(self, epochs: Mapping[tuple[str, int], int]) -> None:
        """Raise the stored leader epochs of partitions that are led in later ones.

        Raises:
            StorageFailed: as `put_topic`.
        """
        self._append(mapping.epochs_raised(self.image, epochs))

    def end_salvage(self) -> None:
        """Record that every topic on disk has a row again.

        Raises:
            StorageFailed: as `put_topic`.
        """
        self._append(mapping.settings_changed(self.image, {state.SALVAGED: None}))

    def change_settings(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of one broker, or of all (""); None deletes a setting.

        Raises:
            StorageFailed: as `put_topic`.
        """
        if secrets_among(changes):
            self._log.hide()
        self._append(mapping.settings_changed(self.image, changes, resource))

    def change_group_settings(self, group: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a group; None deletes a setting.

        Raises:
            StorageFailed: as `put_topic`.
        """
        self._append(mapping.settings_changed(self.image, changes, group, GROUP))

    def change_entries(self, added: Mapping[UUID, AclEntry], removed: Collection[UUID]) -> None:
        """Add and remove access control entries.

        What only takes rights away does so on a full disk, too.

        Raises:
            RequestRefused: another product owns the directory, and its entries count (44).
            StorageFailed: as `put_topic`.
        """
        self._refuse_of_another("access control entries")
        records: list[Record] = [
            *(AccessControlEntry(entry_id, *entry) for entry_id, entry in added.items()),
            *map(RemoveAccessControlEntry, removed),
        ]
        if not all(entry.is_denial for entry in added.values()):
            self._append(records)
        else:
            self._take_away(records)

    def change_credentials(
        self,
        changed: Mapping[tuple[str, int], Credential],
        removed: Collection[tuple[str, int]],
    ) -> None:
        """Set and remove keys that check passwords. A full disk refuses no removal alone.

        Raises:
            RequestRefused: another product owns the directory, and its users count (44); or its
                level of metadata has none (35).
            StorageFailed: as `put_topic`.
        """
        self._refuse_of_another("users")
        if self.image.metadata_version < _WITH_SCRAM:
            raise RequestRefused(
                ErrorCode.unsupported_version,
                f"SCRAM users need metadata.version {_WITH_SCRAM} (3.5-IV2) or later",
            )
        self._log.hide()
        records: list[Record] = [
            *(
                ScramCredential(name, number, *credential)
                for (name, number), credential in changed.items()
            ),
            *(RemoveScramCredential(*key) for key in removed),
        ]
        if changed:
            self._append(records)
        else:
            self._take_away(records)

    def change_quotas(
        self,
        changes: Mapping[tuple[Entity, str], float | None],
        copied: Collection[str] | None = None,
    ) -> None:
        """Set quotas of clients; None removes one.

        `copied`, if given, replaces the digests of the quotas that are copies of a source's.

        Raises:
            RequestRefused: another product owns the directory, and its quotas count (44).
            StorageFailed: as `put_topic`.
        """
        self._refuse_of_another("quotas")
        records: list[Record] = [
            ClientQuota(
                tuple(QuotaEntity(*part) for part in sorted(entity, reverse=True)),
                key,
                value or 0.0,
                remove=value is None,
            )
            for (entity, key), value in changes.items()
        ]
        if copied is not None:
            text = ",".join(sorted(copied)) or None
            records += mapping.settings_changed(self.image, {state.COPIED_QUOTAS: text})
        self._append(records)

    def _refuse_of_another(self, what: str) -> None:
        if self._others_entries is not None:
            raise RequestRefused(
                ErrorCode.policy_violation,
                f"The {what} of this directory are those of the Kafka that owns it: change them "
                "there, or take the directory over (serve --take-over)",
            )

    def login_secret(self) -> bytes:
        """Return the secret for salts of users that are not there; make it at the first time.

        Where it cannot be kept it is one of this process.
        """
        text = mapping.shared_settings(self.image).get(state.LOGIN_SECRET)
        if text is None:
            text = secrets.token_hex(32)
            try:
                self._log.hide()
                self._append(mapping.settings_changed(self.image, {state.LOGIN_SECRET: text}))
            except StorageFailed as error:
                _logger.error("The secret of logins is not kept: %s", error)
        return text.encode()

    def put_source(self, source: SourceRow, forgotten: Collection[str] = ()) -> None:
        """Replace the followed cluster, and forget that some topics were promoted.

        Raises:
            StorageFailed: as `put_topic`.
        """
        self._append(mapping.source_records(self.image, source, forgotten))

    def reserve_producer_ids(self, count: int, at_least: int) -> int:
        """Reserve `count` unused producer ids from `at_least`; return the first.

        Raises:
            RequestRefused: there are none left.
            StorageFailed: as `put_topic`.
        """
        first = max(at_least, self.image.next_producer_id)
        if first > MOST_PRODUCER_ID - count:
            raise RequestRefused(
                ErrorCode.unknown_server_error,
                "No producer id is left: the metadata or a producer in a log has "
                f"{first - 1}. Restore what is damaged, or remove the log that was copied here",
            )
        self._append([self._producer_ids(first + count)])
        return first

    def raise_producer_ids(self, at_least: int) -> None:
        """Reserve only producer ids from this one on.

        Raises:
            StorageFailed: as `put_topic`.
        """
        at_least = min(at_least, MOST_PRODUCER_ID)
        if self.image.next_producer_id < at_least:
            self._append([self._producer_ids(at_least)])

    def _producer_ids(self, next_id: int) -> ProducerIdsRecord:
        registered = self.image.brokers.get(self._node.broker_id)
        epoch = -1 if registered is None else registered.broker_epoch
        return ProducerIdsRecord(self._node.broker_id, epoch, next_id)

    def _append(self, records: Sequence[Record]) -> None:
        if self.refusal is not None:
            raise StorageFailed(self.refusal)
        before = [*self._first(), *self._guard]
        before += self._registered(self._log.next_offset + len(before))
        if not records and self._registration is None:
            return
        self._log.append([*before, *records], self._now_ms())
        self._guard.clear()
        self._registration = self._beside = None

    def _registered(self, offset: int) -> list[Record]:
        """Return the records of a start, for an offset; empty once they are written."""
        if self._registration is None:
            return []
        marks: dict[str, str | None] = {}
        moved: list[Record] = []
        if self.is_own:
            marks[state.HOME] = OWN
            moved = mapping.placed(self.image, self._node)
        if self._identity is not None:
            marks[state.IDENTITY] = state.json_of(self._identity)
        carried: list[Record] = []
        if self._beside is not None:
            carried = mapping.carried(self.image, self._beside, self._node, self._present)
        broker = self._registration._replace(broker_epoch=offset)
        features: list[Record] = []
        if mapping.is_before_groups(self.image):
            features.append(FeatureLevel(GROUP_VERSION, CONSUMER_GROUPS))
        marked = mapping.settings_changed(self.image, marks)
        return [broker, *features, *marked, *mapping.tidied(self.image), *carried, *moved]

    def _take_away(self, records: Sequence[Record]) -> None:
        """Append records that take rights away, and reserve again what is left of the space."""
        self._append_by_reserve(records)
        self._reserve.hold()

    def _append_by_reserve(self, records: Sequence[Record]) -> None:
        """Append records that have to be kept on a full disk, too."""
        try:
            self._append(records)
        except StorageFailed:
            if self.refusal is not None or not self._reserve.release():
                raise
            self._append(records)

    def _first(self) -> list[Record]:
        """Return the first records of a new log."""
        if METADATA_VERSION in self.image.features:
            return []
        return [
            FeatureLevel(METADATA_VERSION, NEW_LOG_LEVEL),
            FeatureLevel(TRANSACTION_VERSION, SECOND_FLOW),
            FeatureLevel(GROUP_VERSION, CONSUMER_GROUPS),
        ]

    @property
    def metadata_version(self) -> int:
        """Finalised level of `metadata.version`."""
        return self.image.metadata_version

    @property
    def transaction_version(self) -> int:
        """Finalised level of `transaction.version`, which decides how clients run transactions."""
        features = self.image.features
        if METADATA_VERSION not in features:
            return SECOND_FLOW
        return min(features.get(TRANSACTION_VERSION, 0), SECOND_FLOW)

    @property
    def group_version(self) -> int:
        """Finalised level of `group.version`: 1 allows consumer groups (KIP-848)."""
        features = self.image.features
        if METADATA_VERSION not in features:
            return CONSUMER_GROUPS
        return min(features.get(GROUP_VERSION, 0), CONSUMER_GROUPS)


def _has_secrets(image: Image) -> bool:
    """Return True if an image has passwords, or what checks them."""
    of_brokers = (
        secrets_among(settings) or state.LOGIN_SECRET in settings
        for (kind, _), settings in image.configs.items()
        if kind == BROKER
    )
    return bool(image.credentials) or any(of_brokers)
