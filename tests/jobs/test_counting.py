"""What tasks count reaches the driver while they run, and nothing else does."""

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from patience import eventually

from horolog.jobs.counting import count, counted, counts_of, listening


def spark(host: str | None = "127.0.0.1") -> Any:
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: host))


@pytest.fixture
def seen() -> Iterator[list[int]]:
    found: list[int] = []
    with listening(found.append):
        yield found


def test_counts_of_all_tasks_are_added_up_once(seen: list[int]) -> None:
    first, second = counts_of(spark()), counts_of(spark())
    for counts, place in ((first, 0), (first, 1), (second, 0), (first, 0)):  # the last again
        with counted(counts, place):
            count(3)
            count(4)
    assert eventually(lambda: bool(seen) and seen[-1] == 21)
    assert seen == sorted(seen)


def test_datagrams_of_others_count_nothing(seen: list[int]) -> None:
    counts = counts_of(spark())
    assert counts is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        for message in (b"", b"x" * 40, bytes(16) + b"\xff" * 24, b"y" * 1_000):
            other.sendto(message, counts.address)
    with counted(counts, 0):
        count(1)
    assert eventually(lambda: seen == [1])


def test_nothing_is_counted_where_nothing_listens_or_the_driver_has_no_address() -> None:
    assert counts_of(spark()) is None
    with listening(lambda done: None):
        assert counts_of(spark(None)) is None
        assert counts_of(spark("192.0.2.1")) is None  # no address of this machine
    with counted(None, 0):
        count(1)
    count(1)
