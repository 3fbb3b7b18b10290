"""Families of metrics, under the names by which operators know them (docs/metrics.md).

`kafka_server_*`, `kafka_network_*`, `kafka_controller_*` and `kafka_log_*` are what the example
configuration of Prometheus' JMX exporter makes of Apache Kafka's metrics; `kafka_topic_*`,
`kafka_consumergroup_*` and `kafka_brokers` are those of kafka_exporter; `horolog_*` are ours.
"""

from typing import Final, NamedTuple


class Family(NamedTuple):
    """Name, type and labels of a metric."""

    name: str
    kind: str
    """counter, gauge, histogram or summary."""
    help: str
    labels: tuple[str, ...] = ()
    """Label names, without `le` and `quantile`."""
    by_partition: bool = False
    """True if it has the label `partition` where partitions are requested; otherwise it has sums
    or maxima."""

    @property
    def last_label(self) -> str:
        """Name of the label that a sample has after `labels`."""
        return "partition" if self.by_partition else "quantile"


_TOPIC: Final = ("topic",)
_GROUP: Final = ("consumergroup", "topic")
_KIND: Final = ("type", "state")

MESSAGES_IN: Final = Family(
    "kafka_server_brokertopicmetrics_messagesin_total",
    "counter",
    "Records of producers appended since the broker was started; without a topic, of all topics.",
    _TOPIC,
)
BYTES_IN: Final = Family(
    "kafka_server_brokertopicmetrics_bytesin_total",
    "counter",
    "Bytes of producers' record batches appended, as they are stored; without a topic, of all "
    "topics.",
    _TOPIC,
)
BYTES_OUT: Final = Family(
    "kafka_server_brokertopicmetrics_bytesout_total",
    "counter",
    "Bytes of records in Fetch responses; without a topic, of all topics.",
    _TOPIC,
)
REPLICATION_BYTES_IN: Final = Family(
    "kafka_server_brokertopicmetrics_replicationbytesin_total",
    "counter",
    "Bytes of record batches copied from other brokers: from leaders in a cluster, or from the "
    "source of a shadow.",
)
REPLICATION_BYTES_OUT: Final = Family(
    "kafka_server_brokertopicmetrics_replicationbytesout_total",
    "counter",
    "Bytes of records in Fetch responses to replicas, in a cluster.",
)
FAILED_PRODUCE: Final = Family(
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "counter",
    "Batches in Produce requests that were answered with an error; without a topic, of all topics.",
    _TOPIC,
)
PRODUCE_CONVERSIONS: Final = Family(
    "kafka_server_brokertopicmetrics_producemessageconversions_total",
    "counter",
    "Records converted to the stored format when they were produced (KIP-32); without a topic, "
    "of all topics.",
    _TOPIC,
)
FETCH_CONVERSIONS: Final = Family(
    "kafka_server_brokertopicmetrics_fetchmessageconversions_total",
    "counter",
    "Records converted to an older format for the client that fetched them (KIP-32); without a "
    "topic, of all topics.",
    _TOPIC,
)
CONVERSIONS: Final = Family(
    "horolog_message_conversions_total",
    "counter",
    "Records converted, by the API and the version of the client's request (KIP-32, phase 2).",
    ("request", "version"),
)
REQUESTS: Final = Family(
    "kafka_network_requestmetrics_requests_total",
    "counter",
    "Requests answered.",
    ("request", "version"),
)
REQUEST_TIMES: Final = Family(
    "kafka_network_requestmetrics_totaltimems",
    "summary",
    "Milliseconds from the start of a request to its response, waits of delayed fetches included: "
    "quantiles of a sample of one in 16.",
    ("request",),
)
PARTITIONS: Final = Family(
    "kafka_server_replicamanager_partitioncount", "gauge", "Partitions that are served."
)
LEADERS: Final = Family(
    "kafka_server_replicamanager_leadercount",
    "gauge",
    "Partitions that this broker leads.",
)
UNDER_REPLICATED: Final = Family(
    "kafka_server_replicamanager_underreplicatedpartitions",
    "gauge",
    "Partitions led here whose replicas are not all in sync; 0 where the broker is alone.",
)
UNDER_MIN_ISR: Final = Family(
    "kafka_server_replicamanager_underminisrpartitioncount",
    "gauge",
    "Partitions led here with fewer in-sync replicas than min.insync.replicas, in a cluster.",
)
AT_MIN_ISR: Final = Family(
    "kafka_server_replicamanager_atminisrpartitioncount",
    "gauge",
    "Partitions led here with just min.insync.replicas in-sync replicas, in a cluster.",
)
ISR_SHRINKS: Final = Family(
    "kafka_server_replicamanager_isrshrinks_total",
    "counter",
    "Replicas that this broker has taken out of the in-sync replicas, in a cluster.",
)
ISR_EXPANDS: Final = Family(
    "kafka_server_replicamanager_isrexpands_total",
    "counter",
    "Replicas that have joined the in-sync replicas of a partition led here, in a cluster.",
)
FAILED_ISR_UPDATES: Final = Family(
    "kafka_server_replicamanager_failedisrupdates_total",
    "counter",
    "Proposals of in-sync replicas that the controllers did not take, in a cluster.",
)
REPLICA_LAG: Final = Family(
    "horolog_replica_lag_offsets",
    "gauge",
    "Offsets that a replica lacks of a partition led here, by its broker, in a cluster; without "
    "partitions the most of a topic.",
    ("topic", "replica"),
    by_partition=True,
)
BROKER_STATE: Final = Family(
    "kafka_server_kafkaserver_brokerstate",
    "gauge",
    "State in a cluster: 1 starting, 2 recovery, 3 running, 6 controlled shutdown.",
)
FENCED: Final = Family(
    "horolog_broker_fenced",
    "gauge",
    "1 while the controllers have fenced this broker, in a cluster.",
)
APPLIED_OFFSET: Final = Family(
    "kafka_server_broker_metadata_metrics_last_applied_record_offset",
    "gauge",
    "Offset of the last record of the controllers' metadata log that is applied, in a cluster.",
)
APPLIED_LAG: Final = Family(
    "kafka_server_broker_metadata_metrics_last_applied_record_lag_ms",
    "gauge",
    "Milliseconds since the controllers wrote that record. An idle controller writes one each half "
    "second.",
)
OFFLINE_REPLICAS: Final = Family(
    "kafka_server_replicamanager_offlinereplicacount",
    "gauge",
    "Partitions whose log could not be read when the broker was started.",
)
OFFLINE_PARTITIONS: Final = Family(
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "gauge",
    "Partitions without a leader: those whose log could not be read; in a cluster, those of all "
    "brokers.",
)
ACTIVE_CONTROLLERS: Final = Family(
    "kafka_controller_kafkacontroller_activecontrollercount",
    "gauge",
    "1 where this broker is alone, and its own controller; 0 in a cluster.",
)
TOPICS: Final = Family("kafka_controller_kafkacontroller_globaltopiccount", "gauge", "Topics.")
ALL_PARTITIONS: Final = Family(
    "kafka_controller_kafkacontroller_globalpartitioncount",
    "gauge",
    "Partitions of all topics, served or offline.",
)
FETCH_SESSIONS: Final = Family(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions",
    "gauge",
    "Fetch sessions (KIP-227).",
)
FETCH_SESSION_PARTITIONS: Final = Family(
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
    "gauge",
    "Partitions of all fetch sessions.",
)
FETCH_SESSION_EVICTIONS: Final = Family(
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
    "counter",
    "Fetch sessions that made room for others.",
)
LOG_SIZE: Final = Family(
    "kafka_log_log_size", "gauge", "Bytes of the segments' logs.", _TOPIC, by_partition=True
)
SEGMENTS: Final = Family(
    "kafka_log_log_numlogsegments", "gauge", "Segments.", _TOPIC, by_partition=True
)
BROKERS: Final = Family(
    "kafka_brokers",
    "gauge",
    "Brokers of the cluster that are not fenced; 1 where this one is alone.",
)
TOPIC_PARTITIONS: Final = Family(
    "kafka_topic_partitions", "gauge", "Partitions of a topic, served or offline.", _TOPIC
)
CURRENT_OFFSET: Final = Family(
    "kafka_topic_partition_current_offset",
    "gauge",
    "Log end offset; the sum over partitions unless these are asked for.",
    _TOPIC,
    by_partition=True,
)
OLDEST_OFFSET: Final = Family(
    "kafka_topic_partition_oldest_offset",
    "gauge",
    "Log start offset; the sum over partitions unless these are asked for.",
    _TOPIC,
    by_partition=True,
)
LATENCY: Final = Family(
    "horolog_create_to_append_latency_milliseconds",
    "histogram",
    "Records by the milliseconds from create to append, as numbers of all records with a create "
    "time; le=-1 has those whose create time was ahead of the clock. It has no sum.",
    _TOPIC,
)
FUTURE: Final = Family(
    "horolog_future_records_total",
    "counter",
    "Records appended whose create time was ahead of the clock.",
    _TOPIC,
)
UNTIMED: Final = Family(
    "horolog_untimed_records_total",
    "counter",
    "Records appended without a create time.",
    _TOPIC,
)
REFUSED: Final = Family(
    "horolog_refused_records_total",
    "counter",
    "Records for which a batch was refused, 1,000 of a batch at most, by reason (future or past: "
    "beyond the topic's bounds; clock-ahead: too early only because append times are ahead of the "
    "clock; no-key; append-time: claims LogAppendTime) and by the unit that the time looks to be "
    "in: seconds, microseconds, nanoseconds, or none.",
    ("topic", "reason", "unit"),
)
AHEAD: Final = Family(
    "horolog_append_time_ahead_milliseconds",
    "gauge",
    "How far the next append time is ahead of the clock because the clock went back: the largest "
    "of a topic unless partitions are asked for.",
    _TOPIC,
    by_partition=True,
)

