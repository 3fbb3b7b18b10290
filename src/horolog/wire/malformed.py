"""The errors for bytes that do not follow the protocol, from a client or from a broker."""

from horolog.errors import Damaged, ErrorCode, RequestRefused

__all__ = ["MalformedRequest", "MalformedResponse"]


class MalformedRequest(RequestRefused):
    """A request that does not follow Kafka's protocol; names field, byte and reason."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_request, message)


class MalformedResponse(Damaged):
    """A response that does not follow Kafka's protocol; names field, byte and reason."""
