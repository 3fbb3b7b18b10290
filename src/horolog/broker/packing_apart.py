"""Answers that take long to make, made and packed in a thread."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from horolog.network.reply import Reply
from horolog.wire.api import ApiKey
from horolog.wire.codec import encode_response

if TYPE_CHECKING:
    from horolog.broker.broker import Broker


async def packed_apart(
    broker: "Broker", key: ApiKey, version: int, make: Callable[[], Mapping[str, Any]]
) -> Reply:
    """The body of the answer that `make` returns; it runs in a thread and changes nothing."""
    return await asyncio.get_running_loop().run_in_executor(
        broker.readers, lambda: (encode_response(key, version, make()),)
    )
