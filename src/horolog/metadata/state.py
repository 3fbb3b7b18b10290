"""State of horolog that Kafka has no metadata records for.

It is held by settings of the resource of all brokers (type 4, name ""), which Kafka keeps, also in
its snapshots, and does not obey:

    horolog.state.home              this directory's metadata is horolog's (`home.py`)
    horolog.state.identity          `Identity` as JSON: a copy of `meta.properties`
    horolog.state.login.secret      secret for salts of users that are not there
    horolog.state.copied.quotas     digests of quotas that are copies of a source's
    horolog.state.salvaged          rows of topics may be lost: `Stored.is_salvaged`
    horolog.state.source            `SourceRow` as JSON
    horolog.state.followed.TOPIC    `FollowedRow` as JSON
    horolog.state.topic.TOPIC       `TopicState` as JSON, with the topic id that it is about
    horolog.deleting.TOPIC-ID       `_Deletion` as JSON, until the directories are renamed
    horolog.topic.TOPIC.SETTING     a setting of a topic that Kafka would refuse on the topic

Kafka checks all settings of a topic whenever one is altered, so a topic's own resource has only
what Kafka 4.3 knows. The rest is held beside it (`split` and `joined`):

- settings of `horolog.*`, and those that Kafka 4 removed;
- `segment.bytes` below 1 MiB, which keeps a Kafka 4.3 from starting: there it becomes
  `internal.segment.bytes`, which earlier releases refuse;
- what a topic says of retention, while nothing of it may expire. Then its own resource says -1.

A topic that Kafka deletes and makes again does not inherit anything: the state has the topic's id.
A name of `horolog.topic.` is read in one way only, because no setting that is held there ends with
the name of another behind a dot.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from horolog.config.tables import topic_settings
from horolog.errors import printable
from horolog.json_text import from_json, read_as
from horolog.metadata.rows import (
    AS_FOUND,
    FollowedRow,
    SourceRow,
    TopicRow,
    settings_of_source,
    settings_text,
)
from horolog.patterns import name_pattern
from horolog.schemas.metadata import NEWEST_LEVEL
from horolog.storage import names
from horolog.storage.directory.checkpoints import decode_uuid, kafka_uuid
from horolog.storage.directory.identity import is_cluster_id

HOME: Final = "horolog.state.home"
IDENTITY: Final = "horolog.state.identity"
SALVAGED: Final = "horolog.state.salvaged"
LOGIN_SECRET: Final = "horolog.state.login.secret"  # noqa: S105 - the name of a setting
COPIED_QUOTAS: Final = "horolog.state.copied.quotas"
SOURCE: Final = "horolog.state.source"
_FOLLOWED: Final = "horolog.state.followed."
_TOPIC: Final = "horolog.state.topic."
_DELETING: Final = "horolog.deleting."
_SETTING: Final = "horolog.topic."
_HIDDEN: Final = ("horolog.state.", _DELETING, _SETTING)

_RETENTION: Final = ("retention.ms", "retention.bytes")
_UNLIMITED: Final = "-1"
_SEGMENT_BYTES: Final = "segment.bytes"
_INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"
_LEAST_SEGMENT_BYTES: Final = 1 << 20
_WITH_INTERNAL: Final = 30
"""The `metadata.version` of a Kafka that was seen to know `internal.segment.bytes` (4.3)."""
_MOST_DIGITS: Final = 12

Settings = Mapping[str, str]

_logger = logging.getLogger(__name__)


class TopicState(NamedTuple):
    """Flags of one topic that Kafka's records do not have."""

    id: str
    """Id as Kafka prints it."""
    adopted: bool = False
    salvaged: bool = False
    followed: bool = False
    small_segments: bool = False
    """Whether its `internal.segment.bytes` is the value of its `segment.bytes`."""


class Identity(NamedTuple):
    """Copy of `meta.properties`, for a start that does not find the file."""

    cluster_id: str
    node_id: Annotated[int, range(1 << 31)]
    directory_id: str | None = None
    """Id as Kafka prints it."""
    version: Annotated[int, range(2)] = 1


class Split(NamedTuple):
    """Settings of a topic, by the resource that has them."""

    own: dict[str, str]
    shared: dict[str, str]
    """Settings of the resource of all brokers."""


class _Deletion(NamedTuple):
    topic: str
    partitions: Annotated[int, range(names.MAX_PARTITION + 2)]
    adopted: bool = False


class _Followed(NamedTuple):
    source_id: str | None
    led: bool
    epoch: Annotated[int, range(-1, 1 << 31)]
    settings: dict[str, str]
    committed: Mapping[int, tuple[int, ...]] = {}


def is_hidden(name: str) -> bool:
    """True if a setting of all brokers contains horolog's state and is not shown."""
    return name.startswith(_HIDDEN)


# --- topics -------------------------------------------------------------------------------


