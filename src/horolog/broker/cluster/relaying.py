"""Requests that change the cluster, passed on to the active controller in an Envelope (KIP-590).

Clients send them to any broker: Metadata names one as the controller. The frame is passed on as
it is, with the client's principal and address, and the controller decides what the client may do.
Its answer is returned as it is.

    RELAYED       what is relayed; Kafka's `ApiKeys.forwardable` of 4.4.0
    SPLIT         of these, what is decoded first, because a part may concern this broker alone
    COORDINATED   what coordinators answer: NOT_COORDINATOR here, as this broker coordinates
                  nothing in a cluster
"""

import asyncio
import logging
import struct
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, Protocol, cast

from horolog.broker.cluster.placement import ObservedImage
from horolog.buffers import Buffer
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.metadata.image import BROKER
from horolog.network.dispatching import Hangup
from horolog.network.peer import ANONYMOUS, Peer
from horolog.network.reply import Reply
from horolog.wire.api import ApiKey, Versions
from horolog.wire.codec import (
    MAX_FIELDS,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from horolog.wire.error_responses import error_response
from horolog.wire.frame import (
    LENGTH_BYTES,
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_prefix,
    response_prefix,
)
from horolog.wire.malformed import MalformedResponse
from horolog.wire.packing import EMPTY_TAGS, compact_string

__all__ = ["COORDINATED", "RELAYED", "SPLIT", "Relay"]

_LOG = logging.getLogger(__name__)

RELAYED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UNREGISTER_CONTROLLER,
    }
)
SPLIT: Final = frozenset(
    {ApiKey.CREATE_TOPICS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
)
COORDINATED: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_TRANSACTIONS,
    }
)
_HERE: Final = ApiKey.DESCRIBE_DELEGATION_TOKEN
"""Answered by each broker, as by one of Kafka without `delegation.token.secret.key`."""
_OF_TOKENS: Final = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        _HERE,
    }
)

TIMEOUT_MS: Final = 60_000
"""Longest wait for the active controller, as of Kafka's brokers."""
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_PRINCIPAL_VERSION: Final = 0
_NO_ADDRESS: Final = bytes(4)
_CREATE_VERSION: Final = 5
_MOST_CREATED: Final = 1_000  # topics whose creation is waited for at a time


class AsksControllers(Protocol):
    """Asks the active controller, on the event loop."""

    @property
    def versions(self) -> Mapping[int, Versions] | None:
        """Versions that the active controller supports; None before one has answered."""
        ...

    async def ask(self, api_key: ApiKey, fields: Mapping[str, Any], *, timeout_ms: int) -> Any:
        """Return the body of the active controller's response.

        Raises:
            HorologError: none has answered in time, or the request cannot be sent.
        """
        ...


