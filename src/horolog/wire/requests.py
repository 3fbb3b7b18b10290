"""The bodies of requests: what a decoded one has, whatever its version.

Made by `python -m tools.request_views > src/horolog/wire/requests.py`; do not edit.

API by API, what is in a body before the body. A structure has Kafka's name; where an earlier API
has one of that name, the API's title before it, by which `schema` finds it. A field that a version
lacks has its default, which is Kafka's own: that of the schema, else 0, an empty string or array,
or False. A UUID of zeros is None.
"""

from uuid import UUID

from horolog.buffers import Buffer


class PartitionProduceData:
    index: int
    records: Buffer | None


class TopicProduceData:
    topic_id: UUID | None = None
    partition_data: tuple[PartitionProduceData, ...]
    name: str = ""


class ProduceRequest:
    transactional_id: str | None = None
    acks: int
    timeout_ms: int
    topic_data: tuple[TopicProduceData, ...]


class ReplicaState:
    replica_id: int
    replica_epoch: int


class ForgottenTopic:
    topic_id: UUID | None = None
    partitions: tuple[int, ...]
    topic: str = ""


class FetchPartition:
    partition: int
    current_leader_epoch: int = -1
    fetch_offset: int
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int
    replica_directory_id: UUID | None = None
    high_watermark: int = 9223372036854775807


class FetchTopic:
    topic_id: UUID | None = None
    partitions: tuple[FetchPartition, ...]
    topic: str = ""


class FetchRequest:
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
    append_clock_ms: int = -9223372036854775808
    replica_id: int = -1


class ListOffsetsPartition:
    partition_index: int
    current_leader_epoch: int = -1
    timestamp: int
    max_num_offsets: int = 1


class ListOffsetsTopic:
    name: str
    partitions: tuple[ListOffsetsPartition, ...]


class ListOffsetsRequest:
    replica_id: int
    isolation_level: int = 0
    topics: tuple[ListOffsetsTopic, ...]
    timeout_ms: int = 0


class MetadataRequestTopic:
    topic_id: UUID | None = None
    name: str | None


class MetadataRequest:
    topics: tuple[MetadataRequestTopic, ...] | None
    allow_auto_topic_creation: bool = True
    include_topic_authorized_operations: bool = False
    include_cluster_authorized_operations: bool = False


class OffsetCommitRequestPartition:
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None
    commit_timestamp: int = -1


class OffsetCommitRequestTopic:
    topic_id: UUID | None = None
    partitions: tuple[OffsetCommitRequestPartition, ...]
    name: str = ""


class OffsetCommitRequest:
    group_id: str
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: tuple[OffsetCommitRequestTopic, ...]
    retention_time_ms: int = -1


class OffsetFetchRequestTopic:
    name: str
    partition_indexes: tuple[int, ...]


class OffsetFetchRequestTopics:
    topic_id: UUID | None = None
    partition_indexes: tuple[int, ...]
    name: str = ""


class OffsetFetchRequestGroup:
    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    topics: tuple[OffsetFetchRequestTopics, ...] | None


class OffsetFetchRequest:
    groups: tuple[OffsetFetchRequestGroup, ...] = ()
    require_stable: bool = False
    group_id: str = ""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None


class FindCoordinatorRequest:
    key_type: int = 0
    coordinator_keys: tuple[str, ...] = ()
    key: str = ""


class JoinGroupRequestProtocol:
    name: str
    metadata: bytes


class JoinGroupRequest:
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str
    protocols: tuple[JoinGroupRequestProtocol, ...]
    reason: str | None = None


class HeartbeatRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class MemberIdentity:
    member_id: str
    group_instance_id: str | None
    reason: str | None = None


class LeaveGroupRequest:
    group_id: str
    members: tuple[MemberIdentity, ...] = ()
    member_id: str = ""


class SyncGroupRequestAssignment:
    member_id: str
    assignment: bytes


class SyncGroupRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[SyncGroupRequestAssignment, ...]


class DescribeGroupsRequest:
    groups: tuple[str, ...]
    include_authorized_operations: bool = False


class ListGroupsRequest:
    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class SaslHandshakeRequest:
    mechanism: str


class ApiVersionsRequest:
    client_software_name: str = ""
    client_software_version: str = ""
    cluster_id: str | None = None
    node_id: int = -1


class CreatableTopicConfig:
    name: str
    value: str | None


class CreatableReplicaAssignment:
    partition_index: int
    broker_ids: tuple[int, ...]


class CreatableTopic:
    name: str
    num_partitions: int
    replication_factor: int
    assignments: tuple[CreatableReplicaAssignment, ...]
    configs: tuple[CreatableTopicConfig, ...]


class CreateTopicsRequest:
    topics: tuple[CreatableTopic, ...]
    timeout_ms: int
    validate_only: bool = False


class DeleteTopicState:
    name: str | None
    topic_id: UUID | None


class DeleteTopicsRequest:
    topics: tuple[DeleteTopicState, ...] = ()
    timeout_ms: int
    topic_names: tuple[str, ...] = ()


class DeleteRecordsPartition:
    partition_index: int
    offset: int


