"""Kafka's names of directories and files, and the few of our own that Kafka ignores.

    <log dir>/<topic>-<partition>/<base offset, 20 digits><suffix>

A start of Kafka looks at `.log`, `.index`, `.timeindex`, `.txnindex`, `.snapshot`,
`.deleted`, `.cleaned` and `.swap` and ignores every other name.
"""

import re
from typing import Final, NamedTuple
from uuid import UUID

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
BATCHES = ".batches"  # ours: what Kafka's snapshot of producers has no place for
COMPANION = ".companion"  # ours: append times, seal and block map (companion/file.py)
APPENDING = ".appending.deleted"
"""Ours: marks a segment that is appended to. A start of Kafka removes it, and is meant to
(companion/marker.py)."""
SEGMENT_SUFFIXES = (
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    TXN_INDEX,
    COMPANION,
    APPENDING,
)
SYNCED_BESIDE = (OFFSET_INDEX, TIME_INDEX, COMPANION)  # with the log of a finished segment

REBUILT = (  # as far as the log tells, if they are missing
    *(OFFSET_INDEX, TIME_INDEX, TXN_INDEX, COMPANION, APPENDING),
    *(SNAPSHOT, BATCHES),
)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"  # a small file whose replacement was interrupted
CONVERTING = "converting"  # ours, a directory: what a conversion is writing (offline/converting.py)
CLEANING = "cleaning"  # ours, a directory: what the cleaner is writing (logs/cleaning.py)
CUT = ".cut"  # ours: what recovery took off a log and keeps (removal/set_aside.py)
CUT_TIMES = ".times"  # ours, behind CUT: when its records were appended

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
APPEND_TIME = "append-time-checkpoint"  # ours: the last append time that was given out
APPEND_TIME_RESETS = "append-time-resets"  # ours: from which offsets on append times were lowered
CLEANING_CHECKPOINT = "cleaning-checkpoint"  # ours: up to where compaction may have come
REPLACED = "replaced-segments"  # ours: which segments take the place of which
SYNC_FAILED = "sync-failed"  # ours: the disk may lack what the page cache has (logs/flusher.py)

META_PROPERTIES = "meta.properties"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"  # of partitions that were compacted
CHECKPOINT_IDS = "horolog-checkpoint-ids"  # ours: for which topics these were written
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
STAMP_CLOCK = "append-time-clock"  # ours: the last append time of all partitions
LOG_DIR_FILES = (
    STAMP_CLOCK,
    META_PROPERTIES,
    RECOVERY_POINTS,
    LOG_START_OFFSETS,
    HIGH_WATERMARKS,
    CLEANER_OFFSETS,
    CHECKPOINT_IDS,
    CLEAN_SHUTDOWN,
)
SET_ASIDE = ".set-aside"  # ours: a damaged file of a log directory, before a new one is made

METADATA_PROPERTY = "horolog.metadata"  # ours, in meta.properties: "own" (metadata/home.py)
# Ours: of earlier development versions, which a start takes over (metadata/beside.py).
METADATA_FILE = "horolog-metadata.log"
TRANSACTIONS_FILE = "horolog-transactions.log"
GROUPS_FILE = "horolog-groups.log"
RESERVE = "horolog-reserve"  # ours: space for deletions on a full disk (metadata/reserve.py)
SERVED_HERE: Final = (CHECKPOINT_IDS, RESERVE, METADATA_FILE, GROUPS_FILE, TRANSACTIONS_FILE)
"""Files that only a broker of ours writes, and no tool."""
SERVED: Final = (HIGH_WATERMARKS, CLEAN_SHUTDOWN, *SERVED_HERE)
"""Files that only a broker writes: a directory that has one has had an identity."""

EARLIER_STATE: Final = ("horolog-metadata.sqlite", "horolog-metadata.sqlite-wal")
"""Metadata and groups in the form of a development version; no broker starts with these files."""
EARLIER_COMPANIONS: Final = (".appendtimes", ".seal", ".blocks")
"""Suffixes beside a segment in the form of a development version; no broker starts with them."""

CLUSTER_METADATA = "__cluster_metadata"
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
FOLLOWED_OFFSETS = "__followed_consumer_offsets"
"""Ours: what a shadow has of its source's `__consumer_offsets`, beside its own groups."""
# Topics that Apache Kafka keeps for itself: no request may create one, write to it or delete it.
INTERNAL_TOPICS: Final = frozenset(
    {
        CLUSTER_METADATA,
        CONSUMER_OFFSETS,
        FOLLOWED_OFFSETS,
        "__remote_log_metadata",
        SHARE_GROUP_STATE,
        TRANSACTION_STATE,
    }
)
FOLLOWED_INTERNAL: Final = frozenset({FOLLOWED_OFFSETS, TRANSACTION_STATE})
"""Those that a shadow follows, by their names here."""