class Relay:
    """Passes requests on to the active controller. For the event loop's thread only.

    Args:
        view: has the settings of all brokers.
    """

    def __init__(self, controllers: AsksControllers, view: ObservedImage) -> None:
        self._controllers = controllers
        self._view = view
        self._creating: dict[str, asyncio.Task[None]] = {}

    keys: Final = RELAYED | {_HERE}
    whole: Final = keys - SPLIT
    """APIs whose requests are never decoded here."""
    coordinated: Final = COORDINATED

    def offered(self) -> dict[ApiKey, Versions]:
        """Return what is relayed, in the versions that the active controller knows, too."""
        its = self._controllers.versions
        offered = {key: key.versions for key in self.keys}
        if its is None:
            return offered
        its = {**its, _HERE: _HERE.versions}
        common = {key: versions.common(its[key]) for key, versions in offered.items() if key in its}
        return {key: versions for key, versions in common.items() if versions is not None}

    async def answer(self, header: RequestHeader, frame: Buffer, peer: Peer) -> Reply:
        """Return the active controller's response to a client's request.

        Raises:
            Hangup: the controller does not know the version.
            MalformedRequest: no controller answers, and the request cannot be read.
        """
        offered = self.offered().get(header.api_key)
        if offered is None or not offered.min <= header.api_version <= offered.max:
            raise Hangup(f"{header.title} is not served by the active controller")
        if header.api_key in _OF_TOKENS and peer.principal in (None, ANONYMOUS):
            code = ErrorCode.delegation_token_request_not_allowed
            return _refusal(header, frame, code, "Delegation Token requests need a principal.")
        if header.api_key is _HERE:
            code = ErrorCode.delegation_token_auth_disabled
            return _refusal(header, frame, code, "Delegation tokens are no login here.")
        try:
            answer = await self.relayed(frame, peer)
        except HorologError as error:
            return _refusal(header, frame, ErrorCode.request_timed_out, str(error))
        if isinstance(answer, ErrorCode):
            if answer is ErrorCode.unsupported_version:
                raise Hangup(f"{header.title} is not served by the active controller")
            text = f"the controller refused the relayed request: {answer.name}"
            return _refusal(header, frame, ErrorCode.unknown_server_error, text)
        try:
            correlation_id, _ = parse_response_header(answer, header.api_key, header.api_version)
        except MalformedResponse:
            correlation_id = ~header.correlation_id
        if correlation_id != header.correlation_id:
            text = "the controller answered another request than the one that was relayed"
            _LOG.warning("%s: %s", header.title, text)
            return _refusal(header, frame, ErrorCode.unknown_server_error, text)
        return (len(answer).to_bytes(LENGTH_BYTES, "big"), answer)

    def refusal_to_coordinate(self, key: ApiKey, version: int, body: Any) -> dict[str, Any] | None:
        """Return NOT_COORDINATOR for everything that a request names.

        None for a producer without a transactional id, which needs no coordinator.
        """
        if key is ApiKey.INIT_PRODUCER_ID and body.transactional_id is None:
            return None
        text = "This broker coordinates no groups and transactions."
        return error_response(key, version, body, ErrorCode.not_coordinator, text)

    async def body_for(self, frame: Buffer, peer: Peer) -> Reply:
        """Return the active controller's response to a request, without length and header.

        Raises:
            Hangup, MalformedRequest: as `answer`.
        """
        header = parse_request_header(frame)
        answer = b"".join(cast("Iterable[Buffer]", await self.answer(header, frame, peer)))
        _, position = parse_response_header(
            answer[LENGTH_BYTES:], header.api_key, header.api_version
        )
        return (answer[LENGTH_BYTES + position :],)

    async def relayed(self, frame: Buffer, peer: Peer) -> Buffer | ErrorCode:
        """Pass a request on; return its response without the length, or the Envelope's error.

        Raises:
            HorologError: no controller has answered in time.
        """
        body = await self._controllers.ask(
            ApiKey.ENVELOPE,
            {
                "request_data": bytes(frame),
                "request_principal": packed_principal(peer.principal or ANONYMOUS),
                "client_host_address": packed_address(peer.host),
            },
            timeout_ms=TIMEOUT_MS,
        )
        try:
            error = ErrorCode(body.error_code)
        except ValueError:
            error = ErrorCode.unknown_server_error
        if error is not ErrorCode.none:
            return error
        answer: Buffer | None = body.response_data
        return ErrorCode.unknown_server_error if answer is None else answer

    async def relay_fields(
        self, key: ApiKey, version: int, client_id: str, fields: Mapping[str, Any], peer: Peer
    ) -> Any:
        """Relay a request made of a client's; return the body of its response.

        Raises:
            HorologError: no controller has answered, or the answer is none.
        """
        answer = await self.relayed(framed(key, version, client_id, fields), peer)
        if isinstance(answer, ErrorCode):
            raise RequestRefused(
                ErrorCode.unknown_server_error, f"the controller refused it: {answer.name}"
            )
        _, position = parse_response_header(answer, key, version)
        return decode_response(key, version, answer, position)

    @property
    def shared(self) -> Mapping[str, str]:
        """Settings of all brokers, with what horolog keeps there of topics."""
        return self._view.image.settings_of(BROKER, "")

    async def change_shared(self, changes: Mapping[str, str | None]) -> None:
        """Change settings of all brokers with the rights of this broker; None removes one.

        Raises:
            HorologError: no controller has answered, or it refused.
        """
        configs = [
            {"name": name, "config_operation": int(value is None), "value": value}
            for name, value in changes.items()
        ]
        resource = {"resource_type": BROKER, "resource_name": "", "configs": configs}
        body = await self._controllers.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            {"resources": [resource], "validate_only": False},
            timeout_ms=TIMEOUT_MS,
        )
        for response in body.responses:
            if response.error_code:
                raise refusal_of(response.error_code, response.error_message)

    def create_topic(self, name: str, client_id: str, peer: Peer) -> None:
        """Ask for a topic that a client named, with the cluster's defaults; do not wait.

        What a controller answers is left to the client's next request for its metadata.
        """
        if name not in self._creating and len(self._creating) < _MOST_CREATED:
            task = asyncio.get_running_loop().create_task(self._create(name, client_id, peer))
            self._creating[name] = task
            task.add_done_callback(lambda _: self._creating.pop(name, None))

    async def _create(self, name: str, client_id: str, peer: Peer) -> None:
        fields = {
            "topics": [
                {
                    "name": name,
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            "timeout_ms": TIMEOUT_MS,
            "validate_only": False,
        }
        key = ApiKey.CREATE_TOPICS
        try:
            await self.relayed(framed(key, _CREATE_VERSION, client_id, fields), peer)
        except HorologError as error:
            _LOG.warning("topic %r is not created: %s", name, error)

    def close(self) -> None:
        """Cancel what is not answered yet."""
        for task in list(self._creating.values()):
            task.cancel()


def refusal_of(error_code: int, message: str | None) -> RequestRefused:
    """Return an error that a controller answered."""
    try:
        code = ErrorCode(error_code)
    except ValueError:
        code = ErrorCode.unknown_server_error
    return RequestRefused(code, message or code.name)


def framed(key: ApiKey, version: int, client_id: str, fields: Mapping[str, Any]) -> bytes:
    """Return a request as a client would send it, without its length."""
    body = encode_request(key, version, fields)
    return request_prefix(key, version, 0, client_id, len(body))[LENGTH_BYTES:] + body


def packed_principal(principal: str) -> bytes:
    """Return a principal in the form of Kafka's `DefaultKafkaPrincipalBuilder`."""
    kind, _, name = principal.partition(":")
    is_of_token = b"\x00"
    version = _INT16.pack(_PRINCIPAL_VERSION)
    return version + compact_string(kind) + compact_string(name) + is_of_token + EMPTY_TAGS


def packed_address(host: str) -> bytes:
    """Return a client's address in 4 or 16 bytes; zeroes if it has none."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return _NO_ADDRESS
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed
    return address.packed


def _refusal(header: RequestHeader, frame: Buffer, code: ErrorCode, text: str) -> Reply:
    """Return the response that has one error for everything that a request names."""
    key, version, correlation_id, _, position = header
    request = decode_request(key, version, frame, position, MAX_FIELDS)
    body = encode_response(key, version, error_response(key, version, request, code, text))
    return (response_prefix(key, version, correlation_id, len(body)) + body,)
