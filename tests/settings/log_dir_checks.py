"""What each broker setting about the log directory, topics and background tasks changes."""

import re
import shutil
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from patience import eventually
from setting_checks import REFUSED, of_broker
from settings_lab import Lab

from golden import GOLDEN
from horolog.clock import DAY_MS, HOUR_MS
from horolog.errors import ErrorCode, Misconfigured, RequestRefused
from horolog.metadata import MetadataLog
from horolog.record import Codec, LogRecord, build_batch
from horolog.schemas.metadata import AccessControlEntry
from horolog.storage import Files, TopicPartition, load_log
from horolog.wire import ApiKey

NEVER = "2000000000"
SOON = "30"
OLD_FORMAT = {"log.message.format.version": "0.9.0"}


# --- where ----------------------------------------------------------------------------------


@of_broker("log.dir", {"{dir}/one": "one", "{dir}/two": "two"})
def directory_that_a_topic_is_made_in(lab: Lab) -> str:
    return lab.topic("t").directory.parent.name


@of_broker("log.dirs", {"{dir}/one": "one", "{dir}/two": "two"}, beside={"log.dir": "{dir}/three"})
def directory_that_wins_over_log_dir(lab: Lab) -> str:
    return directory_that_a_topic_is_made_in(lab)


# --- topics ---------------------------------------------------------------------------------


@of_broker("num.partitions", {"1": (1, 1), "3": (3, 3)})
def default_partitions_of_new_topics(lab: Lab) -> tuple[int, int]:
    """One that was only asked for, and one that was created."""
    asked = _ask_for(lab, "asked")
    lab.client.create_topics({"created": -1})
    return len(asked.partitions), len(lab.client.metadata(["created"]).topics["created"].partitions)


@of_broker("inter.broker.protocol.version", {"2.8": 1, "0.10.2": 1, "3.0": 2}, beside=OLD_FORMAT)
def format_of_a_topic_that_asks_for_an_old_one(lab: Lab) -> int:
    trial = lab.topic("t", {"message.format.version": "0.10.0"})
    trial.put_at(trial.now_ms)
    return trial.headers()[0].magic


@of_broker("auto.create.topics.enable", {"true": 0, "false": 3})
def what_becomes_of_the_wish_for_an_unknown_topic(lab: Lab) -> int:
    return int(_ask_for(lab, "unknown").error_code)


@of_broker("default.replication.factor", {"1": 0, "2": 38, "-1": 0})
def what_becomes_of_a_wish_that_names_no_replication_factor(lab: Lab) -> int:
    return int(_ask_for(lab, "unknown").error_code)


def _ask_for(lab: Lab, topic: str) -> Any:
    with lab.connect() as connection:
        asked = connection.ask(ApiKey.METADATA, 9, topics=[{"name": topic}]).topics[0]
        if asked.error_code != ErrorCode.unknown_topic_or_partition:
            return asked
        return connection.ask(ApiKey.METADATA, 9, topics=[{"name": topic}]).topics[0]


@of_broker("delete.topic.enable", {"true": [0, 0], "false": [42, 73]})
def what_becomes_of_the_wish_to_delete_a_topic(lab: Lab) -> list[int]:
    """Before version 3 there was no error of its own for it."""
    codes = []
    for version in (2, 3):
        lab.topic(f"t{version}")
        with lab.connect() as connection:
            wish = {"topic_names": [f"t{version}"]}
            answer = connection.ask(ApiKey.DELETE_TOPICS, version, **wish)
        codes.append(int(answer.responses[0].error_code))
    return codes


# --- opening --------------------------------------------------------------------------------


@of_broker("num.recovery.threads.per.data.dir", {"1": False, "2": True})
def whether_a_start_opens_two_logs_at_a_time(lab: Lab) -> bool:
    for name in ("a", "b"):
        lab.topic(name)
    both = threading.Barrier(2)
    met = []

    def load(*given: Any) -> Any:
        try:
            both.wait(lab.soon_s / 4)
            met.append(True)
        except threading.BrokenBarrierError:
            pass
        return load_log(*given)

    with patch("horolog.storage.log_dir.log_dir.load_log", load):
        lab.restart()
    assert {TopicPartition("a", 0), TopicPartition("b", 0)} <= set(lab.broker.broker.partitions)
    return bool(met)


@of_broker(
    "horolog.ignore.unknown.settings",
    {"true": True, "false": REFUSED},
    beside={"confluent.telemetry.enabled": "true"},
)
def whether_an_unknown_setting_is_ignored(lab: Lab) -> bool:
    return bool(lab.client.metadata().brokers)


@of_broker("horolog.adopt.defaults", {"true": 1, "false": 0})
def segments_deleted_of_a_topic_found_on_disk(lab: Lab) -> int:
    """One that only its directory tells of, as after copying a backup into place."""
    with Lab(lab.broker.log_dir.parent / "elsewhere") as elsewhere:
        trial = elsewhere.topic("found")
        trial.put_at(elsewhere.clock.now_ms() - 30 * DAY_MS)
        directory = trial.directory
    shutil.copytree(directory, lab.broker.log_dir / directory.name)
    lab.restart()
    gone = lab.broker.run(lab.broker.service.background_tasks.run_retention())
    return len(gone)


@of_broker("horolog.take.over", {"true": False, "false": True})
def whether_a_topic_of_kafka_is_adopted(lab: Lab) -> bool:
    lab.hang_up()
    lab.broker.stop()
    shutil.rmtree(lab.broker.log_dir)
    shutil.copytree(GOLDEN / "clean", lab.broker.log_dir)
    lab.restart()
    return bool(lab.broker.broker.topics.find("several").adopted)


