"""The bodies of responses: what `codec.encode_response` takes, whatever the version.

Made by `python -m tools.response_views > src/horolog/wire/responses.py`; do not edit.

Fields that the version of a response lacks are dropped. A field that may be missing has a default,
or is not in every version; a UUID of zeros is None.
"""

from collections.abc import Sequence
from typing import NotRequired, TypedDict
from uuid import UUID

from horolog.buffers import Buffer


class ListOffsetsPartitionResponse(TypedDict):
    """`ListOffsetsPartitionResponse` of ListOffsets."""

    partition_index: int
    error_code: NotRequired[int]
    timestamp: NotRequired[int]
    offset: NotRequired[int]
    leader_epoch: NotRequired[int]
    old_style_offsets: NotRequired[Sequence[int]]


class ListOffsetsTopicResponse(TypedDict):
    """`ListOffsetsTopicResponse` of ListOffsets."""

    name: str
    partitions: Sequence[ListOffsetsPartitionResponse]


class ListOffsetsResponse(TypedDict):
    """`ListOffsetsResponse` of ListOffsets."""

    throttle_time_ms: NotRequired[int]
    topics: Sequence[ListOffsetsTopicResponse]


class MetadataResponsePartition(TypedDict):
    """`MetadataResponsePartition` of Metadata."""

    error_code: NotRequired[int]
    partition_index: int
    leader_id: int
    leader_epoch: NotRequired[int]
    replica_nodes: NotRequired[Sequence[int]]
    isr_nodes: NotRequired[Sequence[int]]
    offline_replicas: NotRequired[Sequence[int]]


class MetadataResponseTopic(TypedDict):
    """`MetadataResponseTopic` of Metadata."""

    error_code: NotRequired[int]
    name: NotRequired[str | None]
    topic_id: NotRequired[UUID | None]
    is_internal: NotRequired[bool]
    partitions: Sequence[MetadataResponsePartition]
    topic_authorized_operations: NotRequired[int]


class MetadataResponseBroker(TypedDict):
    """`MetadataResponseBroker` of Metadata."""

    node_id: int
    host: str
    port: int
    rack: NotRequired[str | None]


class MetadataResponse(TypedDict):
    """`MetadataResponse` of Metadata."""

    throttle_time_ms: NotRequired[int]
    brokers: Sequence[MetadataResponseBroker]
    cluster_id: NotRequired[str | None]
    controller_id: NotRequired[int]
    topics: Sequence[MetadataResponseTopic]
    error_code: NotRequired[int]
    cluster_authorized_operations: NotRequired[int]


class OffsetCommitResponsePartition(TypedDict):
    """`OffsetCommitResponsePartition` of OffsetCommit."""

    partition_index: int
    error_code: NotRequired[int]


class OffsetCommitResponseTopic(TypedDict):
    """`OffsetCommitResponseTopic` of OffsetCommit."""

    topic_id: NotRequired[UUID | None]
    partitions: Sequence[OffsetCommitResponsePartition]
    name: NotRequired[str]


class OffsetCommitResponse(TypedDict):
    """`OffsetCommitResponse` of OffsetCommit."""

    throttle_time_ms: NotRequired[int]
    topics: Sequence[OffsetCommitResponseTopic]


class OffsetFetchResponsePartition(TypedDict):
    """`OffsetFetchResponsePartition` of OffsetFetch."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: NotRequired[int]
    metadata: NotRequired[str | None]
    error_code: NotRequired[int]


class OffsetFetchResponseTopic(TypedDict):
    """`OffsetFetchResponseTopic` of OffsetFetch."""

    name: str
    partitions: Sequence[OffsetFetchResponsePartition]


class OffsetFetchResponsePartitions(TypedDict):
    """`OffsetFetchResponsePartitions` of OffsetFetch."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: NotRequired[int]
    metadata: NotRequired[str | None]
    error_code: NotRequired[int]


class OffsetFetchResponseTopics(TypedDict):
    """`OffsetFetchResponseTopics` of OffsetFetch."""

    topic_id: NotRequired[UUID | None]
    partitions: Sequence[OffsetFetchResponsePartitions]
    name: NotRequired[str]


