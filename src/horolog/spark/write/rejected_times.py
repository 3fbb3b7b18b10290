"""Treatment of records whose time a broker refuses: option `onInvalidTimestamp`.

A broker refuses the whole batch and names the records at fault (KIP-467); the producer
asks here what to append in its place.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.client import Client
from horolog.client.producer import Producer, RejectedBatch, Repair
from horolog.clock import SystemClock
from horolog.errors import ErrorCode
from horolog.spark.errors import RowsRefused
from horolog.spark.write.options import OnInvalidTimestamp, WriteOptions
from horolog.spark.write.producer_settings import Producing

DEAD_LETTER_HEADERS: Final = {
    "horolog.topic": "the topic that it was for",
    "horolog.partition": "the number of the partition",
    "horolog.timestamp": "its time, in milliseconds",
    "horolog.error": "`INVALID_TIMESTAMP`",
    "horolog.reason": "the broker's sentence",
}
"""Headers that follow a dead letter's own; all values are text."""

_NAMED = 5  # records in one message
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RejectedTimes:
    """Policy `fail`: refuses the batch and lists the records."""

    def __init__(self) -> None:
        self.nulled = 0
        self.dead_letters = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing is open."""

    def __call__(self, batch: RejectedBatch) -> Repair:
        """Return the rows to append in place of a refused batch.

        Raises:
            RowsRefused: nothing; names the records and their times.
        """
        refused = _refused(batch)
        if batch.refusal.code is not ErrorCode.invalid_timestamp or not len(refused):
            raise RowsRefused(_sentence(batch))
        return self._repaired(batch, refused)

    def send_held(self, producer: Producer) -> None:
        """Send rows that were taken out of this producer's batches and held until it is idle.

        Raises:
            RequestRefused, NoAnswer, RowsRefused: as `Producer.send`.
        """

    def _repaired(self, batch: RejectedBatch, refused: npt.NDArray[np.int64]) -> Repair:
        raise RowsRefused(
            f"{_sentence(batch)} (option 'onInvalidTimestamp' can write them at the writer's "
            "clock, or to another topic)"
        )


class WriterClock(RejectedTimes):
    """Policy `null`: writes refused records at the writer's clock."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = SystemClock()
        self._since_ms = self._clock.now_ms()

    def _repaired(self, batch: RejectedBatch, refused: npt.NDArray[np.int64]) -> Repair:
        now_ms = self._clock.now_ms()
        times = _times(batch)
        if ((times[refused] >= self._since_ms) & (times[refused] <= now_ms)).any():
            raise RowsRefused(f"{_sentence(batch)}: the writer's clock itself is out of range")
        times[refused] = now_ms
        self.nulled += len(refused)
        return Repair(np.ones(len(times), np.bool_), pa.array(times))


class DeadLetters(RejectedTimes):
    """Policy `deadLetter`: writes refused records to another topic, with headers on the reason."""

    def __init__(self, topic: str, producing: Producing) -> None:
        super().__init__()
        self._topic = topic
        self._producing = producing
        self._client: Client | None = None
        self._producer: Producer | None = None

    def __exit__(self, *exc: object) -> None:
        if self._producer is not None:
            self._producer.close()
        if self._client is not None:
            self._client.close()

    def _repaired(self, batch: RejectedBatch, refused: npt.NDArray[np.int64]) -> Repair:
        letters = _letters(batch, refused)
        try:
            self._opened().send(self._topic, letters)
        except RowsRefused as error:
            raise _refused_too(error) from None
        self.dead_letters += len(refused)
        return _without(batch, refused)

    def _opened(self) -> Producer:
        if self._producer is None:
            self._client = self._producing.client()
            self._producer = self._producing.producer(self._client, RejectedTimes())
        return self._producer


