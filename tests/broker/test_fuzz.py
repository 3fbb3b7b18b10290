"""Whatever a client sends gets a response or a closed connection; others are served."""

import logging
from contextlib import suppress

import pytest
from hypothesis import settings
from patience import eventually
from raw_connection import RawConnection
from running_broker import RunningBroker, a_broker
from wild_messages import Wild

from horolog.record import LogRecord, build_batch
from horolog.wire import SUPPORTED, ApiKey

BATCHES = [
    build_batch([LogRecord(-1, b"k", b"v")]),
    build_batch([LogRecord(1_700_000_000_000, None, b"x" * 100)] * 5, codec=2),
    b"",
    b"\0" * 61,
]
# A waiting request is given up by its client.
LONGEST_WAIT_S = 0.05


broker = a_broker("t", partitions=2, now_ms=None, scope="module")


@pytest.mark.parametrize("key", SUPPORTED, ids=lambda key: key.title)
def test_wild_requests_get_a_response_or_a_close_and_others_are_served(
    broker: RunningBroker, key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.broker.topics.find("t")
    ids = [topic.topic_id] if topic is not None else []
    caplog.set_level(logging.DEBUG)
    for version in range(SUPPORTED[key].min, SUPPORTED[key].max + 1):
        for number in range(settings().max_examples):
            wild = Wild(number * 1000 + version, ids, BATCHES)
            with RawConnection(broker.address, LONGEST_WAIT_S) as connection:
                connection.socket.sendall(connection.packed(key, version, wild.body(key, version)))
                with suppress(TimeoutError, ConnectionResetError):
                    connection.socket.recv(1 << 16)
            bugs = [record for record in caplog.records if record.exc_info]
            assert not bugs, f"{key.title} v{version}, example {number}: {caplog.text}"
        for record in caplog.records:
            assert record.getMessage().isprintable(), f"{key.title} v{version}: {record}"
            assert "bound method" not in record.getMessage()
        caplog.clear()
    assert broker.ask(ApiKey.API_VERSIONS, 0).error_code == 0
    assert eventually(lambda: not broker.service.requests_in_flight)
    assert eventually(lambda: broker.service.budget.used == 0)
