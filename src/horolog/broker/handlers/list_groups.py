"""ListGroups: all consumer groups.

v1  throttle time
v3  flexible
v4  state, and a filter on it (KIP-518)
v5  type, and a filter on it (KIP-848): all groups here are classic
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.scheduling.codec_threads import Checkpoint, no_checkpoint
from horolog.errors import ErrorCode
from horolog.groups.group import Group
from horolog.wire.api import ApiKey
from horolog.wire.requests import ListGroupsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import ListedGroup, ListGroupsResponse

GROUP_TYPE = "classic"

_MANY: Final = 1_000


@api(ApiKey.LIST_GROUPS)
def list_groups(
    request: Request[ListGroupsRequest], broker: Broker
) -> "ListGroupsResponse | Apart":
    """All groups that pass the filters; names compare without regard to case, as in Kafka."""
    states = {state.lower() for state in request.body.states_filter}
    types = {kind.lower() for kind in request.body.types_filter}
    groups = broker.groups.all()
    if types and GROUP_TYPE not in types:
        groups = []
    error_code = ErrorCode.none
    if broker.groups.is_loading:
        error_code = ErrorCode.coordinator_load_in_progress
    make = partial(_answer, groups, states, error_code)
    if len(groups) > _MANY:
        return Apart(make)
    return make()


def _answer(
    groups: list[Group],
    states: set[str],
    error_code: ErrorCode,
    checkpoint: Checkpoint = no_checkpoint,
) -> "ListGroupsResponse":
    found: list[ListedGroup] = []
    for group in groups:
        checkpoint()
        state = group.state.value
        if states and state.lower() not in states:
            continue
        found.append(
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": state,
                "group_type": GROUP_TYPE,
            }
        )
    return {"error_code": error_code, "groups": found}
