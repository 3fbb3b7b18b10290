"""The bodies of responses: what `codec.encode_response` takes, whatever the version.

Made by `python -m tools.response_views > src/horolog/wire/responses.py`; do not edit.

API by API, what is in a body before the body, named as in `requests`. Fields that the version of
a response lacks are dropped. A field that may be missing has a default, or is not in every version;
a UUID of zeros is None.
"""

from collections.abc import Sequence
from typing import NotRequired, TypedDict
from uuid import UUID

from horolog.buffers import Buffer


class ListOffsetsPartitionResponse(TypedDict):
    partition_index: int
    error_code: NotRequired[int]
    timestamp: NotRequired[int]
    offset: NotRequired[int]
    leader_epoch: NotRequired[int]
    old_style_offsets: NotRequired[Sequence[int]]


class ListOffsetsTopicResponse(TypedDict):
    name: str
    partitions: Sequence[ListOffsetsPartitionResponse]


class ListOffsetsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: Sequence[ListOffsetsTopicResponse]


class MetadataResponsePartition(TypedDict):
    error_code: NotRequired[int]
    partition_index: int
    leader_id: int
    leader_epoch: NotRequired[int]
    replica_nodes: NotRequired[Sequence[int]]
    isr_nodes: NotRequired[Sequence[int]]
    offline_replicas: NotRequired[Sequence[int]]


class MetadataResponseTopic(TypedDict):
    error_code: NotRequired[int]
    name: NotRequired[str | None]
    topic_id: NotRequired[UUID | None]
    is_internal: NotRequired[bool]
    partitions: Sequence[MetadataResponsePartition]
    topic_authorized_operations: NotRequired[int]


class MetadataResponseBroker(TypedDict):
    node_id: int
    host: str
    port: int
    rack: NotRequired[str | None]


class MetadataResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    brokers: Sequence[MetadataResponseBroker]
    cluster_id: NotRequired[str | None]
    controller_id: NotRequired[int]
    topics: Sequence[MetadataResponseTopic]
    error_code: NotRequired[int]
    cluster_authorized_operations: NotRequired[int]


class OffsetCommitResponsePartition(TypedDict):
    partition_index: int
    error_code: NotRequired[int]


class OffsetCommitResponseTopic(TypedDict):
    topic_id: NotRequired[UUID | None]
    partitions: Sequence[OffsetCommitResponsePartition]
    name: NotRequired[str]


class OffsetCommitResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: Sequence[OffsetCommitResponseTopic]


class OffsetFetchResponsePartition(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: NotRequired[int]
    metadata: NotRequired[str | None]
    error_code: NotRequired[int]


class OffsetFetchResponseTopic(TypedDict):
    name: str
    partitions: Sequence[OffsetFetchResponsePartition]


class OffsetFetchResponsePartitions(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: NotRequired[int]
    metadata: NotRequired[str | None]
    error_code: NotRequired[int]


class OffsetFetchResponseTopics(TypedDict):
    topic_id: NotRequired[UUID | None]
    partitions: Sequence[OffsetFetchResponsePartitions]
    name: NotRequired[str]


class OffsetFetchResponseGroup(TypedDict):
    group_id: str
    topics: Sequence[OffsetFetchResponseTopics]
    error_code: NotRequired[int]


class OffsetFetchResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    groups: NotRequired[Sequence[OffsetFetchResponseGroup]]
    topics: NotRequired[Sequence[OffsetFetchResponseTopic]]
    error_code: NotRequired[int]


class Coordinator(TypedDict):
    key: str
    node_id: int
    host: str
    port: int
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class FindCoordinatorResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    coordinators: NotRequired[Sequence[Coordinator]]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    node_id: NotRequired[int]
    host: NotRequired[str]
    port: NotRequired[int]


class JoinGroupResponseMember(TypedDict):
    member_id: str
    group_instance_id: NotRequired[str | None]
    metadata: Buffer


class JoinGroupResponse(TypedDict):
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
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]


class MemberResponse(TypedDict):
    member_id: str
    group_instance_id: NotRequired[str | None]
    error_code: NotRequired[int]


class LeaveGroupResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    members: NotRequired[Sequence[MemberResponse]]


class SyncGroupResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    protocol_type: NotRequired[str | None]
    protocol_name: NotRequired[str | None]
    assignment: Buffer


class DescribedGroupMember(TypedDict):
    member_id: str
    group_instance_id: NotRequired[str | None]
    client_id: str
    client_host: str
    member_metadata: Buffer
    member_assignment: Buffer


class DescribedGroup(TypedDict):
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribedGroupMember]
    authorized_operations: NotRequired[int]


class DescribeGroupsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    groups: Sequence[DescribedGroup]


