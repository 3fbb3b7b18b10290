"""ApiVersions: the supported APIs, versions and features; a client's first request.

v1  throttle time
v3  flexible, with the client's name and version (KIP-511); supported and finalized features
v4  features may start at version 0

A version that is not served is answered in v0 (see dispatch).
"""

import re
from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api, served
from horolog.errors import ErrorCode
from horolog.schemas.metadata import TRANSACTION_VERSION
from horolog.schemas.transactions import FIRST_FLOW, SECOND_FLOW
from horolog.wire.api import ApiKey, Versions
from horolog.wire.features import FEATURES
from horolog.wire.requests import ApiVersionsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import ApiVersionsResponse

_FLOWS = Versions(FIRST_FLOW, SECOND_FLOW)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z", re.ASCII)


@api(ApiKey.API_VERSIONS)
def api_versions(request: Request[ApiVersionsRequest], broker: Broker) -> "ApiVersionsResponse":
    """Every API with a handler, its versions, horolog's features, and the flow of transactions."""
    body, level = request.body, broker.transaction_version
    error = ErrorCode.none
    if request.version >= 3 and not (
        _SOFTWARE.match(body.client_software_name) and _SOFTWARE.match(body.client_software_version)
    ):
        error = ErrorCode.invalid_request
    return {
        "error_code": error,
        "api_keys": [
            {"api_key": key, "min_version": versions.min, "max_version": versions.max}
            for key, versions in served().items()
        ],
        "supported_features": [
            {"name": name, "min_version": levels.min, "max_version": levels.max}
            for name, levels in (*FEATURES.items(), (TRANSACTION_VERSION, _FLOWS))
        ],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": TRANSACTION_VERSION, "min_version_level": level, "max_version_level": level}
        ]
        if level
        else [],
    }
