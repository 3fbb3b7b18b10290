"""Records whose times a broker refuses, by each policy, without Spark around the task."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from running_broker import RunningBroker

from horolog.client import Client, scan
from horolog.clock import ManualClock
from horolog.spark.errors import RowsRefused
from horolog.spark.sink_rows import SinkColumns
from horolog.spark.write_options import WriteOptions
from horolog.spark.write_task import Appended, write_rows

PAST_MS = 1_600_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that takes no times ahead of its clock, which is years behind the writer's."""
    running = RunningBroker(
        tmp_path_factory.mktemp("log"),
        {"log.message.timestamp.after.max.ms": str(HOUR_MS)},
        ManualClock(PAST_MS),
    )
    yield running
    running.stop()


def write(broker: RunningBroker, times_ms: list[int | None], **options: str) -> Appended:
    options = {"kafka.bootstrap.servers": broker.address, "topic": "t", **options}
    asked = WriteOptions.parse(options)
    columns = SinkColumns.of([("value", "string"), ("timestampMs", "bigint")], "t")
    values = [str(row) for row in range(len(times_ms))]
    batch = pa.RecordBatch.from_pydict(
        {"value": values, "timestampMs": pa.array(times_ms, pa.int64())}
    )
    return write_rows(iter([batch]), columns, asked, "run")


def values(broker: RunningBroker, topic: str) -> list[bytes]:
    with Client(broker.address) as client:
        rows = scan(client, topic, columns=("value",)).read_all()
    found: list[bytes] = rows.column("value").to_pylist()
    return found


def test_a_failing_write_names_five_records_and_counts_the_others(broker: RunningBroker) -> None:
    times: list[int | None] = [PAST_MS + HOUR_MS * row for row in range(10)]
    with pytest.raises(RowsRefused) as refused:
        write(broker, times)
    said = str(refused.value)
    assert said.startswith(
        "t-0 refuses 8 of 10 records (INVALID_TIMESTAMP): row 2 with time 1600007200000 "
        "(2020-09-13T14:26:40Z): Timestamp 1600007200000 of message with offset 2 is out of range"
    )
    assert [f"row {row} with" in said for row in range(10)] == [2 <= row < 7 for row in range(10)]
    assert ", and 3 more" in said


def test_times_beyond_what_a_calendar_has_are_named_as_numbers(broker: RunningBroker) -> None:
    with pytest.raises(RowsRefused, match=r"row 1 with time 9223372036854775807: Timestamp"):
        write(broker, [PAST_MS, (1 << 63) - 1])


def test_a_writer_whose_own_clock_is_refused_gives_up(broker: RunningBroker) -> None:
    with pytest.raises(RowsRefused, match="the writer's clock itself is out of range"):
        write(broker, [PAST_MS, None], onInvalidTimestamp="null")
    assert values(broker, "t") == []


def test_a_dead_letter_topic_that_refuses_letters_ends_the_write(broker: RunningBroker) -> None:
    letters = {"onInvalidTimestamp": "deadLetter", "deadLetterTopic": "dead"}
    with pytest.raises(
        RowsRefused, match=r"^The dead-letter topic refuses records, too: dead-0 refuses 1 of 1"
    ):
        write(broker, [PAST_MS, PAST_MS + 2 * HOUR_MS], **letters)
    assert values(broker, "t") == []


def test_dead_letters_leave_the_others_where_they_were(broker: RunningBroker) -> None:
    unbounded = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    with Client(broker.address) as client:
        client.create_topics({"dead": 1}, configs=unbounded)
    times = [PAST_MS + (2 * HOUR_MS if row % 3 == 1 else 0) for row in range(3_000)]
    appended = write(
        broker,
        [*times],
        onInvalidTimestamp="deadLetter",
        deadLetterTopic="dead",
        **{"kafka.batch.size": "3000", "kafka.compression.type": "gzip"},
    )
    assert (appended.records, appended.dead_letters, appended.nulled) == (2_000, 1_000, 0)
    assert values(broker, "t") == [b"%d" % row for row in range(3_000) if row % 3 != 1]
    assert values(broker, "dead") == [b"%d" % row for row in range(3_000) if row % 3 == 1]
    everything = write(
        broker, [PAST_MS + 2 * HOUR_MS] * 5, onInvalidTimestamp="deadLetter", deadLetterTopic="dead"
    )
    assert (everything.records, everything.dead_letters) == (0, 5)
