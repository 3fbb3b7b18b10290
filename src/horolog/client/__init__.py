"""Client of horolog's or Apache Kafka's brokers, over blocking sockets.

client        `Client`, for one thread. It holds parts: `topics`, `groups`, `offsets`, `records`,
              `appends`, `transactions`, and `asking`, for what only horolog's brokers answer
configs, metadata, fetching   requests and responses of the parts
kafka_lag, open_transactions   lag and open transactions at brokers without horolog's questions
topic_facts   partitions of a topic: leaders, offsets, largest timestamps
config        configuration of a client; `properties` makes it from Kafka's properties
brokers       connections and cached leaders; `link` and `connection` are one connection
introduction  the first requests on a connection
retrying      repeats calls after retriable errors, until the `deadline`
closing       base of objects that a `with` block closes
appends       batches to several partitions at once
producer      Arrow tables to batches (`arrow_rows`, `row_batches`) and requests
lines         numbered lines to records and requests
transactional the producer in a transaction; `rows_digest` compares two attempts
leader        requests about many partitions of one leader; `fetch_session` fetches them (KIP-227)
fetch_ahead   sends the next fetch before the last one is processed
security      TLS and SASL

`Producer` and `TransactionalProducer` import pyarrow on first use.
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names
from horolog.offsets import HeldUp, OffsetRange, TopicPartition
from horolog.record.timestamps import AppendTimeStretch, RecordClock
from horolog.wire.config_resources import ResourceType

if TYPE_CHECKING:
    from horolog.client.client import Client
    from horolog.client.config import Address, ClientConfig
    from horolog.client.configs import ConfigResource
    from horolog.client.connection import NoAnswer
    from horolog.client.fetching import Fetched
    from horolog.client.groups import CommittedOffset, GroupDescription, GroupListing, GroupMember
    from horolog.client.metadata import (
        BrokerMetadata,
        ClusterMetadata,
        PartitionMetadata,
        TopicMetadata,
    )
    from horolog.client.offsets import (
        EARLIEST,
        LATEST,
        MAX_TIMESTAMP,
        FoundOffset,
        FoundRecord,
    )
    from horolog.client.producer import Producer
    from horolog.client.records import Produced
    from horolog.client.security import AuthenticationFailed, Security
    from horolog.client.topics import ConfigEntry
    from horolog.client.transactional import TransactionalProducer
    from horolog.client.transactions import Transaction, Transactions
    from horolog.record.transactions import AbortedTransaction
    from horolog.wire.questions import (
        CUT,
        AskCut,
        GroupPartitionLag,
        GroupUnread,
        LagClock,
        LeftBehind,
        PartitionCleaning,
        PartitionCut,
        PartitionTimes,
        RangeClock,
    )

__all__ = [
    "CUT",
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AbortedTransaction",
    "Address",
    "AppendTimeStretch",
    "AskCut",
    "AuthenticationFailed",
    "BrokerMetadata",
    "Client",
    "ClientConfig",
    "ClusterMetadata",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigResource",
    "Fetched",
    "FoundOffset",
    "FoundRecord",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupPartitionLag",
    "GroupUnread",
    "HeldUp",
    "LagClock",
    "LeftBehind",
    "NoAnswer",
    "OffsetRange",
    "PartitionCleaning",
    "PartitionCut",
    "PartitionMetadata",
    "PartitionTimes",
    "Produced",
    "Producer",
    "RangeClock",
    "RecordClock",
    "ResourceType",
    "Security",
    "TopicMetadata",
    "TopicPartition",
    "Transaction",
    "TransactionalProducer",
    "Transactions",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "appends": "Appends",
        "brokers": "Brokers",
        "client": "Client",
        "config": "Address ClientConfig parse_bootstrap_servers",
        "configs": "ConfigResource",
        "connection": "Connection NoAnswer ReusedMemory",
        "deadline": "Deadline",
        "fetch_ahead": "FetchAhead",
        "fetch_session": "FetchLimits FetchPosition FetchingReplica ClientFetchSession",
        "fetching": "Fetched PartitionFetch",
        "groups": "CommittedOffset GroupDescription GroupListing GroupMember Groups",
        "kafka_lag": "group_lags",
        "leader": "cluster_of epoch_ends log_bounds",
        "introduction": "LOWEST",
        "link": "Link",
        "metadata": "BrokerMetadata ClusterMetadata PartitionMetadata TopicMetadata",
        "offsets": "EARLIEST LATEST MAX_TIMESTAMP FoundOffset FoundRecord Offsets",
        "open_transactions": "UnstableStretch held_up",
        "producer": "Producer RejectedBatch Repair Written",
        "records": "Produced",
        "rows_digest": "RowsDigest",
        "security": "AuthenticationFailed NoToken Security",
        "security.sasl": "scram",
        "horolog.security.stores": "identity_of",
        "security.tls": "Tls",
        "topic_facts": "partition_facts served_partitions",
        "topics": "ConfigEntry Topics",
        "transactional": "TransactionalProducer",
        "transactions": "Transaction Transactions",
        "horolog.record.transactions": "AbortedTransaction",
        "horolog.wire.questions": (
            "CUT AskCut GroupPartitionLag GroupUnread LagClock LeftBehind PartitionCleaning "
            "PartitionCut PartitionTimes RangeClock"
        ),
    },
    {"producer": "arrow", "transactional": "arrow", "rows_digest": "arrow"},
)
