"""A topic that is deleted and made again while a request looks up its partitions."""

from typing import Any

import pytest
from running_broker import RunningBroker

from horolog.broker import NewTopic
from horolog.broker.dispatch import Request


def make_again_meanwhile(
    broker: RunningBroker, patch: pytest.MonkeyPatch, name: str, partitions: int
) -> Any:
    """Make a topic again at the first place where a request gives way; the topic as it was."""
    topic = broker.call(lambda: broker.broker.topics.named(name))
    checkpoint, controller = Request.checkpoint, broker.broker.controller

    async def make_again(request: Request[Any]) -> None:
        patch.setattr(Request, "checkpoint", checkpoint)
        await controller.delete_topic(topic)
        await controller.create_topic(NewTopic(name=name, partitions=partitions))
        await checkpoint(request)

    patch.setattr(Request, "checkpoint", make_again)
    return topic
