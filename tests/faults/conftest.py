"""What tests of kills share."""

import pytest
import running_broker
from broker_nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Nursery:
    return running_broker.nursery()
