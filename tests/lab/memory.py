"""How much memory Python takes, where it must not depend on what a peer or a file claims."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def measured_peak() -> Iterator[Callable[[], int]]:
    """Gives the most bytes that were held at a time; what C libraries take is not seen."""
    tracemalloc.start()
    peak = 0

    def so_far() -> int:
        return tracemalloc.get_traced_memory()[1] if tracemalloc.is_tracing() else peak

    try:
        yield so_far
    finally:
        peak = so_far()
        tracemalloc.stop()
