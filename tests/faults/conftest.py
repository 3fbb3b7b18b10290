"""What tests of kills share."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from broker_nursery import Nursery


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with closing(Nursery()) as nursery:
        yield nursery
