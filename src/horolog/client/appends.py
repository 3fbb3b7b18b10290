"""Appending batches to several partitions at once, and the producer ids that make retries safe."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from horolog.client.deadline import Deadline
from horolog.client.fetching import highest_for
from horolog.client.link import Link
from horolog.client.metadata import refuse
from horolog.client.records import Produced, produced_of
from horolog.client.retrying import RetriedCalls
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.offsets import TopicPartition
from horolog.wire.api import ApiKey

__all__ = ["Appending", "Appends", "ProducerId"]

_NO_OFFSET: Final = Produced(None, None, None)
_LAST_OF_ADDED_PARTITIONS: Final = 11  # of Produce: later ones add partitions to transactions


class ProducerId(NamedTuple):
    """Identity of an idempotent producer (KIP-98)."""

    id: int
    epoch: int


class Appends(RetriedCalls):
    """Calls of producers that send to many partitions."""

    def init_producer_id(self) -> ProducerId:
        """A producer id that no other producer has.

        Raises:
            RequestRefused: the broker gives none.
        """

        def attempt(deadline: Deadline) -> ProducerId:
            request = {
                "transactional_id": None,
                "transaction_timeout_ms": 0x7FFF_FFFF,
                "producer_id": -1,
                "producer_epoch": -1,
            }
            body = self.brokers.ask_any(ApiKey.INIT_PRODUCER_ID, request, deadline)
            refuse(body.error_code, "InitProducerId")
            return ProducerId(body.producer_id, body.producer_epoch)

        return self._persist(attempt)

    def produce(
        self,
        topic: str,
        partition: int,
        batches: bytes | memoryview,
        *,
        acks: int = 1,
        timeout_ms: int | None = None,
    ) -> Produced:
        """Append batches of format v2 to a partition, exactly as they are.

        A topic that does not exist is created if the broker does so (`auto.create.topics.enable`).
        The request is sent again only where it is known not to have been carried out.

        Raises:
            RecordsRejected: the broker refuses the batch for what some of its records say.
            RequestRefused: or for another reason.
            NoAnswer: the leader does not respond; `sent` says whether it may have appended.
        """
        at = topic, partition

        def attempt(deadline: Deadline) -> Produced:
            self.brokers.topic(topic, deadline, auto_create=True)
            leader = self.brokers.leader(topic, partition, deadline)
            version, request, names = self._produce_request(
                leader, [at], {at: batches}, acks, None, deadline
            )
            if timeout_ms is not None:
                request["timeout_ms"] = timeout_ms
            if acks == 0:
                leader.send_only(ApiKey.PRODUCE, version, request, deadline)
                return _NO_OFFSET
            body = leader.ask(ApiKey.PRODUCE, request, deadline, highest=version)
            answer = _answers(body, [at], names)[at]
            return produced_of(answer, f"produce to {topic}-{partition}", len(batches))

        return self._persist(attempt, may_repeat=False)

    def append(
        self,
        batches: Mapping[TopicPartition, bytes | memoryview],
        produced: dict[TopicPartition, Produced],
        *,
        acks: int = -1,
        is_idempotent: bool = False,
        transactional_id: str | None = None,
    ) -> None:
        """Append one batch of format v2 to each of several partitions, one request a leader.

        `produced` is filled with what has been appended, also when this fails. Batches of an
        idempotent producer are sent again when an answer is lost; others only where it is known
        that they were not appended. Batches of a transaction come with its id.

        Raises:
            RecordsRejected: a broker refuses a batch for what some of its records say.
            RequestRefused: or for another reason; names the partition.
            NoAnswer: a leader does not respond; `sent` says whether it may have appended.
        """
        self._persist(
            lambda deadline: self._append_missing(
                batches, produced, acks, is_idempotent, transactional_id, deadline
            ),
            may_repeat=is_idempotent,
        )

    def append_soon(
        self,
        batches: Mapping[TopicPartition, bytes | memoryview],
        *,
        acks: int,
        transactional_id: str | None = None,
    ) -> "Appending":
        """Send what `append` would, once, and leave the answers to `finish_append`.

        Several may be under way; they are finished in the order in which they were sent. Until
        then the client can be used for nothing else.

        Raises:
            RequestRefused: a partition has no leader, or there is no such partition.
            NoAnswer: a leader does not take the request.
        """
        appending = Appending(batches, Deadline.after_ms(self.config.timeout_ms), [])
        deadline = appending.deadline
        for leader, partitions in self._by_leader(batches, deadline).items():
            version, request, names = self._produce_request(
                leader, partitions, batches, acks, transactional_id, deadline
            )
            leader.send(ApiKey.PRODUCE, version, request, deadline)
            appending.sent.append((leader, version, partitions, names))
        return appending

    def finish_append(
        self, appending: "Appending", produced: dict[TopicPartition, Produced]
    ) -> None:
        """Read the answers to the earliest `append_soon` that is not finished.

        `produced` is filled with what has been appended, also when this fails.

        Raises:
            RequestRefused: a leader refuses a batch, for now or for good.
        """
        failures: list[HorologError] = []
        for leader, version, partitions, names in appending.sent:
            try:
                body = leader.receive(ApiKey.PRODUCE, version, appending.deadline)
                answers = _answers(body, partitions, names)
            except HorologError as error:
                failures.append(error)
                continue
            failures += _read_answers(answers, appending.batches, produced, is_idempotent=True)
        _raise_worst(failures)

    def _append_missing(
        self,
        batches: Mapping[TopicPartition, bytes | memoryview],
        produced: dict[TopicPartition, Produced],
        acks: int,
        is_idempotent: bool,
        transactional_id: str | None,
        deadline: Deadline,
    ) -> None:
        failures: list[HorologError] = []
        missing = batches.keys() - produced.keys()
        for leader, partitions in self._by_leader(missing, deadline).items():
            version, request, names = self._produce_request(
                leader, partitions, batches, acks, transactional_id, deadline
            )
            try:
                if acks == 0:
                    leader.send_only(ApiKey.PRODUCE, version, request, deadline)
                    produced.update(dict.fromkeys(partitions, _NO_OFFSET))
                    continue
                body = leader.ask(ApiKey.PRODUCE, request, deadline, highest=version)
                answers = _answers(body, partitions, names)
            except HorologError as error:
                failures.append(error)
                continue
            failures += _read_answers(answers, batches, produced, is_idempotent=is_idempotent)
        _raise_worst(failures)

    def _by_leader(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[Link, list[TopicPartition]]:
        by_leader: dict[Link, list[TopicPartition]] = defaultdict(list)
        for topic, partition in sorted(partitions):
            by_leader[self.brokers.leader(topic, partition, deadline)].append((topic, partition))
        return by_leader

    def _produce_request(
        self,
        leader: Link,
        partitions: Sequence[TopicPartition],
        batches: Mapping[TopicPartition, bytes | memoryview],
        acks: int,
        transactional_id: str | None,
        deadline: Deadline,
    ) -> tuple[int, dict[str, Any], dict[Any, str]]:
        """The version, the request, and the names of topics that its answer gives by their ids."""
        by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for topic, partition in partitions:
            its = {"index": partition, "records": batches[topic, partition]}
            by_topic[topic].append(its)
        ids = {name: self.brokers.topic(name, deadline).topic_id for name in by_topic}
        highest = min(map(highest_for, ids.values()))
        if transactional_id is not None:
            highest = min(highest, _LAST_OF_ADDED_PARTITIONS)
        version = leader.version(ApiKey.PRODUCE, highest=highest)
        request = {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout_ms": deadline.left_ms(),
            "topic_data": [
                {"name": name, "topic_id": ids[name], "partition_data": its}
                for name, its in by_topic.items()
            ],
        }
        return version, request, {topic_id: name for name, topic_id in ids.items()}


class Appending(NamedTuple):
    """Requests under way: each leader's link, version, partitions, and topics by their ids."""

    batches: Mapping[TopicPartition, bytes | memoryview]
    deadline: Deadline
    sent: list[tuple[Link, int, Sequence[TopicPartition], Mapping[Any, str]]]


