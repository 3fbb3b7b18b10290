"""Answers DescribeConfigs of a topic with what is not carried over from a Kafka (docs/wire.md).

    horolog.left.behind/FROM

asked for by name is described with a JSON object: settings that are without effect here, and groups
that have committed offsets with Kafka and not here. FROM is 0, or where an earlier answer ended.
"""

from itertools import chain, islice
from typing import Any, Final

from horolog.broker.answers import as_many_as_fit
from horolog.broker.broker import Broker
from horolog.errors import ErrorCode, RequestRefused
from horolog.network.peer import Peer
from horolog.wire.features import LEFT_BEHIND

_SETTING: Final = 2  # a name and a value, in the place of group, partition and offset
_MOST_CHARACTERS: Final = 1_000  # of the name of a group


async def list_left_behind(broker: Broker, peer: Peer, name: str, question: str) -> dict[str, Any]:
    """What is not carried over of a topic, from the entry on that the question names.

    Raises:
        RequestRefused: the question is not of that form, or there is no such topic.
    """
    text = question.removeprefix(f"{LEFT_BEHIND}/")
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise RequestRefused(
            ErrorCode.invalid_request, f"{question:.200} is not {LEFT_BEHIND}/FROM"
        )
    topic, left, committed = broker.topics.named(name), broker.left_behind, broker.groups.offsets

    def page() -> tuple[list[Any], int | None]:
        settings = left.ignored_of(topic.name, broker.settings).items()
        entries: chain[tuple[Any, ...]] = chain(settings, left.of_topic(topic))
        return as_many_as_fit(
            (number, [entry[0][:_MOST_CHARACTERS], *entry[1:]])
            for number, entry in islice(enumerate(entries), int(text), None)
            if len(entry) == _SETTING or committed.get(entry[0], topic.name, entry[1]) is None
        )

    shown, following = await broker.searchers.run(peer, page)
    return {
        "is_adopted": topic.adopted,
        "is_made_here": left.is_made_here(topic),
        "entries": shown,
        "next": following,
    }
