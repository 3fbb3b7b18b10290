"""Any log, planned and read without Spark: from a broker, files or an object store.

    options ──> planning ─┬─ broker_log, file_log     look at the log: its bounds, its stretches
                          └─ plan, row_filter         share stretches out among tasks
    stretch_reader ─┬─ broker_reader, file_reader     a stretch as whole `batches`: for jobs
                    ├─ reading ── clocks, rows        as Arrow tables: for Spark, and `tables`
                    └─ records                        as Python objects: for commands

What a read asks for:
    options         of `format("horolog")`; `read_option_table` describes them
    limits          topics, starts and ends, as values; `option_values` reads a text,
                    `java_patterns` those of `subscribePattern`; `bounds` makes offsets of them
    columns         which there are; `row_filter` and `row_times` say which rows
    kafka_settings  the options `kafka.*`, checked; `consumer_settings` has those of a consumer
    stream_offsets  how far a stream has been read
Where it is:
    location        a broker or a path; `uris` parses paths and patterns
    file_systems    a path opened; `object_stores` and `arrow_files` where it is not local
    replicas        partition directories below paths, and `merge` their copies as one log
    growing_files   what a stream finds below paths that brokers write to
    segments        a segment as tasks get it; `segment_parts` joins them to a partition, `replaced`
                    finds those in whose place others are by now
    cuts            a log parted at an append time, as a file; `group_resets` sets groups to it
    arrivals        when batches arrived, as far as that is known
    ordered         records by time, over partitions and inside them; `ordered_tables` as Arrow;
                    `read_blocks` finds the times of logs without block maps
    ahead           an iterator that runs ahead by one item, in a thread

`scan` gives a topic as Arrow, `latest` the last record of each key, and `sql` the rows of a query
over topics. They import pyarrow, and duckdb, when they are first looked up.
    latest_records  the last record of each key of a partition
    expressions     the rows that an expression of Arrow can be true for, as a `row_filter`
    topic_tables    a topic as a table for polars and DuckDB (`queries`), read by such an expression
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.sources.cuts import *
    from horolog.sources.latest_records import latest
    from horolog.sources.limits import *
    from horolog.sources.options import *
    from horolog.sources.queries import sql
    from horolog.sources.records import *
    from horolog.sources.tables import scan

__all__ = ["latest", "scan", "sql"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "arrow_files": "system_of",
        "batches": "Batches",
        "bounds": "Bounds DataLost resolve stream_starts",
        "broker_log": "BrokerLog",
        "broker_reader": "appended_then task_client",
        "complete": "NotComplete",
        "consumer_settings": "FORBIDDEN OBEYED",
        "cut_files": "AsOf Cut CutEntry GivenAsOf parse_as_of read_cut",
        "cuts": "cut_all cut_of",
        "file_log": "FileLog",
        "file_systems": "Root",
        "java_patterns": "UnlikeJavaError java_matcher",
        "limits": "Assigned AtTime ByPartition Everywhere Pattern TopicSelection subscription_of",
        "location": "Location",
        "merge": "EpochSpan ReplicaStretch merge_replicas",
        "object_stores": "StoreOptions",
        "options": "ReadOptions",
        "ordered": "LEAST_MEMORY Overlap WithoutTime",
        "ordered_records": "OrderedRecords",
        "ordered_tables": "TableBuffer",
        "plan": "BrokerStretch SegmentStretch left_open share_out",
        "read_option_table": "OF_KAFKA_SOURCE OPTIONS",
        "records": "ReadPlan ReadRecord RecordLog",
        "row_filter": "EVERYTHING Interval NameTest Names Numbers RowFilter",
        "rows": "NO_TIME RowShaper decoded_columns late_by shown_times",
        "segments": "ListedSegment",
        "expressions": "narrowed",
        "queries": "running sql",
        "stream_offsets": "StreamOffset limited",
        "latest_records": "LastOffsets latest parts_with",
        "tables": "scan",
        "topic_tables": "TopicTables",
        "uris": "LogPath shown",
    },
    {
        "tables": "arrow",
        "arrow_files": "arrow",
        "expressions": "arrow",
        "latest_records": "arrow",
        "ordered_tables": "arrow",
        "rows": "arrow",
        "queries": "sql",
        "topic_tables": "arrow",
    },
)
