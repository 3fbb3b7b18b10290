"""Arrow tables to a broker: where rows go, what they carry, and retries without doubles."""

import random
import re
import threading
import uuid
from collections.abc import Collection, Iterator
from concurrent.futures import wait as futures_wait
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from overrides import override
from patience import PATIENCE_S
from running_broker import NOW_MS, a_broker
from scripted_broker import HangUp, ScriptedBroker

from horolog.client import (
    Client,
    NoAnswer,
    Producer,
    RejectedBatch,
    Repair,
    ResourceType,
    Written,
    producer,
)
from horolog.errors import ErrorCode, RecordsRejected, RequestRefused
from horolog.record import Codec, iter_headers, parse_header, partition_of_key, read_records
from horolog.sources import scan
from horolog.wire import ApiKey

broker = a_broker(scope="module")


@pytest.fixture
def topic(client: Client) -> str:
    name = f"clicks-{uuid.uuid4()}"
    client.create_topics({name: 3})
    return name


def producer_of(client: Client, **more: Any) -> Producer:
    return Producer(client, now_ms=lambda: NOW_MS, **more)


def rows_of(client: Client, topic: str, **more: Any) -> list[dict[str, Any]]:
    columns = ("offset", "key", "value", "timestamp_ms", "headers")
    return scan(client, topic, columns=columns, **more).read_all().to_pylist()


@pytest.mark.parametrize("apart_bytes", [1, 1 << 20])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_every_row_is_found_at_the_offset_in_its_metadata(
    client: Client,
    topic: str,
    codec: Codec,
    apart_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    override(monkeypatch, "horolog.client.arrow_rows", APART_BYTES=apart_bytes)
    table = pa.table(
        {
            "key": [None if row % 5 == 0 else f"key {row % 17}" for row in range(3_000)],
            "value": [None if row % 7 == 0 else b"v%d" % row * 20 for row in range(3_000)],
            "timestamp_ms": [NOW_MS - row for row in range(3_000)],
            "headers": [[{"key": "row", "value": b"%d" % row}] for row in range(3_000)],
        }
    )
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=700))
    with producer_of(client, codec=codec, batch_bytes=5_000) as producer:
        written = producer.send(topic, reader, metadata=True)
    assert written.records == 3_000
    assert written.metadata is not None
    found = {(row["partition"], row["offset"]): row for row in rows_of(client, topic)}
    assert len(found) == 3_000
    assert {partition for partition, _ in found} == {0, 1, 2}
    for sent, told in zip(table.to_pylist(), written.metadata.to_pylist(), strict=True):
        row = found[told["partition"], told["offset"]]
        assert {**sent, "key": sent["key"] and sent["key"].encode()} == {
            name: row[name] for name in sent
        }
        assert told["timestamp_ms"] == sent["timestamp_ms"]
        if sent["key"] is not None:
            assert told["partition"] == partition_of_key(sent["key"].encode(), 3)
    for partition, (first, last) in written.offsets.items():
        assert first == 0
        assert last == max(offset for at, offset in found if at == partition)


def test_rows_keep_their_order_within_a_partition(client: Client, topic: str) -> None:
    keys = [f"k{row % 11}" for row in range(2_000)]
    table = pa.table({"key": keys, "value": [str(row) for row in range(2_000)]})
    with producer_of(client, batch_bytes=1_000) as producer:
        producer.send(topic, table)
    for partition in range(3):
        values = [int(row["value"]) for row in rows_of(client, topic, partitions=[partition])]
        assert values == sorted(values)


def test_rows_go_to_the_partition_that_they_name(client: Client, topic: str) -> None:
    table = pa.table(
        {"key": ["a", "a", "a", None], "value": ["0", "1", "2", "3"], "partition": [2, 0, None, 1]}
    )
    with producer_of(client) as producer:
        told = producer.send(topic, table, metadata=True).metadata
        assert told is not None
        assert told["partition"].to_pylist() == [2, 0, partition_of_key(b"a", 3), 1]
        assert told["timestamp_type"].to_pylist() == ["CreateTime"] * 4
        wrong = pa.table({"value": ["0", "1"], "partition": [0, 3]})
        with pytest.raises(ValueError, match="Row 1 names partition 3; there are 3"):
            producer.send(topic, wrong)