CLOCK_AHEAD: Final = Family(
    "horolog_append_clock_ahead_milliseconds",
    "gauge",
    "How far the clock of append times of all partitions is ahead of the clock.",
)
CLOCK_JUMPS: Final = Family(
    "horolog_clock_jumps_total",
    "counter",
    "Jumps of the clock by more than horolog.timestamp.warn.ahead.ms, ahead or back, beside the "
    "monotonic clock. A machine that was suspended jumps ahead.",
    ("direction",),
)
EXPIRED_ON_ARRIVAL: Final = Family(
    "horolog_expired_on_arrival_records_total",
    "counter",
    "Records of batches that were older than retention.ms when they were appended: retention "
    "deletes them with their segment; without a topic, of all topics.",
    _TOPIC,
)
DELETED: Final = Family(
    "horolog_retention_deleted_bytes_total",
    "counter",
    "Bytes that retention deleted, by reason: expired, beyond-retention-bytes, before-log-start.",
    ("topic", "reason"),
)
ODDLY_KEPT: Final = Family(
    "horolog_retention_held_partitions",
    "gauge",
    "Partitions whose oldest segment the last check of retention kept because its time is more "
    "than an hour ahead of the clock (ahead-of-clock) or unknown (unknown-time), or because the "
    "topic was adopted and has no settings here (exempt).",
    ("topic", "reason"),
)

