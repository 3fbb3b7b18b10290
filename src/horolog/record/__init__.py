"""Record batches: bytes to facts, to columns, and back. No clock, and no I/O but for compiled code.

    batch        the 61-byte header, CRC-32C, iteration over whole batches; `header_table` for many
    timestamps   meaning of a timestamp; `looks_like` guesses wrong units
    compression  the five codecs, within bounds (codecs has a module for each)
    builder      records to batch bytes and back, one object per record: for tools and small batches
    scan         facts about a batch's records, for validation and block maps
    time_stats   times of records, as one value that can be added up
    search       first record at or after a time
    walk         loop of `scan` and `search` over the pieces that a codec yields
    identity     producer, epoch and sequences of a raw batch; `batch_producers` as columns
    transactions batches of aborted transactions; `markers`, the batches that end transactions
    stamped      batches of a broker's own state, with the facts that a scan would find
    old_format   messages of v0 and v1: read as records of v2 by all of these, and written
    conversion   batches of any format as batches of another format
    joining      several small batches as one; `cleaning`, the records that compaction keeps
    columns      batches to Arrow tables; needs pyarrow (decoder, batch_runs, row_buffers)
    row_range    range of rows to read; `stretches`, lookup of offsets in ranges
    column_writer  Arrow tables to batches; needs pyarrow, too (row_columns)
    partitioning partition of a key by Kafka's default partitioner

Below these, in `kernels`, are the loops over records: plain Python that numba compiles.
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.record.batch import *
    from horolog.record.builder import *
    from horolog.record.compression import *
    from horolog.record.kernels.loading import *
    from horolog.record.markers import *
    from horolog.record.old_format.writing import *
    from horolog.record.row_range import INT64_MAX as INT64_MAX
    from horolog.record.row_range import INT64_MIN as INT64_MIN
    from horolog.record.time_stats import *
    from horolog.record.timestamps import *
    from horolog.record.transactions import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "batch": (
            "CRC_START DELETE_HORIZON_BIT HEADER_SIZE LOG_OVERHEAD MAGIC UNKNOWN_COUNT "
            "BatchHeader iter_headers parse_header restamp verify_crc with_records"
        ),
        "batch_producers": "PRODUCER_TYPES",
        "batch_runs": "next_offset_of",
        "builder": "LogRecord build_batch read_records read_values read_with_create_times",
        "cleaning": "load_kernels",
        "column_writer": "PickedRows RecordsEncoder encode_batches encode_picked",
        "columns": "DEFAULT_COLUMNS DecodeStatistics batch_schema decode",
        "compression": (
            "Codec UncompressedTooLarge compress compress_chunks decompress decompress_chunks "
            "decompress_into fleeting_chunks"
        ),
        "conversion": "Losses convert_all convert_batch down_convert open_batch write_batch",
        "header_table": "HeaderTable positions_of",
        "identity": "NO_PRODUCER is_left_out needs_writing renamed",
        "joining": "Joiner",
        "kernels": (
            "cleaning_kernels column_kernels join_kernels layout message_kernels plain_kernels "
            "scan_kernels"
        ),
        "kernels.loading": (
            "BLOCK_KERNELS CLEANING_KERNELS COLUMN_KERNELS JOIN_KERNELS MESSAGE_KERNELS "
            "PLAIN_KERNELS SCAN_KERNELS WITHOUT_NUMBA Kernels PlainKernels is_numba_installed"
        ),
        "looks_like": "OTHER_UNITS units_of",
        "markers": "Marker TransactionEnd build_marker read_marker stamped_marker",
        "old_format.reading": "MessageTooLong messages_in open_message",
        "old_format.sent": "Sent",
        "old_format.writing": "message_bytes write_messages",
        "partitioning": "murmur2 partition_of_key partitions_of_keys",
        "row_columns": "RowColumns",
        "row_range": "INT64_MAX INT64_MIN",
        "scan": "RecordFacts find_faults scan_batch scan_plain",
        "search": "find_at_or_after find_equal first_offset",
        "stamped": "StampedBatch stamped_batch stamped_records",
        "stretches": "stretch_of",
        "time_stats": (
            "LACKS_APPEND_TIMES LATENCY_BOUNDS LATENCY_COUNT NO_APPEND_TIME NO_COUNTS "
            "NO_RECORDS OF_APPEND_TIME OF_CREATE_TIME Counts TimeStats latency_class"
        ),
        "timestamps": (
            "ALL_TIMES LOG_APPEND_TIME NO_TIMESTAMP AppendTimeStretch RecordClock TimeRange "
            "TimestampType"
        ),
        "transactions": "AbortedTransaction AbortedTransactions",
        "walk": "NOTHING new_state times_for",
    },
    {
        "batch_producers": "arrow",
        "column_writer": "arrow",
        "columns": "arrow",
        "row_columns": "arrow",
    },
)
