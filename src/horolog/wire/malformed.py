"""The two errors that bytes from a socket can cause, by who sent them."""

from horolog.errors import Damaged, ErrorCode, RequestRefused

__all__ = ["MalformedRequest", "MalformedResponse"]


class MalformedRequest(RequestRefused):
    """A request that does not follow Kafka's protocol; says which field, where and why."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_request, message)


class MalformedResponse(Damaged):
    """An answer that does not follow Kafka's protocol; says which field, where and why."""
