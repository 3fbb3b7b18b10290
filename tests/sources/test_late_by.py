"""By how much times are before the largest one that came before them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horolog.sources import NO_TIME, late_by

FARTHEST = (1 << 63) - 1
ANY = st.integers(-FARTHEST - 1, FARTHEST)
NEAR = st.integers(1_700_000_000_000, 1_700_000_000_100)
ROWS = st.lists(st.tuples(NEAR, st.just(True))) | st.lists(st.tuples(ANY | NEAR, st.booleans()))


@given(rows=ROWS, largest=st.just(NO_TIME) | ANY | NEAR)
def test_a_time_is_late_by_the_largest_that_counts_before_it(
    rows: list[tuple[int, bool]], largest: int
) -> None:
    times = np.array([time for time, _ in rows], np.int64)
    counts = np.array([counted for _, counted in rows], np.bool_)
    expected, before = [], largest
    for time, counted in rows:
        expected.append(min(max(before - time, 0), FARTHEST))
        before = max(before, time) if counted else before
    by, after = late_by(times, counts, largest)
    assert by.tolist() == expected
    assert after == before
