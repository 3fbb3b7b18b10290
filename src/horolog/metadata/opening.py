"""Opens the store of a log directory, in the directory itself or in its state directory.

With `horolog.take.over` the log of a Kafka node that was alone is continued. The first change
carries horolog's state from beside it into the log, and marks the directory as horolog's (`home`).
A kill before that leaves everything as it was.

A directory whose Kafka restricted its clients, or had credentials, is opened only if the operator
allows everything to all clients, because this broker does not enforce restrictions.
"""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from horolog.errors import CorruptFile, Misconfigured
from horolog.metadata import mapping, state
from horolog.metadata.forms import QUORUM_STATE
from horolog.metadata.home import Signs, is_own, signs_in, state_dir_beside
from horolog.metadata.image import Image
from horolog.metadata.log import MetadataLog
from horolog.metadata.reserve import Reserve
from horolog.metadata.rows import Stored
from horolog.metadata.store import MetadataStore
from horolog.metadata.taking_over import (
    UNASSIGNED,
    FormerNode,
    static_voters,
    was_led_by_another,
    why_not,
)
from horolog.rights.checks import new_ranges
from horolog.storage import names
from horolog.storage.directory.checkpoints import decode_uuid, kafka_uuid
from horolog.storage.directory.identity import STATE, Remembered
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

_MOST_READS: Final = 3

_logger = logging.getLogger(__name__)


def open_store(
    files: Files,
    log_dir: Path,
    node_id: int,
    now_ms: Callable[[], int],
    *,
    first_producer_id: int = 0,
    take_over: bool = False,
    open_to_all: bool = False,
    obeys_entries: bool = False,
    asks_logins: bool = False,
    has_users: bool = False,
    state_dir: Path | None = None,
) -> MetadataStore:
    """Open the store of a directory; nothing is written before the first change.

    Args:
        log_dir: the log directory, which is locked.
        first_producer_id: lowest producer id to allocate after the metadata was lost.
        take_over: continue as the Kafka node whose directory it is. Without effect on a directory
            that is horolog's.
        open_to_all: whether clients may do everything that their Kafka restricted.
        obeys_entries: whether the broker obeys access control entries.
        asks_logins: whether every listener asks for a login.
        has_users: whether users of the metadata may log in.
        state_dir: has horolog's own state, where another product owns the log directory; None:
            the one beside it.

    Raises:
        Misconfigured: the directory cannot be taken over, its state directory cannot be made, or it
            is secured and not to be open to all, or damage may have changed who may do what.
        StorageFailed: a log cannot be read at all.
    """
    log = MetadataLog.open(files, str(log_dir), node_id=node_id)
    signs = signs_in(files, log_dir, _is_marked(log))
    if signs.meta is not None and signs.meta.others == STATE:
        raise Misconfigured(
            f"{log_dir} is the state directory of a log directory: serve that one instead"
        )
    _check_secured(
        log_dir,
        log.image,
        open_to_all=open_to_all,
        obeys_entries=obeys_entries,
        asks_logins=asks_logins,
    )
    damage = log.damage
    owns, carried, present = is_own(signs), None, frozenset[str]()
    entries, credentials = mapping.entries_in(log.image), mapping.credentials_in(log.image)
    if obeys_entries and (ranges := new_ranges(entries.values(), log.image.metadata_version)):
        _logger.warning("%s", ranges)
    quotas = mapping.quotas_in(log.image)
    images, state_dir = [log.image], state_dir or state_dir_beside(log_dir)
    if not owns:
        beside = MetadataLog.open(
            files, str(state_dir), node_id=node_id, earlier=str(log_dir / names.METADATA_FILE)
        )
        images = [log.image, beside.image]
        if take_over:
            why = _why_not(files, log_dir, log, signs, node_id)
            if beside.damage:
                why = f"the metadata beside it is damaged ({beside.damage[0]}): move it away"
            if why is not None:
                raise Misconfigured(
                    f"{log_dir} cannot be taken over: {why} (docs/moving-in-and-out.md)"
                )
            owns, carried = True, beside.image
            found = map(names.partition_of, files.names_in(str(log_dir)))
            present = frozenset(partition.topic for partition in found if partition is not None)
        else:
            log = beside
            _make_state_dir(state_dir, log_dir)
    if owns:
        state_dir = log_dir
    was_here = signs.was_served_here or (signs.is_made_here and signs.has_partitions)
    is_lost = was_here and carried is None and not log.image.features
    if (obeys_entries or has_users) and (damage or is_lost):
        _check_damaged(log_dir, damage, open_to_all=open_to_all)
    reserve = Reserve(files, state_dir)
    return MetadataStore(
        log,
        reserve,
        state_dir,
        owns,
        now_ms,
        first_producer_id,
        carried,
        present,
        remembered=_remembered(images, signs, node_id),
        is_lost=is_lost,
        succeeds_another=owns and was_led_by_another(log.image, node_id),
        entries=None if owns else entries,
        credentials=None if owns else credentials,
        quotas=None if owns else quotas,
    )


def _make_state_dir(state_dir: Path, log_dir: Path) -> None:
    """Make the directory of horolog's own state.

    Raises:
        Misconfigured: it cannot be made or written to, or lies within the log directory.
    """
    why: str | None = None
    if Path(os.path.realpath(state_dir)).is_relative_to(os.path.realpath(log_dir)):
        why = "it would be within the log directory"
    try:
        if why is None:
            state_dir.mkdir(parents=True, exist_ok=True)
            if not os.access(state_dir, os.W_OK | os.X_OK):
                why = "it is not writable"
    except OSError as error:
        why = error.strerror
    if why is not None:
        raise Misconfigured(
            f"{state_dir} cannot be made or used ({why}). horolog keeps its own state there, since "
            f"another product owns {log_dir}: give another directory by horolog.state.dir"
        )


