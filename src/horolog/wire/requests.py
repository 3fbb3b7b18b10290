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
    __slots__ = ()
    index: int
    records: Buffer | None


class TopicProduceData:
    __slots__ = ()
    topic_id: UUID | None = None
    partition_data: tuple[PartitionProduceData, ...]
    name: str = ""


class ProduceRequest:
    __slots__ = ()
    transactional_id: str | None = None
    acks: int
    timeout_ms: int
    topic_data: tuple[TopicProduceData, ...]


class ReplicaState:
    __slots__ = ()
    replica_id: int
    replica_epoch: int


class ForgottenTopic:
    __slots__ = ()
    topic_id: UUID | None = None
    partitions: tuple[int, ...]
    topic: str = ""


class FetchPartition:
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
    __slots__ = ()
    topic_id: UUID | None = None
    partitions: tuple[FetchPartition, ...]
    topic: str = ""


class FetchRequest:
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
    __slots__ = ()
    partition_index: int
    current_leader_epoch: int = -1
    timestamp: int
    max_num_offsets: int = 1


class ListOffsetsTopic:
    __slots__ = ()
    name: str
    partitions: tuple[ListOffsetsPartition, ...]


class ListOffsetsRequest:
    __slots__ = ()
    replica_id: int
    isolation_level: int = 0
    topics: tuple[ListOffsetsTopic, ...]
    timeout_ms: int = 0


class MetadataRequestTopic:
    __slots__ = ()
    topic_id: UUID | None = None
    name: str | None


class MetadataRequest:
    __slots__ = ()
    topics: tuple[MetadataRequestTopic, ...] | None
    allow_auto_topic_creation: bool = True
    include_topic_authorized_operations: bool = False
    include_cluster_authorized_operations: bool = False


class OffsetCommitRequestPartition:
    __slots__ = ()
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None
    commit_timestamp: int = -1


class OffsetCommitRequestTopic:
    __slots__ = ()
    topic_id: UUID | None = None
    partitions: tuple[OffsetCommitRequestPartition, ...]
    name: str = ""


class OffsetCommitRequest:
    __slots__ = ()
    group_id: str
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: tuple[OffsetCommitRequestTopic, ...]
    retention_time_ms: int = -1


class OffsetFetchRequestTopic:
    __slots__ = ()
    name: str
    partition_indexes: tuple[int, ...]


class OffsetFetchRequestTopics:
    __slots__ = ()
    topic_id: UUID | None = None
    partition_indexes: tuple[int, ...]
    name: str = ""


class OffsetFetchRequestGroup:
    __slots__ = ()
    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    topics: tuple[OffsetFetchRequestTopics, ...] | None


class OffsetFetchRequest:
    __slots__ = ()
    groups: tuple[OffsetFetchRequestGroup, ...] = ()
    require_stable: bool = False
    group_id: str = ""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None


class FindCoordinatorRequest:
    __slots__ = ()
    key_type: int = 0
    coordinator_keys: tuple[str, ...] = ()
    key: str = ""


class JoinGroupRequestProtocol:
    __slots__ = ()
    name: str
    metadata: bytes


class JoinGroupRequest:
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
    __slots__ = ()
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class MemberIdentity:
    __slots__ = ()
    member_id: str
    group_instance_id: str | None
    reason: str | None = None


class LeaveGroupRequest:
    __slots__ = ()
    group_id: str
    members: tuple[MemberIdentity, ...] = ()
    member_id: str = ""


class SyncGroupRequestAssignment:
    __slots__ = ()
    member_id: str
    assignment: bytes


class SyncGroupRequest:
    __slots__ = ()
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[SyncGroupRequestAssignment, ...]


class DescribeGroupsRequest:
    __slots__ = ()
    groups: tuple[str, ...]
    include_authorized_operations: bool = False


class ListGroupsRequest:
    __slots__ = ()
    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class SaslHandshakeRequest:
    __slots__ = ()
    mechanism: str


class ApiVersionsRequest:
    __slots__ = ()
    client_software_name: str = ""
    client_software_version: str = ""


class CreatableTopicConfig:
    __slots__ = ()
    name: str
    value: str | None


class CreatableReplicaAssignment:
    __slots__ = ()
    partition_index: int
    broker_ids: tuple[int, ...]


class CreatableTopic:
    __slots__ = ()
    name: str
    num_partitions: int
    replication_factor: int
    assignments: tuple[CreatableReplicaAssignment, ...]
    configs: tuple[CreatableTopicConfig, ...]


class CreateTopicsRequest:
    __slots__ = ()
    topics: tuple[CreatableTopic, ...]
    timeout_ms: int
    validate_only: bool = False


class DeleteTopicState:
    __slots__ = ()
    name: str | None
    topic_id: UUID | None


class DeleteTopicsRequest:
    __slots__ = ()
    topics: tuple[DeleteTopicState, ...] = ()
    timeout_ms: int
    topic_names: tuple[str, ...] = ()


class DeleteRecordsPartition:
    __slots__ = ()
    partition_index: int
    offset: int


class DeleteRecordsTopic:
    __slots__ = ()
    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


class DeleteRecordsRequest:
    __slots__ = ()
    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: int


class InitProducerIdRequest:
    __slots__ = ()
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1


class OffsetForLeaderPartition:
    __slots__ = ()
    partition: int
    current_leader_epoch: int = -1
    leader_epoch: int


class OffsetForLeaderTopic:
    __slots__ = ()
    topic: str
    partitions: tuple[OffsetForLeaderPartition, ...]


