import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import Misconfigured
from horolog.sources import Bounds, DataLost, ReadOptions, resolve, stream_starts
from horolog.storage import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class TwoPartitions:
    """Offsets 100 to 199 in one, 50 to 59 in the other; each record's time is its offset."""

    logs = {A: (100, 200), B: (50, 60)}  # noqa: RUF012 - it is never changed

    def partitions(self):
        return self.logs.keys()

    def earliest(self, partitions):
        return {each: self.logs[each][0] for each in partitions}

    def latest(self, partitions):
        return {each: self.logs[each][1] for each in partitions}

    def cut_ends(self, _):
        return {}

    def at_or_after(self, times_ms):
        found = {each: max(self.logs[each][0], at) for each, at in times_ms.items()}
        return {each: at if at < self.logs[each][1] else None for each, at in found.items()}


def resolved(**options: str) -> dict[TopicPartition, Bounds]:
    return resolve(ReadOptions.parse({"path": "/logs", **options}), TwoPartitions())


def bounds_of(**options: str) -> dict[TopicPartition, tuple[int, int]]:
    return {each: (found.start, found.end) for each, found in resolved(**options).items()}


def test_a_read_goes_from_the_earliest_to_the_latest_offset() -> None:
    assert bounds_of() == {A: (100, 200), B: (50, 60)}


def test_ends_that_no_option_fixes_are_open() -> None:
    def opened(**options: str) -> list[tuple[bool, bool]]:
        return [each[2:] for each in resolved(**options).values()]

    assert opened() == [(True, True)] * 2
    assert opened(startingTimestamp="55", endingTimestamp="58") == [(False, False)] * 2
    assert opened(endingTimestamp="120") == [(True, False), (True, True)]
    assert opened(
        startingOffsets='{"orders":{"0":150,"1":-2}}', endingOffsets='{"orders":{"0":160,"1":-1}}'
    ) == [(False, False), (True, True)]


def test_offsets_may_be_given_for_each_partition() -> None:
    assert bounds_of(
        startingOffsets='{"orders":{"0":150,"1":-2}}', endingOffsets='{"orders":{"0":160,"1":-1}}'
    ) == {A: (150, 160), B: (50, 60)}


def test_times_become_the_offsets_of_the_first_records_that_late() -> None:
    assert bounds_of(startingTimestamp="55", endingTimestamp="120") == {A: (100, 120), B: (55, 60)}
    assert bounds_of(
        startingOffsetsByTimestamp='{"orders":{"0":130,"1":52}}',
        endingOffsetsByTimestamp='{"orders":{"0":140,"1":53}}',
    ) == {A: (130, 140), B: (52, 53)}


def test_numbers_that_kafka_gives_a_meaning_are_ends_of_the_log_and_not_times() -> None:
    def by(option: str, first: int, second: int) -> dict[str, str]:
        return {option: json.dumps({"orders": {"0": first, "1": second}})}

    assert bounds_of(**by("startingOffsetsByTimestamp", -1, 55)) == {A: (200, 200), B: (55, 60)}
    assert bounds_of(**by("startingOffsetsByTimestamp", 150, -2)) == {A: (150, 200), B: (50, 60)}
    assert bounds_of(**by("endingOffsetsByTimestamp", -1, 55)) == {A: (100, 200), B: (50, 55)}
    assert bounds_of(**by("endingOffsetsByTimestamp", 150, -2)) == {A: (100, 150), B: (50, 50)}
    everything, nothing = {A: (100, 200), B: (50, 60)}, {A: (200, 200), B: (60, 60)}
    assert bounds_of(startingTimestamp=" -1 ") == nothing
    assert bounds_of(startingTimestamp="-2", endingTimestamp="-1") == everything
    assert bounds_of(endingTimestamp="-2") == {A: (100, 100), B: (50, 50)}
    ends = resolved(**by("endingOffsetsByTimestamp", -1, 55))
    assert [each.has_open_end for each in ends.values()] == [True, False]
    before_1970 = "1969-12-31T23:59:59.999Z"
    assert bounds_of(startingTimestamp=before_1970) == everything
    assert stream_starts(
        ReadOptions.parse({"path": "/logs", "startingTimestamp": "-1"}), TwoPartitions(), [A, B]
    ).starts == {A: 200, B: 60}
    assert stream_starts(
        ReadOptions.parse({"path": "/logs", **by("startingOffsetsByTimestamp", -1, 55)}),
        TwoPartitions(),
        [A, B],
    ).starts == {A: 200, B: 55}


@pytest.mark.parametrize("number", [-3, -6])
@pytest.mark.parametrize("end", ["starting", "ending"])
def test_other_numbers_that_kafka_gives_a_meaning_are_refused(end: str, number: int) -> None:
    with pytest.raises(Misconfigured, match=r"-1 for latest or -2 for earliest"):
        bounds_of(**{f"{end}Timestamp": str(number)})
    with pytest.raises(Misconfigured, match=r"orders-1 is at .* -1 for latest or -2 for earliest"):
        bounds_of(**{f"{end}OffsetsByTimestamp": f'{{"orders":{{"0":5,"1":{number}}}}}'})


