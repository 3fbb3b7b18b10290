"""Groups of consumers as pure state machines: requests and times in, results out.

The sockets, the timers and the log are in `horolog.broker.coordinators.group_coordinator`.

    group       one group, from state to state; `members`, `deadlines`, `capacity` are parts of it
    offsets     committed offsets of all groups, and their expiry; `pending` of transactions
    rows        rows of groups and offsets, and changes of them
    replay      rows as records of `__consumer_offsets`, and the state that such a log adds up to
    consumers   groups that the broker assigns (KIP-848)
    batches     changes as batches of records; `commit_records` for repeated commits
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.groups.capacity import *
    from horolog.groups.commit_records import *
    from horolog.groups.consumers.assignment import *
    from horolog.groups.consumers.assignors import *
    from horolog.groups.consumers.change import *
    from horolog.groups.consumers.commits import *
    from horolog.groups.consumers.group import *
    from horolog.groups.consumers.heartbeats import *
    from horolog.groups.consumers.java_order import *
    from horolog.groups.consumers.reconciliation import *
    from horolog.groups.consumers.subscription_patterns import *
    from horolog.groups.consumers.topic_hash import *
    from horolog.groups.consumers.topic_patterns import *
    from horolog.groups.consumers.values import *
    from horolog.groups.embedded import *
    from horolog.groups.group import *
    from horolog.groups.offsets import *
    from horolog.groups.pending import *
    from horolog.groups.replay import *
    from horolog.groups.rows import *
    from horolog.groups.values import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "capacity": "Capacity",
        "commit_records": "CommitRecords",
        "consumers.assignment": "AssignmentJob assigned large_job",
        "consumers.change": "Now",
        "consumers.commits": "check_commit check_fetch check_transactional_commit",
        "consumers.group": "ConsumerGroup",
        "consumers.heartbeats": "expired heartbeat quiet",
        "consumers.reconciliation": "reconciled",
        "consumers.subscription_patterns": "Resolution patterns_due resolved",
        "consumers.values": (
            "Beat Beaten ConsumerLimits ConsumerMember Current GroupStep GroupTimes MemberState "
            "MigrationPolicy"
        ),
        "consumers.assignors": "ASSIGNORS Assignment Partitions Subscriber assign",
        "consumers.java_order": ("map_order set_order text_hash text_key uuid_hash uuid_key"),
        "consumers.topic_hash": "metadata_hash topic_hash",
        "consumers.topic_patterns": "MOST_RESOLVED RESOLVING_SECONDS check_pattern resolve",
        "embedded": "read_assignment read_subscription",
        "group": "Group",
        "offsets": "CommittedOffsets",
        "pending": "SLICE",
        "replay": "GroupReplay records_of transaction_batch",
        "rows": (
            "ConsumerRecords GroupChange GroupRow OffsetRow OffsetsEnd PendingRow StoredGroups "
            "TransactionProducer"
        ),
        "values": (
            "Committer Completed GroupLimits GroupState Join Joined Protocol Storing Sync Synced"
        ),
    },
)