class ListedGroup(TypedDict):
    group_id: str
    protocol_type: str
    group_state: NotRequired[str]
    group_type: NotRequired[str]


class ListGroupsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    groups: Sequence[ListedGroup]


class SaslHandshakeResponse(TypedDict):
    error_code: NotRequired[int]
    mechanisms: NotRequired[Sequence[str]]


class FinalizedFeatureKey(TypedDict):
    name: str
    max_version_level: int
    min_version_level: int


class SupportedFeatureKey(TypedDict):
    name: str
    min_version: int
    max_version: int


class ApiVersion(TypedDict):
    api_key: int
    min_version: int
    max_version: int


class ApiVersionsResponse(TypedDict):
    error_code: NotRequired[int]
    api_keys: Sequence[ApiVersion]
    throttle_time_ms: NotRequired[int]
    supported_features: NotRequired[Sequence[SupportedFeatureKey]]
    finalized_features_epoch: NotRequired[int]
    finalized_features: NotRequired[Sequence[FinalizedFeatureKey]]
    zk_migration_ready: NotRequired[bool]


class CreatableTopicConfigs(TypedDict):
    name: str
    value: NotRequired[str | None]
    read_only: bool
    config_source: NotRequired[int]
    is_sensitive: bool


class CreatableTopicResult(TypedDict):
    name: str
    topic_id: NotRequired[UUID | None]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    num_partitions: NotRequired[int]
    replication_factor: NotRequired[int]
    configs: NotRequired[Sequence[CreatableTopicConfigs] | None]
    topic_config_error_code: NotRequired[int]


class CreateTopicsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: Sequence[CreatableTopicResult]


class DeletableTopicResult(TypedDict):
    name: NotRequired[str | None]
    topic_id: NotRequired[UUID | None]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class DeleteTopicsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    responses: Sequence[DeletableTopicResult]


class DeleteRecordsPartitionResult(TypedDict):
    partition_index: int
    low_watermark: int
    error_code: NotRequired[int]


