"""Attempts of exactly-once sinks, as Arrow tables: what they repeat, and what they may not."""

import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_S
from running_broker import NOW_MS, RunningBroker, a_broker
from scripted_broker import ScriptedBroker

from horolog.client import Client, ResourceType, retrying
from horolog.client import producer as producing
from horolog.client.attempt import AttemptProducer, Gathered
from horolog.client.producer import RejectedBatch, Repair
from horolog.client.queries import TaskRows
from horolog.clock import ManualClock
from horolog.errors import ErrorCode, RequestRefused
from horolog.record.compression import Codec
from horolog.sources import scan

CHUNK = 20_000


broker = a_broker(scope="module")


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "CHUNK_BYTES", CHUNK)


@pytest.fixture
def topic(client: Client) -> str:
    name = f"clicks-{uuid.uuid4()}"
    client.create_topics({name: 3})
    return name


def table_of(count: int, *, first: int = 0, **more: Any) -> pa.Table:
    """Rows with and without keys, headers and times."""
    numbers = range(first, first + count)
    columns = {
        "key": [None if row % 3 else f"key {row % 17}" for row in numbers],
        "value": [b"%d" % row + b"v" * (row * 7 % 90) for row in numbers],
        "headers": [[{"key": "h", "value": b"x" * (row % 5)}] * (row % 3) for row in numbers],
        "timestamp_ms": pa.array(
            [None if row % 5 == 0 else NOW_MS - row for row in numbers], pa.int64()
        ),
    }
    return pa.table(columns | more)


def attempt_at(client: Client, query: str, **more: Any) -> AttemptProducer:
    settings: dict[str, Any] = {"batch": 0, "task": 0, "batch_bytes": 3_000, **more}
    return AttemptProducer(client, query, **settings)


def values_of(client: Client, topic: str) -> list[int]:
    """The numbers of the rows that are there."""
    values = scan(client, topic, columns=("value",)).read_all().column("value").to_pylist()
    return sorted(int(value.rstrip(b"v")) for value in values)


def divided(table: pa.Table, rng: random.Random) -> pa.RecordBatchReader:
    """The same rows in pieces of any size, with and without offsets into larger buffers."""
    pieces = []
    start = 0
    while start < table.num_rows:
        piece = table.slice(start, rng.choice((1, 7, 100, 450)))
        start += piece.num_rows
        if rng.random() < 0.5:
            piece = pa.concat_tables([piece]).combine_chunks()
        pieces += piece.to_batches()
    return pa.RecordBatchReader.from_batches(table.schema, pieces)


def test_attempts_repeat_their_batches_however_their_rows_are_divided_and_compressed(
    client: Client, topic: str, clock: ManualClock
) -> None:
    table, query = table_of(3_000), f"q-{topic}"
    rng = random.Random(7)
    reported = []
    for codec in (Codec.NONE, Codec.ZSTD, Codec.LZ4):
        with attempt_at(client, query, codec=codec, batch_bytes=rng.choice((900, 5_000))) as it:
            reader = divided(table, rng)
            if codec is Codec.ZSTD:
                for batch in reader:
                    it.send(topic, batch)
            else:
                it.send(topic, reader)
            reported.append(it.finish().rows)
        clock.advance(1_000)
        assert values_of(client, topic) == list(range(3_000))
        if codec is Codec.NONE:
            client.create_partitions({topic: 5})
    assert reported[0] == reported[1] == reported[2]
    assert set(reported[0][topic]) == {0, 1, 2}
    client.commit_batch(query, 0, 1, [it.rows])
    times = scan(client, topic, columns=("value", "timestamp_ms")).read_all().to_pylist()
    for row in times:
        number = int(row["value"].rstrip(b"v"))
        expected = it.batch.started_ms if number % 5 == 0 else NOW_MS - number
        assert row["timestamp_ms"] == expected


def test_an_attempt_that_died_half_way_is_finished_by_the_next(client: Client, topic: str) -> None:
    table, query = table_of(2_000), f"q-{topic}"
    with attempt_at(client, query, batch=3, task=5) as first:
        first.send(topic, table.slice(0, 1_100))
    there = values_of(client, topic)
    assert 0 < len(there) < 1_100  # the rest of its rows had not filled a chunk
    with attempt_at(client, query, batch=3, task=5) as second:
        second.send(topic, table)
        rows = second.finish()
    assert values_of(client, topic) == list(range(2_000))
    assert sum(rows.rows[topic].values()) == 2_000
    client.commit_batch(query, 3, 6, [rows])


def test_attempts_at_the_same_time_share_the_work(broker: RunningBroker, topic: str) -> None:
    """As speculation does: whichever comes first at a position appends."""
    table, query = table_of(2_400), f"q-{topic}"
    rng = random.Random(3)
    with (
        Client(broker.address) as other,
        attempt_at(broker.client, query) as first,
        attempt_at(other, query) as second,
    ):
        at = {first: 0, second: 0}
        while min(at.values()) < table.num_rows:
            one = rng.choice([each for each in at if at[each] < table.num_rows])
            one.send(topic, table.slice(at[one], 300))
            at[one] += 300
        rows = [first.finish(), second.finish()]
    assert values_of(broker.client, topic) == list(range(2_400))
    assert rows[0] == rows[1]
    broker.client.commit_batch(query, 0, 1, [rows[1]])


