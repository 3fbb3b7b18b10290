"""One clock of append times for all partitions of a broker."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_runner import run_command
from faulty_calls import failing
from patience import PATIENCE_S, eventually
from raw_connection import produce_fields
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.client import Client
from horolog.clock import DAY_MS, HOUR_MS, ManualClock
from horolog.errors import ErrorCode, RequestRefused
from horolog.record import Codec, LogRecord, build_batch
from horolog.storage import Log, LogDir
from horolog.testing import Broker
from horolog.wire import HEALTH, STAMP_CLOCK_RESET, ApiKey

BATCH = build_batch([LogRecord(5, None, b"v")])
LARGE = build_batch([LogRecord(5, None, bytes(300_000))] * 3, codec=Codec.GZIP)


broker = a_broker("a", "b", partitions=2, of_topics={"message_timestamp_type": "LogAppendTime"})


def stamp(broker: RunningBroker, topic: str, partition: int = 0, batch: bytes = BATCH) -> int:
    answer = broker.produce(topic, batch, partition)
    assert answer.error_code == 0
    return int(answer.log_append_time_ms)


def test_a_clock_that_was_set_back_stamps_no_partition_earlier(
    broker: RunningBroker, clock: ManualClock
) -> None:
    assert stamp(broker, "a") == NOW_MS
    clock.step("5m")
    assert stamp(broker, "a") == NOW_MS + 300_000
    clock.step("-1h")
    assert stamp(broker, "b", 1) == NOW_MS + 300_000
    broker.create_topic("new", 1, message_timestamp_type="LogAppendTime")
    assert stamp(broker, "new") == NOW_MS + 300_000
    broker.restart()
    assert stamp(broker, "b") == NOW_MS + 300_000
    broker.restart(crash=True)
    assert stamp(broker, "a", 1) == NOW_MS + 300_000


def test_an_idle_broker_rises_to_its_clock_and_writes_that_down(
    broker: RunningBroker, clock: ManualClock
) -> None:
    clock.step("10m")
    broker.run(broker.broker.partitions.keep_stamp_clock())
    clock.step("-20m")
    broker.restart(crash=True)
    assert stamp(broker, "a") == NOW_MS + 600_000


def test_a_batch_that_is_checked_in_a_thread_is_stamped_no_earlier_than_others(
    broker: RunningBroker, clock: ManualClock
) -> None:
    with broker.connect() as slow:
        for _ in range(20):
            now_ms = clock.now_ms()
            slow.send(ApiKey.PRODUCE, 9, **produce_fields("a", {0: LARGE}))
            clock.step("-1ms" if now_ms % 2 else "2ms")
            other = stamp(broker, "b")
            _, answer = slow.receive()
            stamped = answer.responses[0].partition_responses[0].log_append_time_ms
            assert stamped >= now_ms
            assert stamp(broker, "b", 1) >= max(other, stamped)


def test_a_reset_frees_all_partitions_and_leaves_the_others_their_floors(
    broker: RunningBroker, clock: ManualClock
) -> None:
    clock.step("100d")
    ahead_ms = clock.now_ms()
    assert [stamp(broker, topic) for topic in ("a", "b")] == [ahead_ms] * 2
    clock.step("-100d")
    assert stamp(broker, "a", 1) == ahead_ms  # never had a record of its own
    broker.client.topics.reset_append_times("a")
    assert [stamp(broker, "a", index) for index in (0, 1)] == [NOW_MS] * 2
    assert stamp(broker, "b", 1) == NOW_MS
    assert stamp(broker, "b", 0) == ahead_ms
    for crash in (True, False):
        broker.restart(crash=crash)
        assert [stamp(broker, *where) for where in (("a", 0), ("b", 1), ("b", 0))] == [
            NOW_MS,
            NOW_MS,
            ahead_ms,
        ]


@pytest.mark.parametrize("batch", [BATCH, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("topic", ["a", "b"])
def test_a_write_that_waited_does_not_undo_a_reset(
    broker: RunningBroker, clock: ManualClock, topic: str, batch: bytes
) -> None:
    held = threading.Event()
    partition = broker.broker.partitions.find(topic, 0)
    broker.call(lambda: partition.change(lambda _: held.wait(PATIENCE_S)))
    clock.step("100d")
    with broker.connect() as waiting, ThreadPoolExecutor(1) as thread:
        try:
            waiting.send(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: batch}))
            assert stamp(broker, "a", 1) == clock.now_ms()
            clock.step("-100d")
            reset = thread.submit(broker.client.topics.reset_append_times, "a")
            assert eventually(lambda: broker.broker.partitions.stamp_ms == NOW_MS)
        finally:
            held.set()
        reset.result()
        _, answer = waiting.receive()
    assert answer.responses[0].partition_responses[0].log_append_time_ms == NOW_MS
    assert [stamp(broker, *where) for where in (("a", 0), ("a", 1), ("b", 0))] == [NOW_MS] * 3


def test_the_command_resets_all_topics(broker: RunningBroker, clock: ManualClock) -> None:
    clock.step("100d")
    for topic in ("a", "b"):
        stamp(broker, topic)
    clock.step("-100d")
    at = ("-b", broker.address)
    ran = run_command("topics", "reset-append-time", "--all", *at)
    assert ran.code == 0, ran.err
    assert [line.split(",")[0] for line in ran.lines] == [
        "reset 1 partition of a",
        "reset 1 partition of b",
    ]
    assert [stamp(broker, topic) for topic in ("a", "b")] == [NOW_MS] * 2
    ran = run_command("topics", "reset-append-time", "--all", *at)
    assert ran.lines == ["no append time is ahead of the broker's clock"]
    for wrong in ([], ["a", "--all"], ["--all", "--partition", "0"]):
        assert run_command("topics", "reset-append-time", *wrong, *at).code == 2


def test_the_command_resets_the_other_topics_where_one_is_refused(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.step("100d")
    for topic in ("a", "b"):
        stamp(broker, topic)
    clock.step("-100d")

    refusal = RequestRefused(ErrorCode.policy_violation, "not now")
    failing(monkeypatch, Log, "reset_append_time", refusal, when=lambda log, _: log.topic == "a")
    ran = run_command("topics", "reset-append-time", "--all", "-b", broker.address)
    assert ran.code == 1
    assert [line.split(":")[0].split(",")[0] for line in ran.lines] == [
        "a is not reset",
        "reset 1 partition of b",
    ]
    assert [stamp(broker, topic) for topic in ("a", "b")] == [NOW_MS + 100 * DAY_MS, NOW_MS]


def test_all_topics_are_reset_where_another_cluster_leads_them(
    broker: RunningBroker, make_broker: MakeBroker, clock: ManualClock
) -> None:
    shadow = make_broker(clock=clock, horolog_follow=broker.address)
    assert eventually(lambda: {"a", "b"} <= shadow.client.metadata().topics.keys())
    clock.step("100d")
    shadow.run(shadow.broker.partitions.keep_stamp_clock())
    clock.step("-100d")
    command = ("topics", "reset-append-time", "--all", "-b", shadow.address)
    ran = run_command(*command)
    assert (ran.code, ran.lines) == (
        0,
        ["the broker's clock of append times is set back to its clock; it was 100 days ahead"],
    )
    assert shadow.broker.partitions.stamp_ms == NOW_MS
    shadow.restart(crash=True)
    assert shadow.broker.partitions.stamp_ms == NOW_MS
    assert run_command(*command).lines == ["no append time is ahead of the broker's clock"]


def test_a_broker_takes_no_other_reset(broker: RunningBroker, clock: ManualClock) -> None:
    stamped_ms = clock.step("100d")
    stamp(broker, "a")
    clock.step("-100d")
    for value in ("0", "", "All"):
        with pytest.raises(RequestRefused, match="allowed for a broker is all"):
            broker.client.ask.act(STAMP_CLOCK_RESET, "", value)
    assert broker.broker.partitions.stamp_ms == stamped_ms


def test_a_produce_request_writes_nothing_more(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[LogDir] = []
    monkeypatch.setattr(LogDir, "save_stamps", saved.append)
    for _ in range(50):
        stamp(broker, "a")
    assert len(saved) <= 5  # the second's tick


@pytest.mark.parametrize("seed", range(4))
def test_an_effect_is_never_stamped_before_its_cause(seed: int, tmp_path: Path) -> None:
    """Random clocks, kills and restarts: stamps in the order of arrival never go back."""
    chosen, clock = random.Random(seed), ManualClock(NOW_MS)
    broker = Broker(clock=clock, log_dir=tmp_path)
    broker.start()
    try:
        settings = {"message.timestamp.type": "LogAppendTime"}
        broker.create_topic("t", partitions=10, settings=settings)
        arrivals: list[int] = []
        for _ in range(40):
            clock.step(chosen.choice([0, 1, 5, -3, -DAY_MS, DAY_MS // 3, 1000]))
            match chosen.randrange(10):
                case 0:
                    broker.kill()
                    broker.start()
                case 1:
                    broker.stop()
                    broker.start()
                case _:
                    with Client(broker.bootstrap_servers) as client:
                        for _ in range(3):
                            to = chosen.randrange(10)
                            arrivals.append(client.produce("t", to, BATCH).log_append_time_ms)
        assert arrivals == sorted(arrivals)
    finally:
        broker.close()


def test_a_clock_that_jumps_ahead_is_logged_once_when_it_is_stamped(
    make_broker: MakeBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(clock=clock, horolog_timestamp_warn_ahead_ms=str(HOUR_MS))
    broker.create_topic("a", 1, message_timestamp_type="LogAppendTime")

    def warned() -> list[str]:
        broker.run(broker.broker.partitions.keep_stamp_clock())
        said = [message for message in caplog.messages if "jumped" in message]
        caplog.clear()
        return said

    clock.advance("100d")  # as time passes
    clock.step("1h")
    assert warned() == []
    clock.step("1h1ms")
    stamp(broker, "a")  # before the clock is compared
    (said,) = warned()
    assert "jumped ahead by 60 minutes" in said
    assert "reset-append-time --all" in said
    assert warned() == []
    clock.step("-3h")
    assert warned() == []
    clock.step("2h")  # back to what was stamped
    assert warned() == []
    clock.step("99d")
    assert "99 days" in warned()[0]


def test_health_names_a_partition_that_keeps_its_own_floor(
    broker: RunningBroker, clock: ManualClock
) -> None:
    clock.step("1m")
    stamp(broker, "b")
    clock.step("-1m")
    assert wrong_with(broker) == []  # all partitions stamp alike
    broker.client.topics.reset_append_times("a")
    assert wrong_with(broker) == [("append-time-ahead", "b-0", 60_000)]
    broker.client.topics.reset_append_times("b")
    assert wrong_with(broker) == []


def wrong_with(broker: RunningBroker) -> list[tuple[str, str, int]]:
    report = broker.client.ask.needed(HEALTH, "")
    return [(wrong.kind, wrong.subject, wrong.value) for wrong in report.wrong]