def split(row: TopicRow, overrides: Settings, level: int = NEWEST_LEVEL) -> Split:
    """Distribute a topic's flags and settings over two resources, for a `metadata.version`."""
    own = dict(overrides)
    held = {name: own.pop(name) for name in overrides if name in held_settings()}
    if row.adopted:
        held |= {name: own.pop(name) for name in _RETENTION if name in own}
        own |= dict.fromkeys(_RETENTION, _UNLIMITED)
    is_small = _is_small(own.get(_SEGMENT_BYTES))
    if is_small and (_INTERNAL_SEGMENT_BYTES in own or level < _WITH_INTERNAL):
        held[_SEGMENT_BYTES] = own.pop(_SEGMENT_BYTES)
        is_small = False
    elif is_small:
        own[_INTERNAL_SEGMENT_BYTES] = own.pop(_SEGMENT_BYTES)
    shared = {f"{_SETTING}{row.name}.{name}": value for name, value in held.items()}
    state = TopicState(
        kafka_uuid(row.topic_id), row.adopted, row.is_salvaged, row.followed, is_small
    )
    if shared or any(state[1:]):
        shared[f"{_TOPIC}{row.name}"] = json_of(state)
    return Split(own, shared)


def shared_changes(
    name: str, topic_id: UUID, after: Settings, shared: Settings
) -> dict[str, str | None]:
    """Return the changes of the resource of all brokers for a topic; None removes a setting.

    What an earlier topic of that name has left there is removed.

    Args:
        after: settings of the topic after the change that controllers refuse on it.
        shared: the settings of all brokers.
    """
    wanted = split(TopicRow(name, topic_id, AS_FOUND), after).shared
    changes: dict[str, str | None] = dict.fromkeys(topic_names(name, shared))
    changes |= wanted
    return {key: value for key, value in changes.items() if shared.get(key) != value}


def joined(row: TopicRow, own: Settings, shared: Settings) -> tuple[TopicRow, dict[str, str]]:
    """Return a topic with its flags, and its settings: the inverse of `split`.

    Args:
        row: of the topic; its flags are replaced.
        own: the settings of its own resource.
    """
    state = _state_of(row, shared)
    overrides = dict(own)
    if state is None:
        state, held = TopicState(""), {}
    else:
        held = {name: shared[key] for name, key in _held(row.name) if key in shared}
    if state.adopted:
        for name in _RETENTION:
            if overrides.get(name) == _UNLIMITED:
                del overrides[name]
    if state.small_segments and _SEGMENT_BYTES not in overrides:
        small = overrides.pop(_INTERNAL_SEGMENT_BYTES, None)
        if small is not None:
            overrides[_SEGMENT_BYTES] = small
    return row._replace(
        adopted=state.adopted, is_salvaged=state.salvaged, followed=state.followed
    ), {**held, **overrides}


def _state_of(row: TopicRow, shared: Settings) -> TopicState | None:
    """Return the flags of a topic; None if they belong to an earlier topic of its name."""
    text = shared.get(f"{_TOPIC}{row.name}")
    if text is None:
        return TopicState("")
    try:
        state = read_as(TopicState, from_json(text), may_have_more=True)
    except ValueError as error:
        _logger.error("what is kept of %s cannot be read, it is adopted: %s", row.name, error)
        return TopicState("", adopted=True, salvaged=True)
    return state if state.id == kafka_uuid(row.topic_id) else None


def topic_names(name: str, shared: Settings) -> Iterator[str]:
    """Yield the settings of all brokers about a topic of this name, except its `FollowedRow`."""
    for key in (f"{_TOPIC}{name}", *(key for _, key in _held(name))):
        if key in shared:
            yield key


def topics_in(shared: Iterable[str]) -> Iterator[str]:
    """Yield the topics that settings of all brokers are about; some may not exist."""
    for key in shared:
        if key.startswith(_TOPIC):
            yield key.removeprefix(_TOPIC)
        elif key.startswith(_SETTING):
            rest = key.removeprefix(_SETTING)
            for name, _ in _held(""):
                if rest.endswith(f".{name}"):
                    yield rest.removesuffix(f".{name}")


def _held(topic: str) -> Iterator[tuple[str, str]]:
    """Yield every setting that may be kept beside a topic, with the name that it has there."""
    for name in (*held_settings(), *_RETENTION, _SEGMENT_BYTES):
        yield name, f"{_SETTING}{topic}.{name}"


@cache
def held_settings() -> tuple[str, ...]:
    """Return the settings of topics that Kafka 4 refuses on a topic, with their older names."""
    known = topic_settings().values()
    refused = [
        setting.name for setting in known if setting.gone or setting.name.startswith("horolog.")
    ]
    return (*refused, *(alias for setting in known for alias in setting.aliases))


