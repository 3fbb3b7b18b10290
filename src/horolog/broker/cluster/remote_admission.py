"""Asks the coordinators of transactions, which are other brokers, about transactional batches.

A leader asks before it appends the first batch of a transaction (KIP-890). In the first flow the
coordinator says whether the partition is in the transaction, in the second one it adds it:
AddPartitionsToTxn from version 4 on. One request is under way to each coordinator; what comes
meanwhile goes into the next one, a transactional id once. A producer of an older epoch than one
that waits is fenced without being asked about.

The admission of a batch is made before the question (`Producers.admit`). A marker may be written
here before the answer arrives; the batch is refused then, as no marker would end it.

For the event loop's thread only.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from horolog.broker.cluster.own_rights import OwnRights
from horolog.broker.coordinators.admission import Admitted
from horolog.broker.coordinators.transaction_coordinator import (
    ADDS_PARTITIONS_SINCE,
    produce_code,
)
from horolog.broker.partitions import Partitions
from horolog.broker.settings import LiveSettings
from horolog.client.metadata import error_of
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.storage.names import TopicPartition
from horolog.storage.producers.states import Admission
from horolog.transactions.values import ProducerIdentity
from horolog.wire.api import ApiKey
from horolog.wire.leaders import NodeEndpoint

_LOG = logging.getLogger(__name__)

TIMEOUT_MS: Final = 30_000
"""Longest wait for an answer, as `request.timeout.ms` of Kafka's brokers."""
_MOST_AT_ONCE: Final = 1_000  # transactional ids of a request

Codes = Mapping[TopicPartition, ErrorCode]


class AskBroker(Protocol):
    """Asks another broker of the cluster."""

    def __call__(
        self, node: NodeEndpoint, api_key: ApiKey, body: Mapping[str, Any], /, *, timeout_ms: int
    ) -> Awaitable[Any]:
        """Return the body of the response.

        Raises:
            HorologError: there is none.
        """
        ...


