"""Asking a broker, ours or Apache Kafka's, with blocking sockets: for commands, jobs and tests."""

from horolog.client.admin import ConfigEntry, ConfigResource, ResourceType
from horolog.client.client import Client
from horolog.client.config import Address, ClientConfig
from horolog.client.connection import AuthenticationFailed, NoAnswer
from horolog.client.groups import CommittedOffset
from horolog.client.metadata import Broker, ClusterMetadata, PartitionMetadata, TopicMetadata
from horolog.client.records import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AbortedTransaction,
    Fetched,
    FoundOffset,
    Produced,
    TopicPartition,
)
from horolog.client.security import Security

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AbortedTransaction",
    "Address",
    "AuthenticationFailed",
    "Broker",
    "Client",
    "ClientConfig",
    "ClusterMetadata",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigResource",
    "Fetched",
    "FoundOffset",
    "NoAnswer",
    "PartitionMetadata",
    "Produced",
    "ResourceType",
    "Security",
    "TopicMetadata",
    "TopicPartition",
]