def _answers(
    body: Any, partitions: Sequence[TopicPartition], names: Mapping[Any, str]
) -> dict[TopicPartition, Any]:
    found = {}
    for topic in body.responses:
        name = getattr(topic, "name", None) or names.get(getattr(topic, "topic_id", None), "")
        for it in topic.partition_responses:
            found[name, it.index] = it
    for topic_name, partition in partitions:
        if (topic_name, partition) not in found:
            what = f"produce to {topic_name}-{partition}"
            refuse(ErrorCode.unknown_server_error, what, "the answer does not mention it")
    return {partition: found[partition] for partition in partitions}


def _read_answers(
    answers: Mapping[TopicPartition, Any],
    batches: Mapping[TopicPartition, bytes | memoryview],
    produced: dict[TopicPartition, Produced],
    *,
    is_idempotent: bool,
) -> list[HorologError]:
    failures: list[HorologError] = []
    for (topic, partition), it in answers.items():
        try:
            what, size = f"produce to {topic}-{partition}", len(batches[topic, partition])
            produced[topic, partition] = produced_of(it, what, size)
        except RequestRefused as error:
            if is_idempotent and error.code is ErrorCode.duplicate_sequence_number:
                produced[topic, partition] = _NO_OFFSET  # it is there; the broker forgot where
            else:
                failures.append(error)
    return failures


def _raise_worst(failures: Sequence[HorologError]) -> None:
    """One that will not pass ends a call, whatever may yet become of the others."""
    for failure in failures:
        if not (isinstance(failure, RequestRefused) and failure.code.retriable):
            raise failure
    if failures:
        raise failures[0]