def test_rows_without_a_key_stay_together_and_take_turns(client: Client, topic: str) -> None:
    table = pa.table({"value": [b"x" * 100] * 10})
    with producer_of(client) as producer:
        turns = [set(producer.send(topic, table).offsets) for _ in range(3)]
    assert [len(each) for each in turns] == [1, 1, 1]
    assert set.union(*turns) == {0, 1, 2}


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ({}, [NOW_MS, NOW_MS]),
        ({"timestamp_ms": pa.array([None, 5], pa.int64())}, [NOW_MS, 5]),
        ({"timestamp_ms": pa.array([-1, -5], pa.int64())}, [-1, -5]),
        ({"timestamp": pa.array([None, 5], pa.timestamp("ms", "UTC"))}, [NOW_MS, 5]),
        ({"timestamp": pa.array([-1001, 1999], pa.timestamp("us", "UTC"))}, [-2, 1]),
        ({"timestamp": pa.array([-1_000_001, 2_999_999], pa.timestamp("ns", "UTC"))}, [-2, 2]),
        ({"timestamp": pa.array([-3, 4], pa.timestamp("s", "UTC"))}, [-3000, 4000]),
        (
            {"timestamp": [datetime(1969, 12, 31, 23, 59, 59, 998_500, UTC), None]},
            [-2, NOW_MS],
        ),
    ],
)
def test_times_are_floored_and_a_null_is_the_producers_clock(
    client: Client, topic: str, column: dict[str, Any], expected: list[int]
) -> None:
    client.alter_configs(
        {(ResourceType.TOPIC, topic): {"message.timestamp.before.max.ms": str((1 << 63) - 1)}}
    )
    with producer_of(client) as producer:
        producer.send(topic, pa.table({"value": ["a", "b"], "partition": [0, 0], **column}))
    assert [row["timestamp_ms"] for row in rows_of(client, topic)] == expected


@pytest.mark.parametrize(
    ("unit", "last"), [("ms", -1), ("us", -1), ("us", -1_000), ("ns", -1), ("ns", -1_000_000)]
)
def test_a_moment_that_would_be_written_as_no_time_is_refused(
    client: Client, topic: str, unit: str, last: int
) -> None:
    times = pa.array([None, -5_000_000_000, last], pa.timestamp(unit, "UTC"))
    with (
        producer_of(client) as producer,
        pytest.raises(ValueError, match=r"1969-12-31T23:59:59\.999Z is -1 ms, which Kafka's"),
    ):
        producer.send(topic, pa.table({"value": ["a", "b", "c"], "timestamp": times}))
    assert rows_of(client, topic) == []


def test_metadata_has_the_append_time_where_the_topic_has_one(client: Client, topic: str) -> None:
    name = f"{topic}-appended"
    client.create_topics({name: 1}, configs={"message.timestamp.type": "LogAppendTime"})
    with producer_of(client) as producer:
        told = producer.send(
            name, pa.table({"value": ["a", "b"], "timestamp_ms": [1, 2]}), metadata=True
        ).metadata
    assert told is not None
    assert told["timestamp_ms"].to_pylist() == [NOW_MS, NOW_MS]
    assert told["timestamp_type"].to_pylist() == ["LogAppendTime"] * 2


def test_a_refused_batch_names_the_rows_of_the_table(client: Client, topic: str) -> None:
    client.alter_configs({(ResourceType.TOPIC, topic): {"message.timestamp.after.max.ms": "1000"}})
    late = [NOW_MS] * 6
    late[4] = NOW_MS + 5_000
    table = pa.table({"value": ["v"] * 6, "timestamp_ms": late, "partition": [1, 0, 1, 0, 1, 0]})
    with producer_of(client) as producer:
        with pytest.raises(RecordsRejected, match="row 4") as refused:
            producer.send(topic, table)
        assert refused.value.code is ErrorCode.invalid_timestamp
        assert [error.batch_index for error in refused.value.errors] == [4]
        # The others of the request are there once, and the producer goes on.
        assert producer.send(topic, table.slice(0, 4)).records == 4
    values = [row["partition"] for row in rows_of(client, topic)]
    assert sorted(values) == [0, 0, 0, 0, 0, 1, 1]


