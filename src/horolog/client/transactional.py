"""Producer whose rows become visible when its transaction is committed (KIP-98).

This module imports pyarrow.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from horolog.client.client import Client
from horolog.client.groups import CommittedOffset
from horolog.client.producer import (
    BATCH_BYTES,
    REQUEST_BYTES,
    Producer,
    RejectedBatch,
    Repair,
    Written,
)
from horolog.client.transactions import TRANSACTION_TIMEOUT_MS, Transaction
from horolog.errors import ErrorCode, RequestRefused
from horolog.offsets import TopicPartition
from horolog.record.compression import Codec


class TransactionalProducer(Producer):
    """Sends Arrow data in transactions, to horolog's or Apache Kafka's brokers.

        with Client("127.0.0.1:9092") as client:
            with TransactionalProducer(client, "nightly") as producer:
                producer.send("clicks", table)
                producer.commit_offsets("group", {("source", 0): CommittedOffset(42)})
                producer.commit()

    A transaction begins with the first `send` or `commit_offsets` after the previous one.
    Consumers with `isolation.level=read_committed` see its rows once it is committed. A transaction
    that is neither committed nor aborted stays open until its timeout, or until another producer of
    the transactional id starts. After an error it can only be aborted.

    Args:
        client: Like the arguments that are not listed here, the one of `Producer`.
        transactional_id: The latest producer with this id fences earlier ones, and aborts their
            open transactions.
        transaction_timeout_ms: Longest time that a transaction stays open.

    Raises:
        RequestRefused: the broker has no transactions, or refuses the id or the time.
    """

    def __init__(
        self,
        client: Client,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        codec: Codec = Codec.NONE,
        compression_level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        request_bytes: int = REQUEST_BYTES,
        now_ms: Callable[[], int] | None = None,
        first_turn: int = 0,
        on_rejected: Callable[[RejectedBatch], Repair] | None = None,
    ) -> None:
        self._transaction_timeout_ms = transaction_timeout_ms
        self._added: set[TopicPartition] = set()
        self._is_open = False
        self._transaction = client.transactions.init(
            transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )
        super().__init__(
            client,
            codec=codec,
            compression_level=compression_level,
            batch_bytes=batch_bytes,
            request_bytes=request_bytes,
            now_ms=now_ms,
            first_turn=first_turn,
            on_rejected=on_rejected,
        )
        self._transactional_id = transactional_id
        self._id = self._transaction.producer

    @property
    def open_transaction(self) -> Transaction | None:
        """Open transaction, or None.

        Any process can end it with `Client.end_transaction`.

        Raises:
            RequestRefused: an error has ended it.
        """
        self._refuse_after_errors()
        return self._transaction if self._is_open else None

    def send(
        self, topic: str, data: Any, *, metadata: bool = False, into: Written | None = None
    ) -> Written:
        """Append rows as part of the transaction, like `Producer.send`.

        Raises:
            RequestRefused: another producer has the transactional id now, an error before this one
                has to be answered by `abort`, or as `Producer.send`.
        """
        self._refuse_after_errors()
        return super().send(topic, data, metadata=metadata, into=into)

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Commit offsets of a group as part of the transaction.

        Raises:
            RequestRefused: as `Transactions.commit_offsets`, or as `send`.
            NoAnswer: a coordinator does not answer.
        """
        self._refuse_after_errors()
        self._is_open = True
        try:
            self._client.transactions.commit_offsets(self._transaction, group_id, offsets)
        except BaseException:
            self._id = None
            raise

    def commit(self) -> None:
        """Commit the open transaction: all of its rows become visible, or none.

        Raises:
            RequestRefused: another producer has the transactional id, or the transaction exceeded
                its timeout and is aborted.
            NoAnswer: the coordinator does not answer. The transaction may be committed.
        """
        self._refuse_after_errors()
        self._end(commit=True)

    def abort(self) -> None:
        """Abort the open transaction; also after an error.

        Raises:
            RequestRefused: another producer has the transactional id.
            NoAnswer: the coordinator does not answer.
        """
        has_failed = self._id is None
        self._end(commit=False)
        if has_failed:
            # Which sequences the brokers have is not known: a new epoch begins with none.
            self._transaction = self._client.transactions.init(
                self._transaction.id,
                transaction_timeout_ms=self._transaction_timeout_ms,
                after=self._transaction,
            )
            self._begin_sequences(self._transaction.producer)

    def _end(self, *, commit: bool) -> None:
        if self._is_open:
            try:
                self._client.transactions.end(self._transaction, commit=commit)
            except RequestRefused as error:
                # Abort what has not even begun, because its first request failed: that is done.
                if commit or error.code is not ErrorCode.invalid_txn_state:
                    self._id = None
                    raise
            except BaseException:
                self._id = None
                raise
        self._is_open = False
        self._added.clear()

    def _refuse_after_errors(self) -> None:
        if self._id is None:
            raise RequestRefused(
                ErrorCode.invalid_txn_state, "The transaction has failed: abort it"
            )

    def _prepare(self, partitions: Collection[TopicPartition], written: Written) -> None:
        missing = set(partitions) - self._added
        if not missing:
            return
        self._settle(written, 0)  # the coordinator may be one of the leaders: its answers come next
        self._is_open = True
        self._client.transactions.add(self._transaction, missing)
        self._added |= missing