@of_broker("horolog.state.dir", {"": False, "{dir}/state": True})
def whether_the_state_beside_a_kafkas_directory_is_elsewhere(lab: Lab) -> bool:
    lab.hang_up()
    lab.broker.stop()
    shutil.rmtree(lab.broker.log_dir)
    shutil.copytree(GOLDEN / "clean", lab.broker.log_dir)
    lab.restart()
    beside = lab.broker.log_dir.with_name(f"{lab.broker.log_dir.name}.horolog")
    is_elsewhere = lab.broker.broker.state_dir_path != beside
    assert (lab.broker.broker.state_dir_path / "__cluster_metadata-0").is_dir()
    assert beside.exists() is not is_elsewhere
    return is_elsewhere


@of_broker(
    "horolog.open.listeners", {"*": True, "": False, "PLAINTEXT": False, "EXTERNAL": REFUSED}
)
def whether_the_directory_of_a_secured_kafka_is_served(lab: Lab) -> bool:
    lab.hang_up()
    lab.broker.stop()
    shutil.rmtree(lab.broker.log_dir)
    shutil.copytree(GOLDEN / "clean", lab.broker.log_dir)
    log = MetadataLog.open(Files(), str(lab.broker.log_dir), node_id=1)
    alice = AccessControlEntry(UUID(int=1), 2, "t", 3, "User:alice", "*", 3, 3)
    log.append([alice], lab.clock.now_ms())
    log.close()
    try:
        lab.restart()
    except Misconfigured:
        return False
    return bool(lab.client.metadata().brokers)


# --- following ------------------------------------------------------------------------------


@of_broker("horolog.follow", {"127.0.0.1:1": "127.0.0.1:1", "127.0.0.1:2": "127.0.0.1:2"})
def where_a_topic_has_to_be_created(lab: Lab) -> str:
    with pytest.raises(RequestRefused, match="Create it there") as refused:
        lab.client.create_topics({"t": 1})
    (servers,) = re.findall(r"127\.0\.0\.1:\d", str(refused.value))
    return servers


@of_broker(
    "horolog.demote.servers",
    {"": True, "127.0.0.1:2, Localhost:1": True, "127.0.0.1:1": False, "x": REFUSED},
)
def whether_a_demotion_is_refused_unseen(lab: Lab) -> bool:
    with pytest.raises(RequestRefused) as refused:
        lab.client.demote("127.0.0.1:1")
    return "horolog.demote.servers" in str(refused.value)


@of_broker(
    "horolog.follow.topics",
    {"t|u": "t", "x.*": None, "(": REFUSED},
    beside={"horolog.follow": "127.0.0.1:1"},
)
def a_topic_that_cannot_be_created(lab: Lab) -> str | None:
    try:
        lab.client.create_topics({"t": 1})
    except RequestRefused:
        return "t"
    return None


@of_broker(
    "horolog.follow.config",
    {"": True, "{dir}/none.properties": REFUSED},
    beside={"horolog.follow": "127.0.0.1:1"},
)
def whether_the_sources_properties_can_be_used(lab: Lab) -> bool:
    return bool(lab.client.metadata().brokers)


# --- background tasks -----------------------------------------------------------------------


@of_broker(
    "log.retention.check.interval.ms",
    {SOON: True, NEVER: False},
    beside={"log.initial.task.delay.ms": "0"},  # before any client can connect
)
def whether_expiry_runs_by_itself(lab: Lab) -> bool:
    trial = lab.topic("t", {"retention.ms": "1000"})
    trial.put_at(trial.now_ms - HOUR_MS)
    return eventually(lambda: trial.log.log_start_offset == 1, lab.soon_s)


@of_broker(
    "log.initial.task.delay.ms",
    {"0": True, NEVER: False},
    beside={"log.retention.check.interval.ms": NEVER},
)
def whether_the_expired_goes_soon_after_a_start(lab: Lab) -> bool:
    trial = lab.topic("t", {"retention.ms": "1000"})
    trial.put_at(trial.now_ms - HOUR_MS)
    lab.restart()
    return eventually(lambda: trial.log.log_start_offset == 1, lab.soon_s)


@of_broker(
    "log.flush.offset.checkpoint.interval.ms",
    {SOON: True, NEVER: False, "0": True},
    beside={"log.initial.task.delay.ms": "0"},
)
def whether_the_flushed_is_written_down_by_itself(lab: Lab) -> bool:
    trial = lab.topic("t", {"flush.messages": "1"})
    checkpoint = Path(trial.directory.parent, "recovery-point-offset-checkpoint")
    trial.put_at(trial.now_ms)
    return eventually(
        lambda: checkpoint.exists() and "t 0 1" in checkpoint.read_text().splitlines(), lab.soon_s
    )


# --- records --------------------------------------------------------------------------------


@of_broker("horolog.max.batch.uncompressed.bytes", {"100000": 0, "1024": 10})
def what_becomes_of_a_batch_that_unpacks_to_50_000_bytes(lab: Lab) -> int:
    packed = build_batch([LogRecord(-1, None, bytes(50_000))], codec=Codec.ZSTD)
    return lab.topic("t").refusal(packed)


@of_broker("horolog.timestamp.warn.ahead.ms", {"4999": True, "5000": False})
def whether_a_record_five_seconds_ahead_is_remarked_on(lab: Lab) -> bool:
    trial = lab.topic("t")
    with lab.log_lines() as lines:
        trial.put_at(trial.now_ms + 5_000)
    return any("t-0: a record is" in line and "ahead of the clock" in line for line in lines)
