"""Finding the stretch of each of many offsets."""

from bisect import bisect_right

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horolog.record import stretch_of

NUMBERS = st.lists(st.integers(-5, 40), max_size=30)


@given(starts=NUMBERS, offsets=NUMBERS, is_sorted=st.booleans())
def test_each_offset_is_in_the_last_stretch_that_begins_at_or_before_it(starts, offsets, is_sorted):
    starts.sort()
    if is_sorted:  # those of a damaged log are not
        offsets.sort()
    found = stretch_of(np.array(starts, np.int64), np.array(offsets, np.int64))
    assert found.tolist() == [bisect_right(starts, offset) - 1 for offset in offsets]
