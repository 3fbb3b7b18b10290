"""Values of the store: topics, settings, and the followed cluster."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from horolog.json_text import from_json
from horolog.quotas.entities import Entity
from horolog.rights.entries import AclEntry
from horolog.security.scram import Credential

AS_FOUND: Final = 0
"""Stored number of partitions of a topic whose partitions are those on disk."""

TOPIC_SCOPE = "topic"
BROKER_SCOPE = "broker"
GROUP_SCOPE = "group"


class TopicRow(NamedTuple):
    """A topic.

    Its partitions are 0 to `partitions` - 1, or those on disk if `AS_FOUND`.

    `indexes` are those that were last seen of one with gaps.

    An adopted topic always has the partitions on disk. A salvaged one is adopted because its row
    or its settings were damaged: its records do not expire even with `horolog.adopt.defaults`.
    A followed one is not led here, also where its `FollowedRow` is lost.
    """

    name: str
    topic_id: UUID
    partitions: int
    adopted: bool = False
    deleting: bool = False
    is_salvaged: bool = False
    followed: bool = False
    indexes: tuple[int, ...] = ()


class SettingRow(NamedTuple):
    """One setting; `resource` is a topic, a group, a broker id, or "" for all brokers."""

    scope: str
    resource: str
    name: str
    value: str


class SourceRow(NamedTuple):
    """The cluster that this broker follows, or has followed (docs/following.md)."""

    cluster_id: str
    """Empty if it was never reached. It is stored like that only once it has ended."""
    servers: str
    """Bootstrap servers, as in Kafka's setting."""
    topics: str
    """Pattern that the whole names of followed topics match; empty for no topics."""
    config: str
    """Path of a file of client properties; empty for none."""
    ended: bool = False
    """Whether everything was promoted. Nothing is followed until this broker is demoted."""


class FollowedRow(NamedTuple):
    """A topic that is followed, or was until its promotion.

    The row of a promoted topic stays when the topic is deleted, so that it is not followed again.
    """

    topic: str
    source_id: UUID | None
    """Topic id at the source; None from a Kafka before 2.8."""
    led: bool
    """Whether it was promoted."""
    epoch: int
    """Lowest leader epoch in which its partitions are led; -1 while it is followed."""
    settings: str
    """JSON object of the topic's own settings at the source, as last seen."""
    committed: Mapping[int, tuple[int, ...]] = {}
    """Producer ids by partition whose open transactions its promotion commits. It aborts the
    others."""

    @property
    def is_compacted(self) -> bool:
        """True if the source compacts the topic."""
        policy = settings_of_source(self.settings).get("cleanup.policy", "")
        return "compact" in policy.split(",")


def promoted_once(topic: str) -> FollowedRow:
    """Return the row that stays of a deleted promoted topic, so that a new one is not followed."""
    return FollowedRow(topic, None, True, 0, "{}")


class Stored(NamedTuple):
    """All rows of the store as of the last stop."""

    topics: list[TopicRow]
    settings: list[SettingRow]
    source: SourceRow | None = None
    followed: Sequence[FollowedRow] = ()
    is_salvaged: bool = False
    """Whether rows of topics may be lost. Then topics on disk without a row must not expire."""
    entries: Mapping[UUID, AclEntry] = {}
    """Access control entries by id."""
    credentials: Mapping[tuple[str, int], Credential] = {}
    """Keys that check passwords, by user and number of the mechanism."""
    quotas: Mapping[tuple[Entity, str], float] = {}
    """Quotas by entity and key."""
    copied_quotas: frozenset[str] = frozenset()
    """Digests of those that are copies of a source's."""


def settings_of_source(text: str) -> dict[str, str]:
    """Read the settings of a row's JSON.

    Raises:
        ValueError: no version of horolog writes this.
    """
    found = from_json(text)
    if not (isinstance(found, dict) and all(isinstance(value, str) for value in found.values())):
        raise ValueError(f"these are no settings: {text!r:.60}")
    return dict(found)


def settings_text(settings: Mapping[str, str]) -> str:
    """Write settings as the JSON of a row."""
    return json.dumps(dict(settings), sort_keys=True)
