"""Questions about a broker: its health, the followed cluster, promotions, and producers."""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from itertools import islice
from typing import Final

from horolog.broker.authorisation import GROUP, TOPIC
from horolog.broker.broker import BrokerParts
from horolog.broker.control.rows import Perform, answers, as_many_as_fit, performs
from horolog.broker.health import wrong_with
from horolog.errors import ErrorCode, Misconfigured, RequestRefused
from horolog.json_text import from_json, read_as
from horolog.network.peer import Peer
from horolog.record.kernels.loading import WITHOUT_NUMBA, is_numba_installed
from horolog.wire.acl import AclOperation
from horolog.wire.questions import (
    ALL_TOPICS,
    DEMOTE,
    FOLLOWING,
    HEALTH,
    PRODUCER_CLIENTS,
    PROMOTE,
    PROMOTED,
    AskEntries,
    AskProducerClients,
    AskPromoted,
    Demotion,
    FollowedEntry,
    Following,
    Health,
    NamedProducers,
    Promoted,
)


@answers(HEALTH)
async def describe_health(broker: BrokerParts, peer: Peer, name: str, ask: AskEntries) -> Health:
    """List the problems of this broker, one page at a time."""
    sees = partial(broker.access.sees, peer, AclOperation.DESCRIBE, TOPIC)
    wrong = islice(enumerate(await wrong_with(broker, sees)), max(0, ask.start), None)
    cost = None if is_numba_installed() else WITHOUT_NUMBA
    return Health(len(broker.partitions), *as_many_as_fit(wrong), cost)


_LONGEST: Final = 1_000  # characters of a sentence or a setting in an answer
_MOST_SETTINGS: Final = 20  # of a topic
_MOST_ENTRIES: Final = 1_000  # are looked at for a page


@answers(FOLLOWING)
async def describe_following(
    broker: BrokerParts, peer: Peer, name: str, ask: AskEntries
) -> Following:
    """Describe the source, and the progress of each partition on this page."""
    sees = partial(broker.access.sees, peer, AclOperation.DESCRIBE, TOPIC)
    followed = broker.shadow.entries()
    entries = [entry async for entry in _page(followed, max(0, ask.start), sees)]
    shown, following = as_many_as_fit(iter(entries))
    if following is None and len(entries) == _MOST_ENTRIES:
        following = entries[-1][0] + 1
    return broker.shadow.source()._replace(entries=shown, next=following)


async def _page(
    entries: AsyncIterator[FollowedEntry], start: int, sees: Callable[[str], bool]
) -> AsyncIterator[tuple[int, FollowedEntry]]:
    number = -1
    async for entry in entries:
        if not sees(entry.topic):
            continue
        number += 1
        if number >= start + _MOST_ENTRIES:
            return
        if number >= start:
            yield number, _shortened(entry)


def _shortened(entry: FollowedEntry) -> FollowedEntry:
    """Shorten an entry to fit a page, whatever settings the source has."""
    settings = {
        name[:_LONGEST]: why[:_LONGEST]
        for name, why in islice(entry.settings.items(), _MOST_SETTINGS)
    }
    return entry._replace(settings=settings, text=entry.text[:_LONGEST])


@answers(PROMOTED)
async def describe_promoted(
    broker: BrokerParts, peer: Peer, name: str, ask: AskPromoted
) -> Promoted:
    """List the outcome of promotions since the start."""
    sees = partial(broker.access.sees, peer, AclOperation.DESCRIBE)
    visible = (
        entry
        for entry in broker.shadow.promoted(ask.topics)
        if sees(TOPIC, entry.topic) and (entry.group is None or sees(GROUP, entry.group))
    )
    entries = islice(enumerate(visible), max(0, ask.start), None)
    shortened = (
        (
            number,
            entry._replace(
                group=entry.group and entry.group[:_LONGEST], text=entry.text[:_LONGEST]
            ),
        )
        for number, entry in entries
    )
    return Promoted(*as_many_as_fit(shortened))


@performs(PROMOTE)
def prepare_promotion(broker: BrokerParts, name: str, values: Mapping[str, str]) -> Perform:
    """Check the topics to promote: a JSON array of names, or `all`.

    Raises:
        RequestRefused: the value is another one.
    """
    value = values[PROMOTE.name]
    if value.strip() == ALL_TOPICS:
        return partial(broker.shadow.promote, None)
    try:
        names = from_json(value)
        if not isinstance(names, list) or not all(isinstance(topic, str) for topic in names):
            raise ValueError("it is no array of strings")
    except ValueError as error:
        raise RequestRefused(
            ErrorCode.invalid_config, f"{PROMOTE.name}={value:.80}: {error}"
        ) from None
    return partial(broker.shadow.promote, names)


@performs(DEMOTE)
def prepare_demotion(broker: BrokerParts, name: str, values: Mapping[str, str]) -> Perform:
    """Check the cluster to follow: a JSON object with the fields of `Demotion`.

    Raises:
        RequestRefused: the value is another one.
    """
    value = values[DEMOTE.name]
    try:
        asked = read_as(Demotion, from_json(value))
    except ValueError as error:
        raise RequestRefused(
            ErrorCode.invalid_config, f"{DEMOTE.name}={value:.80}: {error}"
        ) from None

    async def demote() -> None:
        try:
            await broker.shadow.demote(asked)
        except Misconfigured as error:
            raise RequestRefused(ErrorCode.invalid_config, str(error)) from None

    return demote


@answers(PRODUCER_CLIENTS)
async def name_producers(
    broker: BrokerParts, peer: Peer, name: str, ask: AskProducerClients
) -> NamedProducers:
    """Return the known client ids of producers."""
    clients, following = as_many_as_fit(
        (number, client)
        for number, producer_id in islice(enumerate(ask.producers), max(0, ask.start), None)
        if (client := broker.producer_clients.find(producer_id)) is not None
    )
    return NamedProducers(clients, following)