class DeleteRecordsTopic:
    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


class DeleteRecordsRequest:
    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: int


class InitProducerIdRequest:
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1


class OffsetForLeaderPartition:
    partition: int
    current_leader_epoch: int = -1
    leader_epoch: int


class OffsetForLeaderTopic:
    topic: str
    partitions: tuple[OffsetForLeaderPartition, ...]


class OffsetForLeaderEpochRequest:
    replica_id: int = -2
    topics: tuple[OffsetForLeaderTopic, ...]


class AddPartitionsToTxnTopic:
    name: str
    partitions: tuple[int, ...]


class AddPartitionsToTxnTransaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: tuple[AddPartitionsToTxnTopic, ...]


class AddPartitionsToTxnRequest:
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = ()
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = ()


class AddOffsetsToTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class EndTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class WritableTxnMarkerTopic:
    name: str
    partition_indexes: tuple[int, ...]


class WritableTxnMarker:
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: int
    transaction_version: int = 0


class WriteTxnMarkersRequest:
    markers: tuple[WritableTxnMarker, ...]


class TxnOffsetCommitRequestPartition:
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None


class TxnOffsetCommitRequestTopic:
    topic_id: UUID | None = None
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]
    name: str = ""


class TxnOffsetCommitRequest:
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...]


class DescribeAclsRequest:
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class AclCreation:
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class CreateAclsRequest:
    creations: tuple[AclCreation, ...]


class DeleteAclsFilter:
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DeleteAclsRequest:
    filters: tuple[DeleteAclsFilter, ...]


class DescribeConfigsResource:
    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None


class DescribeConfigsRequest:
    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = False


class AlterableConfig:
    name: str
    value: str | None


class AlterConfigsResource:
    resource_type: int
    resource_name: str
    configs: tuple[AlterableConfig, ...]


class AlterConfigsRequest:
    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool


class DescribableLogDirTopic:
    topic: str
    partitions: tuple[int, ...]


class DescribeLogDirsRequest:
    topics: tuple[DescribableLogDirTopic, ...] | None


class SaslAuthenticateRequest:
    auth_bytes: bytes


class CreatePartitionsAssignment:
    broker_ids: tuple[int, ...]


class CreatePartitionsTopic:
    name: str
    count: int
    assignments: tuple[CreatePartitionsAssignment, ...] | None


class CreatePartitionsRequest:
    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: int
    validate_only: bool


class CreatableRenewers:
    principal_type: str
    principal_name: str


class CreateDelegationTokenRequest:
    owner_principal_type: str | None = None
    owner_principal_name: str | None = None
    renewers: tuple[CreatableRenewers, ...]
    max_lifetime_ms: int


class RenewDelegationTokenRequest:
    hmac: bytes
    renew_period_ms: int


class ExpireDelegationTokenRequest:
    hmac: bytes
    expiry_time_period_ms: int


class DescribeDelegationTokenOwner:
    principal_type: str
    principal_name: str


class DescribeDelegationTokenRequest:
    owners: tuple[DescribeDelegationTokenOwner, ...] | None


class DeleteGroupsRequest:
    groups_names: tuple[str, ...]


class TopicPartitions:
    topic: str
    partitions: tuple[int, ...]


class ElectLeadersRequest:
    election_type: int = 0
    topic_partitions: tuple[TopicPartitions, ...] | None
    timeout_ms: int


class IncrementalAlterConfigsAlterableConfig:
    name: str
    config_operation: int
    value: str | None


class IncrementalAlterConfigsAlterConfigsResource:
    resource_type: int
    resource_name: str
    configs: tuple[IncrementalAlterConfigsAlterableConfig, ...]


class IncrementalAlterConfigsRequest:
    resources: tuple[IncrementalAlterConfigsAlterConfigsResource, ...]
    validate_only: bool


class ReassignablePartition:
    partition_index: int
    replicas: tuple[int, ...] | None


class ReassignableTopic:
    name: str
    partitions: tuple[ReassignablePartition, ...]


class AlterPartitionReassignmentsRequest:
    timeout_ms: int
    allow_replication_factor_change: bool = True
    topics: tuple[ReassignableTopic, ...]


class ListPartitionReassignmentsTopics:
    name: str
    partition_indexes: tuple[int, ...]


class ListPartitionReassignmentsRequest:
    timeout_ms: int
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None


class OffsetDeleteRequestPartition:
    partition_index: int


class OffsetDeleteRequestTopic:
    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]


class OffsetDeleteRequest:
    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]


class ComponentData:
    entity_type: str
    match_type: int
    match: str | None


class DescribeClientQuotasRequest:
    components: tuple[ComponentData, ...]
    strict: bool


class OpData:
    key: str
    value: float
    remove: bool


class EntityData:
    entity_type: str
    entity_name: str | None


class EntryData:
    entity: tuple[EntityData, ...]
    ops: tuple[OpData, ...]


class AlterClientQuotasRequest:
    entries: tuple[EntryData, ...]
    validate_only: bool


class UserName:
    name: str


class DescribeUserScramCredentialsRequest:
    users: tuple[UserName, ...] | None


