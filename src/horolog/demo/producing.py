"""Send records by a real client (librdkafka), and count what the broker accepts.

Kafka refuses a whole batch for one bad record (KIP-937), so good records fail along with
a bad neighbour. What is refused is therefore sent once more, each record alone: what
passes was only a neighbour, what fails again is rejected.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Producer

FLUSH_SECONDS = 60


class DemoEvent(NamedTuple):
    """One record to send; `timestamp_ms` in milliseconds since the epoch."""

    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int


@dataclass
class SendCounts:
    """Counts of accepted and rejected records of one or more calls of `send`."""

    accepted: Counter[str] = field(default_factory=Counter)
    neighbours: Counter[str] = field(default_factory=Counter)
    rejected: list[DemoEvent] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)


def send(bootstrap: str, events: Iterable[DemoEvent], outcome: SendCounts) -> None:
    """Send all events, in batches first and the refused ones alone; fills `outcome`."""
    refused = _send(bootstrap, events, outcome, batch_records=500)
    accepted_before = outcome.accepted.copy()
    outcome.rejected += _send(bootstrap, refused, outcome, batch_records=1)
    outcome.neighbours += outcome.accepted - accepted_before


def _send(
    bootstrap: str, events: Iterable[DemoEvent], outcome: SendCounts, *, batch_records: int
) -> list[DemoEvent]:
    refused: list[DemoEvent] = []

    def delivered(event: DemoEvent, error: KafkaError | None, _: Any) -> None:
        if error is None:
            outcome.accepted[event.topic] += 1
        elif error.code() in REFUSED:
            refused.append(event)
        else:
            outcome.failed[error.str()] += 1

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "horolog-demo",
            "batch.num.messages": batch_records,
            "linger.ms": 20 if batch_records > 1 else 0,
            "compression.type": "lz4" if batch_records > 1 else "none",
        }
    )
    for event in events:
        _produce(producer, event, partial(delivered, event))
    left = producer.flush(FLUSH_SECONDS)
    if left:
        outcome.failed["not answered in time"] += left
    return refused


def _produce(producer: Producer, event: DemoEvent, delivered: Callable[..., None]) -> None:
    while True:
        try:
            producer.produce(
                event.topic,
                key=event.key,
                value=event.value,
                timestamp=event.timestamp_ms,
                on_delivery=delivered,
            )
        except BufferError:  # the client's own queue is full: let answers come in
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


REFUSED = frozenset(
    {
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_DIFFERENT_RECORD,  # librdkafka's name for a neighbour
    }
)
