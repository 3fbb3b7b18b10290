"""Which clients producers are."""

from itertools import islice

from horolog.broker.broker import Broker
from horolog.broker.control.rows import as_many_as_fit
from horolog.network.peer import Peer
from horolog.wire.questions import AskProducerClients, NamedProducers


async def name_producers(
    broker: Broker, peer: Peer, name: str, ask: AskProducerClients
) -> NamedProducers:
    """The client ids of those producers that are known."""
    clients, following = as_many_as_fit(
        (number, client)
        for number, producer_id in islice(enumerate(ask.producers), max(0, ask.start), None)
        if (client := broker.producer_clients.find(producer_id)) is not None
    )
    return NamedProducers(clients, following)
