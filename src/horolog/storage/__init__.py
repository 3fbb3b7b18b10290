"""Files: an embedded log in Apache Kafka's own layout, usable without a broker.

    config = TopicConfig()
    log_dir = LogDir.open(
        path, broker_config=BrokerConfig(), topic_config=lambda topic: config, now_ms=now_ms
    )
    log = log_dir.create("events", 0, uuid4(), config, now_ms)
    log.append(prepare(batch, config, now_ms), now_ms)
    log.find_by_timestamp(...), log.read(offset, max_bytes).read()
    log_dir.close()

Knows no socket, no event loop and no clock: the time is passed in, in milliseconds.

There is a room for each thing that is done with a log; it imports only from those below it.

    offline        directories without a broker: read, reindexed, converted, copied
    verify         `horolog log verify`: checks of log directories and partitions
    log_dir        a log directory as a whole: all its logs, opened, checkpointed and closed
    recovery       from the files of a partition to an open log, whatever the last shutdown left
    logs           the log of one partition: read, appended to, rolled, flushed, truncated
    cleaning       compaction: what of a log may be cleaned, and what stays of it
    removal        what leaves a log: retention, deleted files, `.cut` files, leftovers of a kill
    validation     what a leader checks before it appends
    producers      what each producer wrote last: retries, transactions
    lookup         questions about times, put to the segments of a log
    scan           one walk over a segment that judges its batches and compares its other files
    segments       one segment and its companion files: read, appended to, finished, deleted
    index          Kafka's indexes of a segment, and whether they can be trusted
    companion      our file beside a segment: append times, seal, block map; how far it is true
    batches        a `.log` walked batch by batch, searched for whole ones, sliced for a response
    directory      what a log directory holds besides logs: lock, identity, small text files

All of them use `files`, through which every log and companion file is opened, read, written and
synced; only the lock files of a directory are not. Its `SystemCalls` are what a test may make fail
there. `listing` looks at paths and lists directories. `names` says what files are called.
`record_file` is a file of batches that is no segment, `entries` a file of entries of one width,
which is searched.

**A full disk, and a failed sync.** A write that the disk refuses fails that append alone, with
KAFKA_STORAGE_ERROR, which clients retry; nothing of it is in the log, and reads continue. Apache
Kafka shuts the directory down and relies on other replicas; horolog has none. What a failed
sync leaves in doubt is in `logs/flusher.py`. A log directory whose lock file is gone (removed,
unmounted) refuses everything until the broker is restarted.

**Formats v0 and v1.** Their messages have the header that they would have in v2
(`record/batch.py`), so whatever walks, judges or searches batches takes all formats. Where a topic
stores them, `validation/message_sets.py` makes messages of what is produced.
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.storage.batches.log_file import *
    from horolog.storage.batches.slices import Slice
    from horolog.storage.cleaning.key_map import *
    from horolog.storage.companion.blocks import *
    from horolog.storage.companion.file import *
    from horolog.storage.companion.folding import *
    from horolog.storage.directory.checkpoints import *
    from horolog.storage.files import *
    from horolog.storage.index.abort import *
    from horolog.storage.index.builder import *
    from horolog.storage.listing import *
    from horolog.storage.log_dir.log_dir import LogDir as LogDir
    from horolog.storage.logs.append_time_floor import *
    from horolog.storage.logs.appendable import Appended
    from horolog.storage.logs.cleaning import Cleaning as Cleaning
    from horolog.storage.logs.cleaning import CleaningRun as CleaningRun
    from horolog.storage.logs.incoming import Origin, SourceBatches, StampedRecords
    from horolog.storage.logs.log import *
    from horolog.storage.logs.log import Log
    from horolog.storage.logs.stamp_clock import *
    from horolog.storage.logs.writer import *
    from horolog.storage.lookup.by_timestamp import TimestampOffset
    from horolog.storage.names import *
    from horolog.storage.names import TopicPartition
    from horolog.storage.offline.copied_log import *
    from horolog.storage.offline.simulation import *
    from horolog.storage.record_file import *
    from horolog.storage.recovery.loading import *
    from horolog.storage.recovery.segments import Recovery
    from horolog.storage.removal.leftovers import tidy as tidy
    from horolog.storage.removal.removed_files import DeletedSegment
    from horolog.storage.scan.findings import *
    from horolog.storage.segments.numbered import *
    from horolog.storage.validation.validate import Prepared, prepare
    from horolog.storage.verify import *

__all__ = [
    "Appended",
    "DeletedSegment",
    "Log",
    "LogDir",
    "Origin",
    "Prepared",
    "Recovery",
    "Slice",
    "SourceBatches",
    "StampedRecords",
    "TimestampOffset",
    "TopicPartition",
    "prepare",
]

# Imported when they are first used: who needs one module of storage, as Spark's processes do, does
# not wait for all of them.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "batches.log_file": "LogFile SegmentEnd TimeEntry",
        "batches.reader": "EVERYTHING FEWEST_BYTES HEADERS BatchReader ReadAhead TornTail",
        "batches.slices": "Slice",
        "batches.whole": "is_torn_tail whole_batches",
        "cleaning.choosing": "Cleanable choose cleanable first_dirty",
        "cleaning.key_map": "KeyMap",
        "cleaning.latest": "replay_latest",
        "cleaning.parts": "SmallParts parts_of",
        "cleaning.transactions": "CleanedTransactions",
        "companion": "block_cache block_map block_writer",
        "companion.append_times": "AppendTimeFile FirstAppended",
        "companion.block_cache": "LONGEST_UNUSED_S BlockCache",
        "companion.blocks": "ENTRY_SIZE Block Span unpack",
        "companion.counts": "NONE BlockTotals",
        "companion.file": "TIMES_AT Companion",
        "companion.folding": "NO_BLOCK folded place_of row_of",
        "companion.kept_times": "KeptTimes",
        "companion.marker": "MARKER_SIZE",
        "companion.proof": "LastBatch identity_of identity_of_header proved",
        "companion.seal": "FileSum Seal packed_seal parsed_seal read_seal",
        "companion.time_columns": "ChangedTimes columns_of unpacked",
        "companion.time_entries": "kinds_of middle_for packed_entry",
        "directory": "checkpoints",
        "directory.checkpoint_ids": "CheckpointId Checkpointed",
        "directory.checkpoints": (
            "AheadSpan AppendTimeReset EpochStart MetaProperties decode_uuid kafka_uuid "
            "read_epochs read_offsets write_epochs write_meta_properties write_offsets"
        ),
        "directory.lock": (
            "SharersRemain is_locked lock_against_others lock_directory lock_offline share_offline"
        ),
        "directory.syncing": "MANY sync_all system_call",
        "entries": "Entries",
        "file_errors": "FileMissing SyncFailed WouldBlock",
        "files": "Files OpenFile SystemCalls",
        "index.abort": "AbortedTxn read_aborted write_aborted",
        "index.builder": "IndexBuilder",
        "index.growing": "IndexWriter",
        "index.sparse": "OffsetIndex OffsetPosition TimeIndex",
        "kept_blocks": "Columns KeptBlocks",
        "listing": "FileEntry",
        "log_dir.log_dir": "LogDir",
        "logs.append_time_floor": "AppendTimes",
        "logs.appendable": "Appended",
        "logs.cleaning": "Cleaning CleaningRun",
        "logs.epochs": "LeaderEpochs",
        "logs.incoming": "Batch Origin SourceBatches StampedRecords",
        "logs.log": "Log",
        "logs.readable": "ReadableLog",
        "logs.replacing": "make_alike replace_segments",
        "logs.view": "LogView",
        "logs.stamp_clock": "StampClock",
        "logs.writer": "LogWriter new_segment",
        "lookup.by_append_time": "find_by_append_time",
        "lookup.by_timestamp": "TimestampOffset",
        "lookup.replay": "replay_segments",
        "lookup.time_ranges": "TimeRanges",
        "lookup.unread": "Unread",
        "names": (
            "CLEANER_OFFSETS CLUSTER_METADATA CONSUMER_OFFSETS FOLLOWED_OFFSETS GROUPS_FILE "
            "INTERNAL_TOPICS LOCK LOG_DIR_FILES MAX_OFFSET META_PROPERTIES REPLACED "
            "SERVED_INTERNAL TRANSACTION_STATE TopicPartition"
        ),
        "offline.compacting": "CompactedPartition Compaction",
        "offline.converting": "Conversion ConvertedSegment",
        "offline.copied_log": "CopiedEnd CopiedLog copying",
        "offline.inspecting": "look_at open_segment walk_segment",
        "offline.partition_reader": "PartitionReader",
        "offline.reindex": "Reindexed Reindexing",
        "offline.simulation": "Arrival Simulation SimulationOutcome",
        "producers.replay": "replay",
        "producers.states": (
            "CACHED_BATCHES MOST_ENDED NO_END Admission LastEnd Producers Unended WrittenBatch "
            "first_unread"
        ),
        "record_file": "RecordFile",
        "recovery.loading": "load_log",
        "recovery.segments": "LoadPlan Recovery",
        "removal.leftovers": "base_offsets tidy",
        "removal.removed_files": "DeletedSegment",
        "removal.replacement": "Replacement end_replacement read_replacement write_replacement",
        "removal.retention": "Because Candidate SegmentTime bounded going judge",
        "removal.retention_report": "Holder SegmentRetention report",
        "removal.set_aside": "set_aside_of",
        "scan.findings": "Finding Severity run_steps",
        "segments.active": "ActiveSegment",
        "segments.numbered": "NO_PARTICULARS as_it_is as_they_are",
        "segments.reader": "SegmentReader",
        "segments.runs": "NumberedRun",
        "segments.segment": "Segment",
        "validation": "validate",
        "validation.validate": "MAX_RECORD_ERRORS Prepared prepare trusted trusted_plain",
        "verify": "Checked Verification VerifyTarget find_target",
    },
)