def test_a_start_that_no_record_matches_is_an_error_unless_latest_is_asked_for() -> None:
    with pytest.raises(Misconfigured, match=r"No offset of orders-1 .* at or after 120"):
        bounds_of(startingTimestamp="120")
    assert bounds_of(startingTimestamp="120", startingOffsetsByTimestampStrategy="latest") == {
        A: (120, 200),
        B: (60, 60),
    }


def test_an_end_that_no_record_matches_is_the_latest_offset() -> None:
    assert bounds_of(endingTimestamp="999") == {A: (100, 200), B: (50, 60)}


@pytest.mark.parametrize("offsets", ['{"orders":{"0":150}}', '{"orders":{"0":1,"1":2,"2":3}}'])
def test_every_partition_must_be_named_and_no_other(offsets) -> None:
    with pytest.raises(Misconfigured, match="must name every partition"):
        bounds_of(startingOffsets=offsets)
    with pytest.raises(Misconfigured, match="must name every partition"):
        bounds_of(endingOffsetsByTimestamp=offsets)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"startingOffsets": '{"orders":{"0":7,"1":-2}}'}, (100, 200)),
        ({"endingOffsets": '{"orders":{"0":700,"1":-1}}'}, (100, 200)),
        (
            {
                "startingOffsets": '{"orders":{"0":7,"1":-2}}',
                "endingOffsets": '{"orders":{"0":9,"1":-1}}',
            },
            (100, 100),
        ),
        (
            {
                "startingOffsets": '{"orders":{"0":700,"1":-2}}',
                "endingOffsets": '{"orders":{"0":900,"1":-1}}',
            },
            (200, 200),
        ),
    ],
)
def test_offsets_that_the_log_has_not_are_lost_data(options, left) -> None:
    with pytest.raises(DataLost, match=r"orders-0 was to be read .*failOnDataLoss"):
        bounds_of(**options)
    assert bounds_of(**options, failOnDataLoss="false")[A] == left


def test_a_start_after_the_end_is_refused() -> None:
    with pytest.raises(Misconfigured, match="orders-0 starts at offset 150, after its end at 120"):
        bounds_of(startingOffsets='{"orders":{"0":150,"1":-2}}', endingTimestamp="120")


class Growing:
    """A partition of which, after each question, records are appended and deleted."""

    def __init__(self, times_ms: list[int], changes: Iterator[tuple[list[int], int]]) -> None:
        self.times_ms, self.start = times_ms, 0
        self.changes = changes

    def partitions(self):
        return [A]

    def answer(self, found):
        appended, expired = next(self.changes)
        self.times_ms += appended
        self.start = min(self.start + expired, len(self.times_ms))
        return {A: found}

    def earliest(self, _):
        return self.answer(self.start)

    def latest(self, _):
        return self.answer(len(self.times_ms))

    def cut_ends(self, _):
        return {}

    def at_or_after(self, times_ms):
        late = (at for at in range(self.start, len(self.times_ms)) if self[at] >= times_ms[A])
        return self.answer(next(late, None))

    def __getitem__(self, offset):
        return self.times_ms[offset]


TIMES = st.lists(st.integers(0, 9), max_size=3)


@given(
    held=TIMES,
    changes=st.lists(st.tuples(TIMES, st.integers(0, 3)), min_size=5, max_size=5),
    bounds=st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted),
    has_end=st.booleans(),
)
def test_a_log_that_changes_meanwhile_neither_fails_a_read_by_time_nor_shifts_it(
    held, changes, bounds, has_end
) -> None:
    first, last = bounds
    options = {
        "path": "/logs",
        "startingTimestamp": str(first),
        "startingOffsetsByTimestampStrategy": "latest",
        **({"endingTimestamp": str(last)} if has_end else {}),
    }
    log = Growing([*held], iter(changes))
    found = resolve(ReadOptions.parse(options), log)[A]
    assert found.start <= found.end <= len(log.times_ms)
    if found.start < found.end:
        assert all(log[offset] < first for offset in range(log.start, found.start))
    if has_end and not found.has_open_end:
        assert all(log[offset] < last for offset in range(log.start, found.end))


@given(
    held=TIMES,
    changes=st.lists(st.tuples(TIMES, st.integers(0, 3)), min_size=5, max_size=5),
    first=st.integers(0, 9),
)
def test_a_log_that_changes_meanwhile_costs_a_stream_no_record_of_its_time(
    held, changes, first
) -> None:
    options = {
        "path": "/logs",
        "startingTimestamp": str(first),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    log = Growing([*held], iter(changes))
    start = stream_starts(ReadOptions.parse(options), log, [A]).starts[A]
    assert all(log[offset] < first for offset in range(log.start, start))
