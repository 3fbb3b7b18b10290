"""Options of a read with their meaning; `docs/spark-options.md` is generated from this table.

Settings of Kafka's consumer, given as `kafka.*`, are in `consumer_settings`.
"""

from horolog.sources import row_times

OF_KAFKA_SOURCE = {
    "subscribe": "topics, with commas. With a broker exactly one of this and the next two; with a "
    "path they are optional",
    "subscribePattern": "topics that match one of Java's regular expressions; never Kafka's "
    "internal ones",
    "assign": 'partitions, as JSON: `{"clicks": [0, 1]}`',
    "startingOffsets": "`earliest` (default of a batch), `latest` (default of a stream) or JSON, "
    "-2 for earliest, -1 for latest; a batch refuses latest, as in Kafka's source",
    "startingTimestamp": "milliseconds, -2 for earliest, -1 for latest, in a batch too; -3 to -6 "
    "are refused; here also `2026-11-17T09:00Z` and `-15m`. Wins over the "
    "next one, and that over offsets",
    "startingOffsetsByTimestamp": "JSON of milliseconds, -2 and -1 as above. As with offsets, all "
    "partitions must be named, at both ends the same",
    "startingOffsetsByTimestampStrategy": "`error` (default) or `latest`, when no record is that "
    "late; an end without a match is the latest offset",
    "endingOffsets": "`latest` (default) or JSON, -1 for latest; `earliest` and -2 are refused. "
    "Streams refuse all options that end them",
    "endingTimestamp": "as `startingTimestamp`, for the end",
    "endingOffsetsByTimestamp": "as `startingOffsetsByTimestamp`, for the end",
    "failOnDataLoss": "`true` (default) or `false`: offsets, segments or topics that are gone, a "
    "damaged segment, an end that is not there",
    "minPartitions": "at least this many tasks, if there are as many offsets",
    "maxRecordsPerPartition": "at most this many offsets in a task",
    "includeHeaders": "`true` adds the column `headers`; `false` (default)",
    "kafkaConsumer.pollTimeoutMs": "how long a task waits for its broker; 120000",
    "fetchOffset.numRetries": "how often the driver asks for offsets again; 3",
    "fetchOffset.retryIntervalMs": "after how many milliseconds; 10",
    # Of streams; Kafka's source, too, ignores them in a batch.
    "maxOffsetsPerTrigger": "of a stream: at most this many offsets in a micro-batch, shared by "
    "what each partition has left",
    "minOffsetsPerTrigger": "of a stream: a micro-batch waits for this many offsets, or for "
    "`maxTriggerDelay`",
    "maxTriggerDelay": "of a stream: how long since the last micro-batch, in Spark's "
    "units too (`1min`, `500us`); `15m`",
    "groupIdPrefix": "without effect: no group is joined",
    "topic": "without effect in a read",
}

OWN = {
    "path": "segment files instead of a broker, as given to `load()`",
    "paths": "several of them, as Spark hands on `load([...])`",
    "topicsPattern": "as `subscribePattern`, in RE2's syntax, which takes linear time; what "
    "`--topics-pattern` of jobs is",
    "columns": "the columns of the read, with commas; others are not decoded",
    "includeTimestampMs": "`true` adds the column `timestampMs`; `false` (default)",
    "includeProducer": "`true` adds `producerId`, `producerEpoch` and `sequence`; "
    "`false` (default)",
    "includeAppendTime": "`true` adds `appendTime`, `appendTimeMs`, `createTime` and "
    "`createTimeMs`; `false` (default)",
    "includeSeenTime": "`true` adds `seenTime` and `seenTimeMs`: when a follower saw records whose "
    "append times it does not know; `false` (default)",
    "fromAppendTime": "exactly the rows that were appended at or after this; none whose append "
    "time is unknown",
    "toAppendTime": "and before this",
    "asOf": "a time, or the file of a cut: a batch reads what was appended before it, exactly; a "
    "stream starts there ([as-of.md](as-of.md))",
    "uncommitted": "of a path: `true` also reads what the broker of a cluster has behind the high "
    "watermark of its last checkpoint, which the cluster may still take back; `false` (default). "
    "Without `__cluster_metadata-0` beside the partitions all end there "
    "([cluster.md](cluster.md#files))",
    "complete": "of a batch with `toTimestamp`: `wait` until no row before it can be appended any "
    "more, or `require` that; the query fails otherwise ([complete-until.md](complete-until.md))",
    "completeTimeout": "how long `complete=wait` waits; `30s`",
    "includeCompleteUntil": "of a stream: `true` adds the column `completeUntil`: no row that "
    "is earlier comes behind those of the micro-batch; `false` (default)",
    "latestAsOf": "a time, or the file of a cut, of a batch: the last record of each key of each "
    "partition as it was known then, of committed records; a record without a value deletes its "
    "key ([as-of.md](as-of.md#a-table))",
    "latestMemory": "with `latestAsOf`: what the keys of a partition may take in a task; `256MiB`",
    "includeLateness": "of a stream: `true` adds the column `lateByMs` "
    "([Lag and late records](spark.md#lag-and-late-records)); `false` (default)",
    row_times.FROM: "exactly the rows with a time at or after this, late ones included, whatever "
    "the offsets are",
    row_times.TO: "and before this",
    row_times.BACKFILL: "of a stream, instead of `startingOffsets` and its kin: the rows from this "
    "time on that the log holds, and then what is appended "
    "([Backfill, then follow](spark.md#backfill-then-follow))",
    row_times.STOP: "of a stream: when it ends ([A stream that ends](spark.md#a-stream-that-ends))",
    "commitOffsetsToGroup": "of a stream: a consumer group that the offsets of each finished "
    "micro-batch are committed to, so that tools that show lag see the query. The query itself "
    "uses its checkpoint. A commit that fails is warned of; a group with members refuses it. "
    "`trigger(once=True)` is refused with it, as Spark does not say when that is done: "
    "`trigger(availableNow=True)` reads the same",
}

OPTIONS = {**OF_KAFKA_SOURCE, **OWN}
