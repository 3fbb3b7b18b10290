"""The broker: answers requests from the logs of its partitions.

`service.serve` runs a broker in the foreground; `service.Service` is one to start and stop.

    handlers     requests to answers, by what they are about
    coordinators groups and transactions, with their internal topics
    control      horolog's own questions and actions (docs/wire.md)
    metrics      numbers for Prometheus (docs/metrics.md)
    shadow       another cluster followed, and led in its place (docs/following.md)
    following    partitions fetched from the broker that leads them, and appended
    scheduling   what runs on the event loop and what in threads, in which order

    opening      the log directory and the metadata store, reconciled; before there is a broker
    broker       its parts, built in order; a part gets those before it, never the broker
    placement    who leads each partition: this broker, another one, or a cluster that it follows
    partition    one log and its writes; reads and lookups go to `Partition.log`
    dispatch     from a frame to its handler and back
    authorisation   what each API needs, and who may; `logins` of clients before that
    background_tasks   retention, flushing, checkpoints, index checks
    health       what is wrong with a broker
    service_manager    reports to systemd: started, alive, stopping

A broker is never half open. One event loop serves all connections; everything that may wait for
the disk runs in a small pool, in order per partition. Kernels load in the background once it is
ready (`kernels`); until then they run as plain Python.
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.broker.controller import *
    from horolog.broker.coordinators.state_topics import *
    from horolog.broker.dispatch import *
    from horolog.broker.service import *
    from horolog.broker.service_manager import *
    from horolog.broker.shadow import *
    from horolog.broker.shadow.follower import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "audit": "AuditLog",
        "audit_file": "MOST_LINES AuditFile",
        "authorisation": "NEEDS",
        "background_tasks": "BackgroundTasks",
        "catalogue": "Catalogue",
        "cleaner": "RETRY_MS Cleaner",
        "control": "history",
        "control.table": "ACTION_ROWS QUESTION_ROWS",
        "controller": "Controller",
        "dispatch": "HANDLERS Apart Dispatcher served",
        "fetch_sessions": "FetchSessions",
        "follow_state": "FollowState",
        "following.fetching": "LeaderFetcher",
        "following.followed": "Followed",
        "clock_exchange": "ClockExchange",
        "cluster.assigning": "DirectoryAssignments",
        "cluster.following": "ReplicaFetchers ReplicaStatus",
        "cluster.leading": "Leaders",
        "cluster.roles": "Roles",
        "coordinators.group_coordinator": "GroupCoordinator",
        "coordinators.live_groups": "ConsumerRules",
        "coordinators.group_lag": "Behind Key Paces partition_lag",
        "handlers": "cluster produce",
        "handlers.commits": "RepeatedCommit",
        "handlers.configs": "MOST_QUESTIONS",
        "handlers.fetch": "AT_ONCE",
        "handlers.list_offsets": "Asked find",
        "metrics": "transactions",
        "metrics.process": "ProcessNumbers",
        "metrics.families": "FAMILIES",
        "metrics.scrape": "Scrape",
        "new_topics": "NewTopic",
        "open_files": "OpenFiles share_out",
        "partition": "Partition",
        "partitions": "Partitions",
        "placement.placement": "Placement",
        "producers": "FIRST_PRODUCER_ID",
        "token_logins": "RENEWED_EVERY_S STARTED_WITHIN_S",
        "scheduling": "garbage turns write_queue",
        "scheduling.blocking_thread": "BlockingThread",
        "scheduling.codec_threads": "Checkpoint CodecThreads",
        "scheduling.fair_pool": "Checkers FairPool",
        "scheduling.garbage": "DUE_AFTER MOST_DELAYS FullCollections",
        "scheduling.group_queue": "GroupDecision",
        "scheduling.loop_delay": "LoopDelay",
        "scheduling.inline_tries": "InlineTries",
        "scheduling.pace": "ThreadPace",
        "scheduling.turns": "SLICE_SECONDS ClientGone TimeSlice",
        "service": "Service new_event_loop",
        "service_manager": "ServiceManager",
        "settings": "LiveSettings",
        "shadow": "follower",
        "shadow.access": "MOST_COPIED AccessAtSource FollowedAccess entry_id quota_digest",
        "shadow.follower": "PartitionStatus",
        "shadow.groups": "FollowedGroups committed_at",
        "shadow.offsets": "SourceOffsets",
        "shadow.promotion": "Promotions",
        "shadow.source": "CONFIRMATIONS LEAST_SETTINGS LOOKS_FOR_SETTINGS Source",
        "shadow.topics": "FollowedTopics",
        "coordinators.shards": "Shards",
        "source_topics": "SourcePartition TopicAtSource SourceTopics",
        "coordinators.state_topics": "StateTopic",
        "coordinators.transaction_coordinator": "TransactionCoordinator",
        "coordinators.transaction_markers": "LocalMarkers",
    },
)
