"""Lookups are tried on the event loop, and less often where that was in vain."""

from __future__ import annotations

from horolog.broker import InlineTries


def tried(tries: InlineTries, count: int, *, is_cached: bool) -> list[int]:
    """Which of this many lookups were tried."""
    found = []
    for number in range(count):
        if tries.is_due("t"):
            found.append(number)
            (tries.succeeded if is_cached else tries.failed)("t")
    return found


def test_every_lookup_is_tried_where_the_page_cache_has_all() -> None:
    assert tried(InlineTries(), 5, is_cached=True) == [0, 1, 2, 3, 4]


def test_tries_that_fail_become_rare_and_never_end() -> None:
    assert tried(InlineTries(), 150, is_cached=False) == [0, 2, 5, 10, 19, 36, 69, 102, 135]


def test_one_success_makes_every_lookup_a_try_again() -> None:
    tries = InlineTries()
    tried(tries, 40, is_cached=False)
    later = tried(tries, 40, is_cached=True)
    assert later == list(range(later[0], 40))


def test_topics_are_apart_and_forgotten_when_they_are_deleted() -> None:
    tries = InlineTries()
    tries.failed("t")
    assert not tries.is_due("t")
    tries.failed("t")
    assert tries.is_due("other")
    tries.forget("t")
    assert tries.is_due("t")