@pytest.mark.parametrize("change", ["value", "order", "fewer", "key", "header", "time"])
def test_other_rows_never_mix_with_those_of_an_earlier_attempt(
    client: Client, topic: str, change: str
) -> None:
    table, query = table_of(1_500), f"q-{topic}"
    with attempt_at(client, query) as first:
        first.send(topic, table)
        first.finish()
    rows = table.to_pylist()
    match change:
        case "value":
            rows[700]["value"] = b"700w"
        case "order":
            rows[700], rows[701] = rows[701], rows[700]
        case "fewer":
            del rows[700]
        case "key":
            rows[702]["key"] = "another key"
        case "header":
            rows[701]["headers"] = [{"key": "g", "value": b""}]
        case "time":
            rows[701]["timestamp_ms"] += 1
    other = pa.Table.from_pylist(rows, table.schema)
    with (
        attempt_at(client, query) as second,
        pytest.raises(RequestRefused, match="sends other rows") as no,
    ):
        _send_all(second, topic, other)
    assert no.value.code is ErrorCode.invalid_record
    assert values_of(client, topic) == list(range(1_500))
    with pytest.raises(RequestRefused, match="This attempt has failed"):
        second.send(topic, other)
    with attempt_at(client, query) as third:
        third.send(topic, table)
        client.commit_batch(query, 0, 1, [third.finish()])


def _send_all(attempt: AttemptProducer, topic: str, rows: pa.Table) -> None:
    attempt.send(topic, rows)
    attempt.finish()


def test_a_shorter_attempt_is_found_at_the_commit(client: Client, topic: str) -> None:
    table, query = table_of(1_500), f"q-{topic}"
    with attempt_at(client, query) as first:
        first.send(topic, table)
        first.finish()
    with attempt_at(client, query) as second:
        second.send(topic, table.slice(0, 0))
        with pytest.raises(RequestRefused, match="has 1500 rows, and its tasks have reported 0"):
            client.commit_batch(query, 0, 1, [second.finish()])


def test_a_task_writes_to_several_topics(client: Client, topic: str) -> None:
    other = f"{topic}-more"
    table, query = table_of(1_000), f"q-{topic}"
    for _ in range(2):
        with attempt_at(client, query) as it:
            for start in range(0, 1_000, 100):
                it.send(other if start % 300 == 0 else topic, table.slice(start, 100))
            rows = it.finish()
    assert values_of(client, topic) + values_of(client, other) != []
    assert sorted(values_of(client, topic) + values_of(client, other)) == list(range(1_000))
    client.commit_batch(query, 0, 1, [rows])