class OffsetFetchResponseGroup(TypedDict):
    """`OffsetFetchResponseGroup` of OffsetFetch."""

    group_id: str
    topics: Sequence[OffsetFetchResponseTopics]
    error_code: NotRequired[int]


class OffsetFetchResponse(TypedDict):
    """`OffsetFetchResponse` of OffsetFetch."""

    throttle_time_ms: NotRequired[int]
    groups: NotRequired[Sequence[OffsetFetchResponseGroup]]
    topics: NotRequired[Sequence[OffsetFetchResponseTopic]]
    error_code: NotRequired[int]


class Coordinator(TypedDict):
    """`Coordinator` of FindCoordinator."""

    key: str
    node_id: int
    host: str
    port: int
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class FindCoordinatorResponse(TypedDict):
    """`FindCoordinatorResponse` of FindCoordinator."""

    throttle_time_ms: NotRequired[int]
    coordinators: NotRequired[Sequence[Coordinator]]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    node_id: NotRequired[int]
    host: NotRequired[str]
    port: NotRequired[int]


class JoinGroupResponseMember(TypedDict):
    """`JoinGroupResponseMember` of JoinGroup."""

    member_id: str
    group_instance_id: NotRequired[str | None]
    metadata: Buffer


class JoinGroupResponse(TypedDict):
    """`JoinGroupResponse` of JoinGroup."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    generation_id: NotRequired[int]
    protocol_type: NotRequired[str | None]
    protocol_name: NotRequired[str | None]
    leader: str
    skip_assignment: NotRequired[bool]
    member_id: str
    members: Sequence[JoinGroupResponseMember]


class HeartbeatResponse(TypedDict):
    """`HeartbeatResponse` of Heartbeat."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]


class MemberResponse(TypedDict):
    """`MemberResponse` of LeaveGroup."""

    member_id: str
    group_instance_id: NotRequired[str | None]
    error_code: NotRequired[int]


class LeaveGroupResponse(TypedDict):
    """`LeaveGroupResponse` of LeaveGroup."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    members: NotRequired[Sequence[MemberResponse]]


class SyncGroupResponse(TypedDict):
    """`SyncGroupResponse` of SyncGroup."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    protocol_type: NotRequired[str | None]
    protocol_name: NotRequired[str | None]
    assignment: Buffer


class DescribedGroupMember(TypedDict):
    """`DescribedGroupMember` of DescribeGroups."""

    member_id: str
    group_instance_id: NotRequired[str | None]
    client_id: str
    client_host: str
    member_metadata: Buffer
    member_assignment: Buffer


class DescribedGroup(TypedDict):
    """`DescribedGroup` of DescribeGroups."""

    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribedGroupMember]
    authorized_operations: NotRequired[int]


class DescribeGroupsResponse(TypedDict):
    """`DescribeGroupsResponse` of DescribeGroups."""

    throttle_time_ms: NotRequired[int]
    groups: Sequence[DescribedGroup]


class ListedGroup(TypedDict):
    """`ListedGroup` of ListGroups."""

    group_id: str
    protocol_type: str
    group_state: NotRequired[str]
    group_type: NotRequired[str]


