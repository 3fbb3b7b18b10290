"""Connection together with the versions and features that its broker supports."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from horolog import __version__
from horolog.client.connection import Connection
from horolog.client.deadline import Deadline
from horolog.client.metadata import error_of
from horolog.client.security import AuthenticationFailed
from horolog.errors import ErrorCode, RequestRefused
from horolog.wire.api import ASKED_VERSIONS, ApiKey, Versions
from horolog.wire.codec import Unwritable, decode_response, request_pieces
from horolog.wire.malformed import MalformedResponse

if TYPE_CHECKING:
    from horolog.client.security.sasl import Sasl

_OF_A_SESSION: Final = 0.85  # as Kafka's clients: they authenticate again before it is over
LOWEST: Final = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.DESCRIBE_CONFIGS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 1,
}
"""Lowest versions that the client uses by default, as it packs format v2 only (KIP-896)."""

_UNSUPPORTED: Final = ErrorCode.unsupported_version.to_bytes(2, "big")


class Link:
    """Connected broker, and the versions that it supports."""

    def __init__(
        self,
        connection: Connection,
        versions: Mapping[int, Versions],
        features: Mapping[str, int],
        levels: Mapping[str, int],
    ) -> None:
        self.connection = connection
        self.features = features  # by name, the highest level that the broker supports
        self.levels = levels  # by name, the finalised level
        self._versions = versions

    @classmethod
    def negotiate(cls, connection: Connection, deadline: Deadline) -> Self:
        """Ask for the broker's versions and features (KIP-35, KIP-511).

        Raises:
            NoAnswer: it closed the connection or did not respond.
            MalformedResponse: it speaks no Kafka.
        """
        version = ASKED_VERSIONS
        body = cls._ask_versions(connection, version, deadline)
        if body.error_code == ErrorCode.unsupported_version:
            theirs = next((k for k in body.api_keys if k.api_key == ApiKey.API_VERSIONS), None)
            version = 0 if theirs is None else min(version, theirs.max_version)
            body = cls._ask_versions(connection, version, deadline)
        if body.error_code != ErrorCode.none:
            raise MalformedResponse(
                f"{connection.address} answered ApiVersions with error {body.error_code}"
            )
        return cls(
            connection,
            {k.api_key: Versions(k.min_version, k.max_version) for k in body.api_keys},
            {it.name: it.max_version for it in getattr(body, "supported_features", ())},
            {it.name: it.max_version_level for it in getattr(body, "finalized_features", ())},
        )

    @staticmethod
    def _ask_versions(connection: Connection, version: int, deadline: Deadline) -> Any:
        request = request_pieces(
            ApiKey.API_VERSIONS,
            version,
            {"client_software_name": "horolog", "client_software_version": __version__},
        )
        connection.send(ApiKey.API_VERSIONS, version, request, deadline)
        frame, position = connection.receive(deadline)
        # A broker that does not know this version answers in version 0.
        is_refused = frame[position : position + 2] == _UNSUPPORTED
        return decode_response(ApiKey.API_VERSIONS, 0 if is_refused else version, frame, position)

    def authenticate(self, sasl: "Sasl", deadline: Deadline) -> None:
        """Authenticate with SASL (KIP-43, KIP-152), before any other request.

        Raises:
            AuthenticationFailed: broker and client do not accept each other.
            NoToken: there is no token for OAUTHBEARER.
            NoAnswer: the broker closed the connection, or the deadline has passed.
        """
        address = self.connection.address
        mechanism = sasl.mechanism
        body = self.ask(
            ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism}, deadline, lowest=1, highest=1
        )
        if body.error_code != ErrorCode.none:
            raise AuthenticationFailed(
                f"{address} does not take sasl.mechanism={mechanism}; it offers "
                f"{', '.join(map(str, body.mechanisms)) or 'none'}"
            )
        exchange = sasl.exchange(deadline)
        try:
            message = next(exchange)
            while True:
                request = {"auth_bytes": message}
                body = self.ask(ApiKey.SASL_AUTHENTICATE, request, deadline)
                if body.error_code != ErrorCode.none:
                    why = body.error_message or error_of(body.error_code).name.upper()
                    raise AuthenticationFailed(f"authentication failed: {why}")
                message = exchange.send(bytes(body.auth_bytes))
        except StopIteration:
            pass
        except AuthenticationFailed as error:
            raise AuthenticationFailed(f"{address}: {error} (sasl.mechanism={mechanism})") from None
        lifetime_ms = getattr(body, "session_lifetime_ms", 0)
        if lifetime_ms > 0:
            self.connection.expire_after(_OF_A_SESSION * lifetime_ms / 1000)

    def version(self, api_key: ApiKey, *, lowest: int = 0, highest: int = 0x7FFF) -> int:
        """Return the highest version that client and broker support.

        Raises:
            RequestRefused: there is none; with the broker's range and the one needed.
        """
        known = api_key.versions
        usual = LOWEST.get(api_key, 0)
        if highest >= usual:
            known = Versions(max(known.min, usual), known.max)
        ours = known.common(Versions(lowest, highest))
        theirs = self._versions.get(api_key)
        both = ours.common(theirs) if ours is not None and theirs is not None else None
        if both is not None:
            return both.max
        has = "does not answer it" if theirs is None else f"answers {theirs.min} to {theirs.max}"
        common = Versions(max(lowest, known.min), min(highest, known.max))
        raise RequestRefused(
            ErrorCode.unsupported_version,
            f"{api_key.title} in version {common.min} to {common.max} is needed; "
            f"the broker at {self.connection.address} {has}",
        )

    def ask(
        self,
        api_key: ApiKey,
        request: Mapping[str, Any],
        deadline: Deadline,
        *,
        lowest: int = 0,
        highest: int = 0x7FFF,
    ) -> Any:
        """Send a request in the highest common version, and return the body of the response.

        Raises:
            RequestRefused: as `version`, or a text is longer than the protocol has it.
            NoAnswer: the broker closed the connection, or the deadline has passed.
            MalformedResponse: the answer cannot be read.
            Unwritable: the request holds a value that the protocol cannot.
        """
        version = self.version(api_key, lowest=lowest, highest=highest)
        self.send(api_key, version, request, deadline)
        return self.receive(api_key, version, deadline)

    def send(
        self,
        api_key: ApiKey,
        version: int,
        request: Mapping[str, Any],
        deadline: Deadline,
        *,
        is_answered: bool = True,
        is_pipelined: bool = False,
    ) -> None:
        """Send a request. `receive` returns its response if it `is_answered`.

        A request that `is_pipelined` may be sent while earlier ones wait for their responses.

        Raises:
            RequestRefused: a text is longer than the protocol allows.
            NoAnswer: the broker closed the connection, the deadline has passed, or an earlier
                request waits for its response.
            Unwritable: the request contains a value that the protocol cannot encode.
        """
        try:
            body = request_pieces(api_key, version, request)
        except Unwritable:
            raise
        except ValueError as error:
            raise RequestRefused(ErrorCode.invalid_request, f"{api_key.title}: {error}") from None
        self.connection.send(
            api_key,
            version,
            body,
            deadline,
            is_answered=is_answered,
            is_pipelined=is_pipelined,
        )

    def receive(
        self,
        api_key: ApiKey,
        version: int,
        deadline: Deadline,
        memory: Callable[[int], memoryview] | None = None,
    ) -> Any:
        """Return the body of the response to the earliest unanswered request.

        It lies in `memory`, if that is given: see `Connection.receive`.

        Raises:
            NoAnswer: the broker closed the connection, or the deadline has passed.
            MalformedResponse: the answer cannot be read.
        """
        response = self.connection.receive(deadline, memory)
        try:
            return decode_response(api_key, version, *response)
        except MalformedResponse:
            self.connection.close()
            raise
