"""DescribeUserScramCredentials: there are none, as there is no SASL (KIP-554).

v0  flexible from the start
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, printable
from horolog.wire.api import ApiKey
from horolog.wire.requests import DescribeUserScramCredentialsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        DescribeUserScramCredentialsResponse,
        DescribeUserScramCredentialsResult,
    )


@api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
async def describe_user_scram_credentials(
    request: Request[DescribeUserScramCredentialsRequest], broker: Broker
) -> "DescribeUserScramCredentialsResponse":
    """No credentials, and an error for each user who is named, as in Kafka."""
    times: dict[str, int] = {}
    for user in request.body.users or ():
        await request.checkpoint()
        times[user.name] = times.get(user.name, 0) + 1
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "results": [_refused(user, asked) for user, asked in times.items()],
    }


def _refused(user: str, times: int) -> "DescribeUserScramCredentialsResult":
    if times > 1:
        code, message = ErrorCode.duplicate_resource, "Cannot describe a user twice in one request"
    else:
        code, message = ErrorCode.resource_not_found, "There are no SCRAM credentials of the user"
    shown = printable(f"{message}: {user}")
    return {"user": user, "error_code": code, "error_message": shown, "credential_infos": []}