COMPLETE_UNTIL: Final = Family(
    "horolog_topic_complete_until_milliseconds",
    "gauge",
    "No record with an earlier timestamp will be appended, in milliseconds since 1970: the least "
    "of a topic unless partitions are asked for. Left out where it is withdrawn (`horolog times`).",
    _TOPIC,
    by_partition=True,
)
WITHDRAWN: Final = Family(
    "horolog_topic_complete_withdrawn_partitions",
    "gauge",
    "Partitions of topics with message.timestamp.before.max.ms for which that time is withdrawn, "
    "by reason (`horolog times`).",
    ("topic", "reason"),
)
FOLLOW_BEHIND: Final = Family(
    "horolog_follow_offsets_behind",
    "gauge",
    "Offsets of the cluster that is followed that are not here yet; the sum over partitions unless "
    "these are asked for. Left out where it is not known.",
    _TOPIC,
    by_partition=True,
)
FOLLOW_LAG: Final = Family(
    "horolog_follow_lag_milliseconds",
    "gauge",
    "How long ago everything of the cluster that is followed was here, 0 where it is: the largest "
    "of a topic unless partitions are asked for. Left out before it was the first time.",
    _TOPIC,
    by_partition=True,
)
NOT_FOLLOWED: Final = Family(
    "horolog_follow_stopped_partitions",
    "gauge",
    "Partitions of another cluster that are not being followed now: refused, or after an error.",
    _TOPIC,
)
MAX_DIRTY_PERCENT: Final = Family(
    "kafka_log_logcleanermanager_max_dirty_percent",
    "gauge",
    "The largest share of bytes that are to be compacted, of all compacted partitions, in percent.",
)
SINCE_CLEANER_LOOKED: Final = Family(
    "kafka_log_logcleanermanager_time_since_last_run_ms",
    "gauge",
    "Milliseconds since the cleaner last looked for partitions to compact; left out before that.",
)
UNCLEANABLE: Final = Family(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "gauge",
    "Compacted partitions that the cleaner leaves out because it failed.",
)
UNCLEANABLE_BYTES: Final = Family(
    "kafka_log_logcleanermanager_uncleanable_bytes", "gauge", "Bytes of their logs."
)
RECOPY_PERCENT: Final = Family(
    "kafka_log_logcleaner_cleaner_recopy_percent",
    "gauge",
    "Bytes that the last compaction of each partition has left, in percent of those before it.",
)
MAX_CLEAN_TIME: Final = Family(
    "kafka_log_logcleaner_max_clean_time_secs",
    "gauge",
    "Seconds that the longest of these compactions took.",
)
MAX_BUFFER_UTILIZATION: Final = Family(
    "kafka_log_logcleaner_max_buffer_utilization_percent",
    "gauge",
    "How full the fullest map of keys of these compactions was, in percent.",
)
MAX_COMPACTION_DELAY: Final = Family(
    "kafka_log_logcleaner_max_compaction_delay_secs",
    "gauge",
    "For how long the most overdue partition has been due by max.compaction.lag.ms, in seconds.",
)
DIRTY_RATIO: Final = Family(
    "horolog_log_dirty_ratio",
    "gauge",
    "The share of bytes that are to be compacted, when the cleaner last looked: the largest of a "
    "topic unless partitions are asked for. Of compacted topics only.",
    _TOPIC,
    by_partition=True,
)
SINCE_CLEANED: Final = Family(
    "horolog_log_since_cleaned_milliseconds",
    "gauge",
    "Milliseconds since a partition was last compacted by this process: the largest of a topic "
    "unless partitions are asked for. Left out of what was not.",
    _TOPIC,
    by_partition=True,
)

