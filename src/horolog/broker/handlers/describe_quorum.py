"""DescribeQuorum: the controllers, and the time of the active one (KIP-595).

v0  flexible from the start
v1  when each controller last fetched and caught up; of the active one, its time now (KIP-836)
v2  error messages, directory ids and the controllers' listeners (KIP-853)

Kafka's clients have no other request that returns a cluster's time.
"""

from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode
from horolog.wire.api import ApiKey
from horolog.wire.requests import DescribeQuorumRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        DescribeQuorumPartitionData,
        DescribeQuorumReplicaState,
        DescribeQuorumResponse,
        Listener,
    )

METADATA_TOPIC: Final = "__cluster_metadata"


@api(ApiKey.DESCRIBE_QUORUM)
def describe_quorum(
    request: Request[DescribeQuorumRequest], broker: Broker
) -> "DescribeQuorumResponse":
    """This broker, which is the only controller and keeps no metadata log."""
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
    now_ms = broker.clock.now_ms()
    voter: DescribeQuorumReplicaState = {
        "replica_id": broker.config.node_id,
        "replica_directory_id": None,
        "log_end_offset": 0,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }
    partition: DescribeQuorumPartitionData = {
        "partition_index": 0,
        "error_code": ErrorCode.none,
        "error_message": None,
        "leader_id": broker.config.node_id,
        "leader_epoch": 0,
        "high_watermark": 0,
        "current_voters": [voter],
        "observers": [],
    }
    listener: Listener = {"name": request.peer.listener.name, "host": here.host, "port": here.port}
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}],
        "nodes": [{"node_id": broker.config.node_id, "listeners": [listener]}],
    }
