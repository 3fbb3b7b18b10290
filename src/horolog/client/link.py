"""Connection together with the versions and features that its broker supports."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from horolog.client.connection import Connection
from horolog.client.deadline import Deadline
from horolog.client.introduction import (
    Abilities,
    Dialogue,
    authentication,
    decode_first,
    negotiation,
)
from horolog.errors import ErrorCode, RequestRefused
from horolog.wire.api import ApiKey
from horolog.wire.codec import Unwritable, decode_response, request_pieces
from horolog.wire.malformed import MalformedResponse

if TYPE_CHECKING:
    from horolog.client.security.sasl import Sasl

T = TypeVar("T")


class Link(Abilities):
    """Connected broker, and the versions that it supports."""

    def __init__(self, connection: Connection, abilities: Abilities) -> None:
        super().__init__(
            abilities.address, abilities.versions, abilities.features, abilities.levels
        )
        self.connection = connection

    @classmethod
    def negotiate(cls, connection: Connection, deadline: Deadline) -> Self:
        """Ask for the broker's versions and features (KIP-35, KIP-511).

        Raises:
            NoAnswer: it closed the connection or did not respond.
            MalformedResponse: it speaks no Kafka.
        """
        return cls(connection, _carry_on(negotiation(connection.address), connection, deadline))

    def authenticate(self, sasl: "Sasl", deadline: Deadline) -> None:
        """Authenticate with SASL (KIP-43, KIP-152), before any other request.

        Raises:
            AuthenticationFailed: broker and client do not accept each other.
            NoToken: there is no token for OAUTHBEARER.
            NoAnswer: the broker closed the connection, or the deadline has passed.
        """
        lifetime_s = _carry_on(authentication(self, sasl, deadline), self.connection, deadline)
        if lifetime_s is not None:
            self.connection.expire_after(lifetime_s)

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


def _carry_on(dialogue: Dialogue[T], connection: Connection, deadline: Deadline) -> T:
    """Send the requests of a dialogue; return its result."""
    try:
        request = next(dialogue)
        while True:
            fields = request_pieces(request.api_key, request.version, request.fields)
            connection.send(request.api_key, request.version, fields, deadline)
            request = dialogue.send(decode_first(request, *connection.receive(deadline)))
    except StopIteration as end:
        result: T = end.value
        return result
