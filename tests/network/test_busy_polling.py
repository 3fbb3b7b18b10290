"""When the event loop asks for the next request instead of sleeping."""

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from overrides import override

from horolog.network import BEGIN_AFTER, REST, BusyPolling, worth_polling_s

POLL_S = 100e-6
SOON_S, LATE_S = 40e-6, 1e-3
ITERATION_S = 3e-6


class Loop:
    """An event loop, its clock, and how long it has polled."""

    def __init__(self) -> None:
        self.now = 1.0
        self.polled_s = 0.0
        self.ready: deque[Callable[[], None]] = deque()
        self.polling = BusyPolling(
            cast(asyncio.AbstractEventLoop, self), POLL_S, now=lambda: self.now
        )

    def call_soon(self, callback: Callable[..., Any]) -> None:
        self.ready.append(callback)

    def serve(self, after_s: float, taken_by_others_s: float = 0.0) -> None:
        """A request arrives so long after the response before it, and is answered."""
        due = self.now + after_s
        while self.ready and self.now < due:
            step = ITERATION_S + taken_by_others_s
            self.now += step
            self.polled_s += step
            self.ready.popleft()()
        self.now = max(self.now, due)
        self.polling.received()
        self.polling.answered()

    @property
    def is_asleep(self) -> bool:
        return not self.ready


@pytest.fixture
def loop() -> Loop:
    loop = Loop()
    loop.polling.answered()
    return loop


def test_the_loop_polls_once_several_requests_have_followed_soon(loop: Loop) -> None:
    for _ in range(BEGIN_AFTER):
        assert loop.is_asleep
        loop.serve(SOON_S)
    assert not loop.is_asleep
    loop.serve(SOON_S)
    assert loop.polled_s >= SOON_S


def test_a_request_that_woke_the_loop_may_be_twice_as_late(loop: Loop) -> None:
    for _ in range(BEGIN_AFTER):
        loop.serve(1.9 * POLL_S)
    assert not loop.is_asleep


def test_polling_ends_with_the_first_request_that_does_not_come_soon(loop: Loop) -> None:
    for _ in range(2 * BEGIN_AFTER):
        loop.serve(SOON_S)
    before = loop.polled_s
    loop.serve(LATE_S)
    assert loop.polled_s - before <= POLL_S + 2 * ITERATION_S
    for _ in range(BEGIN_AFTER - 1):
        loop.serve(SOON_S)
        assert loop.is_asleep


def test_requests_that_are_never_soon_never_poll(loop: Loop) -> None:
    for _ in range(100):
        loop.serve(LATE_S)
    assert loop.polled_s == 0


def test_requests_of_several_clients_at_once_do_not_poll(loop: Loop) -> None:
    for _ in range(10 * BEGIN_AFTER):
        loop.serve(SOON_S)  # after all had their responses
        for _ in range(3):
            loop.serve(ITERATION_S)  # had arrived before
        assert loop.is_asleep


def test_one_that_is_late_now_and_then_costs_little(loop: Loop) -> None:
    for at in range(1_000):
        loop.serve(LATE_S if at % (BEGIN_AFTER + 1) == 0 else SOON_S)
    assert loop.polled_s < 0.1 * loop.now


def test_polling_rests_where_others_need_the_processor(loop: Loop) -> None:
    for _ in range(BEGIN_AFTER):
        loop.serve(SOON_S)
    loop.serve(LATE_S, taken_by_others_s=2 * POLL_S)
    for _ in range(REST):
        assert loop.is_asleep
        loop.serve(SOON_S)
    for _ in range(BEGIN_AFTER):
        loop.serve(SOON_S)
    assert not loop.is_asleep


def test_a_request_in_flight_does_not_poll(loop: Loop) -> None:
    for _ in range(BEGIN_AFTER):
        loop.serve(SOON_S)
    loop.now += SOON_S
    loop.polling.received()  # and is not answered yet
    loop.ready.popleft()()
    assert loop.is_asleep
    loop.polling.answered()  # it was only busy: nothing has to be learned anew
    assert not loop.is_asleep


def test_zero_never_polls(loop: Loop) -> None:
    polling = BusyPolling(cast(asyncio.AbstractEventLoop, loop), 0.0)
    for _ in range(2 * BEGIN_AFTER):
        polling.received()
        polling.answered()
    assert loop.is_asleep
    assert not polling.is_polling


@pytest.mark.parametrize(
    ("processors", "quota", "expected"),
    [
        (1, None, 0.0),
        (2, None, POLL_S),
        (8, "max 100000", POLL_S),
        (8, "200000 100000", POLL_S),
        (8, "150000 100000\n", 0.0),
        (8, "50000 100000", 0.0),
        (1, "max 100000", 0.0),
        (8, "", POLL_S),
        (8, "nonsense", POLL_S),
        (8, "1 0", POLL_S),
    ],
)
def test_less_than_two_processors_are_left_to_others(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    processors: int,
    quota: str | None,
    expected: float,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(processors)), raising=False)
    override(monkeypatch, "horolog.network", QUOTA=tmp_path / "cpu.max")
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)
    assert worth_polling_s(100) == expected
