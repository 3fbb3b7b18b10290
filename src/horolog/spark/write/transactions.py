"""Rows written exactly once: each attempt at a task is an open transaction.

    a task   takes over the transactional id of (query, task), which ends earlier attempts;
             sends its rows, and commits a record of the batch with them; leaves this open
    driver   keeps a record of the whole batch, then commits the transaction of each task

The records are offsets committed for groups named like the transactional ids: the offset is the
number of the batch, the metadata has a digest of the rows. Where a driver died between the commits
of two tasks, the batch is run again, and its records tell which rows are there. From the first of
these commits on the rows are fixed; before it a run may have others (docs/exactly-once.md).
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from horolog.client import Client, CommittedOffset, NoAnswer, Transaction, TransactionalProducer
from horolog.client.rows_digest import LAYOUT, RowsDigest
from horolog.client.transactions import TRANSACTION_TIMEOUT_MS
from horolog.errors import ErrorCode, RequestRefused
from horolog.json_text import from_json
from horolog.offsets import SINK_GROUPS
from horolog.spark.errors import RowsRefused
from horolog.spark.write.options import WriteOptions
from horolog.spark.write.rejected_times import RejectedTimes

__all__ = ["TaskTransaction", "TransactionAttempt", "abort", "commit"]

_MOST_TASKS: Final = 1 << 20
_ENDED: Final = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
    }
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionAttempt:
    """A complete attempt of a task whose rows are in a transaction."""

    query: str
    batch: int
    task: int
    digest: str
    rows: int
    topic: str | None
    """One of the topics of its rows; None without rows."""
    is_committed: bool
    """True if an earlier attempt with the same rows is committed."""
    transaction: Transaction | None
    """Transaction to commit; None without rows, or if they are committed already."""


class _Record(NamedTuple):
    """A task or batch that a group's committed offset records."""

    batch: int
    layout: object = None
    tasks: object = None
    digest: object = None

    @classmethod
    def of(cls, committed: CommittedOffset) -> "_Record":
        try:
            said = from_json(committed.metadata)
            return cls(committed.offset, said["layout"], said["tasks"], said["digest"])
        except (ValueError, TypeError, KeyError):
            return cls(committed.offset)

    def count_of_tasks(self) -> int:
        """Return the number of tasks of the run that kept this record of a whole batch.

        Raises:
            RowsRefused: it does not say.
        """
        if isinstance(self.tasks, int) and 0 < self.tasks <= _MOST_TASKS:
            return self.tasks
        raise RowsRefused(f"A batch has a record that this program has not written: {self}")


class TaskTransaction:
    """Transaction of one attempt at a task; `with` aborts it unless `finish` is reached.

    Raises:
        RequestRefused: the brokers have no transactions, or the query has gone on.
        RowsRefused: the task's record is not one of ours.
    """

    def __init__(
        self,
        client: Client,
        options: WriteOptions,
        rejected: RejectedTimes,
        *,
        query: str,
        batch: int,
        task: int,
    ) -> None:
        self._query, self._batch, self._task = query, batch, task
        self._group = _group_of_task(query, task)
        self.producer = TransactionalProducer(
            client,
            self._group,
            transaction_timeout_ms=options.producing.transaction_timeout_ms,
            first_turn=task + batch,
            on_rejected=rejected,
            **options.producing.of_batches,
        )
        self._client = client
        self.digest = RowsDigest()
        """Digest of the rows of this attempt, which the caller adds."""
        try:
            self._record = _record_of(client, self._group)
            if self._record is not None and self._record.batch > batch:
                raise _too_late(query, batch, self._record.batch)
        except BaseException:
            self.producer.close()
            raise

    @property
    def is_committed(self) -> bool:
        """True if an earlier attempt's rows are committed: rows are then compared, not sent."""
        return self._record is not None and self._record.batch == self._batch

    def __enter__(self) -> "TaskTransaction":
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        """Abort what an attempt has sent that fails; readers wait for it otherwise."""
        try:
            if kind is not None:
                self.producer.abort()
        except (RequestRefused, NoAnswer) as error:
            _logger.warning(
                "Transaction %s stays open until its time is over: %s", self._group, error
            )
        finally:
            self.producer.close()

    def finish(self, topics: Sequence[str]) -> TransactionAttempt:
        """Record the rows in the transaction, and leave it open for the driver.

        `topics` are those that rows were sent to.

        Raises:
            RowsRefused: an earlier attempt with other rows is committed.
            RequestRefused, NoAnswer: a coordinator refuses the record, or does not answer.
        """
        digest = self.digest.hexdigest()
        topic = min(topics, default=None)
        if self.is_committed:
            assert self._record is not None
            _compare(self._record, digest, f"Task {self._task} of {self._name}")
        elif topic is not None:
            _keep(self.producer, self._client, topic, self._group, self._batch, 1, digest)
        return TransactionAttempt(
            query=self._query,
            batch=self._batch,
            task=self._task,
            digest=digest,
            rows=self.digest.rows,
            topic=topic,
            is_committed=self.is_committed,
            transaction=self.producer.open_transaction,
        )

    @property
    def _name(self) -> str:
        return f"batch {self._batch} of query {self._query}"


