import pytest

from horolog.errors import Misconfigured
from horolog.spark.bounds import Bounds, DataLost, resolve
from horolog.spark.options import ReadOptions
from horolog.storage.names import TopicPartition

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