OPEN_TRANSACTIONS: Final = Family(
    "horolog_open_transactions",
    "gauge",
    "Transactions that readers of committed records of a partition wait for, one in several "
    "partitions counted in each; without a topic, of all topics. Left out of topics without one.",
    _TOPIC,
    by_partition=True,
)
HANGING_TRANSACTIONS: Final = Family(
    "horolog_hanging_transactions",
    "gauge",
    "Those that no transactional id of the coordinator has: nothing will end them (KIP-664). Of "
    "the first 1,000 of a partition; without a topic, of all topics. Left out of topics without an "
    "open transaction.",
    _TOPIC,
    by_partition=True,
)
OLDEST_TRANSACTION: Final = Family(
    "horolog_oldest_transaction_age_milliseconds",
    "gauge",
    "For how long the oldest of them has been open, 0 without one: since its begin at the "
    "coordinator, else since its first record was appended, if that is known; without a topic, of "
    "all topics. The largest of a topic unless partitions are asked for.",
    _TOPIC,
    by_partition=True,
)
COORDINATED: Final = Family(
    "horolog_coordinator_open_transactions",
    "gauge",
    "Transactional ids whose transaction is open at the coordinator, or is being ended.",
)
OLDEST_COORDINATED: Final = Family(
    "horolog_coordinator_oldest_transaction_age_milliseconds",
    "gauge",
    "For how long the oldest of them has been open, 0 without one.",
)