class ListGroupsResponse(TypedDict):
    """`ListGroupsResponse` of ListGroups."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    groups: Sequence[ListedGroup]


class SaslHandshakeResponse(TypedDict):
    """`SaslHandshakeResponse` of SaslHandshake."""

    error_code: NotRequired[int]
    mechanisms: NotRequired[Sequence[str]]


class FinalizedFeatureKey(TypedDict):
    """`FinalizedFeatureKey` of ApiVersions."""

    name: str
    max_version_level: int
    min_version_level: int


class SupportedFeatureKey(TypedDict):
    """`SupportedFeatureKey` of ApiVersions."""

    name: str
    min_version: int
    max_version: int


class ApiVersion(TypedDict):
    """`ApiVersion` of ApiVersions."""

    api_key: int
    min_version: int
    max_version: int


class ApiVersionsResponse(TypedDict):
    """`ApiVersionsResponse` of ApiVersions."""

    error_code: NotRequired[int]
    api_keys: Sequence[ApiVersion]
    throttle_time_ms: NotRequired[int]
    supported_features: NotRequired[Sequence[SupportedFeatureKey]]
    finalized_features_epoch: NotRequired[int]
    finalized_features: NotRequired[Sequence[FinalizedFeatureKey]]
    zk_migration_ready: NotRequired[bool]


class CreatableTopicConfigs(TypedDict):
    """`CreatableTopicConfigs` of CreateTopics."""

    name: str
    value: NotRequired[str | None]
    read_only: bool
    config_source: NotRequired[int]
    is_sensitive: bool


class CreatableTopicResult(TypedDict):
    """`CreatableTopicResult` of CreateTopics."""

    name: str
    topic_id: NotRequired[UUID | None]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    num_partitions: NotRequired[int]
    replication_factor: NotRequired[int]
    configs: NotRequired[Sequence[CreatableTopicConfigs] | None]
    topic_config_error_code: NotRequired[int]


class CreateTopicsResponse(TypedDict):
    """`CreateTopicsResponse` of CreateTopics."""

    throttle_time_ms: NotRequired[int]
    topics: Sequence[CreatableTopicResult]


class DeletableTopicResult(TypedDict):
    """`DeletableTopicResult` of DeleteTopics."""

    name: NotRequired[str | None]
    topic_id: NotRequired[UUID | None]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class DeleteTopicsResponse(TypedDict):
    """`DeleteTopicsResponse` of DeleteTopics."""

    throttle_time_ms: NotRequired[int]
    responses: Sequence[DeletableTopicResult]


class DeleteRecordsPartitionResult(TypedDict):
    """`DeleteRecordsPartitionResult` of DeleteRecords."""

    partition_index: int
    low_watermark: int
    error_code: NotRequired[int]


class DeleteRecordsTopicResult(TypedDict):
    """`DeleteRecordsTopicResult` of DeleteRecords."""

    name: str
    partitions: Sequence[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(TypedDict):
    """`DeleteRecordsResponse` of DeleteRecords."""

    throttle_time_ms: NotRequired[int]
    topics: Sequence[DeleteRecordsTopicResult]


class InitProducerIdResponse(TypedDict):
    """`InitProducerIdResponse` of InitProducerId."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    producer_id: NotRequired[int]
    producer_epoch: int


class EpochEndOffset(TypedDict):
    """`EpochEndOffset` of OffsetForLeaderEpoch."""

    error_code: NotRequired[int]
    partition: int
    leader_epoch: NotRequired[int]
    end_offset: NotRequired[int]


class OffsetForLeaderTopicResult(TypedDict):
    """`OffsetForLeaderTopicResult` of OffsetForLeaderEpoch."""

    topic: str
    partitions: Sequence[EpochEndOffset]


class OffsetForLeaderEpochResponse(TypedDict):
    """`OffsetForLeaderEpochResponse` of OffsetForLeaderEpoch."""

    throttle_time_ms: NotRequired[int]
    topics: Sequence[OffsetForLeaderTopicResult]


class AddPartitionsToTxnPartitionResult(TypedDict):
    """`AddPartitionsToTxnPartitionResult` of AddPartitionsToTxn."""

    partition_index: int
    partition_error_code: NotRequired[int]


