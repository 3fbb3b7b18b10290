"""Requests about the cluster: versions, brokers, controller, disks and quotas."""

import asyncio
import re
import shutil
from typing import TYPE_CHECKING, Final

from horolog.broker.authorisation import CLUSTER, NO_BITS, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Request, api, served
from horolog.broker.handlers.results import PartOutcome, cluster_bits, each
from horolog.errors import ErrorCode, printable
from horolog.rights.entries import CLUSTER_NAME
from horolog.wire.api import ApiKey, Versions
from horolog.wire.features import FEATURES
from horolog.wire.requests import (
    AlterPartitionReassignmentsRequest,
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
)

if TYPE_CHECKING:
    from horolog.wire.responses import (
        AlterPartitionReassignmentsResponse,
        ApiVersionsResponse,
        DescribeClusterResponse,
        DescribeLogDirsPartition,
        DescribeLogDirsResponse,
        DescribeQuorumResponse,
        ElectLeadersResponse,
        ListPartitionReassignmentsResponse,
        ReassignableTopicResponse,
        ReplicaElectionResult,
    )

# --- ApiVersions: the supported APIs, versions and features; a client's first request ---
#
# v1  throttle time
# v3  flexible, with the client's name and version (KIP-511); supported and finalized features
# v4  features may start at version 0
# v5  the cluster and the broker that the client means to talk to (KIP-1242)
#
# A version that is not served is answered in v0 (see dispatch).


_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z", re.ASCII)
_ANY_NODE: Final = -1


@api(ApiKey.API_VERSIONS)
def api_versions(
    request: Request[ApiVersionsRequest], broker: BrokerParts
) -> "ApiVersionsResponse":
    """List every API with a handler, horolog's features, and levels of Kafka's."""
    if error := _refusal_of_client(request, broker):
        return {"error_code": error, "api_keys": []}
    node = broker.node
    return {
        "error_code": ErrorCode.none,
        "api_keys": [
            {"api_key": key, "min_version": versions.min, "max_version": versions.max}
            for key, versions in _offered(broker).items()
        ],
        "supported_features": [
            {"name": name, "min_version": levels.min, "max_version": levels.max}
            for name, levels in (*FEATURES.items(), *node.claims.items())
        ],
        "finalized_features_epoch": node.levels_epoch,
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level}
            for name, level in node.levels.items()
        ],
    }


def _offered(broker: BrokerParts) -> dict[ApiKey, Versions]:
    """Return what is served here, or relayed to the controllers in the versions they know."""
    relay, offered = broker.relay, served()
    if relay is None:
        return offered
    here = {key: versions for key, versions in offered.items() if key not in relay.keys}
    return dict(sorted((here | relay.offered()).items()))


def _refusal_of_client(request: Request[ApiVersionsRequest], broker: BrokerParts) -> ErrorCode:
    """Return the error for a client that names itself wrongly, or that means another broker.

    REBOOTSTRAP_REQUIRED makes a client forget all brokers but its bootstrap servers (KIP-1102).
    """
    body = request.body
    if request.version >= 3 and not (
        _SOFTWARE.match(body.client_software_name) and _SOFTWARE.match(body.client_software_version)
    ):
        return ErrorCode.invalid_request
    if (body.cluster_id is None) != (body.node_id == _ANY_NODE):
        return ErrorCode.invalid_request
    meant = (body.cluster_id, body.node_id)
    if body.cluster_id is not None and meant != (broker.cluster_id, broker.config.node_id):
        return ErrorCode.rebootstrap_required
    return ErrorCode.none


# --- DescribeCluster: the brokers and the controller (KIP-700) --------------------------
#
# v0  flexible from the start
# v1  brokers or controllers; only brokers are known here
# v2  fenced brokers on request (KIP-1073)


BROKERS: Final = 1
CONTROLLERS: Final = 2