def test_a_larger_table_than_a_chunk_is_sent_whole(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.client", CHUNK_BYTES=10_000)
    table = pa.table({"value": [str(row).encode() * 10 for row in range(5_000)]})
    with producer_of(client, batch_bytes=1_000) as producer:
        written = producer.send(topic, table, metadata=True)
    assert written.metadata is not None
    assert written.records == len(written.metadata) == 5_000
    found = {(row["partition"], row["offset"]): row["value"] for row in rows_of(client, topic)}
    told = written.metadata.to_pylist()
    sent = [each["value"] for each in table.to_pylist()]
    assert [found[row["partition"], row["offset"]] for row in told] == sent


def test_a_filtered_pandas_frame_is_sent_without_its_index(client: Client, topic: str) -> None:
    import pandas  # noqa: PLC0415 - half a second where it is not needed

    # What is left has no labels in even steps: pandas 3 would keep those as a range, not a column.
    frame = pandas.DataFrame({"key": ["b", "a", "b", "b"], "value": ["1", "2", "3", "4"]})
    labelled = frame.set_index([["w", "x", "y", "z"], [1, 2, 3, 4]])
    with producer_of(client) as producer:
        producer.send(topic, frame[frame.key == "b"])
        producer.send(topic, labelled)
        with pytest.raises(ValueError, match=r"No record has the columns \['named'\]"):
            producer.send(topic, frame[frame.key == "b"].rename_axis("named"))
    values = [row["value"] for row in rows_of(client, topic)]
    assert sorted(values) == [b"1", b"1", b"2", b"3", b"3", b"4", b"4"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pa.table({"key": ["a"]}), "needs the column value"),
        (pa.table({"value": ["a"], "keys": ["b"]}), r"no record has the columns \['keys'\]"),
        (pa.table({"value": ["a"], "timestamp": ["b"]}), "is no timestamp"),
        (
            pa.table({"value": ["a"], "timestamp": pa.array([1], pa.timestamp("us"))}),
            r"timestamp\[us\] has no zone",
        ),
        (pa.table({"value": ["a"], "timestamp_ms": ["b"]}), "is no integer"),
        (pa.table({"value": [1]}), "cannot be written"),
        ([1, 2], "list is no Arrow data"),
        ({"key": ["a"]}, "needs the column value"),
        ({"value": ["a"], "key": ["b", "c"]}, "length"),
    ],
)
def test_what_is_no_record_is_refused(client: Client, topic: str, data: Any, said: str) -> None:
    with producer_of(client) as producer, pytest.raises(ValueError, match=f"(?i){said}"):
        producer.send(topic, data)


def test_columns_by_name_are_a_table(client: Client, topic: str) -> None:
    with producer_of(client) as producer:
        producer.send(topic, {"value": ["one", None], "key": ["a", "a"]})
        producer.send(topic, {"value": []})
    assert [(row["key"], row["value"]) for row in rows_of(client, topic)] == [
        (b"a", b"one"),
        (b"a", None),
    ]


def test_a_batch_that_is_too_large_is_refused_with_its_size_the_limit_and_the_setting(
    client: Client, topic: str
) -> None:
    limits = {"max.message.bytes": "1000"}
    client.alter_configs({(ResourceType.TOPIC, topic): limits})
    with producer_of(client) as producer, pytest.raises(RequestRefused) as refused:
        producer.send(topic, pa.table({"value": ["x" * 2_000], "partition": [0]}))
    assert refused.value.code is ErrorCode.message_too_large
    assert re.search(
        r"is 2\d\d\d bytes which exceeds .* of 1000; the topic's max.message.bytes is the limit "
        r"\(MESSAGE_TOO_LARGE\), of 1000 bytes$",
        str(refused.value),
    )


def test_acks_0_and_1_are_sent_without_a_producer_id(client: Client, topic: str) -> None:
    for acks in (0, 1):
        with producer_of(client, acks=acks) as producer:
            told = producer.send(
                topic, pa.table({"value": ["a"], "partition": [0]}), metadata=True
            ).metadata
        assert told is not None
        assert told["offset"].to_pylist() == ([None] if acks == 0 else [1])
        assert told["timestamp_type"].to_pylist() == [None if acks == 0 else "CreateTime"]
    records = client.fetch(topic, 0, 0).records
    assert [header.producer_id for _, header in iter_headers(records)] == [-1, -1]


def produced(error: int = 0, offset: int = 40, name: str = "clicks") -> dict[str, Any]:
    partition = {"index": 5, "error_code": error, "base_offset": offset, "record_errors": ()}
    topic = {"name": name, "topic_id": None, "partition_responses": [partition]}
    return {"responses": [topic]}


