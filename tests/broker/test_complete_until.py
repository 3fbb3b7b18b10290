"""What may still come: the bound on create times, and values that are complete."""

from collections.abc import Callable

import pytest
from old_messages import build_messages
from running_broker import NOW_MS, RunningBroker, a_broker
from transactional import init, write

from horolog.clock import MINUTE_MS, ManualClock
from horolog.errors import ErrorCode
from horolog.record import Codec, LogRecord, build_batch

BOUND = {"message_timestamp_before_max_ms": str(MINUTE_MS)}

broker = a_broker("t", partitions=2, of_topics=BOUND)


def rows(ms: int, value: bytes = b"v") -> list[LogRecord]:
    return [LogRecord(ms, b"k", value)]


def sent(broker: RunningBroker, batch: bytes, version: int = 9) -> int:
    return int(broker.produce("t", batch, version=version).error_code)


def in_transaction(broker: RunningBroker, ms: int) -> int:
    return write(broker, init(broker), version=12, time_ms=ms)


DOORS: dict[str, Callable[[RunningBroker, int], int]] = {
    "on the event loop": lambda broker, ms: sent(broker, build_batch(rows(ms))),
    "in a thread": lambda broker, ms: sent(
        broker, build_batch(rows(ms, bytes(300_000)), codec=Codec.GZIP)
    ),
    "in a transaction": in_transaction,
    "as a message of v1": lambda broker, ms: sent(broker, build_messages(rows(ms), 1), 2),
    "as compressed messages": lambda broker, ms: sent(
        broker, build_messages(rows(ms), 1, codec=Codec.SNAPPY), 2
    ),
}


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize("door", DOORS)
def test_what_was_too_early_before_a_clock_was_set_back_stays_so(
    broker: RunningBroker, clock: ManualClock, door: str, is_early: bool
) -> None:
    clock.step("10m")
    assert sent(broker, build_batch(rows(clock.now_ms()))) == 0
    clock.step("-10m")
    earliest_ms = NOW_MS + 9 * MINUTE_MS
    error = DOORS[door](broker, earliest_ms - is_early)
    assert error == (ErrorCode.invalid_timestamp if is_early else 0)