# Those that are served, from the state directory: coordinators keep their state in them.
SERVED_INTERNAL: Final = frozenset({CONSUMER_OFFSETS, FOLLOWED_OFFSETS, TRANSACTION_STATE})
MAX_OFFSET: Final = (1 << 63) - 1
MAX_BASE_OFFSET: Final = MAX_OFFSET - (1 << 32)  # behind it a segment has no room for its offsets
SEE_VERIFY: Final = "`horolog log verify` says what it holds and how to bring it back"
MAX_RELATIVE_OFFSET: Final = (1 << 31) - 1  # to the first of a segment: 31 bits of an index entry
MAX_PARTITION: Final = (1 << 31) - 1  # a partition index is an int32 on the wire

_PARTITION_FILES = frozenset(
    {
        LEADER_EPOCHS,
        PARTITION_METADATA,
        APPEND_TIME,
        APPEND_TIME_RESETS,
        CLEANING_CHECKPOINT,
        REPLACED,
        SYNC_FAILED,
    }
)
_PARTITION_SUFFIXES = (
    *SEGMENT_SUFFIXES,
    SNAPSHOT,
    BATCHES,
    DELETED,
    CLEANED,
    SWAP,
    TEMPORARY,
    CUT,
)

_BASE_OFFSET = re.compile(r"[0-9]{20}")
_PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_DELETED_PARTITION = re.compile(r"\S+-\S+\.[0-9a-f]{32}-delete")
_MOVED_PARTITION = re.compile(r"\S+-\S+\.[0-9a-f]{32}-(future|stray)")
_MAX_NAME = 255


def name_at_source(topic: str) -> str:
    """Name of a followed topic at its source."""
    return CONSUMER_OFFSETS if topic == FOLLOWED_OFFSETS else topic


NAMES_HERE: Final = {name_at_source(name): name for name in FOLLOWED_INTERNAL}
"""Names here of the source's internal topics that are followed."""


class TopicPartition(NamedTuple):
    """One partition of one topic, printed as Kafka prints it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def segment_file(base_offset: int, suffix: str) -> str:
    """Return the name of one file of the segment that begins at `base_offset`."""
    return f"{base_offset:020d}{suffix}"


def log_path(directory: str, base_offset: int) -> str:
    """Return the path of the log of a segment in a partition's directory."""
    return f"{directory}/{segment_file(base_offset, LOG)}"


def base_offset_of(name: str, suffix: str) -> int | None:
    """Return the offset in a segment file's name; None for other names."""
    stem = name.removesuffix(suffix)
    if len(stem) + len(suffix) != len(name) or not _BASE_OFFSET.fullmatch(stem):
        return None
    offset = int(stem)
    return offset if offset <= MAX_OFFSET else None


def partition_of(name: str) -> TopicPartition | None:
    """Return the partition of a directory by its name; None for other names."""
    match = _PARTITION.fullmatch(name)
    if match is None or match["topic"] in (".", ".."):
        return None
    partition = int(match["partition"])
    return TopicPartition(match["topic"], partition) if partition <= MAX_PARTITION else None


def is_known_file(name: str) -> bool:
    """Return True if horolog uses a file of this name in a partition's directory."""
    return name in _PARTITION_FILES or name.endswith(_PARTITION_SUFFIXES)


def deleted_directory(partition: TopicPartition, unique: UUID) -> str:
    """Name of a partition's directory once its topic is deleted."""
    suffix = f"-{partition.partition}.{unique.hex}-delete"
    return f"{partition.topic[: _MAX_NAME - len(suffix)]}{suffix}"


def stray_directory(partition: TopicPartition, unique: UUID) -> str:
    """Name of a partition's directory that a cluster has not assigned to this broker."""
    suffix = f"-{partition.partition}.{unique.hex}-stray"
    return f"{partition.topic[: _MAX_NAME - len(suffix)]}{suffix}"


def is_deleted_directory(name: str) -> bool:
    """Return True if a directory waits for its removal after its topic was deleted."""
    return _DELETED_PARTITION.fullmatch(name) is not None


def is_moved_partition(name: str) -> bool:
    """Return True if Kafka was moving this partition to another disk, or has set it aside."""
    return _MOVED_PARTITION.fullmatch(name) is not None
