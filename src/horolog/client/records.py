"""Fetches batches from partitions, and reads the results of appends."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from horolog.client.deadline import Deadline
from horolog.client.fetching import (
    Fetched,
    PartitionFetch,
    fetch_request,
    highest_for,
    to_fetch,
)
from horolog.client.metadata import by_topic, error_of, refuse
from horolog.client.retrying import RetriedCalls
from horolog.errors import ErrorCode, RecordError, RecordsRejected
from horolog.offsets import TopicPartition
from horolog.record.timestamps import TimestampType
from horolog.wire.api import ApiKey


class Produced(NamedTuple):
    """Result of an append. A field is None if the broker did not return it (acks 0)."""

    base_offset: int | None
    log_append_time_ms: int | None
    log_start_offset: int | None
    timestamp_type: TimestampType | None = None
    """Timestamp type of the stored records (KIP-32)."""


class Records(RetriedCalls):
    """Fetches from the leaders of partitions."""

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 4 << 20,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        read_committed: bool = False,
        with_append_times: bool = False,
        with_seen_times: bool = False,
    ) -> Fetched:
        """Return batches, starting with the one that contains `offset`.

        Waits up to `max_wait_ms` for `min_bytes`. The first batch is returned whole even if it is
        larger than `max_bytes`. Large records are a view of the response, not a copy.
        `with_append_times` adds append times. `with_seen_times` also adds when a follower saw
        records without a known append time (`AppendTimeStretch.is_seen`).

        Raises:
            RequestRefused: the log has no such offset (`offset_out_of_range`), or another reason.
        """
        return self.answer_to(
            PartitionFetch(
                topic,
                partition,
                offset,
                max_bytes,
                max_wait_ms,
                min_bytes,
                read_committed,
                with_append_times,
                with_seen_times,
            )
        )

    def answer_to(self, request: PartitionFetch) -> Fetched:
        """Return the result of a fetch."""

        def attempt(deadline: Deadline) -> Fetched:
            leader, version, fields = request.prepare(self.brokers, deadline)
            return request.read(leader.ask(ApiKey.FETCH, fields, deadline, highest=version))

        return self._persist(attempt, extra_ms=request.max_wait_ms)

    def wait_for_records(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int,
        read_committed: bool = False,
    ) -> None:
        """Return once a partition has records at its position, or after `max_wait_ms`.

        Sends one fetch to each leader, which share the time. A partition with an error ends the
        wait, so that the caller can look at it.

        Raises:
            RequestRefused: a partition does not exist or has no leader.
        """

        def attempt(deadline: Deadline) -> None:
            by_leader = self.brokers.by_leader(positions, deadline)
            for leader, partitions in by_leader.items():
                topics = [
                    {
                        "topic": name,
                        "topic_id": self.brokers.topic(name, deadline).topic_id,
                        "partitions": [
                            to_fetch(number, positions[name, number], max_bytes=1)
                            for number in numbers
                        ],
                    }
                    for name, numbers in by_topic(partitions).items()
                ]
                ids = [topic["topic_id"] for topic in topics]
                request = fetch_request(
                    topics,
                    max_bytes=1,
                    max_wait_ms=max_wait_ms // len(by_leader),
                    min_bytes=1,
                    level=int(read_committed),
                )
                highest = highest_for(ids if all(ids) else None)
                body = leader.ask(ApiKey.FETCH, request, deadline, highest=highest)
                if any(it.records or it.error_code for t in body.responses for it in t.partitions):
                    return

        if positions:
            self._persist(attempt, extra_ms=max_wait_ms)


def produced_of(it: Any, what: str, size: int) -> Produced:
    """Return the result of appending a batch of `size` bytes.

    Raises:
        RequestRefused: the broker refuses it.
    """
    message = getattr(it, "error_message", None)
    record_errors = getattr(it, "record_errors", ())
    if record_errors:
        code = error_of(it.error_code)
        raise RecordsRejected(
            code,
            f"{what}: {message or code.name.upper()}",
            [
                RecordError(
                    record_error.batch_index,
                    record_error.batch_index_error_message or message or "",
                )
                for record_error in record_errors
            ],
        )
    if it.error_code == ErrorCode.message_too_large:
        said = message or f"the batch has {size} bytes"  # Apache Kafka does not say it
        message = f"{said.rstrip('.')}; the topic's max.message.bytes is the limit"
    refuse(it.error_code, what, message)
    return Produced(
        base_offset=_or_none(it.base_offset),
        log_append_time_ms=_or_none(it.log_append_time_ms),
        log_start_offset=_or_none(getattr(it, "log_start_offset", -1)),
        timestamp_type=TimestampType.CREATE_TIME
        if it.log_append_time_ms == -1
        else TimestampType.LOG_APPEND_TIME,
    )


def _or_none(number: int) -> int | None:
    return None if number == -1 else number