@api(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(
    request: Request[DescribeClusterRequest], broker: BrokerParts
) -> "DescribeClusterResponse":
    """Describe the brokers, and the one that takes changes of the cluster."""
    endpoint_type = request.body.endpoint_type
    if endpoint_type != BROKERS:
        is_known = endpoint_type == CONTROLLERS
        return {
            "error_code": (
                ErrorCode.mismatched_endpoint_type
                if is_known
                else ErrorCode.unsupported_endpoint_type
            ),
            "error_message": (
                "The request was sent to an endpoint of type BROKER, "
                "but we wanted an endpoint of type CONTROLLER"
                if is_known
                else f"Unsupported endpoint type {endpoint_type}"
            ),
            "cluster_id": "",
            "brokers": [],
        }
    known = broker.placement.brokers(
        request.peer.listener, fenced=request.body.include_fenced_brokers
    )
    return {
        "error_code": ErrorCode.none,
        "endpoint_type": endpoint_type,
        "cluster_id": broker.cluster_id,
        "controller_id": broker.placement.controller_id,
        "cluster_authorized_operations": (
            cluster_bits(broker, request.peer, ApiKey.DESCRIBE_CLUSTER)
            if request.body.include_cluster_authorized_operations
            else NO_BITS
        ),
        "brokers": [
            {
                "broker_id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "is_fenced": is_fenced,
            }
            for node, is_fenced in known
        ],
    }


# --- DescribeQuorum: the controllers, and the time of the active one (KIP-595) ----------
#
# v0  flexible from the start
# v1  when each controller last fetched and caught up; of the active one, its time now (KIP-836)
# v2  error messages, directory ids and the controllers' listeners (KIP-853)
#
# Kafka's clients have no other request that returns a cluster's time.


METADATA_TOPIC: Final = "__cluster_metadata"


@api(ApiKey.DESCRIBE_QUORUM)
def describe_quorum(
    request: Request[DescribeQuorumRequest], broker: BrokerParts
) -> "DescribeQuorumResponse":
    """Describe this broker as the only controller."""
    if not broker.access.allows(request.peer, ApiKey.DESCRIBE_QUORUM, CLUSTER, CLUSTER_NAME):
        return {
            "error_code": ErrorCode.cluster_authorization_failed,
            "error_message": str(refusal(CLUSTER)),
            "topics": [],
            "nodes": [],
        }
    match request.body.topics:
        case (topic,) if topic.topic_name == METADATA_TOPIC and [
            partition.partition_index for partition in topic.partitions
        ] == [0]:
            pass
        case _:
            return {
                "error_code": ErrorCode.invalid_request,
                "error_message": f"only partition 0 of {METADATA_TOPIC} has a quorum",
                "topics": [],
                "nodes": [],
            }
    here = broker.endpoint(request.peer.listener)
    node_id, now_ms = broker.config.node_id, broker.clock.now_ms()
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "topics": [
            {
                "topic_name": METADATA_TOPIC,
                "partitions": [
                    {
                        "partition_index": 0,
                        "error_code": ErrorCode.none,
                        "error_message": None,
                        "leader_id": node_id,
                        "leader_epoch": 0,
                        "high_watermark": 0,
                        "current_voters": [
                            {
                                "replica_id": node_id,
                                "replica_directory_id": None,
                                "log_end_offset": 0,
                                "last_fetch_timestamp": now_ms,
                                "last_caught_up_timestamp": now_ms,
                            }
                        ],
                        "observers": [],
                    }
                ],
            }
        ],
        "nodes": [
            {
                "node_id": node_id,
                "listeners": [
                    {
                        "name": request.peer.listener.name,
                        "host": here.host,
                        "port": here.port,
                    }
                ],
            }
        ],
    }


# --- DescribeLogDirs: the partitions in the log directory and their sizes (KIP-113) -----
#
# v1  as v0
# v2  flexible
# v3  an error for the whole answer
# v4  total and usable bytes of the volume (KIP-827)
# v5  usable bytes may be unknown


@api(ApiKey.DESCRIBE_LOG_DIRS)
async def describe_log_dirs(
    request: Request[DescribeLogDirsRequest], broker: BrokerParts
) -> "DescribeLogDirsResponse":
    """Describe the log directory with the requested partitions."""
    if not broker.access.allows(request.peer, ApiKey.DESCRIBE_LOG_DIRS, CLUSTER, CLUSTER_NAME):
        return {"error_code": ErrorCode.cluster_authorization_failed, "results": []}
    asked = request.body.topics
    requested = None
    if asked is not None:
        requested = {
            (topic.topic, index)
            async for topic in each(request, asked)
            for index in topic.partitions
        }
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    async for (topic, index), partition in each(request, list(broker.partitions.items())):
        if requested is None or (topic, index) in requested:
            by_topic.setdefault(topic, []).append(
                {
                    "partition_index": index,
                    "partition_size": partition.log.size,
                    "offset_lag": 0,
                    "is_future_key": False,
                }
            )
    loop = asyncio.get_running_loop()
    volume = await loop.run_in_executor(broker.readers, shutil.disk_usage, broker.log_dir_path)
    return {
        "error_code": ErrorCode.none,
        "results": [
            {
                "error_code": ErrorCode.none,
                "log_dir": str(broker.log_dir_path),
                "topics": [
                    {"name": name, "partitions": partitions}
                    for name, partitions in by_topic.items()
                ],
                "total_bytes": volume.total,
                "usable_bytes": volume.free,
            }
        ],
    }


