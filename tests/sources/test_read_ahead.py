import threading
from collections.abc import Iterator

import pytest
from patience import PATIENCE_S

from horolog.sources.ahead import ahead


def test_items_come_in_order_and_the_next_one_before_it_is_asked_for() -> None:
    second_made = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        second_made.set()
        yield 2

    with ahead(items()) as coming:
        assert next(coming) == 1
        assert second_made.wait(PATIENCE_S)
        assert list(coming) == [2]


def test_what_the_iterator_raises_is_raised_after_what_came_before() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("gone")

    with ahead(items()) as coming:
        assert next(coming) == 1
        with pytest.raises(KeyError, match="gone"):
            next(coming)


def test_a_read_that_stops_early_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with ahead(iter(range(1000))) as coming:
        assert next(coming) == 0
    assert threading.active_count() == before