def _check_secured(
    log_dir: Path, image: Image, *, open_to_all: bool, obeys_entries: bool, asks_logins: bool
) -> None:
    """Refuse to open a secured directory to all clients, unless the operator allows it.

    Raises:
        Misconfigured: it is secured, and not to be open.
    """
    kinds: dict[str, int] = {}
    if image.tokens:
        kinds["delegation tokens"] = len(image.tokens)
    if image.credentials and not asks_logins:
        kinds["SCRAM credentials"] = len(image.credentials)
    if image.entries and not obeys_entries:
        kinds["access control entries"] = len(image.entries)
    if not kinds:
        return
    counted = ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items()))
    if not open_to_all:
        raise Misconfigured(
            f"{log_dir} is secured ({counted}), and this broker enforces none of it: every client "
            "could read, write and delete everything. Start it with the settings of a closed one "
            "(docs/security.md), or open with `serve --open`, horolog.open.listeners=* "
            "(docs/moving-in-and-out.md)"
        )
    _logger.warning(
        "every client may read, write and delete everything (horolog.open.listeners=*): what the "
        "metadata have of security is without effect (%s)",
        counted,
    )


def _check_damaged(log_dir: Path, damage: Sequence[str], *, open_to_all: bool) -> None:
    """Refuse to obey rights of which some may be lost, unless the operator allows it.

    Raises:
        Misconfigured: the operator does not.
    """
    lost = damage[0] if damage else "all of them"
    what = (
        f"the metadata of {log_dir} are damaged or lost ({lost}): "
        "access control entries and users may be missing, and removed ones may be back"
    )
    if not open_to_all:
        raise Misconfigured(
            f"{what}. Start it with `serve --open` (horolog.open.listeners=*) where no client "
            "reaches it, look at `horolog acls list` and `horolog users list`, and start it again "
            "without (docs/security.md)"
        )
    _logger.warning("%s: look at `horolog acls list` and `horolog users list`", what)


def _remembered(images: Sequence[Image], signs: Signs, node_id: int) -> Remembered:
    """Return the directory's identity by the first metadata that has a copy of it."""
    was_served = signs.was_served or any(image.features for image in images)
    for image in images:
        copy = state.identity_in(mapping.shared_settings(image))
        if copy is not None:
            directories = () if copy.directory_id is None else (copy.directory_id,)
            return Remembered(was_served, copy.cluster_id, copy.node_id, directories, copy.version)
    for image in images:
        brokers = image.brokers
        broker = brokers.get(node_id, next(iter(brokers.values()), None))
        if broker is not None and (broker.broker_id == node_id or len(brokers) == 1):
            known = (kafka_uuid(log_dir) for log_dir in broker.log_dirs if log_dir != UNASSIGNED)
            return Remembered(was_served, None, broker.broker_id, tuple(known))
    return Remembered(was_served)


def read_stored(log_dir: Path) -> Stored | None:
    """Read the rows that a broker would find at a start; None if there is no store.

    Nothing is written, and a broker may be at work there.

    Raises:
        StorageFailed: it cannot be read.
    """
    files = Files(read_only=True)
    log = _settled(files, log_dir)
    signs = signs_in(files, log_dir, _is_marked(log))
    if not is_own(signs):
        log = _settled(files, state_dir_beside(log_dir), str(log_dir / names.METADATA_FILE))
    if not log.image.features and not log.damage:
        return Stored([], [], is_salvaged=True) if signs.is_made_here else None
    if log.damage:
        for record in mapping.guarded(log.image):
            log.image.apply(record)
    return mapping.stored(log.image)


def state_dir_of(log_dir: Path) -> Path:
    """Return the directory of horolog's state: the log directory itself, if horolog owns it.

    Nothing is written.
    """
    files = Files(read_only=True)
    log = MetadataLog.open(files, str(log_dir), node_id=0)
    owns = is_own(signs_in(files, log_dir, _is_marked(log)))
    return log_dir if owns else state_dir_beside(log_dir)


def _settled(files: Files, log_dir: Path, earlier: str | None = None) -> MetadataLog:
    """Read the log of a directory, a few times if a broker may be writing its last batch."""
    for _ in range(_MOST_READS):
        log = MetadataLog.open(files, str(log_dir), node_id=0, earlier=earlier)
        if not log.damage:
            break
        files.close()
    return log


def _is_marked(log: MetadataLog) -> bool | None:
    if not log.next_offset or not log.image.features:
        return None
    return state.HOME in mapping.shared_settings(log.image)


def _why_not(
    files: Files, log_dir: Path, log: MetadataLog, signs: Signs, node_id: int
) -> str | None:
    if signs.meta is None and log.image.features:
        return f"its {names.META_PROPERTIES} is lost: start once without --take-over"
    directory = log_dir / str(TopicPartition(names.CLUSTER_METADATA, 0))
    try:
        voters = log.voters or static_voters(files, str(directory / QUORUM_STATE))
    except CorruptFile as error:
        return str(error)
    return why_not(log.image, _node(node_id, signs), voters, log.damage)


def _node(node_id: int, signs: Signs) -> FormerNode:
    if signs.meta is None:
        return FormerNode(node_id, None, None)
    directory_id: UUID | None = None
    if signs.meta.directory_id is not None:
        try:
            directory_id = decode_uuid(signs.meta.directory_id)
        except ValueError:
            directory_id = None  # no record can name it
    return FormerNode(node_id, signs.meta.node_id, directory_id)