# --- ElectLeaders: this broker leads every partition, so that no election is needed (KIP-183)
#
# v0  the preferred replica
# v1  unclean elections too (KIP-460)
# v2  flexible


_ELECTION_TYPES: Final = (0, 1)  # preferred, unclean


@api(ApiKey.ELECT_LEADERS)
async def elect_leaders(
    request: Request[ElectLeadersRequest], broker: BrokerParts
) -> "ElectLeadersResponse":
    """Answer ELECTION_NOT_NEEDED for each partition, and nothing without topics, as Kafka does."""
    if not broker.access.allows(request.peer, ApiKey.ELECT_LEADERS, CLUSTER, CLUSTER_NAME):
        return {
            "error_code": ErrorCode.cluster_authorization_failed,
            "replica_election_results": [],
        }
    election_type = request.body.election_type
    is_known = election_type in _ELECTION_TYPES
    outcome = (
        PartOutcome(
            ErrorCode.election_not_needed, "Leader election not needed for topic partition."
        )
        if is_known
        else PartOutcome(ErrorCode.invalid_request, f"Unknown election type {election_type}")
    )
    results: list[ReplicaElectionResult] = [
        {
            "topic": topic.topic,
            "partition_result": [
                {
                    "partition_id": index,
                    "error_code": error_code,
                    "error_message": message,
                }
                async for index in each(request, topic.partitions)
                for error_code, message in [_if_exists(broker, topic.topic, index, outcome)]
            ],
        }
        async for topic in each(request, request.body.topic_partitions or ())
    ]
    return {
        "error_code": ErrorCode.none if is_known else ErrorCode.invalid_request,
        "replica_election_results": results,
    }


def _if_exists(
    broker: BrokerParts, topic_name: str, index: int, outcome: PartOutcome
) -> PartOutcome:
    """Return the outcome for a partition, or the error of a partition that does not exist."""
    topic = broker.topics.find(topic_name)
    if topic is None or not topic.has_partition(index):
        return PartOutcome(
            ErrorCode.unknown_topic_or_partition,
            printable(f"there is no partition {index} of topic {topic_name}"),
        )
    return outcome


# --- AlterPartitionReassignments: each partition stays on this broker, the only one (KIP-455)
#
# v0  flexible from the start
# v1  whether the number of replicas may change (KIP-860)


@api(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
async def alter_partition_reassignments(
    request: Request[AlterPartitionReassignmentsRequest], broker: BrokerParts
) -> "AlterPartitionReassignmentsResponse":
    """Accept assignments to this broker, which change nothing, and refuse all others."""
    api_key, here = ApiKey.ALTER_PARTITION_REASSIGNMENTS, broker.config.node_id
    if not broker.access.allows(request.peer, api_key, CLUSTER, CLUSTER_NAME):
        return {
            "error_code": ErrorCode.cluster_authorization_failed,
            "error_message": str(refusal(CLUSTER)),
            "responses": [],
        }
    responses: list[ReassignableTopicResponse] = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": index, "error_code": error_code, "error_message": message}
                async for partition in each(request, topic.partitions)
                for index, outcome in [(partition.partition_index, _reassigned(partition, here))]
                for error_code, message in [_if_exists(broker, topic.name, index, outcome)]
            ],
        }
        async for topic in each(request, request.body.topics)
    ]
    return {
        "allow_replication_factor_change": request.body.allow_replication_factor_change,
        "error_code": ErrorCode.none,
        "error_message": None,
        "responses": responses,
    }


def _reassigned(partition: ReassignablePartition, here: int) -> PartOutcome:
    if partition.replicas is None:
        return PartOutcome(
            ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress."
        )
    if list(partition.replicas) != [here]:
        return PartOutcome(
            ErrorCode.invalid_replica_assignment,
            f"the replicas of a partition are [{here}]: broker {here} is the only one",
        )
    return PartOutcome()


# --- ListPartitionReassignments: none, as there is no broker to move a partition to (KIP-455)
#
# v0  flexible from the start


@api(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def list_partition_reassignments(
    request: Request[ListPartitionReassignmentsRequest], broker: BrokerParts
) -> "ListPartitionReassignmentsResponse":
    """Answer that no reassignment is in progress, as Kafka does."""
    api_key = ApiKey.LIST_PARTITION_REASSIGNMENTS
    if not broker.access.allows(request.peer, api_key, CLUSTER, CLUSTER_NAME):
        return {
            "error_code": ErrorCode.cluster_authorization_failed,
            "error_message": str(refusal(CLUSTER)),
            "topics": [],
        }
    return {"error_code": ErrorCode.none, "error_message": None, "topics": []}
