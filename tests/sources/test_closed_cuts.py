"""Cuts are closed: no effect is in one without its cause, whatever clocks and threads do."""

import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from causes import PARTITIONS, SMALL, Arrivals
from running_broker import ANY_TIME, NOW_MS, MakeBroker, RunningBroker

from horolog.clock import ManualClock
from horolog.sources import BrokerLog, Cut, Pattern, ReadOptions, cut_of
from horolog.storage import LogWriter, WouldBlock


def cut_at(broker: RunningBroker, at_ms: int) -> Cut:
    options = ReadOptions(brokers=broker.client.config, subscription=Pattern("t."))
    with BrokerLog(options) as log:
        return cut_of(log, at_ms, log.partitions(), 0)


@pytest.mark.parametrize("seed", range(3))
def test_no_effect_is_in_a_cut_without_its_cause(make_broker: MakeBroker, seed: int) -> None:
    chosen, clock = random.Random(seed), ManualClock(NOW_MS)
    broker = make_broker(clock=clock)
    for topic in range(5):
        kind = "LogAppendTime" if topic % 2 else "CreateTime"
        settings = {"message_timestamp_type": kind, "segment_bytes": "3000"}
        broker.create_topic(f"t{topic}", 10, **settings, **ANY_TIME)
    arrivals, cuts = Arrivals(), list[Cut]()
    restarts: list[Callable[[], None]] = [
        lambda: broker.restart(crash=True),
        broker.restart,
        lambda: None,
    ]
    for number, restart in enumerate(restarts):
        with ThreadPoolExecutor(4) as writers:
            writing = [
                writers.submit(arrivals.write, broker.address, 100 * seed + 4 * number + writer)
                for writer in range(4)
            ]
            while not all(its.done() for its in writing):
                clock.step(chosen.choice(["1ms", "2ms", "3ms", "-1ms", "-2s", "2s"]))
                at_ms = broker.call(lambda: broker.broker.partitions.stamp_ms)
                cuts.append(cut_at(broker, at_ms))  # while threads write what was stamped before
            for its in writing:
                its.result()
        clock.step(chosen.choice(["-1h", "1s", "-5s"]))
        broker.close_client()
        restart()
    broker.run(broker.broker.partitions.keep_stamp_clock())
    ends: Mapping[int, Cut] = {cut.at_ms: cut_at(broker, cut.at_ms) for cut in cuts}
    for cut in cuts:
        arrivals.check(cut)
        assert cut.partitions == ends[cut.at_ms].partitions  # nothing came below it later
    times = {
        stretch.ms
        for key in PARTITIONS
        for stretch in broker.log(*key).append_times(0, broker.log(*key).log_end_offset)
        if stretch.ms is not None
    }
    for at_ms in chosen.sample(sorted(times), min(20, len(times))):
        arrivals.check(cut_at(broker, at_ms))


@pytest.mark.parametrize("waits", ["cut", "settled"])
def test_what_a_thread_has_stamped_and_not_written_is_waited_for(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    clock, held, may_write = ManualClock(NOW_MS), threading.Event(), threading.Event()
    broker = make_broker(clock=clock)
    broker.create_topic("t0", **ANY_TIME, compression_type="gzip")  # validated in a thread
    plain = LogWriter.append

    def append(writer: LogWriter, *args: Any) -> None:
        *_, may_block = args
        if not may_block:
            raise WouldBlock  # so that a thread writes it
        held.set()
        assert may_write.wait(60)
        plain(writer, *args)

    monkeypatch.setattr(LogWriter, "append", append)
    with ThreadPoolExecutor(2) as pool:
        written = pool.submit(broker.append, "t0", SMALL)
        assert held.wait(60)
        clock.step("1s")
        if waits == "cut":
            told = pool.submit(lambda: cut_at(broker, NOW_MS + 500).partitions[0].offset)
        else:
            keep = broker.broker.partitions.keep_stamp_clock
            told = pool.submit(lambda: broker.run(keep()) or broker.log("t0").log_end_offset)
        with pytest.raises(TimeoutError):
            told.result(0.3)
        may_write.set()
        assert written.result(60) == 0
        assert told.result(60) == 1