def rejected(indexes: list[int]) -> dict[str, Any]:
    answer = produced(ErrorCode.invalid_timestamp, -1)
    answer["responses"][0]["partition_responses"][0]["record_errors"] = [
        {"batch_index": index, "batch_index_error_message": "too late"} for index in indexes
    ]
    return answer


def script_of(answer: Any) -> ScriptedBroker:
    """What answers each Produce request."""
    ids = {"producer_id": 7, "producer_epoch": 0}
    return ScriptedBroker({ApiKey.PRODUCE: answer, ApiKey.INIT_PRODUCER_ID: ids})


def script(*answers: Any) -> ScriptedBroker:
    """One after the other, the last one for ever."""
    left = list(answers)
    return script_of(lambda _: left.pop(0) if len(left) > 1 else left[0])


@contextmanager
def writing(broker: ScriptedBroker, **options: Any) -> Iterator[Producer]:
    """A producer with a client of its own."""
    with Client(broker.bootstrap) as client, producer_of(client, **options) as producer:
        yield producer


def sent_to(broker: ScriptedBroker) -> list[tuple[int, int, list[bytes | None]]]:
    """Producer id, sequence and values of each batch."""
    batches = [
        each.topic_data[0].partition_data[0].records for each in broker.asked(ApiKey.PRODUCE)
    ]
    return [
        (header.producer_id, header.base_sequence, [r.value for r in read_records(batch)])
        for batch in batches
        for header in [parse_header(batch)]
    ]


VALUE = pa.table({"value": ["a", "b"]})


def test_an_idempotent_batch_is_sent_again_as_it_was_when_its_answer_is_lost() -> None:
    with script(HangUp(), produced(ErrorCode.not_leader_or_follower), produced()) as broker:
        with writing(broker) as producer:
            assert producer.send("clicks", VALUE).offsets == {5: (40, 41)}
            producer.send("clicks", VALUE)
        first, *others, second = sent_to(broker)
        assert first == (7, 0, [b"a", b"b"])
        assert others == [first, first]
        assert second == (7, 2, [b"a", b"b"])


def test_a_batch_that_the_broker_knows_already_counts_as_appended() -> None:
    with (
        script(HangUp(), produced(ErrorCode.duplicate_sequence_number, -1)) as broker,
        writing(broker) as producer,
    ):
        written = producer.send("clicks", VALUE, metadata=True)
        assert (written.records, written.offsets) == (2, {})
        assert written.metadata is not None
        assert written.metadata["offset"].to_pylist() == [None, None]


def test_without_idempotence_a_batch_whose_answer_is_lost_is_not_sent_twice() -> None:
    with script(HangUp()) as broker, writing(broker, acks=1) as producer:
        with pytest.raises(NoAnswer, match="may have been carried out"):
            producer.send("clicks", VALUE)
        assert len(broker.asked(ApiKey.PRODUCE)) == 1


def test_after_a_failure_the_producer_goes_on_under_another_id() -> None:
    fatal = produced(ErrorCode.out_of_order_sequence_number)
    with script(fatal, produced()) as broker:
        with writing(broker) as producer:
            with pytest.raises(RequestRefused, match="OUT_OF_ORDER"):
                producer.send("clicks", VALUE)
            producer.send("clicks", VALUE)
        assert len(broker.asked(ApiKey.INIT_PRODUCER_ID)) == 2
        assert [sequence for _, sequence, _ in sent_to(broker)] == [0, 0]


class Log:
    """A partition that takes an idempotent producer's batches as Kafka does, and fails as told.

    Each fault is for one request: `before` and `after` close the connection before or after
    appending, an error code is answered instead of appending.
    """

    def __init__(
        self, faults: list[Any], topic: str = "clicks", refuses: Collection[bytes | None] = ()
    ) -> None:
        self.values: list[bytes | None] = []
        self._refuses = refuses
        self._topic = topic
        self._faults = faults

    def __call__(self, request: Any) -> Any:
        fault = self._faults.pop(0) if self._faults else None
        if fault == "before":
            return HangUp()
        if isinstance(fault, ErrorCode):
            return produced(fault)
        batch = request.topic_data[0].partition_data[0].records
        header = parse_header(batch)
        # The first batch of a producer that is not known may have any sequence.
        if self.values and header.base_sequence != len(self.values):
            if header.base_sequence > len(self.values):
                return produced(ErrorCode.out_of_order_sequence_number)
            offset = header.base_sequence
        else:
            offset = len(self.values)
            values = [record.value for record in read_records(batch)]
            if refused := [at for at, value in enumerate(values) if value in self._refuses]:
                return rejected(refused)
            self.values += values
        return HangUp() if fault == "after" else produced(offset=offset, name=self._topic)