GROUPS: Final = Family(
    "horolog_groups", "gauge", "Groups by type and state, as in `horolog groups list`.", _KIND
)
REBALANCES: Final = Family(
    "horolog_group_rebalances_total",
    "counter",
    "Rebalances: of consumer groups new epochs but for members that went, as in Kafka's "
    "consumer-group-rebalance-count; of classic groups those that were completed.",
    ("type",),
)
MEMBERS: Final = Family(
    "kafka_consumergroup_members", "gauge", "Members of a consumer group.", ("consumergroup",)
)
COMMITTED: Final = Family(
    "kafka_consumergroup_current_offset",
    "gauge",
    "Committed offset of a group; the sum over partitions unless these are asked for.",
    _GROUP,
    by_partition=True,
)
LAG: Final = Family(
    "kafka_consumergroup_lag",
    "gauge",
    "Offsets from the committed one to the log end, lost ones included; the sum over partitions "
    "unless these are asked for.",
    _GROUP,
    by_partition=True,
)
LAG_SUM: Final = Family(
    "kafka_consumergroup_lag_sum", "gauge", "The same summed up over partitions.", _GROUP
)
LAG_MS: Final = Family(
    "horolog_consumergroup_lag_milliseconds",
    "gauge",
    "How long ago the first unread record was appended, 0 if nothing is unread but markers of "
    "transactions: the largest of a topic unless partitions are asked for. Left out where an "
    "append time is not known.",
    _GROUP,
    by_partition=True,
)
LOST: Final = Family(
    "horolog_consumergroup_lost_records",
    "gauge",
    "Offsets behind the committed one that were deleted before the group read them.",
    _GROUP,
    by_partition=True,
)
UNREAD_DELETED: Final = Family(
    "horolog_consumergroup_unread_deleted_records",
    "gauge",
    "Unread records that retention deletes before the group reads them, at the pace of its latest "
    "commits, or if it stands still where that is not known.",
    _GROUP,
    by_partition=True,
)
FIRST_DELETED: Final = Family(
    "horolog_consumergroup_first_deleted_timestamp_milliseconds",
    "gauge",
    "When the first of them is deleted, in milliseconds since 1970: the earliest of a topic unless "
    "partitions are asked for. Left out where none is.",
    _GROUP,
    by_partition=True,
)

