"""DescribeCluster: the brokers and the controller (KIP-700).

v0  flexible from the start
v1  brokers or controllers; only brokers are known here
v2  fenced brokers on request: there are none
"""

from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers import authorized
from horolog.errors import ErrorCode
from horolog.wire.api import ApiKey
from horolog.wire.requests import DescribeClusterRequest

if TYPE_CHECKING:
    from horolog.wire.responses import DescribeClusterResponse

BROKERS: Final = 1


@api(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(
    request: Request[DescribeClusterRequest], broker: Broker
) -> "DescribeClusterResponse":
    """This broker, which is also the controller."""
    endpoint_type = request.body.endpoint_type
    if endpoint_type != BROKERS:
        return {
            "error_code": ErrorCode.mismatched_endpoint_type,
            "error_message": "this is a broker's endpoint, not a controller's",
            "cluster_id": broker.cluster_id,
            "brokers": [],
        }
    here = broker.endpoint(request.peer.listener)
    return {
        "error_code": ErrorCode.none,
        "endpoint_type": endpoint_type,
        "cluster_id": broker.cluster_id,
        "controller_id": broker.config.node_id,
        "cluster_authorized_operations": (
            authorized.ON_CLUSTER
            if request.body.include_cluster_authorized_operations
            else authorized.NOT_ASKED
        ),
        "brokers": [
            {
                "broker_id": broker.config.node_id,
                "host": here.host,
                "port": here.port,
                "rack": broker.config.broker_rack,
                "is_fenced": False,
            }
        ],
    }
