"""What an Apache Kafka would delete that is kept here: of a broker's topics, and of files."""

from __future__ import annotations

import shutil
from pathlib import Path

from command_runner import Ran, run_command
from running_broker import MakeBroker, RunningBroker, a_broker

from horolog.client import ResourceType
from horolog.clock import SystemClock
from horolog.record import LogRecord, build_batch

DAY = 86_400_000
KEPT = {"retention_ms": str(2 * DAY), "segment_bytes": "110"}


def fill(broker: RunningBroker, topic: str, ages_days: list[int], **settings: str) -> None:
    """A segment for each record, each this many days old by its create time, and appended now."""
    broker.create_topic(topic, 1, **{**KEPT, **settings})
    now_ms = SystemClock().now_ms()
    for age in ages_days:
        batch = build_batch([LogRecord(now_ms - age * DAY, None, b"v" * 40)])
        broker.client.produce(topic, 0, batch)


def fill_three(broker: RunningBroker) -> None:
    fill(broker, "backfill", [30, 20, 1, 0], horolog_retention_by="append-time")
    fill(broker, "kafkas", [1, 1])
    fill(broker, "forever", [30, 20], horolog_retention_by="append-time", retention_ms="-1")


broker = a_broker(now_ms=None, prepare=fill_three)


def moving_out(*args: object, broker: RunningBroker | None = None) -> Ran:
    environment = {} if broker is None else {"HOROLOG_BOOTSTRAP": broker.address}
    return run_command("retention", "moving-out", *args, **environment)


def test_a_backfill_is_at_risk_by_a_broker_and_by_its_files(broker: RunningBroker) -> None:
    of_broker = moving_out("--json", broker=broker)
    assert of_broker.code == 1
    (risk,) = of_broker.json["at_risk"]
    assert (risk["partition"], risk["before_offset"]) == ("backfill-0", 2)
    segments = sorted((broker.log_dir / "backfill-0").glob("*.log"))
    sizes = [each.stat().st_size for each in segments]
    assert risk["deleted_at_once"] == sum(sizes[:2])
    assert risk["deleted_earlier"] == sum(sizes[2:]), "a day old, and a little older than appended"
    assert moving_out("backfill", "--json", broker=broker).json == of_broker.json
    assert moving_out("kafkas", broker=broker).code == 0
    assert moving_out(broker.log_dir, "--json").json == of_broker.json
    assert "backfill-0" in moving_out(broker.log_dir).out


def test_settings_that_keep_it_are_tried_and_given(broker: RunningBroker) -> None:
    tried = moving_out("--set", "retention.ms=-1", broker=broker)
    assert (tried.code, "deletes nothing" in tried.out) == (0, True)
    broker.client.alter_configs({(ResourceType.TOPIC, "backfill"): {"retention.ms": "-1"}})
    assert moving_out(broker=broker).code == 0


def test_adopted_topics_are_not_at_risk_and_damage_is_named(
    broker: RunningBroker, make_broker: MakeBroker, tmp_path: Path
) -> None:
    copied = tmp_path / "copied"
    copied.mkdir()
    shutil.copytree(broker.log_dir / "backfill-0", copied / "backfill-0")
    assert moving_out(broker=make_broker(log_dir=copied)).code == 0
    log = broker.log_dir / "kafkas-0" / "00000000000000000000.log"
    log.write_bytes(b"\7" * 200)
    said = moving_out(broker.log_dir, "--json")
    assert said.code == 1
    assert [each["partition"] for each in said.json["at_risk"]] == ["backfill-0"]
    assert len(said.json["damage"]) >= 1
