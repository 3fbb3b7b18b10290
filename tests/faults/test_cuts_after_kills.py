"""A broker's process is killed by the kernel while producers write: its cuts are closed."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from broker_nursery import BornBroker, Nursery
from causes import Arrivals
from killed_broker import serve
from running_broker import ANY_TIME

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.sources import BrokerLog, Cut, FileLog, LogPath, Pattern, ReadOptions, cut_of

TOPICS = Pattern("t.")


def from_files(path: Path, at_ms: int) -> Cut:
    options = ReadOptions(paths=(LogPath.parse(str(path)),), subscription=TOPICS)
    with FileLog(options, is_cut=True) as log:
        return cut_of(log, at_ms, log.partitions(), 0)


def from_broker(client: Client, at_ms: int) -> Cut:
    options = ReadOptions(brokers=client.config, subscription=TOPICS)
    with BrokerLog(options) as log:
        return cut_of(log, at_ms, log.partitions(), 0)


@pytest.mark.parametrize("seed", [1])
def test_cuts_are_closed_after_sigkill_and_those_of_the_files_are_the_same(
    nursery: Nursery, tmp_path: Path, seed: int
) -> None:
    chosen, arrivals, before = random.Random(seed), Arrivals(), list[Cut]()
    path = tmp_path / "log"
    for life in range(3):
        broker = BornBroker(nursery, tmp_path / "said", serve(path, 0, {}))
        address = broker.await_ready()
        assert address is not None, broker.said
        with Client(address) as client:
            if not life:
                for topic in range(5):
                    configs = {name.replace("_", "."): value for name, value in ANY_TIME.items()}
                    client.create_topics({f"t{topic}": 10}, configs=configs)
            for cut in before:
                assert from_broker(client, cut.at_ms).partitions == cut.partitions
            with ThreadPoolExecutor(3) as writers:
                for writer in range(3):
                    seed = 1000 * life + 100 * writer
                    writers.submit(arrivals.write_until_killed, address, seed)
                until = time.monotonic() + 1 + chosen.random()
                while time.monotonic() < until:
                    before.append(from_broker(client, SystemClock().now_ms() - 1))
                broker.end()
        for cut in before:
            arrivals.check(cut)
            # The clock in the directory is a second behind at most.
            entries = from_files(path, cut.at_ms).partitions
            for there, here in zip(cut.partitions, entries, strict=True):
                assert here == there or (here.why or "").startswith("future")
