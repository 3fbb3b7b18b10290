"""Settings of a topic as typed values, with Kafka's names in Python's spelling.

`segment.bytes` becomes `segment_bytes`. Times are milliseconds. The defaults are those of
Apache Kafka 4.x; `topic_settings.txt` has the rules.
"""

from dataclasses import dataclass

from horolog.record.timestamps import LOG_APPEND_TIME, TimestampType

DAY_MS = 24 * 60 * 60 * 1000
LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Every topic setting that is obeyed. Immutable: a change makes a new one.

    `message_timestamp_before_max_ms` and `message_timestamp_after_max_ms` are final: the
    deprecated `message.timestamp.difference.max.ms` has already been considered (KIP-937).
    `segment_bytes` is final too (`internal.segment.bytes`). `message_format_version` is the record
    format to store, 0 to 2: always 2 unless `inter.broker.protocol.version` is below 3.0.
    `may_store_zstd` is no setting of its own: that protocol decides it too (KIP-110).
    `retention_ms` and `retention_bytes` are negative where there is no limit.
    """

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    horolog_retention_before_1970: bool = False
    horolog_retention_by: str = "create-time"
    horolog_roll_by: str = "first-time"
    horolog_roll_idle: bool = False
    horolog_seen_as_append_time: bool = False
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_decompressed_message_bytes: int = 2_147_483_639
    max_message_bytes: int = 1_048_588
    may_store_zstd: bool = True
    message_downconversion_enable: bool = True
    message_format_version: int = 2
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS

    @property
    def compacts(self) -> bool:
        """True if the topic keeps the latest record of each key.

        It then refuses records without a key.
        """
        return "compact" in self.cleanup_policy

    @property
    def bounds_past(self) -> bool:
        """True if records are refused that were created too early."""
        is_create_time = self.message_timestamp_type is not LOG_APPEND_TIME
        return is_create_time and self.message_timestamp_before_max_ms != LONG_MAX

    def earliest_ms(self, stamp_ms: int) -> int | None:
        """Return the earliest timestamp that a record may have; None if there is no bound.

        Args:
            stamp_ms: the clock of append times when the record arrives, in milliseconds.
        """
        bound_ms = past_bound_ms(self.message_timestamp_type, self.message_timestamp_before_max_ms)
        return None if bound_ms is None else stamp_ms - bound_ms

    @property
    def longest_segment_ms(self) -> int:
        """Age at which a segment is rolled; `max.compaction.lag.ms` limits it in a compacted topic.

        What is in the active segment is not compacted (KIP-354).
        """
        if self.max_compaction_lag_ms < self.segment_ms and self.compacts:
            return self.max_compaction_lag_ms
        return self.segment_ms


def past_bound_ms(timestamp_type: int, before_max_ms: int) -> int | None:
    """Return how far timestamps may be before append times, in milliseconds; None without limit."""
    if timestamp_type == LOG_APPEND_TIME:
        return 0
    return None if before_max_ms == LONG_MAX else before_max_ms
