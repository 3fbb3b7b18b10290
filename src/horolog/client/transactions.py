"""Transactions (KIP-98), which any process that knows the producer can extend and end.

    init ── add ── append ── commit_offsets ── end

At horolog's brokers as at Apache Kafka's. The requests are those from before
KIP-890: they take part in a transaction that another process ends.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from horolog.client.appends import ProducerId
from horolog.client.brokers import CoordinatorKind
from horolog.client.connection import NoAnswer
from horolog.client.deadline import Deadline
from horolog.client.groups import CommittedOffset, committed_by_topic
from horolog.client.link import Link
from horolog.client.metadata import by_topic, refuse
from horolog.client.retrying import RetriedCalls
from horolog.errors import ErrorCode, RequestRefused
from horolog.offsets import TopicPartition
from horolog.wire.api import ApiKey

TRANSACTION_TIMEOUT_MS: Final = 60_000  # as in Kafka's producer
_FIRST_FLOW: Final = 3  # a transaction is ended in the epoch in which it was begun
_LAST_OF_INIT: Final = 4  # later ones are for transactions of KIP-890


class Transaction(NamedTuple):
    """Identity of a transaction: the transactional id, and its present producer.

    Any process that has it can end it; another `init` fences it.
    """

    id: str
    producer: ProducerId


class Transactions(RetriedCalls):
    """Requests to the coordinators of transactions."""

    def init(
        self,
        transactional_id: str,
        *,
        transaction_timeout_ms: int,
        after: Transaction | None = None,
    ) -> Transaction:
        """Take over a transactional id: its open transaction is aborted, and its producer fenced.

        The coordinator aborts a transaction that is open for longer than `transaction_timeout_ms`.
        A producer that continues `after` one of its own that has ended is refused where another has
        taken over since (KIP-360; brokers before Kafka 2.5 do not look).

        Raises:
            RequestRefused: the broker has no transactions, or refuses the id or the timeout.
        """
        request = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": transaction_timeout_ms,
            "producer_id": -1 if after is None else after.producer.id,
            "producer_epoch": -1 if after is None else after.producer.epoch,
        }

        def attempt(deadline: Deadline) -> Transaction:
            link = self._coordinator_of(transactional_id, deadline)
            body = link.ask(ApiKey.INIT_PRODUCER_ID, request, deadline, highest=_LAST_OF_INIT)
            refuse(
                body.error_code,
                f"transactional id {transactional_id}, transactions of {transaction_timeout_ms} ms",
            )
            producer = ProducerId(body.producer_id, body.producer_epoch)
            return Transaction(transactional_id, producer)

        return self._persist(attempt)

    def add(self, transaction: Transaction, partitions: Collection[TopicPartition]) -> None:
        """Add partitions to a transaction before batches are appended to them.

        Raises:
            RequestRefused: the producer is fenced, or may not write to a partition.
        """
        request = {
            "v3_and_below_transactional_id": transaction.id,
            "v3_and_below_producer_id": transaction.producer.id,
            "v3_and_below_producer_epoch": transaction.producer.epoch,
            "v3_and_below_topics": [
                {"name": topic, "partitions": numbers}
                for topic, numbers in by_topic(sorted(partitions)).items()
            ],
        }

        def attempt(deadline: Deadline) -> None:
            body = self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, transaction, request, deadline)
            _refuse_any(
                {
                    f"{topic.name}-{it.partition_index}": it.partition_error_code
                    for topic in body.results_by_topic_v3_and_below
                    for it in topic.results_by_partition
                },
                f"transaction {transaction.id} with",
            )

        self._persist(attempt)

    def commit_offsets(
        self,
        transaction: Transaction,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        """Commit offsets of a group as part of a transaction.

        Raises:
            RequestRefused: the producer is fenced, or a partition is refused, which it names.
        """
        producer = {**_producer_of(transaction), "group_id": group_id}
        request = {**producer, "topics": committed_by_topic(offsets)}

        def add_group(deadline: Deadline) -> None:
            body = self._ask(ApiKey.ADD_OFFSETS_TO_TXN, transaction, producer, deadline)
            refuse(body.error_code, f"transaction {transaction.id} with group {group_id}")

        def commit(deadline: Deadline) -> None:
            link = self.brokers.coordinator(group_id, deadline)
            body = link.ask(ApiKey.TXN_OFFSET_COMMIT, request, deadline, highest=_FIRST_FLOW)
            _refuse_any(
                {
                    f"{topic.name}-{it.partition_index}": it.error_code
                    for topic in body.topics
                    for it in topic.partitions
                },
                f"transaction {transaction.id}: commit of group {group_id} to",
            )

        self._persist(add_group)
        self._persist(commit)

    def await_markers(self, ended: Iterable[Transaction]) -> None:
        """Wait until readers of committed records see what ended transactions have written.

        A coordinator answers an end before it writes the markers, and a continued transactional
        id afterwards. A refusal ends the wait, but not what was committed.
        """
        with suppress(NoAnswer):
            for one in ended:
                with suppress(RequestRefused):
                    self.init(one.id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, after=one)

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        """Commit or abort a transaction.

        Repeating the same end changes nothing.

        Raises:
            RequestRefused: the producer is fenced, nothing is open (INVALID_TXN_STATE), or the
                transaction was ended in the other way.
        """
        request = {**_producer_of(transaction), "committed": commit}

        def attempt(deadline: Deadline) -> None:
            body = self._ask(ApiKey.END_TXN, transaction, request, deadline)
            verb = "commit" if commit else "abort"
            refuse(body.error_code, f"{verb} of transaction {transaction.id}")

        self._persist(attempt)

    def _coordinator_of(self, transactional_id: str, deadline: Deadline) -> Link:
        kind = CoordinatorKind.TRANSACTION
        return self.brokers.coordinator(transactional_id, deadline, kind=kind)

    def _ask(
        self,
        api_key: ApiKey,
        transaction: Transaction,
        request: Mapping[str, Any],
        deadline: Deadline,
    ) -> Any:
        link = self._coordinator_of(transaction.id, deadline)
        return link.ask(api_key, request, deadline, highest=_FIRST_FLOW)


def _producer_of(transaction: Transaction) -> dict[str, Any]:
    return {
        "transactional_id": transaction.id,
        "producer_id": transaction.producer.id,
        "producer_epoch": transaction.producer.epoch,
    }


def _refuse_any(codes: Mapping[str, int], what: str) -> None:
    """Raise the error of the partition that was refused; the others were not attempted."""
    attempted = {
        name: code for name, code in codes.items() if code != ErrorCode.operation_not_attempted
    }
    for name, code in (attempted if any(attempted.values()) else codes).items():
        refuse(code, f"{what} {name}")
