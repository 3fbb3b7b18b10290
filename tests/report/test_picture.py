"""The picture of a log by both clocks, in bounded memory."""

import random
from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from horolog.record import LATENCY_BOUNDS
from horolog.report.picture import MOST_CELLS, MOST_ODD, Picture

NOW_MS = 1_700_000_000_000
TIMES = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1) | st.just(-1)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.lists(TIMES, min_size=1, max_size=5))))
def test_every_record_is_counted_once(batches: list[tuple[int, list[int]]]) -> None:
    picture, offset, timed = Picture(), 0, []
    for after_ms, times in batches:
        append_ms = NOW_MS + after_ms
        picture.add(0, append_ms, range(offset, offset + len(times)), times)
        offset += len(times)
        timed += [(append_ms, each) for each in times if each != -1]
    found = picture.as_json()
    drawn = sum(each[2] for each in found["cells"])
    strips = sum(each[1] for each in (*found["above"], *found["below"]))
    assert drawn + strips == len(timed) == found["records"] - found["untimed"]
    assert found["future"] == sum(created > appended for appended, created in timed)
    classes = [0] * (len(LATENCY_BOUNDS) + 1)
    for appended, created in timed:
        classes[bisect_right(LATENCY_BOUNDS, appended - created)] += 1
    assert picture.latencies == classes


def test_cells_do_not_grow_with_the_log_and_outliers_do_not_flatten_it() -> None:
    rng, picture, day_ms = random.Random(1), Picture(), 86_400_000
    for number in range(3000):
        append_ms = NOW_MS + number * day_ms // 100
        times = [append_ms - rng.randrange(day_ms) for _ in range(40)]
        if number % 500 == 0:
            times[0] = rng.choice((append_ms + 3650 * day_ms, 5))
        picture.add(number % 3, append_ms, range(40), times)
    found = picture.as_json()
    assert len(found["cells"]) <= MOST_CELLS
    rows = found["rows"][1] - found["rows"][0]
    assert rows * found["cell_ms"] < 40 * day_ms, "ten years are not within view"
    assert sum(each[1] for each in (*found["above"], *found["below"])) >= 6
    assert len(found["early"]) == 3 or len(found["early"]) <= MOST_ODD
    assert found["late"][0]["create_ms"] == 5


def test_batches_whose_append_time_is_not_known_are_counted_apart() -> None:
    picture = Picture()
    picture.add(0, None, range(3), [1, 2, 3])
    found = picture.as_json()
    assert (found["records"], found["unplaced"], found["cells"]) == (3, 3, [])