class ScramCredentialUpsertion:
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class ScramCredentialDeletion:
    name: str
    mechanism: int


class AlterUserScramCredentialsRequest:
    deletions: tuple[ScramCredentialDeletion, ...]
    upsertions: tuple[ScramCredentialUpsertion, ...]


class PartitionData:
    partition_index: int


class TopicData:
    topic_name: str
    partitions: tuple[PartitionData, ...]


class DescribeQuorumRequest:
    topics: tuple[TopicData, ...]


class AlterPartitionBrokerState:
    broker_id: int
    broker_epoch: int


class AlterPartitionPartitionData:
    partition_index: int
    leader_epoch: int
    new_isr_with_epochs: tuple[AlterPartitionBrokerState, ...] = ()
    leader_recovery_state: int
    partition_epoch: int
    new_isr: tuple[int, ...] = ()


class AlterPartitionTopicData:
    topic_id: UUID | None
    partitions: tuple[AlterPartitionPartitionData, ...]


class AlterPartitionRequest:
    broker_id: int
    broker_epoch: int
    topics: tuple[AlterPartitionTopicData, ...]


class FeatureUpdateKey:
    feature: str
    max_version_level: int
    upgrade_type: int = 1
    allow_downgrade: bool = False


class UpdateFeaturesRequest:
    timeout_ms: int
    feature_updates: tuple[FeatureUpdateKey, ...]
    validate_only: bool = False


class EnvelopeRequest:
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


class FetchSnapshotSnapshotId:
    end_offset: int
    epoch: int


class PartitionSnapshot:
    partition: int
    current_leader_epoch: int
    snapshot_id: FetchSnapshotSnapshotId | None
    position: int
    replica_directory_id: UUID | None = None


class TopicSnapshot:
    name: str
    partitions: tuple[PartitionSnapshot, ...]


class FetchSnapshotRequest:
    replica_id: int
    max_bytes: int
    topics: tuple[TopicSnapshot, ...]
    cluster_id: str | None


class DescribeClusterRequest:
    include_cluster_authorized_operations: bool
    endpoint_type: int = 1
    include_fenced_brokers: bool = False


class TopicRequest:
    name: str
    partition_indexes: tuple[int, ...]


class DescribeProducersRequest:
    topics: tuple[TopicRequest, ...]


class Feature:
    name: str
    min_supported_version: int
    max_supported_version: int


class Listener:
    name: str
    host: str
    port: int
    security_protocol: int


class BrokerRegistrationRequest:
    broker_id: int
    cluster_id: str
    incarnation_id: UUID | None
    listeners: tuple[Listener, ...]
    features: tuple[Feature, ...]
    rack: str | None
    is_migrating_zk_broker: bool = False
    log_dirs: tuple[UUID | None, ...] = ()
    previous_broker_epoch: int = -1


class BrokerHeartbeatRequest:
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[UUID | None, ...] = ()
    cordoned_log_dirs: tuple[UUID | None, ...] | None = None


class UnregisterBrokerRequest:
    broker_id: int


class DescribeTransactionsRequest:
    transactional_ids: tuple[str, ...]


class ListTransactionsRequest:
    state_filters: tuple[str, ...]
    producer_id_filters: tuple[int, ...]
    duration_filter: int = -1
    transactional_id_pattern: str | None = None


class AllocateProducerIdsRequest:
    broker_id: int
    broker_epoch: int


class ConsumerGroupHeartbeatTopicPartitions:
    topic_id: UUID | None
    partitions: tuple[int, ...]


class ConsumerGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: tuple[str, ...] | None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None
    topic_partitions: tuple[ConsumerGroupHeartbeatTopicPartitions, ...] | None


class ConsumerGroupDescribeRequest:
    group_ids: tuple[str, ...]
    include_authorized_operations: bool


class AssignReplicasToDirsPartitionData:
    partition_index: int


class AssignReplicasToDirsTopicData:
    topic_id: UUID | None
    partitions: tuple[AssignReplicasToDirsPartitionData, ...]


class DirectoryData:
    id_: UUID | None
    topics: tuple[AssignReplicasToDirsTopicData, ...]


class AssignReplicasToDirsRequest:
    broker_id: int
    broker_epoch: int
    directories: tuple[DirectoryData, ...]


class ListConfigResourcesRequest:
    resource_types: tuple[int, ...] = ()


class Cursor:
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsTopicRequest:
    name: str


class DescribeTopicPartitionsRequest:
    topics: tuple[DescribeTopicPartitionsTopicRequest, ...]
    response_partition_limit: int
    cursor: Cursor | None


class AddRaftVoterListener:
    name: str
    host: str
    port: int


class AddRaftVoterRequest:
    cluster_id: str | None
    timeout_ms: int
    voter_id: int
    voter_directory_id: UUID | None
    listeners: tuple[AddRaftVoterListener, ...]
    ack_when_committed: bool = True


class RemoveRaftVoterRequest:
    cluster_id: str | None
    voter_id: int
    voter_directory_id: UUID | None


class UnregisterControllerRequest:
    controller_id: int