PROBLEMS: Final = Family(
    "horolog_health_problems",
    "gauge",
    "Problems that `horolog health` lists, by kind; 0 without one.",
    ("kind",),
)
OFFLINE_DIRECTORIES: Final = Family(
    "kafka_log_logmanager_offlinelogdirectorycount",
    "gauge",
    "1 if the log directory is lost, and everything is refused until a restart; otherwise 0.",
)
DISK_FREE: Final = Family(
    "horolog_log_directory_free_bytes", "gauge", "Bytes that are free for the log directory."
)
DISK_SIZE: Final = Family(
    "horolog_log_directory_size_bytes", "gauge", "Bytes of the log directory's file system."
)
TASK_FAILURES: Final = Family(
    "horolog_background_task_failures_total",
    "counter",
    "Failed runs of background tasks (retention, flush, checkpoint and others); the log has the "
    "reason; without a task, of all tasks.",
    ("task",),
)
LOOP_DELAY: Final = Family(
    "horolog_event_loop_delay_milliseconds",
    "histogram",
    "Ten times a second, how late a timer of the event loop was: for so long requests wait for "
    "other work, or for the processor. It has no sum.",
)
CONNECTIONS: Final = Family(
    "kafka_server_socket_server_metrics_connection_count",
    "gauge",
    "Connections of clients, unfinished handshakes among those of a listener; without a listener, "
    "of all listeners.",
    ("listener",),
)
MOST_CONNECTIONS: Final = Family(
    "horolog_connections_limit",
    "gauge",
    "Connections beyond which clients wait or are refused, by max.connections and the limit of "
    "open files; of a listener that has its own max.connections, and of all without one.",
    ("listener",),
)
WITHOUT_LOGIN: Final = Family(
    "horolog_connections_without_login",
    "gauge",
    "Connections that have not finished their handshake or login; "
    "horolog.connections.without.login is the most.",
)
LOGINS: Final = Family(
    "horolog_logins_total", "counter", "Logins, renewed ones included.", ("listener", "mechanism")
)
FAILED_LOGINS: Final = Family(
    "horolog_failed_logins_total",
    "counter",
    "Logins that failed; without a mechanism where the client asked for none that is served.",
    ("listener", "mechanism"),
)
ENDED_LOGINS: Final = Family(
    "horolog_ended_logins_total",
    "counter",
    "Connections closed because their login had ended and was not renewed.",
    ("listener",),
)
HANDSHAKES: Final = Family(
    "horolog_tls_handshake_milliseconds",
    "histogram",
    "TLS handshakes that were done, by the time since the client connected, in which it may have "
    "been silent. It has no sum.",
    ("listener",),
)
FAILED_HANDSHAKES: Final = Family(
    "horolog_failed_tls_handshakes_total",
    "counter",
    "TLS handshakes that failed, took too long, or lost their place to another client.",
    ("listener",),
)
THROTTLED: Final = Family(
    "horolog_throttled_total",
    "counter",
    "Requests and connections whose client had to wait, by the quota; for "
    "max.connection.creation.rate pauses in which a listener accepted none.",
    ("quota",),
)
THROTTLE_MS: Final = Family(
    "horolog_throttle_milliseconds_total",
    "counter",
    "Milliseconds that they had to wait; where two quotas apply to a request, the client waits for "
    "the longer time, and both are counted.",
    ("quota",),
)
DENIALS: Final = Family(
    "horolog_denials_total",
    "counter",
    "Operations on topics, groups, transactional ids and the cluster that a client had no right "
    "to.",
    ("operation", "resource"),
)
BUFFERED: Final = Family(
    "horolog_buffered_bytes",
    "gauge",
    "Memory of requests and of responses that clients have not read yet.",
)
MOST_BUFFERED: Final = Family(
    "horolog_buffered_bytes_limit",
    "gauge",
    "Memory beyond which connections wait, by horolog.max.buffered.bytes and "
    "queued.max.request.bytes.",
)
CPU_SECONDS: Final = Family(
    "process_cpu_seconds_total", "counter", "Seconds of processor time of the process."
)
MEMORY: Final = Family(
    "process_resident_memory_bytes",
    "gauge",
    "Resident memory of the process; left out where there is no /proc.",
)
FILES: Final = Family(
    "process_open_fds", "gauge", "Open files of the process; left out where there is no /proc."
)
MOST_FILES: Final = Family(
    "process_max_fds", "gauge", "The limit of open files (ulimit -n); left out without one."
)
STARTED: Final = Family(
    "process_start_time_seconds",
    "gauge",
    "When the broker opened this page, which is before it serves clients, in seconds since 1970.",
)

LEFT_OUT: Final = Family(
    "horolog_metrics_left_out",
    "gauge",
    "Samples that this page lacks because it has 300,000 with labels: of the newest topics and of "
    "consumer groups.",
)

FAMILIES: Final = tuple(value for value in list(vars().values()) if isinstance(value, Family))
"""All families, in the order of the page."""