def commit(client: Client, attempts: Sequence[TransactionAttempt], options: WriteOptions) -> None:
    """Commit a batch: one complete attempt of each of its tasks.

    May be repeated.

    Raises:
        RowsRefused: an earlier run of the batch, committed in part, had other rows; or whether
            there was one is not known any more.
        RequestRefused: a transaction has been ended, or the query has gone on to a later batch.
        NoAnswer: a coordinator does not answer: run the batch again.
    """
    query, batch = attempts[0].query, attempts[0].batch
    tasks = sorted(attempts, key=lambda attempt: attempt.task)
    digest = hashlib.blake2b(digest_size=16)
    for task in tasks:
        digest.update(f"{task.task} {task.rows} {task.digest}\n".encode())
    group = _group_of_batches(query)
    topic = min((task.topic for task in tasks if task.topic), default=None)
    if topic is None:
        topic = _existing(client, options.topic)
    with TransactionalProducer(client, group) as producer:  # from here on no other driver
        record = _record_of(client, group)
        if record is not None and record.batch > batch:
            raise _too_late(query, batch, record.batch)
        if record is not None and record.batch == batch and not _is_void(client, record, tasks):
            _compare(record, digest.hexdigest(), f"Batch {batch} of query {query}")
        else:
            if (
                record is None
                and batch > options.exactly_once_from
                and any(task.rows for task in tasks)
            ):
                raise RowsRefused(
                    f"The broker has no record of a batch of query {query}: it is not known "
                    f"whether batch {batch} was written before, as records are kept for "
                    "offsets.retention.minutes and go with their topic. Look what the last rows "
                    "in the topic are. If this batch is not there, set option 'exactlyOnceFrom' to "
                    f"{batch}, which is the first batch that is written with 'exactlyOnce'"
                )
            if topic is not None:
                _keep(producer, client, topic, group, batch, len(tasks), digest.hexdigest())
                producer.commit()
    for task in tasks:
        if task.transaction is not None:
            _commit_task(client, task.transaction, f"task {task.task} of batch {batch}")


def abort(client: Client, attempts: Sequence[TransactionAttempt]) -> None:
    """Abort the open transactions of a failed batch, as far as brokers answer."""
    for attempt in attempts:
        if attempt.transaction is None:
            continue
        try:
            client.end_transaction(attempt.transaction, commit=False)
        except RequestRefused as error:
            if error.code not in _ENDED:  # else another attempt, or a commit, came first
                _logger.warning("%s", error)
        except NoAnswer as error:
            _logger.warning("Transactions stay open until their time is over: %s", error)
            return


def _group_of_batches(query: str) -> str:
    return f"{SINK_GROUPS}batch/{query}"


def _group_of_task(query: str, task: int) -> str:
    return f"{SINK_GROUPS}task/{task}/{query}"  # the query comes last: its name may have slashes


def _existing(client: Client, topic: str | None) -> str | None:
    """Return the topic of all rows if it exists: a batch without rows creates none."""
    if topic is not None:
        try:
            client.topics.numbers(topic)
        except RequestRefused as error:
            if error.code is not ErrorCode.unknown_topic_or_partition:
                raise
            return None
    return topic


def _is_void(client: Client, record: _Record, attempts: Sequence[TransactionAttempt]) -> bool:
    """Return True if nothing of the run that kept a record is committed or can be.

    The attempts at hand have fenced those of their tasks; here go the tasks that they lack.
    """
    if any(attempt.is_committed for attempt in attempts):
        return False
    query = attempts[0].query
    for task in range(len(attempts), record.count_of_tasks()):
        group = _group_of_task(query, task)
        client.init_transactions(group, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        other = _record_of(client, group)
        if other is not None and other.batch == record.batch:
            return False
    return True


def _record_of(client: Client, group: str) -> _Record | None:
    """Return the record of the last transaction of a group; None without one.

    Raises:
        RequestRefused: the broker cannot say that all of an ended transaction is there: then a
            record may be missing for a moment, and its rows would be written again.
    """
    try:
        committed = client.offset_fetch(group, require_stable=True).values()
    except RequestRefused as error:
        if error.code != ErrorCode.unsupported_version:
            raise
        raise RequestRefused(
            error.code,
            f"option 'exactlyOnce' needs Apache Kafka 2.5 or newer (KIP-447): {error}",
        ) from None
    found = [offset for offset in committed if offset is not None]
    return _Record.of(max(found, key=lambda offset: offset.offset)) if found else None


def _keep(
    producer: TransactionalProducer,
    client: Client,
    topic: str,
    group: str,
    batch: int,
    tasks: int,
    digest: str,
) -> None:
    said = json.dumps({"layout": LAYOUT, "tasks": tasks, "digest": digest}, separators=(",", ":"))
    partition = client.topics.numbers(topic)[0]
    producer.commit_offsets(group, {(topic, partition): CommittedOffset(batch, said)})


def _commit_task(client: Client, transaction: Transaction, what: str) -> None:
    try:
        client.end_transaction(transaction, commit=True)
    except RequestRefused as error:
        if error.code not in _ENDED:
            raise
        raise RequestRefused(
            error.code,
            f"{what} cannot be committed ({error.code.name.upper()}): its transaction was ended by "
            "another attempt (switch spark.speculation off), by another query on the same "
            "checkpoint, or because it was open for longer than kafka.transaction.timeout.ms. "
            "Nothing is doubled: run the batch again",
        ) from None


def _compare(record: _Record, digest: str, what: str) -> None:
    if record.layout is None:
        raise RowsRefused(f"{what} has a record that this program has not written: {record}")
    if record.layout != LAYOUT:
        raise RowsRefused(
            f"{what} was written by another version of horolog, whose rows cannot be compared: run "
            "it with that one"
        )
    if record.digest != digest:
        raise RowsRefused(
            f"{what} was committed, at least in part, with other rows, another order of rows or "
            "another number of tasks than this run has: nothing of this run is written. Run it "
            "with the plan and the settings that it had (docs/exactly-once.md)"
        )


def _too_late(query: str, batch: int, latest: int) -> RequestRefused:
    return RequestRefused(
        ErrorCode.producer_fenced,
        f"query {query} has gone on to batch {latest}: batch {batch} is over. A checkpoint that "
        "was set back cannot continue; a new one is a new query",
    )
