"""Streams that write exactly once to horolog's broker while a task or the driver is killed."""

import pytest
from killed_streams import KilledStreams, prepare
from running_broker import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def bootstrap(broker_process: BrokerProcess) -> str:
    prepare(broker_process.client)
    return broker_process.address


class TestStreams(KilledStreams):
    """To horolog."""
