"""Topics, their settings, and the metadata records that keep them over a restart.

Open first:
    topics        the topics of a broker, and the rules for creating one
    store         rows in, rows out: the broker's way to what is kept
    image_changes   what changed in an image: how a broker of a cluster gets its metadata
    observed      the copy of its quorum's log that such a broker keeps
    log           the metadata log: one batch a change, snapshots, and the `image` of all of it
and beneath them:
    mapping state   rows to records and back; what horolog keeps beyond Kafka's records
    home opening    whose directory it is, and so where the log is; `taking_over` of a Kafka's
    forms replay snapshots   where the batches are, and what they come to
    past            answers about the past: `topic_history`, with every `Change` that is still
                    kept, and `group_history`
    beside          state that was kept elsewhere, and is taken over once
    reserve         space that deletions need on a full disk
    reconcile       stored topics compared with directories, at a start; `verify` says it,
                    and whether the records can be read
    adopted         what another's metadata says of topics that are adopted
    adopted_offsets   what its groups had committed

`topics`, `reconcile`, `mapping` and `image` are pure; sockets and timers belong to
`horolog.broker`. A change is one batch, so that creating or deleting a topic is atomic.
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.metadata.image import *
    from horolog.metadata.image_changes import *
    from horolog.metadata.log import *
    from horolog.metadata.opening import *
    from horolog.metadata.store import *
    from horolog.metadata.verify import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "adopted": "Overrides read_cluster_metadata",
        "adopted_offsets": "KafkaOffsets read_consumer_offsets",
        "commit_templates": "CommitTemplates",
        "forms": "KafkaForm",
        "group_history": "read_group_history",
        "home": "PROPERTIES Signs is_own signs_in state_dir_beside",
        "image": "BROKER GROUP TOPIC Image",
        "image_changes": "Changes PartitionKey TopicKey TrackedImage difference",
        "log": "MetadataLog",
        "mapping": "DirectoryNode",
        "open_transactions": "committed_in",
        "opening": "open_store state_dir_of",
        "reconcile": "MAX_CREATED FoundPartitions StartPlan TopicOnDisk stored_count",
        "replay": "MetadataReplay MetadataUnreadable",
        "replicated": "CommittedEnds forget_known refuse_directory_of_cluster refuse_replicas",
        "reserve": "Reserve",
        "rows": (
            "AS_FOUND BROKER_SCOPE GROUP_SCOPE TOPIC_SCOPE FollowedRow SettingRow SourceRow "
            "TopicRow"
        ),
        "snapshots": "SnapshotId snapshot_batches snapshots_in",
        "store": "MetadataStore",
        "taking_over": "UNASSIGNED static_voters why_not",
        "topic_history": "changes read_topic_history",
        "topics": "Topic TopicRegistry",
        "verify": "check_metadata check_store verification_of",
    },
)
