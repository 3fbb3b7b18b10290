"""Records whose times a broker refuses, by each policy, without Spark around the task."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from examples import some_of
from overrides import override
from running_broker import RunningBroker, a_broker
from scripted_broker import ScriptedBroker

from horolog.errors import ErrorCode
from horolog.sources import scan
from horolog.spark.errors import RowsRefused
from horolog.spark.write.options import WriteOptions
from horolog.spark.write.rows import SinkColumns
from horolog.spark.write.task import TaskCommitMessage, abort_batch, commit_batch, write_rows
from horolog.wire import ApiKey, Versions

PAST_MS = 1_600_000_000_000
HOUR_MS = 3_600_000


broker = a_broker(now_ms=PAST_MS, log_message_timestamp_after_max_ms=str(HOUR_MS))


def write(broker: RunningBroker, times_ms: list[int | None], **options: str) -> TaskCommitMessage:
    options = {"kafka.bootstrap.servers": broker.address, "topic": "t", **options}
    asked = WriteOptions.parse(options)
    columns = SinkColumns.of([("value", "string"), ("timestampMs", "bigint")], "t")
    values = [str(row) for row in range(len(times_ms))]
    batch = pa.RecordBatch.from_pydict(
        {"value": values, "timestampMs": pa.array(times_ms, pa.int64())}
    )
    return write_rows(iter([batch]), columns, asked)


def values(broker: RunningBroker, topic: str) -> list[bytes]:
    rows = scan(broker.client, topic, columns=("value",)).read_all()
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
    broker.client.create_topics({"dead": 1}, configs=unbounded)
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


class KilledError(Exception):
    """A task that is killed amid its rows."""


class OnceWrites:
    """Attempts at one task with dead letters, whose rows are written exactly once."""

    def __init__(self, broker: RunningBroker, refused: list[bool]) -> None:
        unbounded = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
        broker.client.create_topics({"t": 1})
        broker.client.create_topics({"dead": 1}, configs=unbounded)
        self.broker, self.refused = broker, refused
        self.options = WriteOptions.parse(
            {
                "kafka.bootstrap.servers": broker.address,
                "topic": "t",
                "exactlyOnce": "true",
                "writeName": "nightly",
                "writeBatch": "0",
                "onInvalidTimestamp": "deadLetter",
                "deadLetterTopic": "dead",
                "kafka.batch.size": "6000",
            }
        )

    def attempt(self, killed_at: int | None = None) -> TaskCommitMessage:
        """One attempt; it is killed after some rows, if that is said."""
        columns = SinkColumns.of([("value", "string"), ("timestampMs", "bigint")], "t")

        def batches() -> Iterator[pa.RecordBatch]:
            for start in range(0, len(self.refused), 10):
                if killed_at is not None and start >= killed_at:
                    raise KilledError
                refused = self.refused[start : start + 10]
                numbers = range(start, start + len(refused))
                yield pa.RecordBatch.from_pydict(
                    {
                        "value": [f"{row:04d}{'x' * 96}" for row in numbers],
                        "timestampMs": [PAST_MS + 2 * HOUR_MS * each for each in refused],
                    }
                )

        return write_rows(batches(), columns, self.options)

    def commit(self, done: TaskCommitMessage) -> None:
        commit_batch([done], self.options)

    def seen(self, topic: str) -> list[int]:
        """The rows of a topic that are committed, once no transaction of the task is open."""
        client = self.broker.client
        client.init_transactions("horolog/task/0/nightly", transaction_timeout_ms=60_000)
        rows = scan(client, topic, columns=("value",), read_committed=True).read_all()
        return [int(value[:4]) for value in rows.column("value").to_pylist()]

    def check(self) -> None:
        """Every row is there once, in order, where it belongs."""
        for topic, kind in (("t", False), ("dead", True)):
            expected = [row for row, each in enumerate(self.refused) if each is kind]
            assert self.seen(topic) == expected, topic


@pytest.mark.parametrize("killed_at", some_of([0, 10, 1500, 2400, None], 4))
def test_dead_letters_are_written_exactly_once_over_attempts(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, killed_at: int | None
) -> None:
    override(monkeypatch, "horolog.spark", HELD_OF_BYTES=40_000)
    writes = OnceWrites(broker, [row % 7 == 3 or 900 < row < 1800 for row in range(3000)])
    if killed_at is not None:
        with pytest.raises(KilledError):
            writes.attempt(killed_at)
    writes.attempt()  # its driver dies
    done = writes.attempt()
    assert (done.records, done.dead_letters) == (3000 - sum(writes.refused), sum(writes.refused))
    writes.commit(done)
    writes.check()
    again = writes.attempt()
    assert again.records == again.dead_letters == 0
    writes.commit(again)
    writes.check()


def test_dead_letters_of_an_aborted_batch_are_not_seen(broker: RunningBroker) -> None:
    writes = OnceWrites(broker, [row % 7 == 3 for row in range(100)])
    abort_batch([writes.attempt()], writes.options)
    assert (writes.seen("t"), writes.seen("dead")) == ([], [])


def test_a_topic_of_dead_letters_takes_no_rows_of_its_own_exactly_once(
    broker: RunningBroker,
) -> None:
    writes = OnceWrites(broker, [False])
    columns = SinkColumns.of([("value", "string"), ("topic", "string")], None)
    batch = pa.RecordBatch.from_pydict({"value": ["v"], "topic": ["dead"]})
    with pytest.raises(RowsRefused, match="for topic dead, to which dead letters go"):
        write_rows(iter([batch]), columns, writes.options)


@pytest.mark.parametrize("policy", ["fail", "null", "deadLetter"])
def test_a_broker_that_names_no_records_ends_the_write_whatever_the_policy(policy: str) -> None:
    """Apache Kafka before 2.4: it refuses the batch, and that is all it says."""

    def refusing(request: object) -> dict[str, object]:
        refused = {"index": 5, "error_code": ErrorCode.invalid_timestamp, "base_offset": -1}
        return {"responses": [{"name": "t", "partition_responses": [refused]}]}

    letters = {"deadLetterTopic": "dead"} if policy == "deadLetter" else {}
    given = {"topic": "t", "onInvalidTimestamp": policy, **letters}
    ids = {"producer_id": 7, "producer_epoch": 0}
    answers = {ApiKey.PRODUCE: refusing, ApiKey.INIT_PRODUCER_ID: ids}
    with ScriptedBroker(answers, versions={ApiKey.PRODUCE: Versions(0, 7)}) as old:
        options = WriteOptions.parse({"kafka.bootstrap.servers": old.bootstrap, **given})
        columns = SinkColumns.of([("value", "string")], "t")
        batch = pa.RecordBatch.from_pydict({"value": ["v"]})
        with pytest.raises(RowsRefused, match="produce to t-5: INVALID_TIMESTAMP: the broker"):
            write_rows(iter([batch]), columns, options)
        assert len(old.asked(ApiKey.PRODUCE)) == 1