@pytest.mark.parametrize("seed", range(24))
def test_every_row_is_appended_once_and_in_order_whatever_becomes_of_the_answers(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.client", FIRST_PAUSE_S=0.001)
    chance = random.Random(seed)
    faults = [
        chance.choice([None, None, "before", "after", ErrorCode.not_leader_or_follower])
        for _ in range(8)
    ]
    if seed % 2:
        faults[0] = ErrorCode.not_leader_or_follower  # as right after a topic was created
    while any(faults[at : at + 3].count(None) == 0 for at in range(6)):  # three end the call
        faults[chance.randrange(1, 8)] = None
    log = Log(faults)
    table = pa.table({"value": [str(row).encode() for row in range(40)]})
    with script_of(log) as broker, writing(broker, batch_bytes=80) as producer:
        written = producer.send("clicks", table, metadata=True)
        assert log.values == table["value"].to_pylist()
        assert written.records == 40
        assert written.metadata is not None
        assert written.metadata["offset"].to_pylist() == list(range(40))
        assert len(broker.asked(ApiKey.INIT_PRODUCER_ID)) == 1
        assert len(broker.asked(ApiKey.PRODUCE)) > 20  # several were under way


def test_a_refusal_among_requests_under_way_ends_the_call_and_not_the_client() -> None:
    # A log each: what was under way when the first call ends may still arrive after that.
    logs = {"clicks": Log([None, None, ErrorCode.invalid_record]), "again": Log([], "again")}
    table = pa.table({"value": [str(row).encode() for row in range(40)]})
    rows = table["value"].to_pylist()
    with (
        script_of(lambda asked: logs[asked.topic_data[0].name](asked)) as broker,
        writing(broker, batch_bytes=80) as producer,
    ):
        with pytest.raises(RequestRefused, match="INVALID_RECORD"):
            producer.send("clicks", table)
        assert producer.send("again", table).records == 40
    assert logs["clicks"].values == rows[: len(logs["clicks"].values)]
    assert logs["again"].values == rows


def without_the_refused(batch: RejectedBatch) -> Repair:
    kept = np.ones(batch.rows.num_rows, np.bool_)
    kept[[error.batch_index for error in batch.refusal.errors]] = False
    return Repair(kept, batch.rows.column("timestamp_ms"))


def at_now(batch: RejectedBatch) -> Repair:
    times = batch.rows.column("timestamp_ms").to_numpy().copy()
    times[[error.batch_index for error in batch.refusal.errors]] = NOW_MS
    return Repair(np.ones(batch.rows.num_rows, np.bool_), pa.array(times))


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("repair", [without_the_refused, at_now])
def test_a_batch_with_bad_records_is_repaired_in_its_place(
    client: Client, topic: str, repair: Any, idempotent: bool
) -> None:
    client.alter_configs({(ResourceType.TOPIC, topic): {"message.timestamp.after.max.ms": "1000"}})
    chance = random.Random(7)
    bad = {row for row in range(3_000) if chance.random() < 0.01} | {0, 1, 2, 2_999}
    told: list[int] = []

    def on_rejected(batch: RejectedBatch) -> Repair:
        assert batch.refusal.code is ErrorCode.invalid_timestamp
        for error in batch.refusal.errors:
            number = int(batch.numbers[error.batch_index])
            value = int(batch.rows.column("value")[error.batch_index].as_py())
            assert value in (number, number + 2_500)  # of the first call, of the second
            told.append(number)
        return repair(batch)

    table = pa.table(
        {
            "value": [b"%d" % row for row in range(3_000)],
            "key": [None if row % 2 else b"k%d" % (row % 7) for row in range(3_000)],
            "headers": [[{"key": "h", "value": b"%d" % row}] for row in range(3_000)],
            "timestamp_ms": [NOW_MS + 9_999 * (row in bad) for row in range(3_000)],
        }
    )
    with producer_of(
        client, batch_bytes=700, on_rejected=on_rejected, idempotent=idempotent
    ) as producer:
        written = producer.send(topic, table)
        producer.send(topic, table.slice(2_500))
    expected = [row for row in range(3_000) if repair is at_now or row not in bad]
    assert written.records == len(expected)
    assert sorted(told) == sorted([*bad, *(row - 2_500 for row in bad if row >= 2_500)])
    expected += [row for row in expected if row >= 2_500]
    found = []
    for partition in range(3):
        rows = rows_of(client, topic, partitions=[partition])
        numbers = [int(row["value"]) for row in rows]
        again = next((at for at in range(1, len(rows)) if numbers[at] < numbers[at - 1]), None)
        for part in (numbers[:again], [] if again is None else numbers[again:]):
            assert part == sorted(part)
        found += numbers
        for row in rows:
            assert row["timestamp_ms"] == NOW_MS
            assert row["headers"] == [{"key": "h", "value": row["value"]}]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("seed", range(16))
def test_repaired_batches_are_appended_once_whatever_becomes_of_the_answers(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.client", FIRST_PAUSE_S=0.001)
    chance = random.Random(seed)
    bad = {b"%d" % row for row in range(40) if chance.random() < 0.2}
    faults = [None, None] + [
        chance.choice([None, None, None, "before", "after"]) for _ in range(10)
    ]
    while any(faults[at : at + 3].count(None) == 0 for at in range(10)):  # three end the call
        faults[chance.randrange(2, 12)] = None
    log = Log(faults, refuses=bad)
    table = pa.table({"value": [str(row).encode() for row in range(40)]})
    with (
        script_of(log) as broker,
        writing(broker, batch_bytes=80, on_rejected=without_the_refused) as producer,
    ):
        written = producer.send("clicks", table)
    left = [value for value in table["value"].to_pylist() if value not in bad]
    assert log.values == left
    assert written.records == len(left)


def test_what_a_repair_raises_ends_the_call(client: Client, topic: str) -> None:
    client.alter_configs({(ResourceType.TOPIC, topic): {"message.timestamp.after.max.ms": "1000"}})

    def on_rejected(batch: RejectedBatch) -> Repair:
        raise RequestRefused(ErrorCode.invalid_timestamp, f"not {batch.topic}")

    late = pa.table({"value": ["v"], "timestamp_ms": [NOW_MS + 5_000]})
    with producer_of(client, on_rejected=on_rejected) as producer:
        with pytest.raises(RequestRefused, match=f"not {topic}"):
            producer.send(topic, late)
        assert producer.send(topic, pa.table({"value": ["v"]})).records == 1
        with pytest.raises(ValueError, match="metadata cannot be had"):
            producer.send(topic, late, metadata=True)
    assert len(rows_of(client, topic)) == 1


def test_rows_that_fail_while_a_batch_is_repaired_leave_the_repair_its_producer_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call ends only when the batch under way is settled, under the id it was begun with."""
    repairing, ending = threading.Event(), threading.Event()

    def wait_for_the_sender(futures: Any) -> Any:
        ending.set()
        return futures_wait(futures)

    def on_rejected(batch: RejectedBatch) -> Repair:
        repairing.set()
        assert ending.wait(PATIENCE_S)
        return without_the_refused(batch)

    def rows() -> Iterator[pa.RecordBatch]:
        yield from VALUE.to_batches()
        assert repairing.wait(PATIENCE_S)
        raise RuntimeError("no more rows")

    override(monkeypatch, "horolog.client", MOST_CHUNK_BYTES=VALUE.nbytes)
    monkeypatch.setattr(producer, "wait", wait_for_the_sender)
    written = Written()
    with (
        script(rejected([0]), rejected([0]), produced()) as broker,
        writing(broker, on_rejected=on_rejected) as sender,
    ):
        with pytest.raises(RuntimeError, match="no more rows"):
            sender.send(
                "clicks", pa.RecordBatchReader.from_batches(VALUE.schema, rows()), into=written
            )
        assert sent_to(broker) == [(7, 0, [b"a", b"b"])] * 2 + [(7, 0, [b"b"])]
        assert written.records == 1
        sender.send("clicks", VALUE)
        assert len(broker.asked(ApiKey.INIT_PRODUCER_ID)) == 2


def test_a_producer_that_cannot_be_is_refused() -> None:
    with Client("127.0.0.1:9") as client:
        with pytest.raises(ValueError, match="acks=2"):
            Producer(client, acks=2)
        with pytest.raises(ValueError, match="needs acks=-1"):
            Producer(client, acks=1, idempotent=True)
