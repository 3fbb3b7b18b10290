"""What is not carried over from the Kafka that had the log directory."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final, TypeAlias

from horolog.broker.broker import Broker
from horolog.broker.control.rows import as_many_as_fit
from horolog.network.peer import Peer
from horolog.wire.questions import AskEntries, LeftBehind

_SETTING: Final = 2  # a name and a value, in the place of group, partition and offset
_Entry: TypeAlias = tuple[str, str] | tuple[str, int, int]
_MOST_CHARACTERS: Final = 1_000  # of the name of a group


async def list_left_behind(broker: Broker, peer: Peer, name: str, ask: AskEntries) -> LeftBehind:
    """Settings of a topic that are without effect here, and groups that have not committed here.

    Raises:
        RequestRefused: there is no such topic.
    """
    topic, left, committed = broker.topics.named(name), broker.left_behind, broker.groups.offsets
    start = max(0, ask.start)

    def page() -> tuple[tuple[_Entry, ...], int | None]:
        settings = left.ignored_of(topic.name, broker.settings).items()
        entries: Iterator[_Entry] = chain(settings, left.of_topic(topic))
        return as_many_as_fit(
            (number, (entry[0][:_MOST_CHARACTERS], *entry[1:]))
            for number, entry in islice(enumerate(entries), start, None)
            if len(entry) == _SETTING or committed.get(entry[0], topic.name, entry[1]) is None
        )

    shown, following = await broker.searchers.run(peer, page)
    return LeftBehind(topic.adopted, left.is_made_here(topic), shown, following)
