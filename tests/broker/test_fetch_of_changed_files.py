"""Fetches of segments whose batches have changed base offsets, which have no checksum."""

import os
from pathlib import Path

import pytest
from partition_files import flip
from running_broker import MakeBroker, RunningBroker

from horolog.errors import ErrorCode
from horolog.record import LogRecord, build_batch, iter_headers

END = 24


def consumed(broker: RunningBroker, start: int, max_bytes: int) -> list[int] | None:
    """The offsets that a consumer of Kafka's takes; None if it is told of damage."""
    position, found = start, list[int]()
    while position < END:
        answer = broker.fetch("t", position, partition_max_bytes=max_bytes)
        if answer.error_code:
            assert answer.error_code == ErrorCode.corrupt_message
            return None
        assert answer.records
        for _, header in iter_headers(answer.records):
            found += range(max(position, header.base_offset), header.next_offset)
            position = max(position, header.next_offset)  # it passes what has smaller offsets
    return found


def change(log: Path, position: int, bit: int, nth: int) -> None:
    flip(log, position, bit)
    os.utime(log, ns=(nth, nth))  # clocks of files are coarse


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_changed_base_offset_hides_no_record_from_a_consumer(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture, is_restarted: bool
) -> None:
    broker = make_broker()
    broker.create_topic("t", 1, index_interval_bytes="200")
    for number in range(12):
        broker.append("t", build_batch([LogRecord(broker.clock.now_ms(), b"k", b"v")] * 2))
        if number in (5, 10):
            broker.roll("t")
    if is_restarted:
        broker.stop()
        broker = make_broker(log_dir=broker.log_dir)
    log = broker.log_dir / "t-0" / f"{0:020d}.log"
    refused = 0
    for nth, (position, _) in enumerate(iter_headers(log.read_bytes())):
        for place, bit in ((7, 2), (7, 16), (2, 1)):
            change(log, position + place, bit, 4 * nth + bit)
            for start in range(0, 12, 3):
                for max_bytes in (1, 1 << 20):
                    found = consumed(broker, start, max_bytes)
                    assert found in (None, [*range(start, END)]), (position, place, bit)
                    refused += found is None
            change(log, position + place, bit, 1000 + 4 * nth + bit)
    assert consumed(broker, 0, 1 << 20) == [*range(END)]
    assert refused
    assert "Fetches from damaged" in caplog.text
