"""What is wrong with a broker: each kind, and nothing while nothing is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from batches import batch
from overrides import override
from patience import eventually
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.client import Client
from horolog.clock import ManualClock
from horolog.errors import ErrorCode
from horolog.record import LogRecord, build_batch
from horolog.wire import HEALTH, Wrong

BATCH = build_batch([LogRecord(NOW_MS, None, b"v")])

broker = a_broker("t", partitions=2)


def wrong_with(broker: RunningBroker) -> list[Wrong]:
    (health,) = broker.client.ask.each_broker(HEALTH).values()
    assert health is not None
    return list(health.wrong)


def test_nothing_is_wrong_with_a_broker_that_serves_all_it_has(broker: RunningBroker) -> None:
    broker.append("t", BATCH)
    (health,) = broker.client.ask.each_broker(HEALTH).values()
    assert health is not None
    assert (health.served, health.wrong) == (2, ())


def test_a_cluster_that_cannot_be_followed_is_named_once(
    broker: RunningBroker, make_broker: MakeBroker, tmp_path: Path, clock: ManualClock
) -> None:
    shadow = make_broker(
        log_dir=tmp_path / "shadow", clock=clock, horolog_follow=broker.address, node_id="2"
    )
    assert eventually(lambda: "t" in shadow.broker.topics)
    assert eventually(lambda: wrong_with(shadow) == [])
    broker.kill()
    assert eventually(lambda: len(wrong_with(shadow)) == 1)
    (wrong,) = wrong_with(shadow)
    assert (wrong.kind, wrong.subject) == ("not-followed", broker.address)


def test_what_is_not_followed_of_a_cluster_is_named(
    broker: RunningBroker, make_broker: MakeBroker, tmp_path: Path, clock: ManualClock
) -> None:
    other = make_broker(log_dir=tmp_path / "other", clock=clock, node_id="2")
    other.create_topic("t")
    other.restart(horolog_follow=broker.address)
    assert eventually(lambda: [each.subject for each in wrong_with(other)] == ["t"])
    (wrong,) = wrong_with(other)
    assert wrong.kind == "not-followed"
    assert "horolog follow --demote" in wrong.text


def test_an_offline_partition_is_named_with_the_reason(broker: RunningBroker) -> None:
    broker.stop()
    directory = broker.log_dir / "t-1"
    for each in directory.iterdir():
        each.unlink()
    directory.rmdir()
    directory.write_text("no directory")
    broker.restart()
    (wrong,) = wrong_with(broker)
    assert (wrong.kind, wrong.subject) == ("offline", "t-1")
    assert wrong.text


def test_append_times_ahead_of_the_clock_name_the_command_that_resets_them(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.append("t", BATCH)
    clock.step("-30m")
    assert wrong_with(broker) == []  # within horolog.timestamp.warn.ahead.ms
    clock.step("-1h")
    (wrong,) = wrong_with(broker)
    assert (wrong.kind, wrong.subject, wrong.value) == ("append-time-ahead", "t-0", 5_400_000)
    assert "`horolog topics reset-append-time t`" in wrong.text
    broker.client.topics.reset_append_times("t")
    assert wrong_with(broker) == []


def test_a_clock_of_append_times_that_refuses_records_names_the_command_that_sets_it_back(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("bounded", message_timestamp_before_max_ms="60000")
    clock.step("10m")
    broker.run(broker.broker.partitions.keep_stamp_clock())
    clock.step("-10m")
    assert wrong_with(broker) == []  # within horolog.timestamp.warn.ahead.ms
    assert broker.produce("bounded", batch(NOW_MS)).error_code == ErrorCode.invalid_timestamp
    (wrong,) = wrong_with(broker)
    assert (wrong.kind, wrong.subject, wrong.value) == (
        "append-time-ahead",
        str(broker.log_dir),
        600_000,
    )
    assert "records are refused" in wrong.text
    assert "`horolog topics reset-append-time --all`" in wrong.text
    clock.step("10m")
    assert wrong_with(broker) == []
    clock.step("-2h")
    (wrong,) = wrong_with(broker)
    assert wrong.value == 7_200_000
    broker.client.topics.reset_append_times("t")
    assert wrong_with(broker) == []
    assert broker.produce("bounded", batch(clock.now_ms())).error_code == 0


def test_what_recovery_has_set_aside_is_named_until_it_is_gone(broker: RunningBroker) -> None:
    for _ in range(3):
        broker.append("t", BATCH)
    broker.kill()
    log = broker.log_dir / "t-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[len(BATCH) + 65] ^= 1  # of the second of three batches
    log.write_bytes(content)
    broker.restart()
    (wrong,) = wrong_with(broker)
    assert (wrong.kind, wrong.subject, wrong.value) == ("set-aside", "t-0", 2 * len(BATCH))
    for each in (broker.log_dir / "t-0").glob("*.cut"):
        each.unlink()
    assert wrong_with(broker) == []


def test_a_disk_nearly_full_is_named(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = os.statvfs("/")
    fields = list(disk[:10])
    fields[1] = 4096  # f_frsize
    fields[2], fields[4] = 1_000_000, 40_000  # f_blocks and f_bavail
    full = os.statvfs_result(fields)
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    (wrong,) = wrong_with(broker)
    assert (wrong.kind, wrong.value) == ("disk-nearly-full", 4096 * 40_000)
    fields[4] = 60_000
    roomy = os.statvfs_result(fields)
    monkeypatch.setattr(os, "statvfs", lambda path: roomy)
    assert wrong_with(broker) == []


def test_very_much_that_is_wrong_comes_in_pages(
    make_broker: MakeBroker, clock: ManualClock
) -> None:
    broker = make_broker(clock=ManualClock(NOW_MS))
    broker.create_topic("many", 400)
    for partition in range(400):
        broker.append("many", BATCH, partition)
    broker.clock.step("-2h")
    assert {each.subject for each in wrong_with(broker)} == {f"many-{n}" for n in range(400)}


def test_a_log_directory_that_is_gone_is_named(broker: RunningBroker, tmp_path: Path) -> None:
    away = broker.log_dir.with_name("away")
    broker.log_dir.rename(away)
    broker.run(broker.service.background_tasks.tidy())
    assert [each.kind for each in wrong_with(broker)] == ["lost"]
    away.rename(broker.log_dir)


def test_another_broker_does_not_say(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", FEATURES={})
    with Client(broker.address) as client:
        assert list(client.ask.each_broker(HEALTH).values()) == [None]
