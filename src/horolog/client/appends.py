"""Appending batches to several partitions at once, and the producer ids that make retries safe."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from horolog.client.asking import Asking
from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.metadata import refuse
from horolog.client.records import Produced, TopicPartition, highest_for, produced_of
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.wire.api import ApiKey

__all__ = ["AppendCalls", "ProducerId"]

_NO_OFFSET: Final = Produced(None, None, None)


class ProducerId(NamedTuple):
    """What a broker knows an idempotent producer by (KIP-98)."""

    id: int
    epoch: int


class AppendCalls(Asking):
    """Calls of producers that send to many partitions."""

    def init_producer_id(self) -> ProducerId:
        """A producer id that no other producer has.

        Raises:
            RequestRefused: the broker gives none.
            NoAnswer: no broker answers.
        """

        def attempt(deadline: Deadline) -> ProducerId:
            request = {
                "transactional_id": None,
                "transaction_timeout_ms": 0x7FFF_FFFF,
                "producer_id": -1,
                "producer_epoch": -1,
            }
            body = self.brokers.ask_any(ApiKey.INIT_PRODUCER_ID, request, deadline).body
            refuse(body.error_code, "InitProducerId")
            return ProducerId(body.producer_id, body.producer_epoch)

        return self._persist(attempt)

    def partitions_of(self, topic: str, *, auto_create: bool = False) -> list[int]:
        """The numbers of a topic's partitions, in order.

        Raises:
            RequestRefused: there is no such topic, nor does the broker create it.
            NoAnswer: no broker answers.
        """
        return self._persist(
            lambda deadline: sorted(
                self.brokers.topic(topic, deadline, auto_create=auto_create).partitions
            )
        )

    def append(
        self,
        batches: Mapping[TopicPartition, bytes | memoryview],
        produced: dict[TopicPartition, Produced],
        *,
        acks: int = -1,
        is_idempotent: bool = False,
    ) -> None:
        """Append one batch of format v2 to each of several partitions, one request a leader.

        `produced` is filled with what has been appended, also when this fails. Batches of an
        idempotent producer are sent again when an answer is lost; others only where it is known
        that they were not appended.

        Raises:
            RecordsRejected: a broker refuses a batch for what some of its records say.
            RequestRefused: or for another reason; names the partition.
            NoAnswer: a leader does not answer; `sent` tells whether it may have appended.
        """
        self._persist(
            lambda deadline: self._append_missing(batches, produced, acks, is_idempotent, deadline),
            may_repeat=is_idempotent,
        )

    def _append_missing(
        self,
        batches: Mapping[TopicPartition, bytes | memoryview],
        produced: dict[TopicPartition, Produced],
        acks: int,
        is_idempotent: bool,
        deadline: Deadline,
    ) -> None:
        by_leader: dict[Link, list[TopicPartition]] = defaultdict(list)
        for topic, partition in batches.keys() - produced.keys():
            by_leader[self.brokers.leader(topic, partition, deadline)].append((topic, partition))
        failures: list[HorologError] = []
        for leader, partitions in by_leader.items():
            try:
                for tp, it in self._append_at(leader, partitions, batches, acks, deadline).items():
                    try:
                        produced[tp] = produced_of(it, f"produce to {tp[0]}-{tp[1]}")
                    except RequestRefused as error:
                        duplicate = error.code is ErrorCode.duplicate_sequence_number
                        if not (is_idempotent and duplicate):
                            failures.append(error)
                            continue
                        produced[tp] = _NO_OFFSET  # it is there; the broker forgot where
            except HorologError as error:
                failures.append(error)
        # One that will not pass ends the call, whatever may yet become of the others.
        for failure in failures:
            if not (isinstance(failure, RequestRefused) and failure.code.retriable):
                raise failure
        if failures:
            raise failures[0]

    def _append_at(
        self,
        leader: Link,
        partitions: list[TopicPartition],
        batches: Mapping[TopicPartition, bytes | memoryview],
        acks: int,
        deadline: Deadline,
    ) -> dict[TopicPartition, Any]:
        by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for topic, partition in sorted(partitions):
            its = {"index": partition, "records": batches[topic, partition]}
            by_topic[topic].append(its)
        ids = {name: self.brokers.topic(name, deadline).topic_id for name in by_topic}
        highest = min(map(highest_for, ids.values()))
        version = leader.version(ApiKey.PRODUCE, highest=highest)
        request = {
            "transactional_id": None,
            "acks": acks,
            "timeout_ms": deadline.left_ms(),
            "topic_data": [
                {"name": name, "topic_id": ids[name], "partition_data": its}
                for name, its in by_topic.items()
            ],
        }
        if acks == 0:
            leader.tell(ApiKey.PRODUCE, version, request, deadline)
            return dict.fromkeys(partitions, _UNKNOWN)
        body = leader.ask(ApiKey.PRODUCE, version, request, deadline).body
        names = {topic_id: name for name, topic_id in ids.items()}
        found = {}
        for topic in body.responses:
            name = getattr(topic, "name", None) or names.get(getattr(topic, "topic_id", None), "")
            for it in topic.partition_responses:
                found[name, it.index] = it
        for topic_name, partition in partitions:
            if (topic_name, partition) not in found:
                what = f"produce to {topic_name}-{partition}"
                refuse(ErrorCode.unknown_server_error, what, "the answer does not mention it")
        return {tp: found[tp] for tp in partitions}


class _Silent(NamedTuple):
    """In place of an answer, where none is sent."""

    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1


_UNKNOWN: Final = _Silent()
