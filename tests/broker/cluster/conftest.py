"""Brokers that relay to controllers of the test."""

from collections.abc import Iterator

import pytest
from relayed import Relaying
from running_broker import RunningBroker


@pytest.fixture
def relaying(broker: RunningBroker) -> Iterator[Relaying]:
    broker.create_topic("t")
    found = Relaying(broker)
    yield found
    broker.call(found.dispatcher.close)
    broker.broker.relay = None