def test_a_run_with_another_plan_mixes_nothing_with_the_one_before_it(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks 2 and 3 have nothing to compare with: only the others can tell."""
    table, query = table_of(2_000), f"q-{topic}"
    for task in range(2):
        with attempt_at(client, query, task=task, run="two tasks") as it:
            it.send(topic, table.slice(1_000 * task, 1_000))
            it.finish()
    there = values_of(client, topic)
    with monkeypatch.context() as patch:
        patch.setattr(retrying, "FIRST_PAUSE_S", 1e9)  # a refusal is not tried again
        for task in (3, 2, 1, 0):
            with attempt_at(client, query, task=task, run="four tasks") as it:
                with pytest.raises(RequestRefused) as no:
                    _send_all(it, topic, table.slice(500 * task, 500))
                assert no.value.code in {
                    ErrorCode.invalid_record,
                    ErrorCode.concurrent_transactions,
                }
    assert values_of(client, topic) == there
    rows = []
    for task in range(2):
        with attempt_at(client, query, task=task, run="two again") as it:
            it.send(topic, table.slice(1_000 * task, 1_000))
            rows.append(it.finish())
    client.commit_batch(query, 0, 2, rows)
    assert values_of(client, topic) == list(range(2_000))


def test_tasks_of_a_run_wait_for_each_other_and_go_on(broker: RunningBroker, topic: str) -> None:
    table, query = table_of(4_000), f"q-{topic}"
    for task in range(2):
        with attempt_at(broker.client, query, task=task, run="first") as it:
            it.send(topic, table.slice(2_000 * task, 1_200))  # and dies

    def attempt(task: int) -> TaskRows:
        with (
            Client(broker.address, timeout_ms=int(1000 * PATIENCE_S)) as own,
            attempt_at(own, query, task=task, run="second") as it,
        ):
            it.send(topic, table.slice(2_000 * task, 2_000))
            return it.finish()

    with ThreadPoolExecutor(2) as threads:
        rows = list(threads.map(attempt, range(2)))
    broker.client.commit_batch(query, 0, 2, rows)
    assert values_of(broker.client, topic) == list(range(4_000))


def test_tasks_of_a_batch_and_batches_of_a_query_follow_each_other(
    client: Client, topic: str
) -> None:
    query = f"q-{topic}"
    for batch in range(3):
        rows = []
        for task in range(3):
            first = 1_000 * (3 * batch + task)
            with attempt_at(client, query, batch=batch, task=task, tasks=3) as it:
                it.send(topic, table_of(1_000, first=first))
                rows.append(it.finish())
        client.commit_batch(query, batch, 3, rows)
    assert values_of(client, topic) == list(range(9_000))
    with pytest.raises(RequestRefused, match="has gone on to batch 2"):
        attempt_at(client, query, batch=1)
    with pytest.raises(RequestRefused, match="begun with 3 tasks"):
        attempt_at(client, query, batch=2, tasks=4)


def test_repairs_of_refused_times_repeat_as_time_goes_on(
    client: Client, topic: str, clock: ManualClock
) -> None:
    """What is out of range is decided by the time of the batch, not of the attempt."""
    limit = {"message.timestamp.after.max.ms": "5000", "message.timestamp.before.max.ms": "5000"}
    client.alter_configs({(ResourceType.TOPIC, topic): limit})
    now_ms = clock.now_ms()
    times = [now_ms + (6_000 if row % 50 == 7 else row % 1_000) for row in range(1_500)]
    table, query = table_of(1_500).set_column(3, "timestamp_ms", pa.array(times)), f"q-{topic}"
    for _ in range(2):

        def repair(batch: RejectedBatch) -> Repair:
            found = batch.rows.column("timestamp_ms").to_numpy().copy()
            found[[error.batch_index for error in batch.refusal.errors]] = now_ms
            return Repair(np.ones(len(found), np.bool_), pa.array(found))

        with attempt_at(client, query, on_rejected=repair) as it:
            it.send(topic, table)
            rows = it.finish()
        assert values_of(client, topic) == list(range(1_500))
        clock.advance(86_400_000)
    client.commit_batch(query, 0, 1, [rows])


def test_partitions_added_since_the_client_asked_are_written_to(
    client: Client, broker: RunningBroker, topic: str
) -> None:
    client.partitions_of(topic)
    broker.client.create_partitions({topic: 6})
    with attempt_at(client, f"q-{topic}") as it:
        it.send(topic, table_of(2_000))
        rows = it.finish()
    assert set(rows.rows[topic]) == set(range(6))


def test_a_broker_that_does_not_announce_it_is_refused_before_a_row_is_sent() -> None:
    with ScriptedBroker({}) as kafka, Client(kafka.bootstrap) as client:
        with pytest.raises(RequestRefused, match=r"does not announce horolog\.exactly\.once") as no:
            attempt_at(client, "q")
        assert no.value.code is ErrorCode.unsupported_version


def test_rows_that_wait_keep_no_memory_of_others(client: Client, topic: str) -> None:
    """A topic with few rows among very many of another one must not hold all of them."""
    frequent = np.random.default_rng(1).bytes(900_000)
    before = pa.total_allocated_bytes()
    with attempt_at(client, f"q-{topic}", batch_bytes=1 << 19) as it:
        for row in range(40):
            piece = pa.table({"value": [frequent, b"rare %d" % row]})
            it.send(topic, piece.slice(0, 1))
            it.send(f"{topic}-rare", piece.slice(1))
            del piece
        assert pa.total_allocated_bytes() - before < 8 << 20
        rows = it.finish()
    assert sum(rows.rows[f"{topic}-rare"].values()) == 40


def test_a_task_of_many_topics_holds_little_of_each(client: Client, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(60)]
    client.create_topics(dict.fromkeys(names, 1))
    query = f"q-{topic}"
    with attempt_at(client, query, batch_bytes=1 << 18) as first:
        for start in range(3):
            for name in names:
                first.send(name, pa.table({"value": [bytes([start]) * 40_000]}))
    sent = sum(sum(rows.values()) for rows in first.rows.rows.values())
    assert sent > 50
    with attempt_at(client, query, batch_bytes=1 << 18) as second:
        for name in names:
            values = [bytes([start]) * 40_000 for start in range(3)]
            second.send(name, pa.table({"value": values}))
        client.commit_batch(query, 0, 1, [second.finish()])
    assert sum(sum(rows.values()) for rows in second.rows.rows.values()) == 180


@given(sizes=st.lists(st.integers(0, 400), max_size=60), cuts=st.integers(0, 1 << 30))
def test_chunks_depend_on_rows_alone(sizes: list[int], cuts: int) -> None:
    table = pa.table({"value": [b"v" * size for size in sizes]}, pa.schema([("value", "binary")]))

    def chunks(rng: random.Random) -> list[list[bytes]]:
        gathered = Gathered(1_000)
        found = list(gathered.chunks(divided(table, rng))) + list(gathered.rest())
        return [pa.Table.from_batches(chunk)["value"].to_pylist() for chunk in found]

    whole = chunks(random.Random(0))
    assert chunks(random.Random(cuts)) == whole
    assert [value for chunk in whole for value in chunk] == [b"v" * size for size in sizes]
