"""Transactions of `horolog.client` on Apache Kafka, and the sink that writes exactly once by them.

A consumer of librdkafka judges what is committed.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from bench.sides import horolog
from committed import values_seen
from patience import eventually
from releases import running
from tools.peers.kafka import LAST_OF_2, LAST_WITH_OLD_FORMATS, NEWEST, OLDEST_OF_2

from horolog.client import Client, CommittedOffset, Producer, TransactionalProducer
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.spark.errors import RowsRefused
from horolog.spark.write import transactions as write_transactions
from horolog.spark.write.options import WriteOptions
from horolog.spark.write.rejected_times import RejectedTimes
from horolog.spark.write.transactions import TaskTransaction, TransactionAttempt

pytestmark = pytest.mark.timeout(1800)
_numbers = itertools.count()


@pytest.fixture(scope="module", params=[NEWEST, LAST_WITH_OLD_FORMATS, LAST_OF_2, OLDEST_OF_2])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with running(request.param, tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka.bootstrap


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    name = f"t{next(_numbers)}"
    client.create_topics({name: 3})
    return name


def rows(*values: str) -> pa.Table:
    return pa.table(
        {"value": pa.array(values), "partition": pa.array([len(v) % 3 for v in values])}
    )


class TestProducer:
    def test_rows_are_seen_when_they_are_committed_and_never_when_aborted(
        self, bootstrap: str, client: Client, topic: str
    ) -> None:
        with TransactionalProducer(client, f"id-{topic}") as producer:
            producer.send(topic, rows("a", "bb"))
            assert values_seen(bootstrap, topic) == []
            assert sorted(values_seen(bootstrap, topic, "read_uncommitted")) == ["a", "bb"]
            producer.commit()
            producer.send(topic, rows("dropped"))
            producer.abort()
            producer.send(topic, rows("c", "ddd"))
            producer.send(topic, rows("eeee"))
            producer.commit()
            producer.commit()  # nothing is open
        _settle(client, f"id-{topic}")
        assert sorted(values_seen(bootstrap, topic)) == ["a", "bb", "c", "ddd", "eeee"]

    def test_a_later_producer_of_the_same_id_ends_an_earlier_one_and_what_it_has_open(
        self, bootstrap: str, client: Client, topic: str
    ) -> None:
        with Client(bootstrap) as other, TransactionalProducer(client, topic) as earlier:
            earlier.send(topic, rows("a"))
            with TransactionalProducer(other, topic) as later:
                later.send(topic, rows("b"))
                for attempt in (earlier.commit, earlier.abort):
                    with pytest.raises(RequestRefused) as refusal:
                        attempt()
                    assert refusal.value.code in {
                        ErrorCode.producer_fenced,
                        ErrorCode.invalid_producer_epoch,
                        ErrorCode.invalid_txn_state,
                    }
                later.commit()
        _settle(client, topic)
        assert values_seen(bootstrap, topic) == ["b"]

    def test_after_an_error_a_transaction_can_be_aborted_and_the_next_one_committed(
        self, bootstrap: str, client: Client, topic: str
    ) -> None:
        with TransactionalProducer(client, topic) as producer:
            producer.send(topic, rows("a"))
            with pytest.raises(RequestRefused):
                producer.send(topic, rows("x" * 2_000_000))  # max.message.bytes is 1 MiB
            for call in (producer.commit, lambda: producer.send(topic, rows("b"))):
                with pytest.raises(RequestRefused, match="abort it"):
                    call()
            producer.abort()
            producer.send(topic, rows("c", "d"))
            producer.commit()
        _settle(client, topic)
        assert sorted(values_seen(bootstrap, topic)) == ["c", "d"]

    def test_offsets_of_a_group_are_committed_with_the_rows_or_not_at_all(
        self, client: Client, topic: str
    ) -> None:
        with TransactionalProducer(client, topic) as producer:
            producer.commit_offsets(topic, {(topic, 0): CommittedOffset(7, "said")})
            producer.commit()
            producer.commit_offsets(topic, {(topic, 0): CommittedOffset(9)})
            producer.abort()
        _settle(client, topic)
        # Kafka 2.0 has no `require_stable`, and gives them a moment later.
        assert eventually(
            lambda: client.offset_fetch(topic) == {(topic, 0): CommittedOffset(7, "said")}
        )

    def test_a_time_that_is_longer_than_the_broker_allows_is_refused_by_name(
        self, client: Client, topic: str
    ) -> None:
        with pytest.raises(RequestRefused, match="INVALID_TRANSACTION_TIMEOUT"):
            TransactionalProducer(client, topic, transaction_timeout_ms=900_001)

    def test_very_many_rows_fill_requests_behind_each_other_once(
        self, bootstrap: str, client: Client, topic: str
    ) -> None:
        values = [f"{number:0100}" for number in range(40_000)]
        with TransactionalProducer(client, topic, batch_bytes=20_000) as producer:
            producer.send(topic, pa.table({"value": values}))
            producer.commit()
        _settle(client, topic)
        assert sorted(values_seen(bootstrap, topic)) == values


def _settle(client: Client, transactional_id: str) -> None:
    """Wait until the coordinator has told all partitions: a commit returns before."""
    client.init_transactions(transactional_id, transaction_timeout_ms=60_000)


# What tasks and the driver of a write do, with deaths in between.


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


@pytest.fixture
def write(bootstrap: str, topic: str) -> Write:
    return Write(bootstrap, topic)


class DriverDied(Exception):
    pass


def commit_until(
    write: Write,
    attempts: Sequence[TransactionAttempt],
    monkeypatch: pytest.MonkeyPatch,
    *,
    tasks: int,
) -> None:
    """A driver that dies when it has committed so many tasks."""
    left = tasks
    plain = Client.end_transaction

    def end(self: Client, transaction: object, *, commit: bool) -> None:
        nonlocal left
        if str(getattr(transaction, "id", "")).startswith("horolog/task/"):
            if not left:
                raise DriverDied
            left -= 1
        plain(self, transaction, commit=commit)

    with monkeypatch.context() as patched:
        patched.setattr(Client, "end_transaction", end)
        with pytest.raises(DriverDied):
            write.commit(attempts)


@pytest.mark.parametrize("bootstrap", [OLDEST_OF_2], indirect=True, scope="module")
def test_a_broker_that_cannot_tell_what_is_committed_is_refused_by_name(write: Write) -> None:
    """On Kafka 2.0 a record was once missing that had just been committed."""
    with pytest.raises(RequestRefused, match=r"needs Apache Kafka 2\.5 or newer"):
        write.task(0, 0, "a")
    assert write.seen() == []


@pytest.mark.parametrize(
    "bootstrap", [NEWEST, LAST_WITH_OLD_FORMATS, LAST_OF_2], indirect=True, scope="module"
)
class TestSink:
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
        _settle_task(write, 0)
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


def _settle_task(write: Write, task: int) -> None:
    with Client(write.bootstrap) as client:
        _settle(client, f"horolog/task/{task}/{write.query}")


def test_a_broker_without_transactions_is_named_in_a_sentence(tmp_path: Path) -> None:
    with (
        horolog(directory=tmp_path) as side,
        Client(side.bootstrap) as client,
        pytest.raises(HorologError, match="transaction"),
    ):
        TransactionalProducer(client, "id")