class HeldLetters(RejectedTimes):
    """Policy `deadLetter` in a transaction: holds letters until the task's producer can send them.

    So they are part of its transaction. They are in memory meanwhile.
    """

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self._held: list[pa.Table] = []

    def _repaired(self, batch: RejectedBatch, refused: npt.NDArray[np.int64]) -> Repair:
        if batch.topic == self._topic:
            raise RowsRefused(_sentence(batch))
        self._held.append(_letters(batch, refused))
        self.dead_letters += len(refused)
        return _without(batch, refused)

    def send_held(self, producer: Producer) -> None:
        """Send the held letters."""
        if self._held:
            letters, self._held = pa.concat_tables(self._held), []
            try:
                producer.send(self._topic, letters)
            except RowsRefused as error:
                raise _refused_too(error) from None


def policy_of(options: WriteOptions, *, in_transaction: bool = False) -> RejectedTimes:
    """Return the policy of a write; enter it, as it may open a client.

    With `in_transaction` the caller sends held letters by its own producer.
    """
    match options.on_invalid_timestamp:
        case OnInvalidTimestamp.FAIL:
            return RejectedTimes()
        case OnInvalidTimestamp.NULL:
            return WriterClock()
        case OnInvalidTimestamp.DEAD_LETTER:
            assert options.dead_letter_topic is not None
            if in_transaction:
                return HeldLetters(options.dead_letter_topic)
            return DeadLetters(options.dead_letter_topic, options.producing)


def _without(batch: RejectedBatch, refused: npt.NDArray[np.int64]) -> Repair:
    kept = np.ones(batch.rows.num_rows, np.bool_)
    kept[refused] = False
    return Repair(kept, batch.rows.column("timestamp_ms"))


def _refused_too(error: RowsRefused) -> RowsRefused:
    return RowsRefused(f"The dead-letter topic refuses records, too: {error}")


def _refused(batch: RejectedBatch) -> npt.NDArray[np.int64]:
    """Return the refused rows, each once, in order."""
    indexes = {error.batch_index for error in batch.refusal.errors}
    return np.array(sorted(at for at in indexes if 0 <= at < batch.rows.num_rows), np.int64)


def _times(batch: RejectedBatch) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = batch.rows.column("timestamp_ms").to_numpy().copy()
    return times


def _sentence(batch: RejectedBatch) -> str:
    refused = _refused(batch)
    if not len(refused):
        return str(batch.refusal)
    code, reasons, times = batch.refusal.code, _reasons(batch), _times(batch).tolist()
    named = [
        f"row {batch.numbers[at]} with time {_shown(times[at])}: {reasons[at]}"
        for at in refused[:_NAMED].tolist()
    ]
    more = f", and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
    return (
        f"{batch.topic}-{batch.partition} refuses {len(refused)} of {batch.rows.num_rows} records "
        f"({code.name.upper()}): {'; '.join(named)}{more}"
    )


def _reasons(batch: RejectedBatch) -> dict[int, str]:
    return {error.batch_index: error.message for error in batch.refusal.errors}


def _shown(time_ms: int) -> str:
    try:
        return f"{time_ms} ({_EPOCH + timedelta(milliseconds=time_ms):%Y-%m-%dT%H:%M:%SZ})"
    except OverflowError:  # beyond the years 1 to 9999
        return str(time_ms)


def _letters(batch: RejectedBatch, refused: npt.NDArray[np.int64]) -> pa.Table:
    rows = batch.rows.take(pa.array(refused))
    reasons = _reasons(batch)
    headers: list[list[Any]] = []
    for at, time, own in zip(
        refused.tolist(),
        rows.column("timestamp_ms").to_pylist(),
        rows.column("headers").to_pylist(),
        strict=True,
    ):
        values = (
            batch.topic,
            str(batch.partition),
            str(time),
            batch.refusal.code.name.upper(),
            reasons[at],
        )
        added = zip(DEAD_LETTER_HEADERS, values, strict=True)
        headers.append([*(own or ()), *({"key": k, "value": v.encode()} for k, v in added)])
    type_ = rows.schema.field("headers").type
    return pa.table(
        {
            "key": rows.column("key"),
            "value": rows.column("value"),
            "headers": pa.array(headers, type_),
        }
    )