def stale_names(topics: Mapping[str, UUID], shared: Settings) -> Iterator[str]:
    """Yield the settings about topics that are deleted, or were made again with another id."""
    for key in shared:
        if not key.startswith(_TOPIC):
            continue
        name = key.removeprefix(_TOPIC)
        topic_id = topics.get(name)
        row = None if topic_id is None else TopicRow(name, topic_id, AS_FOUND)
        if row is None or _state_of(row, shared) is None:
            yield from topic_names(name, shared)


def _is_small(segment_bytes: str | None) -> bool:
    text = (segment_bytes or "").strip()
    is_number = re.fullmatch(r"[+]?[0-9]+", text, re.ASCII) is not None
    return is_number and len(text) < _MOST_DIGITS and int(text) < _LEAST_SEGMENT_BYTES


# --- the identity of the directory --------------------------------------------------------


def identity_in(shared: Settings) -> Identity | None:
    """Return the copy of `meta.properties`; None if it is missing or unreadable."""
    text = shared.get(IDENTITY)
    if text is None:
        return None
    try:
        identity = read_as(Identity, from_json(text), may_have_more=True)
        if not is_cluster_id(identity.cluster_id):
            raise ValueError(f"{identity.cluster_id!r:.60} is no cluster id")
        if identity.directory_id is not None and not is_cluster_id(identity.directory_id):
            raise ValueError(f"{identity.directory_id!r:.60} is no directory id")
    except ValueError as error:
        _logger.error("the copy of %s in the metadata is ignored: %s", names.META_PROPERTIES, error)
        return None
    return identity


# --- deletions ----------------------------------------------------------------------------


def deletion(row: TopicRow) -> tuple[str, str]:
    """Return the setting that notes a begun deletion: name and value."""
    note = _Deletion(row.name, row.partitions, row.adopted)
    return f"{_DELETING}{kafka_uuid(row.topic_id)}", json_of(note)


def deletions(shared: Settings) -> Iterator[tuple[str, TopicRow]]:
    """Yield the topics whose deletion has begun, each with the setting that notes it."""
    for key, text in shared.items():
        if not key.startswith(_DELETING):
            continue
        try:
            topic_id = decode_uuid(key.removeprefix(_DELETING))
            note = read_as(_Deletion, from_json(text), may_have_more=True)
            if names.partition_of(f"{note.topic}-0") is None:
                raise ValueError(f"{note.topic!r:.60} is no name of a topic")
        except ValueError as error:
            _logger.error("%s says nothing, and is ignored: %s", key, error)
            continue
        yield (
            key,
            TopicRow(note.topic, topic_id, note.partitions, note.adopted, deleting=True),
        )


# --- the cluster that is followed ---------------------------------------------------------


def source_in(shared: Settings) -> SourceRow | None:
    """Return the cluster that is or was followed; None if there is none or it is unreadable."""
    text = shared.get(SOURCE)
    if text is None:
        return None
    try:
        row = read_as(SourceRow, from_json(text), may_have_more=True)
        if not row.servers or not (row.cluster_id or row.ended):
            raise ValueError("it has no cluster id or no servers")
    except ValueError as error:
        _logger.error("which cluster was followed cannot be read: %s", error)
        return None
    try:
        if not row.ended:
            name_pattern(row.topics)
    except ValueError as error:
        _logger.error(
            "the stored pattern of topics to follow, %.80s, is dropped: %s. No topic is followed "
            "without one: give another with `serve --follow` or `horolog follow --demote`",
            printable(row.topics),
            printable(str(error)),
        )
        return row._replace(topics="")
    return row


def followed_entry(row: FollowedRow) -> tuple[str, str]:
    """Return the setting that describes a followed topic: name and value."""
    source_id = None if row.source_id is None else kafka_uuid(row.source_id)
    value = _Followed(
        source_id, row.led, row.epoch, settings_of_source(row.settings), row.committed
    )
    return followed_name(row.topic), json_of(value)


def followed_name(topic: str) -> str:
    """Return the name of the setting that describes a followed topic."""
    return f"{_FOLLOWED}{topic}"


def followed_in(shared: Settings) -> Iterator[FollowedRow]:
    """Yield the rows of topics that are followed, or were."""
    for key, text in shared.items():
        if not key.startswith(_FOLLOWED):
            continue
        topic = key.removeprefix(_FOLLOWED)
        try:
            if names.partition_of(f"{topic}-0") is None:
                raise ValueError("the name is no name of a topic")
            its = read_as(_Followed, from_json(text), may_have_more=True)
            source_id = None if its.source_id is None else decode_uuid(its.source_id)
        except ValueError as error:
            _logger.error("what is kept of the followed topic %s is lost: %s", topic, error)
            continue
        settings = settings_text(its.settings)
        yield FollowedRow(topic, source_id, its.led, its.epoch, settings, its.committed)


def json_of(value: NamedTuple) -> str:
    """Write an object without the members that have their defaults."""
    defaults = value._field_defaults
    members = value._asdict().items()
    given = {name: each for name, each in members if each != defaults.get(name, ...)}
    return json.dumps(given, separators=(",", ":"))
