"""The bodies of requests: what a decoded one has, whatever its version.

Made by `python -m tools.request_views > src/horolog/wire/requests.py`; do not edit.

A field that a version lacks has its default, which is Kafka's own: that of the schema, else 0, an
empty string or array, or False. A UUID of zeros is None.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

from horolog.buffers import Buffer
from horolog.wire.api import ApiKey


class PartitionProduceData:
    """`PartitionProduceData` of Produce."""

    __slots__ = ()
    index: int
    records: Buffer | None


class TopicProduceData:
    """`TopicProduceData` of Produce."""

    __slots__ = ()
    topic_id: UUID | None = None
    partition_data: tuple[PartitionProduceData, ...]
    name: str = ""


class ProduceRequest:
    """`ProduceRequest` of Produce."""

    __slots__ = ()
    transactional_id: str | None = None
    acks: int
    timeout_ms: int
    topic_data: tuple[TopicProduceData, ...]


class ReplicaState:
    """`ReplicaState` of Fetch."""

    __slots__ = ()
    replica_id: int
    replica_epoch: int


class ForgottenTopic:
    """`ForgottenTopic` of Fetch."""

    __slots__ = ()
    topic_id: UUID | None = None
    partitions: tuple[int, ...]
    topic: str = ""


class FetchPartition:
    """`FetchPartition` of Fetch."""

    __slots__ = ()
    partition: int
    current_leader_epoch: int = -1
    fetch_offset: int
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int
    replica_directory_id: UUID | None = None
    high_watermark: int = 9223372036854775807


class FetchTopic:
    """`FetchTopic` of Fetch."""

    __slots__ = ()
    topic_id: UUID | None = None
    partitions: tuple[FetchPartition, ...]
    topic: str = ""


class FetchRequest:
    """`FetchRequest` of Fetch."""

    __slots__ = ()
    max_wait_ms: int
    min_bytes: int
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: tuple[FetchTopic, ...]
    forgotten_topics_data: tuple[ForgottenTopic, ...] = ()
    rack_id: str = ""
    cluster_id: str | None = None
    replica_state: ReplicaState | None = None
    replica_id: int = -1


class ListOffsetsPartition:
    """`ListOffsetsPartition` of ListOffsets."""

    __slots__ = ()
    partition_index: int
    current_leader_epoch: int = -1
    timestamp: int
    max_num_offsets: int = 1


class ListOffsetsTopic:
    """`ListOffsetsTopic` of ListOffsets."""

    __slots__ = ()
    name: str
    partitions: tuple[ListOffsetsPartition, ...]


class ListOffsetsRequest:
    """`ListOffsetsRequest` of ListOffsets."""

    __slots__ = ()
    replica_id: int
    isolation_level: int = 0
    topics: tuple[ListOffsetsTopic, ...]
    timeout_ms: int = 0


class MetadataRequestTopic:
    """`MetadataRequestTopic` of Metadata."""

    __slots__ = ()
    topic_id: UUID | None = None
    name: str | None


class MetadataRequest:
    """`MetadataRequest` of Metadata."""

    __slots__ = ()
    topics: tuple[MetadataRequestTopic, ...] | None
    allow_auto_topic_creation: bool = True
    include_topic_authorized_operations: bool = False
    include_cluster_authorized_operations: bool = False


class OffsetCommitRequestPartition:
    """`OffsetCommitRequestPartition` of OffsetCommit."""

    __slots__ = ()
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None
    commit_timestamp: int = -1


class OffsetCommitRequestTopic:
    """`OffsetCommitRequestTopic` of OffsetCommit."""

    __slots__ = ()
    topic_id: UUID | None = None
    partitions: tuple[OffsetCommitRequestPartition, ...]
    name: str = ""


class OffsetCommitRequest:
    """`OffsetCommitRequest` of OffsetCommit."""

    __slots__ = ()
    group_id: str
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: tuple[OffsetCommitRequestTopic, ...]
    retention_time_ms: int = -1


class OffsetFetchRequestTopic:
    """`OffsetFetchRequestTopic` of OffsetFetch."""

    __slots__ = ()
    name: str
    partition_indexes: tuple[int, ...]


class OffsetFetchRequestTopics:
    """`OffsetFetchRequestTopics` of OffsetFetch."""

    __slots__ = ()
    topic_id: UUID | None = None
    partition_indexes: tuple[int, ...]
    name: str = ""


class OffsetFetchRequestGroup:
    """`OffsetFetchRequestGroup` of OffsetFetch."""

    __slots__ = ()
    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    topics: tuple[OffsetFetchRequestTopics, ...] | None


class OffsetFetchRequest:
    """`OffsetFetchRequest` of OffsetFetch."""

    __slots__ = ()
    groups: tuple[OffsetFetchRequestGroup, ...] = ()
    require_stable: bool = False
    group_id: str = ""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None


class FindCoordinatorRequest:
    """`FindCoordinatorRequest` of FindCoordinator."""

    __slots__ = ()
    key_type: int = 0
    coordinator_keys: tuple[str, ...] = ()
    key: str = ""


class JoinGroupRequestProtocol:
    """`JoinGroupRequestProtocol` of JoinGroup."""

    __slots__ = ()
    name: str
    metadata: bytes


class JoinGroupRequest:
    """`JoinGroupRequest` of JoinGroup."""

    __slots__ = ()
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str
    protocols: tuple[JoinGroupRequestProtocol, ...]
    reason: str | None = None


class HeartbeatRequest:
    """`HeartbeatRequest` of Heartbeat."""

    __slots__ = ()
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class MemberIdentity:
    """`MemberIdentity` of LeaveGroup."""

    __slots__ = ()
    member_id: str
    group_instance_id: str | None
    reason: str | None = None


class LeaveGroupRequest:
    """`LeaveGroupRequest` of LeaveGroup."""

    __slots__ = ()
    group_id: str
    members: tuple[MemberIdentity, ...] = ()
    member_id: str = ""


class SyncGroupRequestAssignment:
    """`SyncGroupRequestAssignment` of SyncGroup."""

    __slots__ = ()
    member_id: str
    assignment: bytes


class SyncGroupRequest:
    """`SyncGroupRequest` of SyncGroup."""

    __slots__ = ()
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[SyncGroupRequestAssignment, ...]


class DescribeGroupsRequest:
    """`DescribeGroupsRequest` of DescribeGroups."""

    __slots__ = ()
    groups: tuple[str, ...]
    include_authorized_operations: bool = False


class ListGroupsRequest:
    """`ListGroupsRequest` of ListGroups."""

    __slots__ = ()
    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class SaslHandshakeRequest:
    """`SaslHandshakeRequest` of SaslHandshake."""

    __slots__ = ()
    mechanism: str


class ApiVersionsRequest:
    """`ApiVersionsRequest` of ApiVersions."""

    __slots__ = ()
    client_software_name: str = ""
    client_software_version: str = ""


class CreatableTopicConfig:
    """`CreatableTopicConfig` of CreateTopics."""

    __slots__ = ()
    name: str
    value: str | None


class CreatableReplicaAssignment:
    """`CreatableReplicaAssignment` of CreateTopics."""

    __slots__ = ()
    partition_index: int
    broker_ids: tuple[int, ...]


class CreatableTopic:
    """`CreatableTopic` of CreateTopics."""

    __slots__ = ()
    name: str
    num_partitions: int
    replication_factor: int
    assignments: tuple[CreatableReplicaAssignment, ...]
    configs: tuple[CreatableTopicConfig, ...]


class CreateTopicsRequest:
    """`CreateTopicsRequest` of CreateTopics."""

    __slots__ = ()
    topics: tuple[CreatableTopic, ...]
    timeout_ms: int
    validate_only: bool = False


class DeleteTopicState:
    """`DeleteTopicState` of DeleteTopics."""

    __slots__ = ()
    name: str | None
    topic_id: UUID | None


class DeleteTopicsRequest:
    """`DeleteTopicsRequest` of DeleteTopics."""

    __slots__ = ()
    topics: tuple[DeleteTopicState, ...] = ()
    timeout_ms: int
    topic_names: tuple[str, ...] = ()


class DeleteRecordsPartition:
    """`DeleteRecordsPartition` of DeleteRecords."""

    __slots__ = ()
    partition_index: int
    offset: int


class DeleteRecordsTopic:
    """`DeleteRecordsTopic` of DeleteRecords."""

    __slots__ = ()
    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


class DeleteRecordsRequest:
    """`DeleteRecordsRequest` of DeleteRecords."""

    __slots__ = ()
    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: int


class InitProducerIdRequest:
    """`InitProducerIdRequest` of InitProducerId."""

    __slots__ = ()
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1


class OffsetForLeaderPartition:
    """`OffsetForLeaderPartition` of OffsetForLeaderEpoch."""

    __slots__ = ()
    partition: int
    current_leader_epoch: int = -1
    leader_epoch: int


class OffsetForLeaderTopic:
    """`OffsetForLeaderTopic` of OffsetForLeaderEpoch."""

    __slots__ = ()
    topic: str
    partitions: tuple[OffsetForLeaderPartition, ...]


class OffsetForLeaderEpochRequest:
    """`OffsetForLeaderEpochRequest` of OffsetForLeaderEpoch."""

    __slots__ = ()
    replica_id: int = -2
    topics: tuple[OffsetForLeaderTopic, ...]


class AddPartitionsToTxnTopic:
    """`AddPartitionsToTxnTopic` of AddPartitionsToTxn."""

    __slots__ = ()
    name: str
    partitions: tuple[int, ...]


class AddPartitionsToTxnTransaction:
    """`AddPartitionsToTxnTransaction` of AddPartitionsToTxn."""

    __slots__ = ()
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: tuple[AddPartitionsToTxnTopic, ...]


class AddPartitionsToTxnRequest:
    """`AddPartitionsToTxnRequest` of AddPartitionsToTxn."""

    __slots__ = ()
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = ()
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = ()


class AddOffsetsToTxnRequest:
    """`AddOffsetsToTxnRequest` of AddOffsetsToTxn."""

    __slots__ = ()
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class EndTxnRequest:
    """`EndTxnRequest` of EndTxn."""

    __slots__ = ()
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class WritableTxnMarkerTopic:
    """`WritableTxnMarkerTopic` of WriteTxnMarkers."""

    __slots__ = ()
    name: str
    partition_indexes: tuple[int, ...]


class WritableTxnMarker:
    """`WritableTxnMarker` of WriteTxnMarkers."""

    __slots__ = ()
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: int
    transaction_version: int = 0


class WriteTxnMarkersRequest:
    """`WriteTxnMarkersRequest` of WriteTxnMarkers."""

    __slots__ = ()
    markers: tuple[WritableTxnMarker, ...]


class TxnOffsetCommitRequestPartition:
    """`TxnOffsetCommitRequestPartition` of TxnOffsetCommit."""

    __slots__ = ()
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None


class TxnOffsetCommitRequestTopic:
    """`TxnOffsetCommitRequestTopic` of TxnOffsetCommit."""

    __slots__ = ()
    name: str
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]


class TxnOffsetCommitRequest:
    """`TxnOffsetCommitRequest` of TxnOffsetCommit."""

    __slots__ = ()
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...]


class DescribeConfigsResource:
    """`DescribeConfigsResource` of DescribeConfigs."""

    __slots__ = ()
    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None


class DescribeConfigsRequest:
    """`DescribeConfigsRequest` of DescribeConfigs."""

    __slots__ = ()
    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = False


class AlterableConfig:
    """`AlterableConfig` of AlterConfigs."""

    __slots__ = ()
    name: str
    value: str | None


class AlterConfigsResource:
    """`AlterConfigsResource` of AlterConfigs."""

    __slots__ = ()
    resource_type: int
    resource_name: str
    configs: tuple[AlterableConfig, ...]


class AlterConfigsRequest:
    """`AlterConfigsRequest` of AlterConfigs."""

    __slots__ = ()
    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool


class DescribableLogDirTopic:
    """`DescribableLogDirTopic` of DescribeLogDirs."""

    __slots__ = ()
    topic: str
    partitions: tuple[int, ...]


class DescribeLogDirsRequest:
    """`DescribeLogDirsRequest` of DescribeLogDirs."""

    __slots__ = ()
    topics: tuple[DescribableLogDirTopic, ...] | None


class SaslAuthenticateRequest:
    """`SaslAuthenticateRequest` of SaslAuthenticate."""

    __slots__ = ()
    auth_bytes: bytes


class CreatePartitionsAssignment:
    """`CreatePartitionsAssignment` of CreatePartitions."""

    __slots__ = ()
    broker_ids: tuple[int, ...]


class CreatePartitionsTopic:
    """`CreatePartitionsTopic` of CreatePartitions."""

    __slots__ = ()
    name: str
    count: int
    assignments: tuple[CreatePartitionsAssignment, ...] | None


class CreatePartitionsRequest:
    """`CreatePartitionsRequest` of CreatePartitions."""

    __slots__ = ()
    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: int
    validate_only: bool


class DeleteGroupsRequest:
    """`DeleteGroupsRequest` of DeleteGroups."""

    __slots__ = ()
    groups_names: tuple[str, ...]


class TopicPartitions:
    """`TopicPartitions` of ElectLeaders."""

    __slots__ = ()
    topic: str
    partitions: tuple[int, ...]


class ElectLeadersRequest:
    """`ElectLeadersRequest` of ElectLeaders."""

    __slots__ = ()
    election_type: int = 0
    topic_partitions: tuple[TopicPartitions, ...] | None
    timeout_ms: int


class IncrementalAlterConfigsAlterableConfig:
    """`AlterableConfig` of IncrementalAlterConfigs."""

    __slots__ = ()
    name: str
    config_operation: int
    value: str | None


class IncrementalAlterConfigsAlterConfigsResource:
    """`AlterConfigsResource` of IncrementalAlterConfigs."""

    __slots__ = ()
    resource_type: int
    resource_name: str
    configs: tuple[IncrementalAlterConfigsAlterableConfig, ...]


class IncrementalAlterConfigsRequest:
    """`IncrementalAlterConfigsRequest` of IncrementalAlterConfigs."""

    __slots__ = ()
    resources: tuple[IncrementalAlterConfigsAlterConfigsResource, ...]
    validate_only: bool


class ReassignablePartition:
    """`ReassignablePartition` of AlterPartitionReassignments."""

    __slots__ = ()
    partition_index: int
    replicas: tuple[int, ...] | None


class ReassignableTopic:
    """`ReassignableTopic` of AlterPartitionReassignments."""

    __slots__ = ()
    name: str
    partitions: tuple[ReassignablePartition, ...]


class AlterPartitionReassignmentsRequest:
    """`AlterPartitionReassignmentsRequest` of AlterPartitionReassignments."""

    __slots__ = ()
    timeout_ms: int
    allow_replication_factor_change: bool = True
    topics: tuple[ReassignableTopic, ...]


class ListPartitionReassignmentsTopics:
    """`ListPartitionReassignmentsTopics` of ListPartitionReassignments."""

    __slots__ = ()
    name: str
    partition_indexes: tuple[int, ...]


class ListPartitionReassignmentsRequest:
    """`ListPartitionReassignmentsRequest` of ListPartitionReassignments."""

    __slots__ = ()
    timeout_ms: int
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None


class OffsetDeleteRequestPartition:
    """`OffsetDeleteRequestPartition` of OffsetDelete."""

    __slots__ = ()
    partition_index: int


class OffsetDeleteRequestTopic:
    """`OffsetDeleteRequestTopic` of OffsetDelete."""

    __slots__ = ()
    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]


class OffsetDeleteRequest:
    """`OffsetDeleteRequest` of OffsetDelete."""

    __slots__ = ()
    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]


class ComponentData:
    """`ComponentData` of DescribeClientQuotas."""

    __slots__ = ()
    entity_type: str
    match_type: int
    match: str | None


class DescribeClientQuotasRequest:
    """`DescribeClientQuotasRequest` of DescribeClientQuotas."""

    __slots__ = ()
    components: tuple[ComponentData, ...]
    strict: bool


class UserName:
    """`UserName` of DescribeUserScramCredentials."""

    __slots__ = ()
    name: str


class DescribeUserScramCredentialsRequest:
    """`DescribeUserScramCredentialsRequest` of DescribeUserScramCredentials."""

    __slots__ = ()
    users: tuple[UserName, ...] | None


class PartitionData:
    """`PartitionData` of DescribeQuorum."""

    __slots__ = ()
    partition_index: int


class TopicData:
    """`TopicData` of DescribeQuorum."""

    __slots__ = ()
    topic_name: str
    partitions: tuple[PartitionData, ...]


class DescribeQuorumRequest:
    """`DescribeQuorumRequest` of DescribeQuorum."""

    __slots__ = ()
    topics: tuple[TopicData, ...]


class DescribeClusterRequest:
    """`DescribeClusterRequest` of DescribeCluster."""

    __slots__ = ()
    include_cluster_authorized_operations: bool
    endpoint_type: int = 1
    include_fenced_brokers: bool = False


class TopicRequest:
    """`TopicRequest` of DescribeProducers."""

    __slots__ = ()
    name: str
    partition_indexes: tuple[int, ...]


class DescribeProducersRequest:
    """`DescribeProducersRequest` of DescribeProducers."""

    __slots__ = ()
    topics: tuple[TopicRequest, ...]


class DescribeTransactionsRequest:
    """`DescribeTransactionsRequest` of DescribeTransactions."""

    __slots__ = ()
    transactional_ids: tuple[str, ...]


class ListTransactionsRequest:
    """`ListTransactionsRequest` of ListTransactions."""

    __slots__ = ()
    state_filters: tuple[str, ...]
    producer_id_filters: tuple[int, ...]
    duration_filter: int = -1
    transactional_id_pattern: str | None = None


class ListConfigResourcesRequest:
    """`ListConfigResourcesRequest` of ListConfigResources."""

    __slots__ = ()
    resource_types: tuple[int, ...] = ()


VIEWS: Final[Mapping[ApiKey, Mapping[str, type]]] = MappingProxyType(
    {
        ApiKey.PRODUCE: {
            "ProduceRequest": ProduceRequest,
            "TopicProduceData": TopicProduceData,
            "PartitionProduceData": PartitionProduceData,
        },
        ApiKey.FETCH: {
            "FetchRequest": FetchRequest,
            "FetchTopic": FetchTopic,
            "FetchPartition": FetchPartition,
            "ForgottenTopic": ForgottenTopic,
            "ReplicaState": ReplicaState,
        },
        ApiKey.LIST_OFFSETS: {
            "ListOffsetsRequest": ListOffsetsRequest,
            "ListOffsetsTopic": ListOffsetsTopic,
            "ListOffsetsPartition": ListOffsetsPartition,
        },
        ApiKey.METADATA: {
            "MetadataRequest": MetadataRequest,
            "MetadataRequestTopic": MetadataRequestTopic,
        },
        ApiKey.OFFSET_COMMIT: {
            "OffsetCommitRequest": OffsetCommitRequest,
            "OffsetCommitRequestTopic": OffsetCommitRequestTopic,
            "OffsetCommitRequestPartition": OffsetCommitRequestPartition,
        },
        ApiKey.OFFSET_FETCH: {
            "OffsetFetchRequest": OffsetFetchRequest,
            "OffsetFetchRequestGroup": OffsetFetchRequestGroup,
            "OffsetFetchRequestTopics": OffsetFetchRequestTopics,
            "OffsetFetchRequestTopic": OffsetFetchRequestTopic,
        },
        ApiKey.FIND_COORDINATOR: {
            "FindCoordinatorRequest": FindCoordinatorRequest,
        },
        ApiKey.JOIN_GROUP: {
            "JoinGroupRequest": JoinGroupRequest,
            "JoinGroupRequestProtocol": JoinGroupRequestProtocol,
        },
        ApiKey.HEARTBEAT: {
            "HeartbeatRequest": HeartbeatRequest,
        },
        ApiKey.LEAVE_GROUP: {
            "LeaveGroupRequest": LeaveGroupRequest,
            "MemberIdentity": MemberIdentity,
        },
        ApiKey.SYNC_GROUP: {
            "SyncGroupRequest": SyncGroupRequest,
            "SyncGroupRequestAssignment": SyncGroupRequestAssignment,
        },
        ApiKey.DESCRIBE_GROUPS: {
            "DescribeGroupsRequest": DescribeGroupsRequest,
        },
        ApiKey.LIST_GROUPS: {
            "ListGroupsRequest": ListGroupsRequest,
        },
        ApiKey.SASL_HANDSHAKE: {
            "SaslHandshakeRequest": SaslHandshakeRequest,
        },
        ApiKey.API_VERSIONS: {
            "ApiVersionsRequest": ApiVersionsRequest,
        },
        ApiKey.CREATE_TOPICS: {
            "CreateTopicsRequest": CreateTopicsRequest,
            "CreatableTopic": CreatableTopic,
            "CreatableReplicaAssignment": CreatableReplicaAssignment,
            "CreatableTopicConfig": CreatableTopicConfig,
        },
        ApiKey.DELETE_TOPICS: {
            "DeleteTopicsRequest": DeleteTopicsRequest,
            "DeleteTopicState": DeleteTopicState,
        },
        ApiKey.DELETE_RECORDS: {
            "DeleteRecordsRequest": DeleteRecordsRequest,
            "DeleteRecordsTopic": DeleteRecordsTopic,
            "DeleteRecordsPartition": DeleteRecordsPartition,
        },
        ApiKey.INIT_PRODUCER_ID: {
            "InitProducerIdRequest": InitProducerIdRequest,
        },
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {
            "OffsetForLeaderEpochRequest": OffsetForLeaderEpochRequest,
            "OffsetForLeaderTopic": OffsetForLeaderTopic,
            "OffsetForLeaderPartition": OffsetForLeaderPartition,
        },
        ApiKey.ADD_PARTITIONS_TO_TXN: {
            "AddPartitionsToTxnRequest": AddPartitionsToTxnRequest,
            "AddPartitionsToTxnTransaction": AddPartitionsToTxnTransaction,
            "AddPartitionsToTxnTopic": AddPartitionsToTxnTopic,
        },
        ApiKey.ADD_OFFSETS_TO_TXN: {
            "AddOffsetsToTxnRequest": AddOffsetsToTxnRequest,
        },
        ApiKey.END_TXN: {
            "EndTxnRequest": EndTxnRequest,
        },
        ApiKey.WRITE_TXN_MARKERS: {
            "WriteTxnMarkersRequest": WriteTxnMarkersRequest,
            "WritableTxnMarker": WritableTxnMarker,
            "WritableTxnMarkerTopic": WritableTxnMarkerTopic,
        },
        ApiKey.TXN_OFFSET_COMMIT: {
            "TxnOffsetCommitRequest": TxnOffsetCommitRequest,
            "TxnOffsetCommitRequestTopic": TxnOffsetCommitRequestTopic,
            "TxnOffsetCommitRequestPartition": TxnOffsetCommitRequestPartition,
        },
        ApiKey.DESCRIBE_CONFIGS: {
            "DescribeConfigsRequest": DescribeConfigsRequest,
            "DescribeConfigsResource": DescribeConfigsResource,
        },
        ApiKey.ALTER_CONFIGS: {
            "AlterConfigsRequest": AlterConfigsRequest,
            "AlterConfigsResource": AlterConfigsResource,
            "AlterableConfig": AlterableConfig,
        },
        ApiKey.DESCRIBE_LOG_DIRS: {
            "DescribeLogDirsRequest": DescribeLogDirsRequest,
            "DescribableLogDirTopic": DescribableLogDirTopic,
        },
        ApiKey.SASL_AUTHENTICATE: {
            "SaslAuthenticateRequest": SaslAuthenticateRequest,
        },
        ApiKey.CREATE_PARTITIONS: {
            "CreatePartitionsRequest": CreatePartitionsRequest,
            "CreatePartitionsTopic": CreatePartitionsTopic,
            "CreatePartitionsAssignment": CreatePartitionsAssignment,
        },
        ApiKey.DELETE_GROUPS: {
            "DeleteGroupsRequest": DeleteGroupsRequest,
        },
        ApiKey.ELECT_LEADERS: {
            "ElectLeadersRequest": ElectLeadersRequest,
            "TopicPartitions": TopicPartitions,
        },
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {
            "IncrementalAlterConfigsRequest": IncrementalAlterConfigsRequest,
            "AlterConfigsResource": IncrementalAlterConfigsAlterConfigsResource,
            "AlterableConfig": IncrementalAlterConfigsAlterableConfig,
        },
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
            "AlterPartitionReassignmentsRequest": AlterPartitionReassignmentsRequest,
            "ReassignableTopic": ReassignableTopic,
            "ReassignablePartition": ReassignablePartition,
        },
        ApiKey.LIST_PARTITION_REASSIGNMENTS: {
            "ListPartitionReassignmentsRequest": ListPartitionReassignmentsRequest,
            "ListPartitionReassignmentsTopics": ListPartitionReassignmentsTopics,
        },
        ApiKey.OFFSET_DELETE: {
            "OffsetDeleteRequest": OffsetDeleteRequest,
            "OffsetDeleteRequestTopic": OffsetDeleteRequestTopic,
            "OffsetDeleteRequestPartition": OffsetDeleteRequestPartition,
        },
        ApiKey.DESCRIBE_CLIENT_QUOTAS: {
            "DescribeClientQuotasRequest": DescribeClientQuotasRequest,
            "ComponentData": ComponentData,
        },
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {
            "DescribeUserScramCredentialsRequest": DescribeUserScramCredentialsRequest,
            "UserName": UserName,
        },
        ApiKey.DESCRIBE_QUORUM: {
            "DescribeQuorumRequest": DescribeQuorumRequest,
            "TopicData": TopicData,
            "PartitionData": PartitionData,
        },
        ApiKey.DESCRIBE_CLUSTER: {
            "DescribeClusterRequest": DescribeClusterRequest,
        },
        ApiKey.DESCRIBE_PRODUCERS: {
            "DescribeProducersRequest": DescribeProducersRequest,
            "TopicRequest": TopicRequest,
        },
        ApiKey.DESCRIBE_TRANSACTIONS: {
            "DescribeTransactionsRequest": DescribeTransactionsRequest,
        },
        ApiKey.LIST_TRANSACTIONS: {
            "ListTransactionsRequest": ListTransactionsRequest,
        },
        ApiKey.LIST_CONFIG_RESOURCES: {
            "ListConfigResourcesRequest": ListConfigResourcesRequest,
        },
    }
)
"""The views by API and the name of the structure."""
