"""Error message for a batch that exceeds `max.message.bytes`."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from horolog.client.client import Client
from horolog.client.topics import ResourceType
from horolog.errors import ErrorCode, HorologError, RequestRefused

_LIMIT: Final = "max.message.bytes"


@contextmanager
def naming_size_limit(client: Client, topic: str) -> Iterator[None]:
    """Let the refusal of a batch that is too large say how large one may be."""
    try:
        yield
    except RequestRefused as refusal:
        if refusal.code is not ErrorCode.message_too_large:
            raise
        limit = None
        with suppress(HorologError):
            resource = (ResourceType.TOPIC, topic)
            limit = client.describe_configs([resource])[resource][_LIMIT].value
        if limit is None:
            raise
        raise RequestRefused(refusal.code, f"{refusal}, of {limit} bytes") from None
