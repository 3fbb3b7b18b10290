"""What the broker has refused of a topic's records."""

from horolog.broker.broker import Broker
from horolog.network.peer import Peer
from horolog.wire.questions import AskNothing, Refused, RefusedRecords


async def list_refused(broker: Broker, peer: Peer, topic: str, ask: AskNothing) -> Refused:
    """The sums since the broker started, most first.

    Raises:
        RequestRefused: there is no such topic.
    """
    name = broker.topics.named(topic).name
    found = (
        RefusedRecords(reason, unit, count)
        for (of, reason, unit), count in broker.traffic.refused.items()
        if of == name
    )
    return Refused(tuple(sorted(found, key=lambda each: (-each.records, each))))
