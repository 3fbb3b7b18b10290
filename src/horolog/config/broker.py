"""Settings of a broker as typed values, with Kafka's names in Python's spelling.

Only the settings that the broker obeys. `broker_settings.txt` lists those that it accepts
without effect, or refuses, with the reason. Times are milliseconds unless the name says
otherwise.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from horolog.config.cluster import ClusterConfig
from horolog.config.listeners import INT_MAX, Endpoint, ListenerLimits
from horolog.config.logins import Login
from horolog.config.tls import ListenerTls


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Every broker setting that is obeyed. Immutable: a change makes a new one.

    The broker's defaults for topics (`log.retention.ms`, ...) are part of `TopicConfig`, see
    `Settings.topic_config`.
    """

    # Identity and endpoints.
    node_id: int = 1
    broker_rack: str | None = None
    listeners: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    advertised_listeners: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)

    # Connections.
    socket_listen_backlog_size: int = 50
    socket_send_buffer_bytes: int = -1
    socket_receive_buffer_bytes: int = -1
    socket_request_max_bytes: int = 104_857_600
    queued_max_request_bytes: int = -1
    connections_max_idle_ms: int = 600_000
    max_connections: int = INT_MAX
    max_connection_creation_rate: int = INT_MAX
    listener_limits: Mapping[str, ListenerLimits] = field(
        default_factory=lambda: {"PLAINTEXT": ListenerLimits()}
    )
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    max_connections_per_ip: int = INT_MAX
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    fetch_max_bytes: int = 57_671_680
    max_incremental_fetch_session_cache_slots: int = 1_000
    max_request_partition_size_limit: int = 2_000
    replica_fetch_backoff_ms: int = 1_000
    replica_fetch_max_bytes: int = 1 << 20
    replica_fetch_min_bytes: int = 1
    replica_fetch_response_max_bytes: int = 10 << 20
    replica_fetch_wait_max_ms: int = 500
    replica_socket_timeout_ms: int = 30_000

    # TLS and logins.
    tls: Mapping[str, ListenerTls] = field(default_factory=dict)
    logins: Mapping[str, Login] = field(default_factory=dict)
    connection_failed_authentication_delay_ms: int = 100
    sasl_server_max_receive_size: int = 524_288
    horolog_login_timeout_ms: int = 10_000
    horolog_connections_without_login: int = 1_000

    # Rights.
    authorizer_class_name: str = ""
    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False

    # Topics.
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1

    # The log directory.
    log_dir: str = "horolog-data"
    num_recovery_threads_per_data_dir: int = 2
    log_retention_check_interval_ms: int = 300_000
    log_initial_task_delay_ms: int = 30_000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_scheduler_interval_ms: int = (1 << 63) - 1
    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 128 << 20
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = sys.float_info.max

    # Between brokers.
    inter_broker_listener_name: str = "PLAINTEXT"
    inter_broker_protocol_version: str = "3.9-IV0"
    cluster: ClusterConfig | None = None
    """The cluster that this broker is part of; None for a node alone."""

    # Producers and groups.
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_partition_verification_enable: bool = True
    add_partitions_to_txn_retry_backoff_ms: int = 20
    add_partitions_to_txn_retry_backoff_max_ms: int = 100
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = INT_MAX
    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_max_size: int = INT_MAX
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_migration_policy: str = "bidirectional"
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_segment_bytes: int = 104_857_600
    offsets_topic_compression_codec: int = 0
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_segment_bytes: int = 104_857_600

    # horolog's own.
    horolog_adopt_defaults: bool = False
    horolog_audit_log: str = ""
    horolog_busy_poll_us: int = 100
    horolog_cluster_id: str | None = None
    horolog_demote_servers: tuple[str, ...] = ()
    horolog_follow: str | None = None
    horolog_follow_config: str = ""
    horolog_follow_log_start: bool = False
    horolog_follow_topics: str = ".*"
    horolog_group_max_bytes: int = 16 << 20
    horolog_groups_max_bytes: int = 128 << 20
    horolog_history_ms: int = 0
    horolog_ignore_unknown_settings: bool = False
    horolog_max_batch_uncompressed_bytes: int = 1 << 30
    horolog_max_buffered_bytes: int = 512 << 20
    horolog_metrics_host: str = "127.0.0.1"
    horolog_metrics_port: int | None = None
    horolog_metrics_protocol: str = "http"
    metrics_tls: ListenerTls | None = None
    horolog_open_listeners: tuple[str, ...] = ()
    horolog_state_dir: str | None = None
    horolog_take_over: bool = False
    horolog_timestamp_warn_ahead_ms: int = 3_600_000
