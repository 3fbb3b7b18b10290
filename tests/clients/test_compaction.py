"""Compacted topics through the real clients: what they write, what is left, what is refused."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest
from examples import some_pairs
from kafka_clients import CLIENTS, CODECS, KafkaClient, Received, Rejected, Sent
from patience import eventually
from running_broker import RunningBroker

AROUND_MS = 1_700_000_000_000
COMPACT = {
    "cleanup_policy": "compact",
    "segment_bytes": "20000",
    "min_cleanable_dirty_ratio": "0.01",
}
every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


def records(count: int, keys: int = 40) -> list[Sent]:
    rng = random.Random(count)
    return [
        Sent(
            b"key-%d" % rng.randrange(keys),
            None if rng.random() < 0.1 else rng.randbytes(80),
            AROUND_MS + rng.randrange(-100_000, 100_000),
            [("h", b"v")][: n % 2],
        )
        for n in range(count)
    ]


def latest(sent: list[Sent], end: int) -> list[Received]:
    """What a consumer gets: of each key the latest before an offset, and all that follow."""
    last = {record.key: n for n, record in enumerate(sent[:end])}
    return [
        Received(0, n, record.timestamp_ms, 0, record.key, record.value, (*record.headers,))
        for n, record in enumerate(sent)
        if n >= end or last[record.key] == n
    ]


# In `make test` each codec, and each client, are among those that are tried.
@pytest.mark.parametrize(
    ("codec", "writer"), some_pairs(CODECS, CLIENTS), ids=lambda each: getattr(each, "name", each)
)
def test_all_clients_read_the_latest_record_of_each_key(
    codec: str, writer: KafkaClient, broker: RunningBroker
) -> None:
    broker.create_topic("compacted", **COMPACT)
    sent = records(300)
    for first in range(0, len(sent), 50):
        writer.produce(broker.address, "compacted", sent[first : first + 50], codec=codec)
    broker.run(broker.broker.cleaner.clean_all())
    end = broker.log("compacted").cleaner_point
    assert end is not None
    expected = latest(sent, end)
    assert len(expected) < len(sent)
    for reader in CLIENTS:
        assert reader.consume(broker.address, "compacted", len(expected)) == expected
    for ms in (AROUND_MS - 90_000, AROUND_MS, AROUND_MS + 90_000):
        first = next((one for one in expected if one.timestamp_ms >= ms), None)
        for reader in CLIENTS:
            found = reader.offsets_for_times(broker.address, "compacted", {0: ms})[0]
            assert (found and found[0]) == (first and first.offset)


@every_client
def test_a_client_is_told_that_a_record_lacks_a_key(
    client: KafkaClient, broker: RunningBroker
) -> None:
    broker.create_topic("compacted", **COMPACT)
    with pytest.raises(Rejected) as rejected:
        client.produce(broker.address, "compacted", [Sent(None, b"v", AROUND_MS, [])])
    # aiokafka does not know the error.
    assert rejected.value.code == (-1 if client.name == "aiokafka" else 87)


def test_clients_write_and_read_beside_the_cleaner_and_the_loop_has_no_gap(
    broker: RunningBroker,
) -> None:
    """Fetches, appends and many swaps; what is read at the end is exact."""
    broker.create_topic("compacted", **{**COMPACT, "segment_bytes": "60000"})
    client = next(each for each in CLIENTS if each.name.startswith("confluent"))
    sent, gaps, is_over = records(6000, 200), [0.0], threading.Event()

    async def watch() -> None:
        while not is_over.is_set():
            before = time.monotonic()
            await asyncio.sleep(0.001)
            gaps.append(time.monotonic() - before)

    async def clean_on() -> int:
        runs = 0
        while not is_over.is_set():
            runs += len(await broker.broker.cleaner.clean_all())
            await asyncio.sleep(0.001)
        return runs + len(await broker.broker.cleaner.clean_all())

    watching = asyncio.run_coroutine_threadsafe(watch(), broker.loop)
    cleaning = asyncio.run_coroutine_threadsafe(clean_on(), broker.loop)
    for first in range(0, len(sent), 300):
        client.produce(broker.address, "compacted", sent[first : first + 300])
    is_over.set()
    watching.result(60)
    assert cleaning.result(60) > 0
    log = broker.log("compacted")
    assert eventually(lambda: log.log_end_offset == len(sent))
    expected = latest(sent, log.cleaner_point or 0)
    assert client.consume(broker.address, "compacted", len(expected)) == expected
    assert sorted(gaps)[-3] < 0.5, "on a shared machine; nothing that takes as long as a run"
