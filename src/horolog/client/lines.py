"""Sends numbered lines as records. Errors name the lines of refused records."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from horolog.client.client import Client
from horolog.client.topic_facts import partition_numbers
from horolog.errors import RecordsRejected, RequestRefused
from horolog.record.builder import LogRecord, build_batch
from horolog.record.compression import Codec
from horolog.record.partitioning import partition_of_key

_BATCH_BYTES = 500_000  # well below max.message.bytes, 1 MiB by default


class Line(NamedTuple):
    """Line as a record; `partition` is set if the line has one."""

    number: int
    record: LogRecord
    partition: int | None


class LineSender:
    """Sends lines to the partitions of a topic and counts the appended offsets."""

    def __init__(
        self, client: Client, topic: str, partition: int | None, codec: Codec, acks: int
    ) -> None:
        self.sent = 0
        self.offsets: dict[int, tuple[int, int]] = {}
        self._client = client
        self._topic = topic
        self._codec = codec
        self._acks = acks
        with suppress(RequestRefused):  # the lookup below says better what is wrong
            client.topics.numbers(topic, auto_create=True)
        leaders = partition_numbers(client, topic, None if partition is None else [partition])
        self._partitions = list(leaders)
        # A record without a key goes where it can, as of Kafka's producers.
        served = [number for number, leader in leaders.items() if leader is not None]
        self._served = served or self._partitions
        self._partition = partition
        self._turn = 0

    def send(self, lines: Sequence[Line]) -> None:
        """Send lines, in order within each partition.

        Raises:
            RecordsRejected: the broker refuses records; the message names their lines.
            RequestRefused: the broker refuses a batch for another reason.
        """
        by_partition: dict[int, list[Line]] = defaultdict(list)
        for line in lines:
            by_partition[self._choose(line)].append(line)
        self._turn += 1
        for partition, its_lines in by_partition.items():
            for batch in _batches(its_lines):
                self._send_batch(partition, batch)

    def _choose(self, line: Line) -> int:
        if self._partition is not None:
            return self._partition
        if line.partition in self._partitions:
            assert line.partition is not None
            return line.partition
        count = len(self._partitions)
        if line.record.key is None:
            return self._served[self._turn % len(self._served)]
        return self._partitions[partition_of_key(line.record.key, count)]

    def _send_batch(self, partition: int, lines: Sequence[Line]) -> None:
        batch = build_batch((line.record for line in lines), codec=self._codec)
        try:
            with self._client.topics.naming_size_limit(self._topic):
                produced = self._client.produce(self._topic, partition, batch, acks=self._acks)
        except RecordsRejected as refusal:
            raise _with_lines(refusal, lines) from None
        self.sent += len(lines)
        if produced.base_offset is not None:
            first = self.offsets.get(partition, (produced.base_offset, 0))[0]
            self.offsets[partition] = (first, produced.base_offset + len(lines) - 1)


def _with_lines(refusal: RecordsRejected, lines: Sequence[Line]) -> RecordsRejected:
    first, last = lines[0].number, lines[-1].number
    message = [
        f"line {first} was not appended: {refusal}"
        if first == last
        else f"no record of lines {first} to {last} was appended: {refusal}"
    ]
    message += [
        f"line {lines[error.batch_index].number}: {error.message}"
        for error in refusal.errors[:10]
        if 0 <= error.batch_index < len(lines)
    ]
    if len(refusal.errors) > 10:
        message.append(f"and {len(refusal.errors) - 10} more")
    return RecordsRejected(refusal.code, "; ".join(message), refusal.errors)


def _batches(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    start, total = 0, 0
    for index, line in enumerate(lines):
        total += len(line.record.key or b"") + len(line.record.value or b"")
        if total > _BATCH_BYTES and index > start:
            yield lines[start:index]
            start, total = index, len(line.record.value or b"")
    yield lines[start:]
