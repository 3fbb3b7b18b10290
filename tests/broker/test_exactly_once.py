"""Batches of queries that write exactly once, as raw record batches of several attempts."""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_runner import run_command
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_S
from running_broker import NOW_MS, BrokerProcess, RunningBroker, a_broker
from stored import opened_store
from storelogs import records_in

from horolog.broker import queries as registry
from horolog.client import Client, ResourceType, retrying
from horolog.client.queries import QueryBatch, TaskRows
from horolog.clock import ManualClock
from horolog.errors import ErrorCode, RequestRefused
from horolog.metadata.rows import QueryRow
from horolog.record.attempts import FIRST_PRODUCER_ID, MOST_ROWS, AttemptId, slot_of
from horolog.record.batch import iter_headers
from horolog.record.builder import Record, build_batch, read_records
from horolog.record.compression import Codec
from horolog.storage import names
from horolog.storage.producers.attempts import Fences
from horolog.wire.questions import EXACTLY_ONCE

DAY_MS = 86_400_000


broker = a_broker("clicks", partitions=2)


def rows(*names: str, time_ms: int = NOW_MS) -> list[Record]:
    return [Record(time_ms, None, name.encode()) for name in names]


def send(
    client: Client,
    batch: QueryBatch,
    task: int,
    sequence: int,
    records: Sequence[Record],
    *,
    topic: str = "clicks",
    partition: int = 0,
    codec: Codec = Codec.NONE,
) -> int | None:
    """Append what an attempt sends as one record batch; the offset in the response."""
    producer_id, epoch = batch.producer_of(task)
    data = build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return client.produce(topic, partition, data).base_offset


def values(broker: RunningBroker, topic: str = "clicks", partition: int = 0) -> list[str]:
    return [(record.value or b"").decode() for record in records_in(broker.log(topic, partition))]


def refusal_of(error: pytest.ExceptionInfo[RequestRefused]) -> ErrorCode:
    return error.value.code


