"""DeleteGroups: deletes empty groups and their offsets.

v1  throttle time
v2  flexible

A group that is named several times is deleted and answered once, as by Apache Kafka.
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.group_errors import group_error_code
from horolog.errors import ErrorCode, HorologError
from horolog.wire.api import ApiKey
from horolog.wire.requests import DeleteGroupsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import DeletableGroupResult, DeleteGroupsResponse


@api(ApiKey.DELETE_GROUPS)
async def delete_groups(
    request: Request[DeleteGroupsRequest], broker: Broker
) -> "DeleteGroupsResponse":
    """Delete each group; one result or error each."""
    results: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(request.body.groups_names):
        await request.checkpoint()
        error_code = ErrorCode.none
        try:
            await broker.groups.delete(group_id)
        except HorologError as error:
            error_code = group_error_code(error)
        results.append({"group_id": group_id, "error_code": error_code})
    return {"results": results}