class DeleteRecordsTopicResult(TypedDict):
    name: str
    partitions: Sequence[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: Sequence[DeleteRecordsTopicResult]


class InitProducerIdResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    producer_id: NotRequired[int]
    producer_epoch: int


class EpochEndOffset(TypedDict):
    error_code: NotRequired[int]
    partition: int
    leader_epoch: NotRequired[int]
    end_offset: NotRequired[int]


class OffsetForLeaderTopicResult(TypedDict):
    topic: str
    partitions: Sequence[EpochEndOffset]


class OffsetForLeaderEpochResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: Sequence[OffsetForLeaderTopicResult]


class AddPartitionsToTxnPartitionResult(TypedDict):
    partition_index: int
    partition_error_code: NotRequired[int]


class AddPartitionsToTxnTopicResult(TypedDict):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(TypedDict):
    transactional_id: str
    topic_results: Sequence[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    results_by_transaction: NotRequired[Sequence[AddPartitionsToTxnResult]]
    results_by_topic_v3_and_below: NotRequired[Sequence[AddPartitionsToTxnTopicResult]]


class AddOffsetsToTxnResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]


class EndTxnResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    producer_id: NotRequired[int]
    producer_epoch: NotRequired[int]


class WritableTxnMarkerPartitionResult(TypedDict):
    partition_index: int
    error_code: NotRequired[int]


class WritableTxnMarkerTopicResult(TypedDict):
    name: str
    partitions: Sequence[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(TypedDict):
    producer_id: int
    topics: Sequence[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(TypedDict):
    markers: Sequence[WritableTxnMarkerResult]


class TxnOffsetCommitResponsePartition(TypedDict):
    partition_index: int
    error_code: NotRequired[int]


class TxnOffsetCommitResponseTopic(TypedDict):
    topic_id: NotRequired[UUID | None]
    partitions: Sequence[TxnOffsetCommitResponsePartition]
    name: NotRequired[str]


class TxnOffsetCommitResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: Sequence[TxnOffsetCommitResponseTopic]


class AclDescription(TypedDict):
    principal: str
    host: str
    operation: int
    permission_type: int


class DescribeAclsResource(TypedDict):
    resource_type: int
    resource_name: str
    pattern_type: NotRequired[int]
    acls: Sequence[AclDescription]


class DescribeAclsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    resources: Sequence[DescribeAclsResource]


class AclCreationResult(TypedDict):
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class CreateAclsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    results: Sequence[AclCreationResult]


class DeleteAclsMatchingAcl(TypedDict):
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    resource_type: int
    resource_name: str
    pattern_type: NotRequired[int]
    principal: str
    host: str
    operation: int
    permission_type: int


class DeleteAclsFilterResult(TypedDict):
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    matching_acls: Sequence[DeleteAclsMatchingAcl]


class DeleteAclsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    filter_results: Sequence[DeleteAclsFilterResult]


class DescribeConfigsSynonym(TypedDict):
    name: str
    value: NotRequired[str | None]
    source: int


class DescribeConfigsResourceResult(TypedDict):
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
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResourceResult]


class DescribeConfigsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    results: Sequence[DescribeConfigsResult]


class AlterConfigsResourceResponse(TypedDict):
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    resource_type: int
    resource_name: str


class AlterConfigsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    responses: Sequence[AlterConfigsResourceResponse]


class DescribeLogDirsPartition(TypedDict):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


class DescribeLogDirsTopic(TypedDict):
    name: str
    partitions: Sequence[DescribeLogDirsPartition]


class DescribeLogDirsResult(TypedDict):
    error_code: NotRequired[int]
    log_dir: str
    topics: Sequence[DescribeLogDirsTopic]
    total_bytes: NotRequired[int]
    usable_bytes: NotRequired[int]
    is_cordoned: NotRequired[bool]


class DescribeLogDirsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    results: Sequence[DescribeLogDirsResult]


class SaslAuthenticateResponse(TypedDict):
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    auth_bytes: Buffer
    session_lifetime_ms: NotRequired[int]


class CreatePartitionsTopicResult(TypedDict):
    name: str
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class CreatePartitionsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    results: Sequence[CreatePartitionsTopicResult]


class DeletableGroupResult(TypedDict):
    group_id: str
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class DeleteGroupsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    results: Sequence[DeletableGroupResult]


class PartitionResult(TypedDict):
    partition_id: int
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class ReplicaElectionResult(TypedDict):
    topic: str
    partition_result: Sequence[PartitionResult]


class ElectLeadersResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    replica_election_results: Sequence[ReplicaElectionResult]


class IncrementalAlterConfigsAlterConfigsResourceResponse(TypedDict):
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    resource_type: int
    resource_name: str


class IncrementalAlterConfigsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    responses: Sequence[IncrementalAlterConfigsAlterConfigsResourceResponse]


class ReassignablePartitionResponse(TypedDict):
    partition_index: int
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class ReassignableTopicResponse(TypedDict):
    name: str
    partitions: Sequence[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    allow_replication_factor_change: NotRequired[bool]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    responses: Sequence[ReassignableTopicResponse]


class OngoingPartitionReassignment(TypedDict):
    partition_index: int
    replicas: NotRequired[Sequence[int]]
    adding_replicas: NotRequired[Sequence[int]]
    removing_replicas: NotRequired[Sequence[int]]


class OngoingTopicReassignment(TypedDict):
    name: str
    partitions: Sequence[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    topics: Sequence[OngoingTopicReassignment]


class OffsetDeleteResponsePartition(TypedDict):
    partition_index: int
    error_code: NotRequired[int]


class OffsetDeleteResponseTopic(TypedDict):
    name: str
    partitions: Sequence[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(TypedDict):
    error_code: NotRequired[int]
    throttle_time_ms: NotRequired[int]
    topics: Sequence[OffsetDeleteResponseTopic]


class ValueData(TypedDict):
    key: str
    value: float


class DescribeClientQuotasEntityData(TypedDict):
    entity_type: str
    entity_name: NotRequired[str | None]


class DescribeClientQuotasEntryData(TypedDict):
    entity: Sequence[DescribeClientQuotasEntityData]
    values: Sequence[ValueData]


class DescribeClientQuotasResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    entries: NotRequired[Sequence[DescribeClientQuotasEntryData] | None]


class AlterClientQuotasEntityData(TypedDict):
    entity_type: str
    entity_name: NotRequired[str | None]


class AlterClientQuotasEntryData(TypedDict):
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    entity: Sequence[AlterClientQuotasEntityData]


class AlterClientQuotasResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    entries: Sequence[AlterClientQuotasEntryData]


class CredentialInfo(TypedDict):
    mechanism: int
    iterations: int


class DescribeUserScramCredentialsResult(TypedDict):
    user: str
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    credential_infos: Sequence[CredentialInfo]


class DescribeUserScramCredentialsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    results: Sequence[DescribeUserScramCredentialsResult]


class AlterUserScramCredentialsResult(TypedDict):
    user: str
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class AlterUserScramCredentialsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    results: Sequence[AlterUserScramCredentialsResult]


class DescribeQuorumListener(TypedDict):
    name: str
    host: str
    port: int


class Node(TypedDict):
    node_id: int
    listeners: Sequence[DescribeQuorumListener]


class DescribeQuorumReplicaState(TypedDict):
    replica_id: int
    replica_directory_id: NotRequired[UUID | None]
    log_end_offset: int
    last_fetch_timestamp: NotRequired[int]
    last_caught_up_timestamp: NotRequired[int]


class DescribeQuorumPartitionData(TypedDict):
    partition_index: int
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: Sequence[DescribeQuorumReplicaState]
    observers: Sequence[DescribeQuorumReplicaState]


class DescribeQuorumTopicData(TypedDict):
    topic_name: str
    partitions: Sequence[DescribeQuorumPartitionData]


class DescribeQuorumResponse(TypedDict):
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    topics: Sequence[DescribeQuorumTopicData]
    nodes: NotRequired[Sequence[Node]]


class DescribeClusterBroker(TypedDict):
    broker_id: int
    host: str
    port: int
    rack: NotRequired[str | None]
    is_fenced: NotRequired[bool]


class DescribeClusterResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    endpoint_type: NotRequired[int]
    cluster_id: str
    controller_id: NotRequired[int]
    brokers: Sequence[DescribeClusterBroker]
    cluster_authorized_operations: NotRequired[int]


class DescribeProducersProducerState(TypedDict):
    producer_id: int
    producer_epoch: int
    last_sequence: NotRequired[int]
    last_timestamp: NotRequired[int]
    coordinator_epoch: int
    current_txn_start_offset: NotRequired[int]


class PartitionResponse(TypedDict):
    partition_index: int
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    active_producers: Sequence[DescribeProducersProducerState]


class TopicResponse(TypedDict):
    name: str
    partitions: Sequence[PartitionResponse]


class DescribeProducersResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: Sequence[TopicResponse]


class DescribeTransactionsTopicData(TypedDict):
    topic: str
    partitions: NotRequired[Sequence[int]]


class TransactionState(TypedDict):
    error_code: NotRequired[int]
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: Sequence[DescribeTransactionsTopicData]


class DescribeTransactionsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    transaction_states: Sequence[TransactionState]


class ListTransactionsTransactionState(TypedDict):
    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    unknown_state_filters: NotRequired[Sequence[str]]
    transaction_states: Sequence[ListTransactionsTransactionState]


class ConsumerGroupHeartbeatAnswerTopicPartitions(TypedDict):
    topic_id: NotRequired[UUID | None]
    partitions: NotRequired[Sequence[int]]


class Assignment(TypedDict):
    topic_partitions: Sequence[ConsumerGroupHeartbeatAnswerTopicPartitions]


class ConsumerGroupHeartbeatResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    member_id: NotRequired[str | None]
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: NotRequired[Assignment | None]


class ConsumerGroupDescribeTopicPartitions(TypedDict):
    topic_id: NotRequired[UUID | None]
    topic_name: str
    partitions: NotRequired[Sequence[int]]


class ConsumerGroupDescribeAssignment(TypedDict):
    topic_partitions: Sequence[ConsumerGroupDescribeTopicPartitions]


class ConsumerGroupDescribeMember(TypedDict):
    member_id: str
    instance_id: NotRequired[str | None]
    rack_id: NotRequired[str | None]
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: NotRequired[Sequence[str]]
    subscribed_topic_regex: NotRequired[str | None]
    assignment: ConsumerGroupDescribeAssignment
    target_assignment: ConsumerGroupDescribeAssignment
    member_type: NotRequired[int]


class ConsumerGroupDescribeDescribedGroup(TypedDict):
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[ConsumerGroupDescribeMember]
    authorized_operations: NotRequired[int]


class ConsumerGroupDescribeResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    groups: Sequence[ConsumerGroupDescribeDescribedGroup]


class ConfigResource(TypedDict):
    resource_name: str
    resource_type: NotRequired[int]


class ListConfigResourcesResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    config_resources: Sequence[ConfigResource]


class DescribeTopicPartitionsCursor(TypedDict):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsResponsePartition(TypedDict):
    error_code: NotRequired[int]
    partition_index: int
    leader_id: int
    leader_epoch: NotRequired[int]
    replica_nodes: NotRequired[Sequence[int]]
    isr_nodes: NotRequired[Sequence[int]]
    eligible_leader_replicas: NotRequired[Sequence[int] | None]
    last_known_elr: NotRequired[Sequence[int] | None]
    offline_replicas: NotRequired[Sequence[int]]


class DescribeTopicPartitionsResponseTopic(TypedDict):
    error_code: NotRequired[int]
    name: NotRequired[str | None]
    topic_id: NotRequired[UUID | None]
    is_internal: NotRequired[bool]
    partitions: Sequence[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: NotRequired[int]


class DescribeTopicPartitionsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: Sequence[DescribeTopicPartitionsResponseTopic]
    next_cursor: NotRequired[DescribeTopicPartitionsCursor | None]
