"""What Spark's tasks and driver do to write exactly once, with deaths in between, without Spark.

A module that subclasses `SinkInTransactions` says at which broker: by its fixture `bootstrap`. A
consumer of librdkafka judges what is committed.
"""

import itertools
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from committed import values_seen

from horolog.client import Client, CommittedOffset, Producer, Transaction, Transactions
from horolog.errors import RequestRefused
from horolog.spark.errors import RowsRefused
from horolog.spark.write import transactions as write_transactions
from horolog.spark.write.options import WriteOptions
from horolog.spark.write.rejected_times import RejectedTimes
from horolog.spark.write.transactions import TaskTransaction, TransactionAttempt

_numbers = itertools.count()


def new_topic(client: Client) -> str:
    name = f"t{next(_numbers)}"
    client.create_topics({name: 3})
    return name


def rows(*values: str) -> pa.Table:
    return pa.table(
        {"value": pa.array(values), "partition": pa.array([len(v) % 3 for v in values])}
    )


def settle(client: Client, transactional_id: str) -> None:
    """Wait until the coordinator has told all partitions: a commit returns before."""
    client.init_transactions(transactional_id, transaction_timeout_ms=60_000)


class Write:
    """A query that writes to one topic."""

    def __init__(self, bootstrap: str, topic: str, **options: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.options = WriteOptions.parse(
            {
                "kafka.bootstrap.servers": bootstrap,
                "topic": topic,
                "exactlyOnce": "true",
                **options,
            }
        )
        self.query = f"query-{topic}"

    def begin(self, client: Client, batch: int, task: int) -> TaskTransaction:
        policy = RejectedTimes()
        return TaskTransaction(
            client, self.options, policy, query=self.query, batch=batch, task=task
        )

    def task(self, batch: int, task: int, *values: str) -> TransactionAttempt:
        with Client(self.bootstrap) as client, self.begin(client, batch, task) as transaction:
            sent = rows(*values)
            for each in sent.to_batches():
                transaction.digest.add(self.topic, each)
            if not transaction.is_committed and values:
                transaction.producer.send(self.topic, sent)
            return transaction.finish([self.topic] if values else [])

    def run(self, batch: int, *tasks: Sequence[str]) -> list[TransactionAttempt]:
        return [self.task(batch, number, *values) for number, values in enumerate(tasks)]

    def commit(self, attempts: Sequence[TransactionAttempt]) -> None:
        with Client(self.bootstrap) as client:
            write_transactions.commit(client, attempts, self.options)

    def seen(self) -> list[str]:
        with Client(self.bootstrap) as client:
            for task in range(3):
                transaction = f"horolog/task/{task}/{self.query}"
                client.init_transactions(transaction, transaction_timeout_ms=60_000)
        return sorted(values_seen(self.bootstrap, self.topic))


class DriverDied(Exception):
    pass


def commit_until(
    write: Write,
    attempts: Sequence[TransactionAttempt],
    monkeypatch: pytest.MonkeyPatch,
    *,
    tasks: int,
) -> None:
    """A driver that dies when it has committed this many tasks."""
    left = tasks
    plain = Transactions.end

    def end(self: Transactions, transaction: Transaction, *, commit: bool) -> None:
        nonlocal left
        if transaction.id.startswith("horolog/task/"):
            if not left:
                raise DriverDied
            left -= 1
        plain(self, transaction, commit=commit)

    with monkeypatch.context() as patched:
        patched.setattr(Transactions, "end", end)
        with pytest.raises(DriverDied):
            write.commit(attempts)


class SinkInTransactions:
    """Needs the fixture `bootstrap`."""

    @pytest.fixture
    def client(self, bootstrap: str) -> Iterator[Client]:
        with Client(bootstrap) as client:
            yield client

    @pytest.fixture
    def topic(self, client: Client) -> str:
        return new_topic(client)

    @pytest.fixture
    def write(self, bootstrap: str, topic: str) -> Write:
        return Write(bootstrap, topic)

    def test_a_batch_is_seen_when_the_driver_commits_it_and_repeats_change_nothing(
        self, write: Write
    ) -> None:
        attempts = write.run(0, ["a", "bb"], [], ["ccc"])
        assert values_seen(write.bootstrap, write.topic) == []
        write.commit(attempts)
        write.commit(attempts)
        assert write.seen() == ["a", "bb", "ccc"]
        again = write.run(0, ["a", "bb"], [], ["ccc"])
        assert [each.transaction for each in again] == [None, None, None]
        write.commit(again)
        write.commit(write.run(1, ["d"]))
        assert write.seen() == ["a", "bb", "ccc", "d"]

    def test_rows_of_an_attempt_that_was_killed_are_not_seen(self, write: Write) -> None:
        with Client(write.bootstrap) as client:
            transaction = write.begin(client, 0, 0)  # no `with`: it is left as a kill leaves it
            transaction.producer.send(write.topic, rows("killed", "k"))
            transaction.producer.close()
        write.commit(write.run(0, ["a", "b"]))
        assert write.seen() == ["a", "b"]

    def test_a_failed_attempt_holds_no_reader_up(self, write: Write) -> None:
        with Client(write.bootstrap) as client:
            transaction = write.begin(client, 0, 0)
            transaction.producer.send(write.topic, rows("failed"))
            with pytest.raises(ValueError, match="no such row"), transaction:
                raise ValueError("no such row")
        with Client(write.bootstrap) as client, Producer(client) as producer:
            producer.send(write.topic, rows("others"))
        settle_task(write, 0)
        assert write.seen() == ["others"]

    @pytest.mark.parametrize("tasks", [0, 1, 2])
    def test_a_batch_whose_driver_died_between_commits_is_completed_by_the_next_run(
        self, write: Write, monkeypatch: pytest.MonkeyPatch, tasks: int
    ) -> None:
        batch = (["a", "b"], ["c"], ["d", "e"])
        commit_until(write, write.run(0, *batch), monkeypatch, tasks=tasks)
        again = write.run(0, *batch)
        assert [each.transaction is None for each in again] == [n < tasks for n in range(3)]
        write.commit(again)
        assert write.seen() == ["a", "b", "c", "d", "e"]

    def test_a_run_with_other_rows_than_one_that_is_committed_in_part_writes_nothing(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batch = (["a", "b"], ["c"])
        commit_until(write, write.run(0, *batch), monkeypatch, tasks=1)
        with pytest.raises(RowsRefused, match=r"Task 0 of batch 0 .* with other rows"):
            write.task(0, 0, "a", "B")
        with pytest.raises(RowsRefused, match="Task 0 of batch 0"):
            write.task(0, 0)
        for others in [(["a", "b"], ["C"]), (["a", "b"], []), (["a", "b"], ["c"], ["d"])]:
            attempts = write.run(0, *others)
            with pytest.raises(RowsRefused, match=r"Batch 0 of query .* nothing of this run"):
                write.commit(attempts)
            with Client(write.bootstrap) as client:
                write_transactions.abort(client, attempts)
        assert write.seen() == ["a", "b"]
        write.commit(write.run(0, *batch))
        assert write.seen() == ["a", "b", "c"]

    def test_a_run_whose_driver_died_before_its_commit_may_be_repeated_with_other_rows(
        self, write: Write
    ) -> None:
        write.run(0, ["a", "b"], ["c"])
        write.commit(write.run(0, ["d"]))
        assert write.seen() == ["d"]

    def test_a_run_whose_driver_died_before_it_committed_a_task_may_be_repeated_with_other_rows(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = write.run(0, ["a"], ["b"], ["c"])
        commit_until(write, first, monkeypatch, tasks=0)
        write.commit(write.run(0, ["d"]))
        with pytest.raises(RequestRefused):  # the first driver was not dead
            write.commit(first)
        with Client(write.bootstrap) as client:
            for transaction in (each.transaction for each in first):
                assert transaction is not None
                with pytest.raises(RequestRefused):
                    client.end_transaction(transaction, commit=True)
        assert write.seen() == ["d"]

    def test_fewer_tasks_than_in_a_run_that_is_committed_in_part_are_refused(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit_until(write, write.run(0, [], ["b"], ["c"]), monkeypatch, tasks=1)
        for others in ([], ["b", "c"]):
            attempts = write.run(0, others)
            with pytest.raises(RowsRefused, match="another number of tasks"):
                write.commit(attempts)
            with Client(write.bootstrap) as client:
                write_transactions.abort(client, attempts)
        assert write.seen() == ["b"]
        write.commit(write.run(0, [], ["b"], ["c"]))
        assert write.seen() == ["b", "c"]

    def test_empty_batches_leave_no_topic_and_no_record_and_need_none(
        self, bootstrap: str, client: Client
    ) -> None:
        write = Write(bootstrap, f"absent{next(_numbers)}")
        write.commit(write.run(0, [], []))
        write.commit(write.run(5, []))
        assert write.topic not in client.metadata().topics

    def test_a_batch_before_the_last_one_is_refused(self, write: Write) -> None:
        first = write.run(0, ["a"])
        write.commit(first)
        write.commit(write.run(1, ["b"]))
        for late in (lambda: write.task(0, 0, "a"), lambda: write.commit(first)):
            with pytest.raises(RequestRefused, match="gone on to batch 1"):
                late()
        assert write.seen() == ["a", "b"]

    def test_a_task_that_a_copy_has_overtaken_cannot_be_committed(self, write: Write) -> None:
        first = write.task(0, 0, "a")
        second = write.task(0, 0, "a")
        with pytest.raises(RequestRefused, match=r"task 0 of batch 0 .*spark\.speculation"):
            write.commit([first])
        assert write.seen() == []  # looking ends what is open
        write.commit(write.run(0, ["a"]))
        assert write.seen() == ["a"]
        assert first.transaction != second.transaction

    def test_a_batch_with_no_record_before_it_is_refused_unless_it_is_the_first_one(
        self, bootstrap: str, topic: str
    ) -> None:
        write = Write(bootstrap, topic)
        attempts = write.run(7, ["a"])
        with pytest.raises(RowsRefused, match="set option 'exactlyOnceFrom' to 7"):
            write.commit(attempts)
        assert write.seen() == []
        first = Write(bootstrap, topic, exactlyOnceFrom="7")
        first.commit(first.run(7, ["a"]))
        first.commit(first.run(8, ["b"]))
        write.commit(write.run(9, ["c"]))
        assert write.seen() == ["a", "b", "c"]

    def test_an_aborted_batch_leaves_nothing_open(self, write: Write) -> None:
        attempts = write.run(0, ["a"], ["b"])
        with Client(write.bootstrap) as client:
            write_transactions.abort(client, attempts)
            write_transactions.abort(client, attempts)
            with Producer(client) as producer:
                producer.send(write.topic, rows("others"))
        with pytest.raises(RequestRefused, match="its transaction was ended"):
            write.commit(attempts)
        assert write.seen() == ["others"]

    def test_a_record_that_no_attempt_has_committed_is_refused(self, write: Write) -> None:
        with Client(write.bootstrap) as client:
            for metadata in (
                "",
                "[]",
                "[" * 4000,
                '{"layout":99,"tasks":1,"digest":"x"}',
                '{"layout":1,"tasks":1,"digest":3}',
            ):
                offset = CommittedOffset(0, metadata)
                client.offset_commit(f"horolog/task/0/{write.query}", {(write.topic, 0): offset})
                with pytest.raises(RowsRefused):
                    write.task(0, 0, "a")
            for tasks in ("null", "-1", "1e9", "2000000000", '"x"'):
                metadata = f'{{"layout":1,"tasks":{tasks},"digest":"x"}}'
                offset = CommittedOffset(0, metadata)
                client.offset_commit(f"horolog/batch/{write.query}", {(write.topic, 0): offset})
                with pytest.raises(RowsRefused, match="has not written"):
                    write.commit([write.task(0, 1, "b")])
        assert write.seen() == []


def settle_task(write: Write, task: int) -> None:
    with Client(write.bootstrap) as client:
        settle(client, f"horolog/task/{task}/{write.query}")