@contextmanager
def hasty_client(broker: RunningBroker) -> Iterator[Client]:
    """A client that fails at once where others retry for some time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrying, "FIRST_PAUSE_S", 1e9)
        yield broker.client


@pytest.mark.parametrize("how", ["not", "cleanly", "by a crash"])
def test_a_retry_appends_only_what_is_missing(broker: RunningBroker, how: str) -> None:
    batch = broker.client.begin_batch("q", 7, topics=["clicks"])
    assert send(broker.client, batch, 3, 0, rows("a", "b")) == 0
    assert send(broker.client, batch, 3, 2, rows("c")) == 2
    if how == "cleanly":
        broker.restart()
    elif how == "by a crash":
        broker.restart(crash=True)
    again = broker.client.begin_batch("q", 7, topics=["clicks"])
    assert again == batch
    assert send(broker.client, again, 3, 0, rows("a", "b")) == 0
    assert send(broker.client, again, 3, 2, rows("c")) == 2
    assert send(broker.client, again, 3, 3, rows("d")) == 3
    assert values(broker) == ["a", "b", "c", "d"]
    broker.client.commit_batch("q", 7, 4, [TaskRows(3, {"clicks": {0: 4}})])


def test_a_broker_process_killed_between_append_and_retry_doubles_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Client(broker.address, timeout_ms=int(1000 * PATIENCE_S)) as client:
            client.create_topics({"clicks": 1})
            for number in range(3):
                batch = client.begin_batch("q", number, topics=["clicks"])
                for sequence in range(50):
                    send(client, batch, 0, sequence, rows(f"{number}-{sequence}"))
                broker.kill()
                broker.start_again()
                batch = client.begin_batch("q", number, topics=["clicks"])
                for sequence in range(60):
                    send(client, batch, 0, sequence, rows(f"{number}-{sequence}"))
                client.commit_batch("q", number, 1, [TaskRows(0, {"clicks": {0: 60}})])
            fetched = client.fetch("clicks", 0, 0, max_bytes=1 << 20).records
            found = [
                (record.value or b"").decode()
                for position, header in iter_headers(fetched)
                for record in read_records(fetched[position : position + header.size])
            ]
        assert found == [f"{number}-{row}" for number in range(3) for row in range(60)]


@pytest.mark.parametrize(
    ("sequence", "others"),
    [
        (0, rows("a", "x")),
        (0, rows("a")),
        (0, rows("a", "b", "c")),
        (1, rows("b", "c")),
        (0, rows("a", "b", time_ms=NOW_MS + 1)),
    ],
)
def test_a_retry_with_other_rows_is_refused_and_appends_nothing(
    broker: RunningBroker, client: Client, sequence: int, others: list[Record]
) -> None:
    batch = client.begin_batch("q", 0, topics=["clicks"])
    send(client, batch, 0, 0, rows("a", "b"))
    send(client, batch, 0, 2, rows("c"))
    with pytest.raises(RequestRefused, match="task 0 of batch 0 of query q sends other rows") as no:
        send(client, batch, 0, sequence, others)
    assert refusal_of(no) is ErrorCode.invalid_record
    assert values(broker) == ["a", "b", "c"]


def test_rows_are_the_same_in_every_codec_and_where_the_topic_packs_or_stamps_them(
    broker: RunningBroker, client: Client
) -> None:
    broker.create_topic("packed", 1, compression_type="zstd")
    broker.create_topic("stamped", 1, message_timestamp_type="LogAppendTime")
    names = [f"row {number}" * 30 for number in range(40)]
    for topic in ("clicks", "packed", "stamped"):
        batch = client.begin_batch("q", 0, topics=[topic])
        send(client, batch, 0, 0, rows(*names), topic=topic, codec=Codec.LZ4)
        broker.restart(crash=True)
        for codec in Codec:
            send(client, batch, 0, 0, rows(*names), topic=topic, codec=codec)
        assert values(broker, topic) == names


def test_tasks_and_partitions_count_apart(broker: RunningBroker, client: Client) -> None:
    batch = client.begin_batch("q", 0, tasks=2, topics=["clicks"])
    for task in range(2):
        for partition in range(2):
            send(client, batch, task, 0, rows(f"{task}{partition}"), partition=partition)
    assert (values(broker), values(broker, "clicks", 1)) == (["00", "10"], ["01", "11"])
    with pytest.raises(RequestRefused, match="begun with 2 tasks, and has no task 2"):
        send(client, batch, 2, 0, rows("x"))


def test_a_gap_is_refused(client: Client) -> None:
    batch = client.begin_batch("q", 0, topics=["clicks"])
    with pytest.raises(RequestRefused) as no:
        send(client, batch, 0, 1, rows("b"))
    assert refusal_of(no) is ErrorCode.out_of_order_sequence_number
    send(client, batch, 0, 0, rows("a"))
    with pytest.raises(RequestRefused, match="more than 2147483648 rows"):
        send(client, batch, 0, MOST_ROWS - 1, rows("a", "b"))


def test_a_new_run_appends_nothing_before_it_has_repeated_what_is_there(
    broker: RunningBroker, client: Client
) -> None:
    """Its plan may have changed: a task without rows so far may hold those of another one."""
    first = client.begin_batch("q", 0, topics=["clicks"], run="first")
    send(client, first, 0, 0, rows("a", "b"))
    send(client, first, 0, 2, rows("c"))
    send(client, first, 2, 0, rows("d"), partition=1)
    assert client.begin_batch("q", 0, run="first") == first
    send(client, first, 0, 3, rows("e"))  # a retry within the run is not held up
    client.begin_batch("q", 0, run="second")
    with hasty_client(broker) as hasty:
        for task in (1, 3):
            with pytest.raises(RequestRefused, match="rows of an earlier run") as no:
                send(hasty, first, task, 0, rows("x"))
            assert refusal_of(no) is ErrorCode.concurrent_transactions
        for sequence, names in (2, "c"), (0, "ab"), (2, "c"), (3, "e"):
            send(hasty, first, 0, sequence, rows(*names))
            with pytest.raises(RequestRefused, match="rows of an earlier run"):
                send(hasty, first, 0, 4, rows("x"))  # task 2 is missing
        with pytest.raises(RequestRefused, match="sends other rows"):
            send(hasty, first, 2, 0, rows("x"), partition=1)
    send(client, first, 2, 0, rows("d"), partition=1)
    send(client, first, 0, 4, rows("f"))  # refused once; then the broker has looked
    send(client, first, 1, 0, rows("g"))
    broker.restart(crash=True)
    send(client, client.begin_batch("q", 0, run="second"), 0, 5, rows("h"))
    assert (values(broker), values(broker, "clicks", 1)) == ([*"abcefgh"], ["d"])


@pytest.mark.parametrize("noted", [True, False])
def test_a_run_goes_on_after_a_restart_of_the_broker_where_its_tasks_said_that_they_ended(
    broker: RunningBroker, client: Client, noted: bool
) -> None:
    batch = client.begin_batch("q", 0, topics=["clicks"], run="first")
    send(client, batch, 0, 0, rows("a"))
    send(client, batch, 1, 0, rows("b"))
    assert not client.begin_batch("q", 0, run="second").is_open
    send(client, batch, 0, 0, rows("a"))
    if noted:
        assert not client.begin_batch("q", 0, run="second").is_open
    broker.restart(crash=True)
    client.begin_batch("q", 0, run="second")
    send(client, batch, 1, 0, rows("b"))
    if not noted:
        with (
            hasty_client(broker) as hasty,
            pytest.raises(RequestRefused, match="rows of an earlier run"),
        ):
            send(hasty, batch, 1, 1, rows("c"))  # what task 0 has repeated is forgotten
        client.begin_batch("q", 0, run="third")
        send(client, batch, 1, 0, rows("b"))
        send(client, batch, 0, 0, rows("a"))
    send(client, batch, 1, 1, rows("c"))
    assert client.begin_batch("q", 0).is_open
    assert values(broker) == ["a", "b", "c"]


def test_a_run_that_cannot_be_written_down_holds_up_nothing(broker: RunningBroker) -> None:
    batch = broker.client.begin_batch("q", 0, topics=["clicks"], run="first")
    send(broker.client, batch, 0, 0, rows("a"))
    store = broker.broker.queries.store
    store.refusal = "the disk is full"
    with hasty_client(broker) as hasty:
        for query in ("q", "p"):
            with pytest.raises(RequestRefused, match="the disk is full") as no:
                hasty.begin_batch(query, 0, run="second")
            assert refusal_of(no) is ErrorCode.kafka_storage_error
    send(broker.client, batch, 0, 1, rows("b"))
    store.refusal = None
    broker.client.begin_batch("p", 0)
    assert values(broker) == ["a", "b"]


def test_a_first_run_and_a_batch_that_is_complete_are_not_held_up(broker: RunningBroker) -> None:
    batch = broker.client.begin_batch("q", 0, topics=["clicks"], run="first")
    broker.client.begin_batch("q", 0, run="second")  # the first one died before it wrote
    send(broker.client, batch, 0, 0, rows("a"))
    broker.client.commit_batch("q", 0, 1, [TaskRows(0, {"clicks": {0: 1}})])
    broker.client.begin_batch("q", 0, run="third")
    send(broker.client, batch, 0, 0, rows("a"))
    broker.client.commit_batch("q", 0, 1, [TaskRows(0, {"clicks": {0: 1}})])
    batch = broker.client.begin_batch("q", 1, topics=["clicks"], run="fourth")
    send(broker.client, batch, 0, 0, rows("b"))
    assert values(broker) == ["a", "b"]


def test_attempts_at_an_earlier_batch_are_fenced(broker: RunningBroker, client: Client) -> None:
    old = client.begin_batch("q", 32_767, topics=["clicks"])
    send(client, old, 0, 0, rows("a"))
    new = client.begin_batch("q", 32_768, topics=["clicks"])
    for restarted in (False, True):
        if restarted:
            broker.restart(crash=True)
        for sequence in (0, 1):  # even a repeat: its task is long over
            with pytest.raises(RequestRefused, match="Query q writes batch 32768") as no:
                send(client, old, 0, sequence, rows("a"))
            assert refusal_of(no) is ErrorCode.invalid_producer_epoch
        with pytest.raises(RequestRefused, match="has gone on to batch 32768") as no:
            client.begin_batch("q", 32_767, topics=["clicks"])
        assert refusal_of(no) is ErrorCode.invalid_producer_epoch
    send(client, new, 0, 0, rows("b"))
    assert values(broker) == ["a", "b"]


def test_another_number_of_tasks_is_refused_before_a_row_is_sent(client: Client) -> None:
    client.begin_batch("q", 0, tasks=4)
    with pytest.raises(RequestRefused, match="begun with 4 tasks, and this attempt has 2") as no:
        client.begin_batch("q", 0, tasks=2)
    assert refusal_of(no) is ErrorCode.invalid_record
    assert client.begin_batch("q", 0).tasks == 4
    assert client.begin_batch("q", 1, tasks=2).tasks == 2


def test_a_commit_finds_every_row_that_the_last_attempts_did_not_send(
    broker: RunningBroker, client: Client
) -> None:
    """Fewer rows, fewer tasks and another partition cannot be seen by any batch alone."""
    batch = client.begin_batch("q", 0, topics=["clicks"])
    send(client, batch, 0, 0, rows("a", "b"))
    send(client, batch, 1, 0, rows("c"), partition=1)
    whole = [TaskRows(0, {"clicks": {0: 2}}), TaskRows(1, {"clicks": {1: 1}})]
    for tasks, written in (
        (2, [TaskRows(0, {"clicks": {0: 1}}), whole[1]]),
        (1, [whole[0]]),
        (2, [whole[0], TaskRows(1, {"clicks": {0: 1}})]),
        (2, [TaskRows(1, {"clicks": {0: 2}}), TaskRows(0, {"clicks": {1: 1}})]),
        (3, [*whole, TaskRows(2, {"clicks": {1: 5}})]),
        (2, [*whole, TaskRows(2, {"others": {0: 1}})]),
    ):
        with pytest.raises(RequestRefused) as no:
            client.commit_batch("q", 0, tasks, written)
        assert refusal_of(no) is ErrorCode.invalid_record
        assert not client.queries()[0].is_committed
    send(client, batch, 1, 1, rows("d"), partition=1)  # it is open still
    whole[1] = TaskRows(1, {"clicks": {1: 2}})
    for _ in range(2):
        client.commit_batch("q", 0, 2, whole)
        broker.restart(crash=True)
    (shown,) = client.queries()
    assert (shown.is_committed, shown.tasks) == (True, 2)
    assert send(client, batch, 0, 0, rows("a", "b")) == 0
    with pytest.raises(RequestRefused, match="since the batch was committed"):
        send(client, batch, 0, 2, rows("x"))
    with pytest.raises(RequestRefused, match="since the batch was committed"):
        send(client, batch, 1, 0, rows("x"))
    broker.create_topic("another")
    again = client.begin_batch("q", 0, topics=["another"])
    assert again.is_committed
    with pytest.raises(RequestRefused, match="since the batch was committed"):
        send(client, again, 0, 0, rows("x"), topic="another")
    with pytest.raises(RequestRefused, match="begun with 2 tasks, and 3 have reported"):
        client.commit_batch("q", 0, 3, whole)
    with pytest.raises(RequestRefused, match="writes batch 0"):
        client.commit_batch("q", 1, 2, whole)
    with pytest.raises(RequestRefused, match="is not known"):
        client.commit_batch("p", 1, 2, whole)
    assert (values(broker), values(broker, "clicks", 1)) == (["a", "b"], ["c", "d"])


def test_a_batch_without_tasks_is_committed(client: Client) -> None:
    client.begin_batch("q", 0)
    for _ in range(2):
        client.commit_batch("q", 0, 0, [])


@pytest.mark.parametrize("by", ["retention", "DeleteRecords"])
def test_a_query_that_was_stopped_for_years_goes_on_though_its_rows_are_deleted(
    broker: RunningBroker, client: Client, clock: ManualClock, by: str
) -> None:
    """Its rows are too old by now for the topic, and for the memory of idempotent producers."""
    client.alter_configs(
        {(ResourceType.TOPIC, "clicks"): {"message.timestamp.before.max.ms": str(DAY_MS)}}
    )
    batch = client.begin_batch("q", 5, topics=["clicks"])
    send(client, batch, 0, 0, rows("a", "b"))
    clock.advance(1000 * DAY_MS)
    if by == "retention":
        broker.run(broker.broker.background_tasks.expire())
    else:
        broker.delete_records("clicks", 2)
    assert broker.log("clicks").log_start_offset == 2
    for restart in (broker.restart, lambda: broker.restart(crash=True)):
        restart()
        again = client.begin_batch("q", 5, topics=["clicks"])
        assert again == batch
        assert send(client, again, 0, 0, rows("a", "b")) == 0
        with pytest.raises(RequestRefused, match="other rows"):
            send(client, again, 0, 0, rows("a", "x"))
    assert send(client, again, 0, 2, rows("c")) == 2
    client.commit_batch("q", 5, 1, [TaskRows(0, {"clicks": {0: 3}})])
    assert values(broker) == ["c"]


def test_segments_that_roll_and_expire_take_no_memory_with_them(
    broker: RunningBroker, client: Client, clock: ManualClock
) -> None:
    broker.create_topic("small", 1, segment_bytes="200", retention_ms=str(DAY_MS))
    batch = client.begin_batch("q", 0, topics=["small"])
    for row in range(20):
        send(client, batch, 0, row, rows(str(row)), topic="small")
    clock.advance(3 * DAY_MS)
    broker.run(broker.broker.background_tasks.expire())
    broker.restart(crash=True)
    for row in range(21):
        send(client, batch, 0, row, rows(str(row)), topic="small")
    assert values(broker, "small") == ["20"]


def test_partitions_that_are_added_do_not_count_before_the_next_batch(client: Client) -> None:
    batch = client.begin_batch("q", 0, topics=["clicks"])
    client.create_partitions({"clicks": 5})
    assert client.begin_batch("q", 0, topics=["clicks"]).partitions == {"clicks": 2}
    assert client.begin_batch("q", 0).partitions == batch.partitions
    assert client.begin_batch("q", 1, topics=["clicks"]).partitions == {"clicks": 5}


def test_a_topic_that_is_created_again_gets_the_batch_again(broker: RunningBroker) -> None:
    batch = broker.client.begin_batch("q", 0, topics=["clicks"])
    send(broker.client, batch, 0, 0, rows("a"))
    broker.client.commit_batch("q", 0, 1, [TaskRows(0, {"clicks": {0: 1}})])
    broker.client.delete_topics(["clicks"])
    with pytest.raises(RequestRefused, match="or a topic was deleted"):
        broker.client.commit_batch("q", 0, 1, [TaskRows(0, {"clicks": {0: 1}})])
    broker.client.create_topics({"clicks": 1})
    again = broker.client.begin_batch("q", 0, topics=["clicks"])
    assert (again.partitions, again.is_committed) == ({"clicks": 1}, False)
    send(broker.client, again, 0, 0, rows("a"))
    broker.client.commit_batch("q", 0, 1, [TaskRows(0, {"clicks": {0: 1}})])
    assert values(broker) == ["a"]


def test_a_forgotten_query_begins_again_under_its_name(broker: RunningBroker) -> None:
    """What the logs replay of its former life after a crash must not count for the new one."""
    before = broker.client.begin_batch("q", 3, topics=["clicks"])
    send(broker.client, before, 0, 0, rows("a"))
    broker.client.forget_query("q")
    assert broker.client.queries() == []
    with pytest.raises(RequestRefused, match="no query with it is registered") as no:
        send(broker.client, before, 0, 1, rows("b"))
    assert refusal_of(no) is ErrorCode.invalid_producer_id_mapping
    with pytest.raises(RequestRefused, match="No query q"):
        broker.client.forget_query("q")
    broker.restart(crash=True)
    new = broker.client.begin_batch("q", 3, topics=["clicks"])
    assert new.slot != before.slot
    send(broker.client, new, 0, 0, rows("a"))
    broker.client.commit_batch("q", 3, 1, [TaskRows(0, {"clicks": {0: 1}})])
    assert values(broker) == ["a", "a"]


def test_a_committed_batch_whose_rows_a_power_failure_took_is_open_again(
    broker: RunningBroker, client: Client
) -> None:
    batch = client.begin_batch("q", 0, topics=["clicks"])
    send(client, batch, 0, 0, rows("a"))
    size = broker.log("clicks").size
    send(client, batch, 0, 1, rows("b"))
    client.commit_batch("q", 0, 1, [TaskRows(0, {"clicks": {0: 2}})])
    assert client.begin_batch("q", 0, topics=["clicks"]).is_committed
    broker.kill()
    os.truncate(broker.log_dir / "clicks-0" / f"{0:020}.log", size)
    broker.restart()
    again = client.begin_batch("q", 0, topics=["clicks"])
    assert not again.is_committed
    for row, name in enumerate("ab"):
        assert send(client, again, 0, row, rows(name)) == row
    client.commit_batch("q", 0, 1, [TaskRows(0, {"clicks": {0: 2}})])
    assert values(broker) == ["a", "b"]


def test_rows_that_died_with_their_topic_do_not_hold_up_a_retry_without_them(
    broker: RunningBroker, client: Client
) -> None:
    broker.create_topic("gone")
    batch = client.begin_batch("q", 0, topics=["clicks", "gone"])
    send(client, batch, 0, 0, rows("a"))
    send(client, batch, 0, 0, rows("b"), topic="gone")
    client.delete_topics(["gone"])
    client.commit_batch("q", 0, 1, [TaskRows(0, {"clicks": {0: 1}})])
    client.begin_batch("q", 1, topics=["clicks"])


def test_queries_begin_while_another_waits_for_its_logs(broker: RunningBroker) -> None:
    broker.client.begin_batch("q", 0, topics=["clicks"])
    release = threading.Event()
    partition = broker.broker.partition("clicks", 0)
    broker.call(lambda: partition.run(release.wait))
    committing = threading.Thread(target=_commit_nothing, args=(broker.address,))
    committing.start()
    try:
        assert broker.client.begin_batch("p", 0).batch == 0
        assert committing.is_alive()
    finally:
        release.set()
        committing.join(PATIENCE_S)
    assert [each.is_committed for each in broker.client.queries()] == [False, True]


def _commit_nothing(address: str) -> None:
    with Client(address, timeout_ms=int(1000 * PATIENCE_S)) as client:
        client.commit_batch("q", 0, 1, [])


def test_the_logs_alone_keep_a_query_from_doubling(broker: RunningBroker, client: Client) -> None:
    """The identity of rows is in the batches, not in the metadata store."""
    batch = client.begin_batch("q", 9, topics=["clicks"])
    send(client, batch, 0, 0, rows("a"))
    broker.kill()
    (broker.log_dir / names.QUERIES).unlink()
    broker.restart()
    with pytest.raises(RequestRefused, match="hold batch 9 of query q"):
        client.begin_batch("q", 8, topics=["clicks"])
    again = client.begin_batch("q", 9, topics=["clicks"])
    assert send(client, again, 0, 0, rows("a")) == 0
    assert values(broker) == ["a"]


def test_a_damaged_file_of_attempts_is_rebuilt_from_the_log(broker: RunningBroker) -> None:
    batch = broker.client.begin_batch("q", 0, topics=["clicks"])
    send(broker.client, batch, 0, 0, rows("a"))
    broker.restart()
    send(broker.client, batch, 0, 1, rows("b"))
    broker.stop()
    files = sorted((broker.log_dir / "clicks-0").glob("*.attempts"))
    assert files
    assert run_command("log", "verify", broker.log_dir).code == 0
    for path in files:
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    verified = run_command("log", "verify", broker.log_dir)
    assert verified.code == 1
    assert all(path.name in verified.out for path in files)
    broker.restart()
    for row, name in enumerate("ab"):
        assert send(broker.client, batch, 0, row, rows(name)) == row
    with pytest.raises(RequestRefused, match="other rows"):
        send(broker.client, batch, 0, 1, rows("x"))
    assert values(broker) == ["a", "b"]


def test_what_ordinary_producers_get_is_never_an_id_of_a_sink(broker: RunningBroker) -> None:
    batch = broker.client.begin_batch("q", 0, topics=["clicks"])
    send(broker.client, batch, 0, 0, rows("a"))
    broker.restart(crash=True)
    assert broker.client.init_producer_id().id < FIRST_PRODUCER_ID


def test_other_producers_cannot_write_with_an_id_of_a_sink(client: Client) -> None:
    for producer_id, epoch in ((FIRST_PRODUCER_ID, 0), ((1 << 63) - 1, 0)):
        data = build_batch(
            rows("x"), producer_id=producer_id, producer_epoch=epoch, base_sequence=0
        )
        with pytest.raises(RequestRefused, match="no query with it is registered"):
            client.produce("clicks", 0, data)
    batch = client.begin_batch("q", 0, topics=["clicks"])
    data = build_batch(
        rows("x"), producer_id=batch.producer_of(0)[0], producer_epoch=-2, base_sequence=0
    )
    with pytest.raises(RequestRefused, match="nothing of batch"):
        client.produce("clicks", 0, data)


@pytest.mark.parametrize(
    "members",
    [
        "[]",
        "{",
        "[" * 30_000,
        {"action": "dance", "query": "q"},
        {"action": "begin"},
        {"action": "begin", "query": 7},
        {"action": "begin", "query": "q", "batch": True},
        {"action": "begin", "query": "q" * 257, "batch": 0},
        {"action": "begin", "query": "a\nb", "batch": 0},
        {"action": "begin", "query": "q", "batch": -1},
        {"action": "begin", "query": "q", "batch": 1 << 31},
        {"action": "begin", "query": "q", "batch": 0, "tasks": 0},
        {"action": "begin", "query": "q", "batch": 0, "tasks": (1 << 18) + 1},
        {"action": "begin", "query": "q", "batch": 0, "topics": [7]},
        {"action": "begin", "query": "q", "batch": 0, "topics": ["no such topic"]},
        {"action": "begin", "query": "q", "batch": 0, "batch_bytes": 0},
        {"action": "begin", "query": "q", "batch": 0, "layout": -1},
        {"action": "begin", "query": "q", "batch": 0, "run": "r" * 65},
        {"action": "begin", "query": "q", "batch": 0, "run": ""},
        {"action": "begin", "query": "q", "batch": 0, "run": 7},
        {"action": "commit", "query": "q", "batch": 0, "tasks": 1, "rows": 1},
        {"action": "commit", "query": "q", "batch": 0, "tasks": 1, "rows": [], "digest": 0},
        {"action": "commit", "query": "q", "batch": 0, "tasks": 1, "rows": 0, "digest": 0},
    ],
)
def test_calls_that_make_no_sense_change_nothing(client: Client, members: object) -> None:
    if isinstance(members, dict):
        defaults = {"topics": [], "layout": 1, "batch_bytes": 1000}
        members = json.dumps({**defaults, **members} if "batch" in members else members)
    with pytest.raises(RequestRefused) as no:
        client.alter_configs({(ResourceType.BROKER, ""): {EXACTLY_ONCE.name: str(members)}})
    assert refusal_of(no) in {
        ErrorCode.invalid_request,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_producer_epoch,
    }
    assert client.queries() == []


def test_the_registry_has_bounds(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MOST_QUERIES", 2)
    broker.client.begin_batch("a", 0)
    broker.client.begin_batch("b", 0)
    with pytest.raises(RequestRefused, match="horolog queries forget"):
        broker.client.begin_batch("c", 0)
    broker.client.begin_batch("a", 1)
    broker.client.forget_query("b")
    broker.client.begin_batch("c", 0)
    names = [f"{number:03}".ljust(249, "t") for number in range(100)]
    broker.client.create_topics(dict.fromkeys(names, 1))
    for name in names[:81]:
        broker.client.begin_batch("a", 1, topics=[name])
    with pytest.raises(RequestRefused, match="cannot write exactly once to 82 topics"):
        broker.client.begin_batch("a", 1, topics=[names[81]])
    assert len(broker.client.begin_batch("a", 1).partitions) == 81
    monkeypatch.setattr(registry, "MOST_CHARACTERS", 24_000)
    with pytest.raises(RequestRefused, match="as many topics as it can remember"):
        broker.client.begin_batch("c", 0, topics=names[:10])
    broker.client.begin_batch("a", 2)
    assert len(broker.client.begin_batch("c", 0, topics=names[:10]).partitions) == 10


def test_what_is_remembered_has_bounds_and_what_is_superseded_is_forgotten(
    broker: RunningBroker, client: Client
) -> None:
    fences: Fences = broker.broker.partitions.fences
    batch = client.begin_batch("q", 0, topics=["clicks"])
    send(client, batch, 0, 0, rows("a"))
    send(client, batch, 0, 0, rows("b"), partition=1)
    one = fences.remembered
    assert one > 0
    fences.most = one
    with hasty_client(broker) as hasty:
        with pytest.raises(RequestRefused, match="as many batches of exactly-once sinks"):
            send(hasty, batch, 0, 1, rows("c"))
        assert send(hasty, batch, 0, 0, rows("a")) == 0
    batch = client.begin_batch("q", 1, topics=["clicks"])
    broker.run(broker.broker.background_tasks.expire())
    assert fences.remembered == 0
    send(client, batch, 0, 0, rows("c"))
    client.delete_topics(["clicks"])
    assert fences.remembered == 0


def test_two_queries_never_share_a_number(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "slot_of", lambda query, life, probe=0: 5 + probe)
    slots = [client.begin_batch(name, 0).slot for name in "abc"]
    assert slots == [5, 6, 7]
    broker.restart(crash=True)
    assert [batch.slot for batch in client.queries()] == slots


def test_identities_fill_the_header_and_read_back() -> None:
    for attempt in (
        AttemptId(0, 0, 0),
        AttemptId((1 << 28) - 1, (1 << 31) - 1, (1 << 18) - 1),
        AttemptId(slot_of("q", 0), 32_768, 7),
    ):
        producer_id, epoch = attempt.producer
        assert FIRST_PRODUCER_ID <= producer_id < 1 << 63
        assert 0 <= epoch < 1 << 15
        assert AttemptId.of(producer_id, epoch) == attempt


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("retry"), st.integers(0, 2)),
        st.tuples(
            st.just("next"),
        ),
        st.tuples(
            st.just("commit"),
        ),
        st.tuples(
            st.just("roll"),
        ),
        st.tuples(
            st.just("restart"),
        ),
        st.tuples(
            st.just("crash"),
        ),
        st.tuples(
            st.just("expire"),
        ),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_any_interleaving_of_attempts_leaves_each_row_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    """Three attempts at one task send the same rows, each from the start and at its own pace."""
    clock = ManualClock(NOW_MS)
    with RunningBroker(tmp_path_factory.mktemp("model"), clock=clock) as broker:
        broker.create_topic("clicks")
        _run_model(broker, broker.client, steps)


def _run_model(broker: RunningBroker, client: Client, steps: list[tuple[object, ...]]) -> None:
    number, expected = 0, []
    batch = client.begin_batch("q", number, topics=["clicks"])
    written, at, committed = 0, [0, 0, 0], False
    for step, *more in steps:
        match step:
            case "send":
                attempt, count = int(str(more[0])), int(str(more[1]))
                for _ in range(count):
                    row = at[attempt]
                    if committed and row >= written:
                        with pytest.raises(RequestRefused):
                            send(client, batch, 0, row, rows(f"{number}-{row}"))
                        break
                    offset = send(client, batch, 0, row, rows(f"{number}-{row}"))
                    assert offset == len(expected) - written + row
                    if row == written:
                        expected.append(f"{number}-{row}")
                        written += 1
                    at[attempt] += 1
            case "retry":
                at[int(str(more[0]))] = 0
                assert client.begin_batch("q", number, topics=["clicks"]).slot == batch.slot
            case "next":
                number += 1
                old, batch = batch, client.begin_batch("q", number, topics=["clicks"])
                with pytest.raises(RequestRefused):
                    send(client, old, 0, written, rows("late"))
                written, at, committed = 0, [0, 0, 0], False
            case "commit":
                reported = [TaskRows(0, {"clicks": {0: written}})]
                with pytest.raises(RequestRefused):
                    client.commit_batch("q", number, 1, [TaskRows(0, {"clicks": {0: written + 1}})])
                client.commit_batch("q", number, 1, reported)
                committed = True
            case "roll":
                broker.roll("clicks")
            case "restart":
                broker.restart()
            case "crash":
                broker.restart(crash=True)
            case "expire":
                broker.run(broker.broker.background_tasks.expire())
    assert values(broker) == expected


def test_a_stored_query_that_is_too_long_is_ignored(broker: RunningBroker) -> None:
    broker.stop()
    row = QueryRow("q" * 5_000_000, 0, 1, 1, 1, NOW_MS, -1, 1, 1000, "", 1, "[]", "{}")
    with opened_store(broker.log_dir) as store:
        for query in (row, row._replace(query="sound", slot=2)):
            store.put_query(query)
    again = RunningBroker(broker.log_dir)
    listed = run_command("queries", "list", "--bootstrap-server", again.address)
    again.stop()
    assert "sound" in listed.out
