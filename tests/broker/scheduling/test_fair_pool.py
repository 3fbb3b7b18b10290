"""Owners take turns; what a job had in hand goes with it."""

import gc
import weakref
from concurrent.futures import wait
from threading import Event
from time import perf_counter

import pytest
from patience import PATIENCE_S

from horolog.broker import FairPool
from horolog.config import Endpoint
from horolog.network import Peer


@pytest.fixture
def pool():
    pool = FairPool(1, "test")
    yield pool
    pool.shutdown()


def test_an_owner_of_many_jobs_holds_up_no_other_for_more_than_one(pool: FairPool) -> None:
    begun, go_on = Event(), Event()
    done = []

    def block() -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    jobs = [pool.submit("many", block)]
    assert begun.wait(PATIENCE_S)
    names = [("many", 1), ("many", 2), ("many", 3), ("few", 1), ("many", 4), ("few", 2), ("one", 1)]
    jobs += [pool.submit(name[0], lambda name=name: done.append(name)) for name in names]
    go_on.set()
    wait(jobs, PATIENCE_S)
    assert done[:3] == [("many", 1), ("few", 1), ("one", 1)]
    assert done[3:] == [("many", 2), ("few", 2), ("many", 3), ("many", 4)]


def test_what_a_job_raises_is_its_own(pool: FairPool) -> None:
    failed = pool.submit("a", lambda: 1 // 0)
    sound = pool.submit("a", lambda: 7)
    assert isinstance(failed.exception(PATIENCE_S), ZeroDivisionError)
    assert sound.result(PATIENCE_S) == 7


def test_a_job_that_has_not_begun_can_be_cancelled(pool: FairPool) -> None:
    begun, go_on, done = Event(), Event(), []

    def block() -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    first = pool.submit("a", block)
    assert begun.wait(PATIENCE_S)
    second, third = (pool.submit("a", lambda n=n: done.append(n)) for n in (2, 3))
    assert second.cancel()
    assert not first.cancel()
    go_on.set()
    third.result(PATIENCE_S)
    assert done == [3]


def test_nothing_of_a_job_that_failed_waits_for_the_collector(pool: FairPool) -> None:
    class Megabytes:
        pass

    def fail() -> None:
        held = Megabytes()
        seen.append(weakref.ref(held))
        raise ValueError

    seen: list[weakref.ref[Megabytes]] = []
    gc.disable()
    try:
        failed = pool.submit("a", fail)
        assert isinstance(failed.exception(PATIENCE_S), ValueError)
        pool.submit("a", lambda: None).result(PATIENCE_S)
        del failed
        assert seen[0]() is None
    finally:
        gc.enable()


def test_the_time_of_a_job_counts_for_its_client_once_that_is_asked_for(pool: FairPool) -> None:
    peer = Peer(Endpoint("PLAINTEXT", "127.0.0.1", 9092))

    def work() -> None:
        until = perf_counter() + 0.01
        while perf_counter() < until:
            pass

    pool.submit(peer, work).result(PATIENCE_S)
    assert peer.take_used_s() == 0
    peer.begin_step()
    pool.submit(peer, work).result(PATIENCE_S)
    failing = pool.submit(peer, lambda: work() or 1 // 0)  # type: ignore[func-returns-value]
    assert isinstance(failing.exception(PATIENCE_S), ZeroDivisionError)
    assert peer.take_used_s() >= 0.02
    assert peer.take_used_s() == 0
