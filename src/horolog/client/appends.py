"""Appends batches to several partitions at once, with producer ids that make retries safe."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from horolog.client.deadline import Deadline
from horolog.client.fetching import highest_for
from horolog.client.link import Link
from horolog.client.metadata import by_topic, refuse
from horolog.client.records import Produced, produced_of
from horolog.client.retrying import RetriedCalls
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.offsets import TopicPartition
from horolog.wire.api import ApiKey

_NO_OFFSET: Final = Produced(None, None, None)
_LAST_OF_ADDED_PARTITIONS: Final = 11  # of Produce: later ones add partitions to transactions


class ProducerId(NamedTuple):
    """Identity of an idempotent producer (KIP-98)."""

    id: int
    epoch: int


class Appends(RetriedCalls):
    """Calls of producers that send to many partitions."""

    def init_producer_id(self) -> ProducerId:
        """Return a producer id that no other producer has.

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
            body = self.brokers.any(deadline).ask(ApiKey.INIT_PRODUCER_ID, request, deadline)
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

        A missing topic is created if the broker allows it (`auto.create.topics.enable`). The
        request is repeated only if the broker cannot have carried it out.

        Raises:
            RecordsRejected: the broker refuses the batch because of some of its records.
            RequestRefused: the broker refuses the batch for another reason.
            NoAnswer: the leader does not respond. With `sent` it may have appended the batch.
        """
        at = topic, partition

        def attempt(deadline: Deadline) -> Produced:
            self.brokers.topic(topic, deadline, auto_create=True)
            leader = self.brokers.leader(topic, partition, deadline)
            sent = self._send(leader, [at], {at: batches}, acks, None, deadline, timeout_ms)
            if acks == 0:
                return _NO_OFFSET
            answer = sent.answers(deadline)[at]
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

        `produced` receives the results of all appended batches, also if the call fails. Batches
        of an idempotent producer are repeated after a lost response. Other batches are repeated
        only if they cannot have been appended. Batches of a transaction need its id.

        Raises:
            RecordsRejected: a broker refuses a batch because of some of its records.
            RequestRefused: a broker refuses a batch for another reason; names the partition.
            NoAnswer: a leader does not respond. With `sent` it may have appended batches.
        """

        def attempt(deadline: Deadline) -> None:
            failures: list[HorologError] = []
            missing = sorted(batches.keys() - produced.keys())
            for leader, partitions in self.brokers.by_leader(missing, deadline).items():
                try:
                    sent = self._send(leader, partitions, batches, acks, transactional_id, deadline)
                    if acks == 0:
                        produced.update(dict.fromkeys(partitions, _NO_OFFSET))
                        continue
                    answers = sent.answers(deadline)
                except HorologError as error:
                    failures.append(error)
                    continue
                failures += _read_answers(answers, batches, produced, is_idempotent=is_idempotent)
            _raise_worst(failures)

        self._persist(attempt, may_repeat=is_idempotent)

    def append_soon(
        self,
        batches: Mapping[TopicPartition, bytes | memoryview],
        *,
        acks: int,
        transactional_id: str | None = None,
    ) -> "Appending":
        """Send the requests of `append` once.

        `finish_append` reads the responses.

        Several may be in flight; they are finished in the order of sending. Until then the client
        must not be used otherwise.

        Raises:
            RequestRefused: a partition does not exist or has no leader.
            NoAnswer: a leader does not accept the request.
        """
        deadline = Deadline.after_ms(self.config.timeout_ms)
        sent = [
            self._send(
                leader, partitions, batches, acks, transactional_id, deadline, is_pipelined=True
            )
            for leader, partitions in self.brokers.by_leader(sorted(batches), deadline).items()
        ]
        return Appending(batches, deadline, sent)

    def finish_append(
        self, appending: "Appending", produced: dict[TopicPartition, Produced]
    ) -> None:
        """Read the responses of the earliest `append_soon` that is not finished.

        `produced` receives the results of all appended batches, also if the call fails.

        Raises:
            RequestRefused: a leader refuses a batch.
        """
        failures: list[HorologError] = []
        for sent in appending.sent:
            try:
                answers = sent.answers(appending.deadline)
            except HorologError as error:
                failures.append(error)
                continue
            failures += _read_answers(answers, appending.batches, produced, is_idempotent=True)
        _raise_worst(failures)

    def _send(
        self,
        leader: Link,
        partitions: Sequence[TopicPartition],
        batches: Mapping[TopicPartition, bytes | memoryview],
        acks: int,
        transactional_id: str | None,
        deadline: Deadline,
        timeout_ms: int | None = None,
        *,
        is_pipelined: bool = False,
    ) -> "_SentAppend":
        topics = by_topic(partitions)
        ids = {name: self.brokers.topic(name, deadline).topic_id for name in topics}
        highest = min(map(highest_for, ids.values()))
        if transactional_id is not None:
            highest = min(highest, _LAST_OF_ADDED_PARTITIONS)
        version = leader.version(ApiKey.PRODUCE, highest=highest)
        request = {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout_ms": deadline.left_ms() if timeout_ms is None else timeout_ms,
            "topic_data": [
                {
                    "name": name,
                    "topic_id": ids[name],
                    "partition_data": [
                        {"index": number, "records": batches[name, number]} for number in numbers
                    ],
                }
                for name, numbers in topics.items()
            ],
        }
        leader.send(
            ApiKey.PRODUCE,
            version,
            request,
            deadline,
            is_answered=acks != 0,
            is_pipelined=is_pipelined,
        )
        names = {topic_id: name for name, topic_id in ids.items()}
        return _SentAppend(leader, version, partitions, names)


class _SentAppend(NamedTuple):
    """Produce request that was sent to one leader, and the names of its topics by their ids."""

    leader: Link
    version: int
    partitions: Sequence[TopicPartition]
    names: Mapping[Any, str]

    def answers(self, deadline: Deadline) -> dict[TopicPartition, Any]:
        """Wait for the response, and return its part about each partition."""
        body = self.leader.receive(ApiKey.PRODUCE, self.version, deadline)
        answers = {}
        for topic in body.responses:
            topic_id = getattr(topic, "topic_id", None)
            name = getattr(topic, "name", None) or self.names.get(topic_id, "")
            for it in topic.partition_responses:
                answers[name, it.index] = it
        for topic_name, partition in self.partitions:
            if (topic_name, partition) not in answers:
                what = f"produce to {topic_name}-{partition}"
                refuse(ErrorCode.unknown_server_error, what, "the answer does not mention it")
        return {partition: answers[partition] for partition in self.partitions}


class Appending(NamedTuple):
    """Produce requests to several leaders whose responses are not read yet."""

    batches: Mapping[TopicPartition, bytes | memoryview]
    deadline: Deadline
    sent: Sequence[_SentAppend]


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
    """Raise an error that retries cannot mend if there is one, otherwise the first error."""
    for failure in failures:
        if not (isinstance(failure, RequestRefused) and failure.code.retriable):
            raise failure
    if failures:
        raise failures[0]
