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
there. `names` says what files are called. `record_file` is a file of batches that is no segment,
`entries` a file of entries of one width, which is searched.

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
    from horolog.storage.batches.slices import Slice
    from horolog.storage.log_dir.log_dir import LogDir
    from horolog.storage.logs.appendable import Appended
    from horolog.storage.logs.incoming import Origin, SourceBatches, StampedRecords
    from horolog.storage.logs.log import Log
    from horolog.storage.lookup.by_timestamp import TimestampOffset
    from horolog.storage.names import TopicPartition
    from horolog.storage.recovery.segments import Recovery
    from horolog.storage.removal.removed_files import DeletedSegment
    from horolog.storage.validation.validate import Prepared, prepare

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
        "batches.slices": "Slice",
        "log_dir.log_dir": "LogDir",
        "logs.appendable": "Appended",
        "logs.incoming": "Origin SourceBatches StampedRecords",
        "logs.log": "Log",
        "lookup.by_timestamp": "TimestampOffset",
        "names": "TopicPartition",
        "recovery.segments": "Recovery",
        "removal.removed_files": "DeletedSegment",
        "validation.validate": "Prepared prepare",
    },
)
