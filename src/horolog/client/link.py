"""A connection with what the broker at its end can do: the highest version that both know."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from horolog import __version__
from horolog.client.connection import Connection
from horolog.client.deadline import Deadline
from horolog.errors import ErrorCode, RequestRefused
from horolog.wire.api import SUPPORTED, ApiKey, Versions
from horolog.wire.codec import decode_response, encode_request
from horolog.wire.malformed import MalformedResponse

__all__ = ["Link", "Reply"]

_UNSUPPORTED: Final = ErrorCode.unsupported_version.to_bytes(2, "big")


class Reply(NamedTuple):
    """A decoded answer and the version in which it came."""

    version: int
    body: Any


class Link:
    """One connected broker."""

    def __init__(
        self, connection: Connection, versions: Mapping[int, Versions], features: Mapping[str, int]
    ) -> None:
        self.connection = connection
        self.features = features  # by name, the highest level that the broker supports
        self._versions = versions

    @classmethod
    def negotiate(cls, connection: Connection, deadline: Deadline) -> Self:
        """Ask what the broker can do (KIP-35, KIP-511).

        Raises:
            NoAnswer: it hung up or was silent.
            MalformedResponse: it speaks no Kafka.
        """
        version = SUPPORTED[ApiKey.API_VERSIONS].max
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
            {each.name: each.max_version for each in getattr(body, "supported_features", ())},
        )

    @staticmethod
    def _ask_versions(connection: Connection, version: int, deadline: Deadline) -> Any:
        request = encode_request(
            ApiKey.API_VERSIONS,
            version,
            {"client_software_name": "horolog", "client_software_version": __version__},
        )
        frame, position = connection.ask(ApiKey.API_VERSIONS, version, request, deadline)
        # A broker that does not know this version says so in version 0.
        is_refused = frame[position : position + 2] == _UNSUPPORTED
        return decode_response(ApiKey.API_VERSIONS, 0 if is_refused else version, frame, position)

    def version(self, api_key: ApiKey, *, lowest: int = 0, highest: int = 0x7FFF) -> int:
        """The highest version that both know.

        Raises:
            RequestRefused: there is none; with the broker's range and the one wanted.
        """
        ours = SUPPORTED[api_key].common(Versions(lowest, highest))
        theirs = self._versions.get(api_key)
        both = ours.common(theirs) if ours is not None and theirs is not None else None
        if both is not None:
            return both.max
        has = "does not answer it" if theirs is None else f"answers {theirs.min} to {theirs.max}"
        wanted = Versions(max(lowest, SUPPORTED[api_key].min), min(highest, SUPPORTED[api_key].max))
        raise RequestRefused(
            ErrorCode.unsupported_version,
            f"{api_key.title} in version {wanted.min} to {wanted.max} is needed; "
            f"the broker at {self.connection.address} {has}",
        )

    def ask(
        self, api_key: ApiKey, version: int, request: Mapping[str, Any], deadline: Deadline
    ) -> Reply:
        """Send a request in one version and read its answer.

        Raises:
            NoAnswer: the broker hung up, or the time is over.
            MalformedResponse: the answer cannot be read.
            Unwritable: the request holds a value that the protocol cannot.
        """
        body = encode_request(api_key, version, request)
        frame, position = self.connection.ask(api_key, version, body, deadline)
        try:
            return Reply(version, decode_response(api_key, version, frame, position))
        except MalformedResponse:
            self.connection.close()
            raise

    def tell(
        self, api_key: ApiKey, version: int, request: Mapping[str, Any], deadline: Deadline
    ) -> None:
        """Send a request that has no answer.

        Raises:
            NoAnswer: the broker hung up, or the time is over.
        """
        self.connection.tell(api_key, version, encode_request(api_key, version, request), deadline)