class OffsetForLeaderEpochRequest:
    __slots__ = ()
    replica_id: int = -2
    topics: tuple[OffsetForLeaderTopic, ...]


class AddPartitionsToTxnTopic:
    __slots__ = ()
    name: str
    partitions: tuple[int, ...]


class AddPartitionsToTxnTransaction:
    __slots__ = ()
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: tuple[AddPartitionsToTxnTopic, ...]


class AddPartitionsToTxnRequest:
    __slots__ = ()
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = ()
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = ()


class AddOffsetsToTxnRequest:
    __slots__ = ()
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class EndTxnRequest:
    __slots__ = ()
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class WritableTxnMarkerTopic:
    __slots__ = ()
    name: str
    partition_indexes: tuple[int, ...]


class WritableTxnMarker:
    __slots__ = ()
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: int
    transaction_version: int = 0


class WriteTxnMarkersRequest:
    __slots__ = ()
    markers: tuple[WritableTxnMarker, ...]


class TxnOffsetCommitRequestPartition:
    __slots__ = ()
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None


class TxnOffsetCommitRequestTopic:
    __slots__ = ()
    name: str
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]


class TxnOffsetCommitRequest:
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
    __slots__ = ()
    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None


class DescribeConfigsRequest:
    __slots__ = ()
    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = False


class AlterableConfig:
    __slots__ = ()
    name: str
    value: str | None


class AlterConfigsResource:
    __slots__ = ()
    resource_type: int
    resource_name: str
    configs: tuple[AlterableConfig, ...]


class AlterConfigsRequest:
    __slots__ = ()
    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool


class DescribableLogDirTopic:
    __slots__ = ()
    topic: str
    partitions: tuple[int, ...]


class DescribeLogDirsRequest:
    __slots__ = ()
    topics: tuple[DescribableLogDirTopic, ...] | None


class SaslAuthenticateRequest:
    __slots__ = ()
    auth_bytes: bytes


class CreatePartitionsAssignment:
    __slots__ = ()
    broker_ids: tuple[int, ...]


class CreatePartitionsTopic:
    __slots__ = ()
    name: str
    count: int
    assignments: tuple[CreatePartitionsAssignment, ...] | None


class CreatePartitionsRequest:
    __slots__ = ()
    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: int
    validate_only: bool


class DeleteGroupsRequest:
    __slots__ = ()
    groups_names: tuple[str, ...]


class TopicPartitions:
    __slots__ = ()
    topic: str
    partitions: tuple[int, ...]


class ElectLeadersRequest:
    __slots__ = ()
    election_type: int = 0
    topic_partitions: tuple[TopicPartitions, ...] | None
    timeout_ms: int


class IncrementalAlterConfigsAlterableConfig:
    __slots__ = ()
    name: str
    config_operation: int
    value: str | None


class IncrementalAlterConfigsAlterConfigsResource:
    __slots__ = ()
    resource_type: int
    resource_name: str
    configs: tuple[IncrementalAlterConfigsAlterableConfig, ...]


class IncrementalAlterConfigsRequest:
    __slots__ = ()
    resources: tuple[IncrementalAlterConfigsAlterConfigsResource, ...]
    validate_only: bool


class ReassignablePartition:
    __slots__ = ()
    partition_index: int
    replicas: tuple[int, ...] | None


class ReassignableTopic:
    __slots__ = ()
    name: str
    partitions: tuple[ReassignablePartition, ...]


class AlterPartitionReassignmentsRequest:
    __slots__ = ()
    timeout_ms: int
    allow_replication_factor_change: bool = True
    topics: tuple[ReassignableTopic, ...]


class ListPartitionReassignmentsTopics:
    __slots__ = ()
    name: str
    partition_indexes: tuple[int, ...]


class ListPartitionReassignmentsRequest:
    __slots__ = ()
    timeout_ms: int
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None


class OffsetDeleteRequestPartition:
    __slots__ = ()
    partition_index: int


class OffsetDeleteRequestTopic:
    __slots__ = ()
    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]


class OffsetDeleteRequest:
    __slots__ = ()
    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]


class ComponentData:
    __slots__ = ()
    entity_type: str
    match_type: int
    match: str | None


class DescribeClientQuotasRequest:
    __slots__ = ()
    components: tuple[ComponentData, ...]
    strict: bool


class UserName:
    __slots__ = ()
    name: str


class DescribeUserScramCredentialsRequest:
    __slots__ = ()
    users: tuple[UserName, ...] | None


class PartitionData:
    __slots__ = ()
    partition_index: int


class TopicData:
    __slots__ = ()
    topic_name: str
    partitions: tuple[PartitionData, ...]


class DescribeQuorumRequest:
    __slots__ = ()
    topics: tuple[TopicData, ...]


class DescribeClusterRequest:
    __slots__ = ()
    include_cluster_authorized_operations: bool
    endpoint_type: int = 1
    include_fenced_brokers: bool = False


class TopicRequest:
    __slots__ = ()
    name: str
    partition_indexes: tuple[int, ...]


class DescribeProducersRequest:
    __slots__ = ()
    topics: tuple[TopicRequest, ...]


class DescribeTransactionsRequest:
    __slots__ = ()
    transactional_ids: tuple[str, ...]


class ListTransactionsRequest:
    __slots__ = ()
    state_filters: tuple[str, ...]
    producer_id_filters: tuple[int, ...]
    duration_filter: int = -1
    transactional_id_pattern: str | None = None


class ListConfigResourcesRequest:
    __slots__ = ()
    resource_types: tuple[int, ...] = ()