class AddPartitionsToTxnTopicResult(TypedDict):
    """`AddPartitionsToTxnTopicResult` of AddPartitionsToTxn."""

    name: str
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(TypedDict):
    """`AddPartitionsToTxnResult` of AddPartitionsToTxn."""

    transactional_id: str
    topic_results: Sequence[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResponse(TypedDict):
    """`AddPartitionsToTxnResponse` of AddPartitionsToTxn."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    results_by_transaction: NotRequired[Sequence[AddPartitionsToTxnResult]]
    results_by_topic_v3_and_below: NotRequired[Sequence[AddPartitionsToTxnTopicResult]]


class AddOffsetsToTxnResponse(TypedDict):
    """`AddOffsetsToTxnResponse` of AddOffsetsToTxn."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]


class EndTxnResponse(TypedDict):
    """`EndTxnResponse` of EndTxn."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    producer_id: NotRequired[int]
    producer_epoch: NotRequired[int]


class WritableTxnMarkerPartitionResult(TypedDict):
    """`WritableTxnMarkerPartitionResult` of WriteTxnMarkers."""

    partition_index: int
    error_code: NotRequired[int]


class WritableTxnMarkerTopicResult(TypedDict):
    """`WritableTxnMarkerTopicResult` of WriteTxnMarkers."""

    name: str
    partitions: Sequence[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(TypedDict):
    """`WritableTxnMarkerResult` of WriteTxnMarkers."""

    producer_id: int
    topics: Sequence[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(TypedDict):
    """`WriteTxnMarkersResponse` of WriteTxnMarkers."""

    markers: Sequence[WritableTxnMarkerResult]


class TxnOffsetCommitResponsePartition(TypedDict):
    """`TxnOffsetCommitResponsePartition` of TxnOffsetCommit."""

    partition_index: int
    error_code: NotRequired[int]


class TxnOffsetCommitResponseTopic(TypedDict):
    """`TxnOffsetCommitResponseTopic` of TxnOffsetCommit."""

    name: str
    partitions: Sequence[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(TypedDict):
    """`TxnOffsetCommitResponse` of TxnOffsetCommit."""

    throttle_time_ms: NotRequired[int]
    topics: Sequence[TxnOffsetCommitResponseTopic]


class DescribeConfigsSynonym(TypedDict):
    """`DescribeConfigsSynonym` of DescribeConfigs."""

    name: str
    value: NotRequired[str | None]
    source: int


class DescribeConfigsResourceResult(TypedDict):
    """`DescribeConfigsResourceResult` of DescribeConfigs."""

    name: str
    value: NotRequired[str | None]
    read_only: bool
    config_source: NotRequired[int]
    is_sensitive: bool
    synonyms: NotRequired[Sequence[DescribeConfigsSynonym]]
    config_type: NotRequired[int]
    documentation: NotRequired[str | None]
    is_default: NotRequired[bool]


class DescribeConfigsResult(TypedDict):
    """`DescribeConfigsResult` of DescribeConfigs."""

    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResourceResult]


class DescribeConfigsResponse(TypedDict):
    """`DescribeConfigsResponse` of DescribeConfigs."""

    throttle_time_ms: NotRequired[int]
    results: Sequence[DescribeConfigsResult]


class AlterConfigsResourceResponse(TypedDict):
    """`AlterConfigsResourceResponse` of AlterConfigs."""

    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    resource_type: int
    resource_name: str


class AlterConfigsResponse(TypedDict):
    """`AlterConfigsResponse` of AlterConfigs."""

    throttle_time_ms: NotRequired[int]
    responses: Sequence[AlterConfigsResourceResponse]


class DescribeLogDirsPartition(TypedDict):
    """`DescribeLogDirsPartition` of DescribeLogDirs."""

    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


class DescribeLogDirsTopic(TypedDict):
    """`DescribeLogDirsTopic` of DescribeLogDirs."""

    name: str
    partitions: Sequence[DescribeLogDirsPartition]


class DescribeLogDirsResult(TypedDict):
    """`DescribeLogDirsResult` of DescribeLogDirs."""

    error_code: NotRequired[int]
    log_dir: str
    topics: Sequence[DescribeLogDirsTopic]
    total_bytes: NotRequired[int]
    usable_bytes: NotRequired[int]
    is_cordoned: NotRequired[bool]


class DescribeLogDirsResponse(TypedDict):
    """`DescribeLogDirsResponse` of DescribeLogDirs."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    results: Sequence[DescribeLogDirsResult]


class SaslAuthenticateResponse(TypedDict):
    """`SaslAuthenticateResponse` of SaslAuthenticate."""

    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    auth_bytes: Buffer
    session_lifetime_ms: NotRequired[int]


class CreatePartitionsTopicResult(TypedDict):
    """`CreatePartitionsTopicResult` of CreatePartitions."""

    name: str
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class CreatePartitionsResponse(TypedDict):
    """`CreatePartitionsResponse` of CreatePartitions."""

    throttle_time_ms: NotRequired[int]
    results: Sequence[CreatePartitionsTopicResult]


class DeletableGroupResult(TypedDict):
    """`DeletableGroupResult` of DeleteGroups."""

    group_id: str
    error_code: NotRequired[int]


class DeleteGroupsResponse(TypedDict):
    """`DeleteGroupsResponse` of DeleteGroups."""

    throttle_time_ms: NotRequired[int]
    results: Sequence[DeletableGroupResult]


class PartitionResult(TypedDict):
    """`PartitionResult` of ElectLeaders."""

    partition_id: int
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class ReplicaElectionResult(TypedDict):
    """`ReplicaElectionResult` of ElectLeaders."""

    topic: str
    partition_result: Sequence[PartitionResult]


class ElectLeadersResponse(TypedDict):
    """`ElectLeadersResponse` of ElectLeaders."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    replica_election_results: Sequence[ReplicaElectionResult]


class IncrementalAlterConfigsAlterConfigsResourceResponse(TypedDict):
    """`AlterConfigsResourceResponse` of IncrementalAlterConfigs."""

    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    resource_type: int
    resource_name: str


class IncrementalAlterConfigsResponse(TypedDict):
    """`IncrementalAlterConfigsResponse` of IncrementalAlterConfigs."""

    throttle_time_ms: NotRequired[int]
    responses: Sequence[IncrementalAlterConfigsAlterConfigsResourceResponse]


class ReassignablePartitionResponse(TypedDict):
    """`ReassignablePartitionResponse` of AlterPartitionReassignments."""

    partition_index: int
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class ReassignableTopicResponse(TypedDict):
    """`ReassignableTopicResponse` of AlterPartitionReassignments."""

    name: str
    partitions: Sequence[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(TypedDict):
    """`AlterPartitionReassignmentsResponse` of AlterPartitionReassignments."""

    throttle_time_ms: NotRequired[int]
    allow_replication_factor_change: NotRequired[bool]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    responses: Sequence[ReassignableTopicResponse]


class OngoingPartitionReassignment(TypedDict):
    """`OngoingPartitionReassignment` of ListPartitionReassignments."""

    partition_index: int
    replicas: NotRequired[Sequence[int]]
    adding_replicas: NotRequired[Sequence[int]]
    removing_replicas: NotRequired[Sequence[int]]


class OngoingTopicReassignment(TypedDict):
    """`OngoingTopicReassignment` of ListPartitionReassignments."""

    name: str
    partitions: Sequence[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(TypedDict):
    """`ListPartitionReassignmentsResponse` of ListPartitionReassignments."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    topics: Sequence[OngoingTopicReassignment]


class OffsetDeleteResponsePartition(TypedDict):
    """`OffsetDeleteResponsePartition` of OffsetDelete."""

    partition_index: int
    error_code: NotRequired[int]


class OffsetDeleteResponseTopic(TypedDict):
    """`OffsetDeleteResponseTopic` of OffsetDelete."""

    name: str
    partitions: Sequence[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(TypedDict):
    """`OffsetDeleteResponse` of OffsetDelete."""

    error_code: NotRequired[int]
    throttle_time_ms: NotRequired[int]
    topics: Sequence[OffsetDeleteResponseTopic]


class ValueData(TypedDict):
    """`ValueData` of DescribeClientQuotas."""

    key: str
    value: float


class EntityData(TypedDict):
    """`EntityData` of DescribeClientQuotas."""

    entity_type: str
    entity_name: NotRequired[str | None]


class EntryData(TypedDict):
    """`EntryData` of DescribeClientQuotas."""

    entity: Sequence[EntityData]
    values: Sequence[ValueData]


class DescribeClientQuotasResponse(TypedDict):
    """`DescribeClientQuotasResponse` of DescribeClientQuotas."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    entries: NotRequired[Sequence[EntryData] | None]


class CredentialInfo(TypedDict):
    """`CredentialInfo` of DescribeUserScramCredentials."""

    mechanism: int
    iterations: int


class DescribeUserScramCredentialsResult(TypedDict):
    """`DescribeUserScramCredentialsResult` of DescribeUserScramCredentials."""

    user: str
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    credential_infos: Sequence[CredentialInfo]


class DescribeUserScramCredentialsResponse(TypedDict):
    """`DescribeUserScramCredentialsResponse` of DescribeUserScramCredentials."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    results: Sequence[DescribeUserScramCredentialsResult]


class Listener(TypedDict):
    """`Listener` of DescribeQuorum."""

    name: str
    host: str
    port: int


class Node(TypedDict):
    """`Node` of DescribeQuorum."""

    node_id: int
    listeners: Sequence[Listener]


class ReplicaState(TypedDict):
    """`ReplicaState` of DescribeQuorum."""

    replica_id: int
    replica_directory_id: NotRequired[UUID | None]
    log_end_offset: int
    last_fetch_timestamp: NotRequired[int]
    last_caught_up_timestamp: NotRequired[int]


class PartitionData(TypedDict):
    """`PartitionData` of DescribeQuorum."""

    partition_index: int
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: Sequence[ReplicaState]
    observers: Sequence[ReplicaState]


class TopicData(TypedDict):
    """`TopicData` of DescribeQuorum."""

    topic_name: str
    partitions: Sequence[PartitionData]


class DescribeQuorumResponse(TypedDict):
    """`DescribeQuorumResponse` of DescribeQuorum."""

    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    topics: Sequence[TopicData]
    nodes: NotRequired[Sequence[Node]]


class DescribeClusterBroker(TypedDict):
    """`DescribeClusterBroker` of DescribeCluster."""

    broker_id: int
    host: str
    port: int
    rack: NotRequired[str | None]
    is_fenced: NotRequired[bool]


class DescribeClusterResponse(TypedDict):
    """`DescribeClusterResponse` of DescribeCluster."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    endpoint_type: NotRequired[int]
    cluster_id: str
    controller_id: NotRequired[int]
    brokers: Sequence[DescribeClusterBroker]
    cluster_authorized_operations: NotRequired[int]


class ProducerState(TypedDict):
    """`ProducerState` of DescribeProducers."""

    producer_id: int
    producer_epoch: int
    last_sequence: NotRequired[int]
    last_timestamp: NotRequired[int]
    coordinator_epoch: int
    current_txn_start_offset: NotRequired[int]


class PartitionResponse(TypedDict):
    """`PartitionResponse` of DescribeProducers."""

    partition_index: int
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    active_producers: Sequence[ProducerState]


class TopicResponse(TypedDict):
    """`TopicResponse` of DescribeProducers."""

    name: str
    partitions: Sequence[PartitionResponse]


class DescribeProducersResponse(TypedDict):
    """`DescribeProducersResponse` of DescribeProducers."""

    throttle_time_ms: NotRequired[int]
    topics: Sequence[TopicResponse]


class DescribeTransactionsTopicData(TypedDict):
    """`TopicData` of DescribeTransactions."""

    topic: str
    partitions: NotRequired[Sequence[int]]


class TransactionState(TypedDict):
    """`TransactionState` of DescribeTransactions."""

    error_code: NotRequired[int]
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: Sequence[DescribeTransactionsTopicData]


class DescribeTransactionsResponse(TypedDict):
    """`DescribeTransactionsResponse` of DescribeTransactions."""

    throttle_time_ms: NotRequired[int]
    transaction_states: Sequence[TransactionState]


class ListTransactionsTransactionState(TypedDict):
    """`TransactionState` of ListTransactions."""

    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponse(TypedDict):
    """`ListTransactionsResponse` of ListTransactions."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    unknown_state_filters: NotRequired[Sequence[str]]
    transaction_states: Sequence[ListTransactionsTransactionState]


class ConfigResource(TypedDict):
    """`ConfigResource` of ListConfigResources."""

    resource_name: str
    resource_type: NotRequired[int]


class ListConfigResourcesResponse(TypedDict):
    """`ListConfigResourcesResponse` of ListConfigResources."""

    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    config_resources: Sequence[ConfigResource]
