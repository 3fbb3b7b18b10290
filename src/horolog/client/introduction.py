"""First requests on a connection: versions and features of the broker, then authentication.

Each dialogue is a generator without I/O. It yields requests, and is sent the bodies of their
responses, so that blocking connections and those of an event loop have the same one.
"""

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from horolog import __version__
from horolog.buffers import Buffer
from horolog.client.config import Address
from horolog.client.deadline import Deadline
from horolog.client.metadata import error_of
from horolog.client.security import AuthenticationFailed
from horolog.errors import ErrorCode, RequestRefused
from horolog.wire.api import ASKED_VERSIONS, ApiKey, Versions
from horolog.wire.codec import decode_response
from horolog.wire.malformed import MalformedResponse

if TYPE_CHECKING:
    from horolog.client.security.sasl import Sasl

__all__ = [
    "LOWEST",
    "Abilities",
    "Dialogue",
    "FirstRequest",
    "authentication",
    "decode_first",
    "most_response_bytes",
    "negotiation",
]

T = TypeVar("T")

_OF_A_SESSION: Final = 0.85  # as Kafka's clients: they authenticate again before it is over
# Before the broker is known to be the right one, its claim of a length alone takes no more memory
# than what `sasl.server.max.receive.size` grants a client of Apache Kafka.
_MOST_BYTES: Final = 512 << 10
_BEFORE_AUTHENTICATION: Final = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
)
_UNSUPPORTED: Final = ErrorCode.unsupported_version.to_bytes(2, "big")

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


class FirstRequest(NamedTuple):
    """Request of a dialogue."""

    api_key: ApiKey
    version: int
    fields: Mapping[str, Any]


Dialogue: TypeAlias = Generator[FirstRequest, Any, T]


class Abilities:
    """Versions and features that a broker announced on a connection."""

    def __init__(
        self,
        address: Address,
        versions: Mapping[int, Versions],
        features: Mapping[str, int],
        levels: Mapping[str, int],
    ) -> None:
        self.address = address
        self.versions = versions
        self.features = features  # by name, the highest level that the broker supports
        self.levels = levels  # by name, the finalised level

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
        theirs = self.versions.get(api_key)
        both = ours.common(theirs) if ours is not None and theirs is not None else None
        if both is not None:
            return both.max
        has = "does not answer it" if theirs is None else f"answers {theirs.min} to {theirs.max}"
        common = Versions(max(lowest, known.min), min(highest, known.max))
        raise RequestRefused(
            ErrorCode.unsupported_version,
            f"{api_key.title} in version {common.min} to {common.max} is needed; "
            f"the broker at {self.address} {has}",
        )


def negotiation(address: Address) -> Dialogue[Abilities]:
    """Ask for the broker's versions and features (KIP-35, KIP-511).

    Raises:
        MalformedResponse: it speaks no Kafka.
    """
    ours = {"client_software_name": "horolog", "client_software_version": __version__}
    version = ASKED_VERSIONS
    body = yield FirstRequest(ApiKey.API_VERSIONS, version, ours)
    if body.error_code == ErrorCode.unsupported_version:
        theirs = next((k for k in body.api_keys if k.api_key == ApiKey.API_VERSIONS), None)
        version = 0 if theirs is None else min(version, theirs.max_version)
        body = yield FirstRequest(ApiKey.API_VERSIONS, version, ours)
    if body.error_code != ErrorCode.none:
        raise MalformedResponse(f"{address} answered ApiVersions with error {body.error_code}")
    return Abilities(
        address,
        {k.api_key: Versions(k.min_version, k.max_version) for k in body.api_keys},
        {it.name: it.max_version for it in getattr(body, "supported_features", ())},
        {it.name: it.max_version_level for it in getattr(body, "finalized_features", ())},
    )


def authentication(
    abilities: Abilities, sasl: "Sasl", deadline: Deadline
) -> Dialogue[float | None]:
    """Authenticate with SASL (KIP-43, KIP-152), before any other request.

    A step may take long: it asks for a token, or derives keys from a password.

    Returns:
        Seconds for which the connection may be used, or None without a limit.

    Raises:
        AuthenticationFailed: broker and client do not accept each other.
        NoToken: there is no token for OAUTHBEARER.
        RequestRefused: the broker knows no SASL.
    """
    mechanism = sasl.mechanism
    version = abilities.version(ApiKey.SASL_HANDSHAKE, lowest=1, highest=1)
    body = yield FirstRequest(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})
    if body.error_code != ErrorCode.none:
        raise AuthenticationFailed(
            f"{abilities.address} does not take sasl.mechanism={mechanism}; it offers "
            f"{', '.join(map(str, body.mechanisms)) or 'none'}"
        )
    version = abilities.version(ApiKey.SASL_AUTHENTICATE)
    exchange = sasl.exchange(deadline)
    try:
        message = next(exchange)
        while True:
            fields = {"auth_bytes": message}
            body = yield FirstRequest(ApiKey.SASL_AUTHENTICATE, version, fields)
            if body.error_code != ErrorCode.none:
                why = body.error_message or error_of(body.error_code).name.upper()
                raise AuthenticationFailed(f"authentication failed: {why}")
            message = exchange.send(bytes(body.auth_bytes))
    except StopIteration:
        pass
    except AuthenticationFailed as error:
        raise AuthenticationFailed(
            f"{abilities.address}: {error} (sasl.mechanism={mechanism})"
        ) from None
    lifetime_ms: int = getattr(body, "session_lifetime_ms", 0)
    return _OF_A_SESSION * lifetime_ms / 1000 if lifetime_ms > 0 else None


def most_response_bytes(api_key: ApiKey, limit: int) -> int:
    """Return the largest response to a request; a limit applies after authentication."""
    return min(limit, _MOST_BYTES) if api_key in _BEFORE_AUTHENTICATION else limit


def decode_first(request: FirstRequest, frame: Buffer, position: int) -> Any:
    """Return the body of the response to a request of a dialogue.

    Raises:
        MalformedResponse: it cannot be read.
    """
    version = request.version
    if request.api_key is ApiKey.API_VERSIONS and frame[position : position + 2] == _UNSUPPORTED:
        version = 0  # a broker that does not know this version answers in version 0
    return decode_response(request.api_key, version, frame, position)