class _Question(NamedTuple):
    """Partitions of one transaction, and the future of their codes."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: Collection[TopicPartition]
    verify_only: bool
    answer: "asyncio.Future[Codes]"

    def as_fields(self) -> dict[str, Any]:
        """Return the transaction of a request."""
        topics: dict[str, list[int]] = {}
        for name, index in self.partitions:
            topics.setdefault(name, []).append(index)
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer.id,
            "producer_epoch": self.producer.epoch,
            "verify_only": self.verify_only,
            "topics": [
                {"name": name, "partitions": partitions} for name, partitions in topics.items()
            ],
        }

    def settle(self, codes: Codes) -> None:
        """Give the codes; a partition that the coordinator left out has failed."""
        if not self.answer.done():
            missing = ErrorCode.unknown_server_error
            self.answer.set_result({each: codes.get(each, missing) for each in self.partitions})

    def fail(self, code: ErrorCode) -> None:
        """Give one code for all partitions."""
        self.settle(dict.fromkeys(self.partitions, code))


class RemoteAdmission:
    """Admits transactional batches whose coordinators are other brokers.

    Args:
        coordinator_of: returns the broker that coordinates a transactional id, with its endpoint
            for brokers, or raises RequestRefused.
        rights: those of this broker at other brokers.
    """

    def __init__(
        self,
        ask: AskBroker,
        coordinator_of: Callable[[str], NodeEndpoint],
        partitions: Partitions,
        live: LiveSettings,
        rights: OwnRights,
    ) -> None:
        self._rights = rights
        self._ask = ask
        self._coordinator_of = coordinator_of
        self._partitions = partitions
        self._live = live
        self._waiting: dict[NodeEndpoint, list[_Question]] = {}
        self._asking: dict[NodeEndpoint, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Fail what waits, and stop asking."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for waiting in self._waiting.values():
            for question in waiting:
                question.fail(ErrorCode.network_exception)
        self._waiting.clear()

    async def admitted(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        produce_version: int,
    ) -> Admitted:
        """Return the codes of a Produce request's partitions, and their admissions.

        A transaction that begins while the former one ends is asked about again for a while.
        """
        is_strict = produce_version >= ADDS_PARTITIONS_SINCE
        config = self._live.config
        pause_ms = config.add_partitions_to_txn_retry_backoff_ms
        left_ms = config.add_partitions_to_txn_retry_backoff_max_ms
        while True:
            admissions = self._admissions(producer.id, partitions, is_strict=is_strict)
            codes = await self._codes(transactional_id, producer, admissions, is_strict=is_strict)
            if ErrorCode.concurrent_transactions not in codes.values() or not is_strict:
                break
            if left_ms <= 0:
                break
            await asyncio.sleep(min(pause_ms, left_ms) / 1000)
            left_ms -= pause_ms
        translated = {each: produce_code(code, produce_version) for each, code in codes.items()}
        return Admitted(producer.id, is_strict, translated, admissions)

    def _admissions(
        self, producer_id: int, partitions: Iterable[TopicPartition], *, is_strict: bool
    ) -> dict[TopicPartition, Admission]:
        found = {each: self._partitions.find(*each) for each in partitions}
        return {
            each: partition.admit(producer_id, is_strict=is_strict)
            for each, partition in found.items()
            if partition is not None
        }

    async def _codes(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        is_strict: bool,
    ) -> Codes:
        """Return the coordinator's codes; it is not asked about what is open here already."""
        codes = dict.fromkeys(partitions, ErrorCode.none)
        if not is_strict and not self._live.config.transaction_partition_verification_enable:
            return codes
        unknown = [each for each in partitions if not self._has_open(each, producer)]
        if not unknown:
            return codes
        try:
            node = self._coordinator_of(transactional_id)
        except RequestRefused as error:
            return {**codes, **dict.fromkeys(unknown, error.code)}
        answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        question = _Question(transactional_id, producer, unknown, not is_strict, answer)
        self._put(node, question)
        return {**codes, **await answer}

    def _has_open(self, key: TopicPartition, producer: ProducerIdentity) -> bool:
        partition = self._partitions.find(*key)
        return partition is not None and partition.log.producers.has_open(*producer)

    def _put(self, node: NodeEndpoint, question: _Question) -> None:
        """Queue a question; the older one of two epochs of a transactional id is fenced."""
        waiting = self._waiting.setdefault(node, [])
        for other in list(waiting):
            if other.transactional_id != question.transactional_id:
                continue
            if other.producer.epoch > question.producer.epoch:
                question.fail(ErrorCode.invalid_producer_epoch)
                return
            if other.producer.epoch < question.producer.epoch:
                waiting.remove(other)
                other.fail(ErrorCode.invalid_producer_epoch)
        waiting.append(question)
        if node not in self._asking:
            task = asyncio.get_running_loop().create_task(self._ask_while_waiting(node))
            self._asking[node] = task

    async def _ask_while_waiting(self, node: NodeEndpoint) -> None:
        """Ask one coordinator until nothing waits for it."""
        try:
            while waiting := self._waiting.pop(node, None):
                now: dict[str, _Question] = {}
                later = []
                for question in waiting:
                    known = now.setdefault(question.transactional_id, question)
                    if known is not question or len(now) > _MOST_AT_ONCE:
                        later.append(question)
                        if known is question:
                            del now[question.transactional_id]
                if later:
                    self._waiting[node] = later
                await self._ask_about(node, now)
        finally:
            del self._asking[node]

    async def _ask_about(self, node: NodeEndpoint, questions: Mapping[str, _Question]) -> None:
        body = {"transactions": [question.as_fields() for question in questions.values()]}
        code = ErrorCode.network_exception
        try:
            answer = await self._ask(
                node,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                body,
                timeout_ms=TIMEOUT_MS,
            )
            code = error_of(answer.error_code)
            denied = code is ErrorCode.cluster_authorization_failed
            self._rights.note(_LOG, ApiKey.ADD_PARTITIONS_TO_TXN.title, is_denied=denied)
            if denied:
                code = ErrorCode.invalid_txn_state  # the client cannot help it
            if not code:
                for result in answer.results_by_transaction:
                    if (question := questions.get(result.transactional_id)) is not None:
                        question.settle(_codes_of(result))
                code = ErrorCode.unknown_server_error  # of those that are missing
        except HorologError as error:
            _LOG.warning("no answer about transactions from broker %s: %s", node.node_id, error)
            code = ErrorCode.network_exception
        finally:
            for question in questions.values():
                question.fail(code)


def _codes_of(result: Any) -> Codes:
    """Return the codes of one transaction in a response."""
    return {
        TopicPartition(topic.name, partition.partition_index): error_of(
            partition.partition_error_code
        )
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }
