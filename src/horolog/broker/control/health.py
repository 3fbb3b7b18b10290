"""What is wrong with a broker."""

from itertools import islice

from horolog.broker.broker import Broker
from horolog.broker.control.rows import as_many_as_fit
from horolog.broker.health import wrong_with
from horolog.network.peer import Peer
from horolog.wire.questions import AskEntries, Health


async def describe_health(broker: Broker, peer: Peer, name: str, ask: AskEntries) -> Health:
    """What is wrong, as of this page."""
    wrong = islice(enumerate(await wrong_with(broker)), max(0, ask.start), None)
    return Health(len(broker.partitions), *as_many_as_fit(wrong))
