"""What outlives a stop and a kill: records, settings, offsets, ids; and what is put right then."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from metrics_page import scrape
from raw_connection import RawConnection, delete_fields, produce_fields, topic_fields
from running_broker import NOW_MS, BrokerProcess, MakeBroker, RunningBroker
from stored import lose_metadata, opened_store

from horolog.broker import FIRST_PRODUCER_ID
from horolog.clock import DAY_MS, ManualClock
from horolog.errors import Misconfigured
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey


def batch(n: int = 0, **more: Any) -> bytes:
    return build_batch([LogRecord(-1, None, b"%d" % n)], **more)


# --- kill -9 --------------------------------------------------------------------------


def test_a_stop_that_was_not_clean_is_named_once_by_the_next_start(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def named() -> list[str]:
        found = [m for m in caplog.messages if m.startswith("the last stop was not clean")]
        caplog.clear()
        return found

    broker = make_broker()
    assert named() == [], "a new directory was never closed"
    broker.restart(crash=True)
    assert len(named()) == 1, "though it has no topic"
    broker.create_topic("t", 3)
    broker.append("t", batch())
    broker.restart(crash=True)
    (line,) = named()
    assert f"{broker.log_dir} has no .kafka_cleanshutdown. Of 3 logs 1 were checked" in line
    broker.restart()
    assert named() == []


def test_copies_of_partitions_were_never_stopped(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    broker = make_broker()
    broker.create_topic("t", 1)
    broker.append("t", batch())
    broker.stop()
    caplog.clear()
    copied = tmp_path / "copied"
    shutil.copytree(broker.log_dir / "t-0", copied / "t-0")
    again = make_broker(log_dir=copied)
    assert not [m for m in caplog.messages if "stop was not clean" in m]
    again.restart(crash=True)
    assert [m for m in caplog.messages if "stop was not clean" in m]


@pytest.mark.slow
def test_what_was_acknowledged_survives_kills(broker_process: BrokerProcess) -> None:
    fields = topic_fields("t", 2, retention_ms="-1")
    (made,) = broker_process.ask(ApiKey.CREATE_TOPICS, 7, **fields).topics
    ids = set()
    for round_ in range(1, 4):
        with broker_process.connect() as connection:
            for n in range(50):
                connection.send(ApiKey.PRODUCE, 9, **produce_fields("t", {n % 2: batch(n)}))
            for _ in range(50):
                answer = connection.receive()[1]
                assert answer.responses[0].partition_responses[0].error_code == 0
            partition = {"partition_index": 1, "committed_offset": round_}
            committed = connection.ask(
                ApiKey.OFFSET_COMMIT,
                8,
                group_id="g",
                topics=[{"name": "t", "partitions": [partition]}],
            )
            assert committed.topics[0].partitions[0].error_code == 0
            change = {"name": "segment.ms", "config_operation": 0, "value": str(10_000 + round_)}
            resource = {"resource_type": 2, "resource_name": "t", "configs": [change]}
            altered = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
            assert altered.responses[0].error_code == 0
            granted = connection.ask(ApiKey.INIT_PRODUCER_ID, 4)
            ids.add(granted.producer_id)
        broker_process.kill()
        broker_process.start_again()
        address = broker_process.address
        assert broker_process.count("t", 0) == broker_process.count("t", 1) == 25 * round_
        with RawConnection(address) as connection:
            topics = [{"name": "t", "partition_indexes": [1]}]
            kept = connection.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=topics)
            assert kept.topics[0].partitions[0].committed_offset == round_
            asked = {
                "resource_type": 2,
                "resource_name": "t",
                "configuration_keys": ["retention.ms", "segment.ms"],
            }
            described = connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[asked])
            values = {config.name: config.value for config in described.results[0].configs}
            assert values == {"retention.ms": "-1", "segment.ms": str(10_000 + round_)}
            (topic,) = connection.ask(ApiKey.METADATA, 12, topics=[{"name": "t"}]).topics
            assert topic.topic_id == made.topic_id
    assert len(ids) == 3


def test_a_producer_that_retries_after_a_kill_writes_nothing_twice(
    broker_process: BrokerProcess,
) -> None:
    broker_process.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
    sent = [batch(n, producer_id=9, producer_epoch=0, base_sequence=n) for n in range(3)]
    assert [broker_process.append("t", one) for one in sent] == [0, 1, 2]
    broker_process.kill()
    broker_process.start_again()
    assert [broker_process.append("t", one) for one in sent] == [0, 1, 2]
    assert broker_process.count("t") == 3


def delete_records(
    broker: RunningBroker | BrokerProcess, topic: str, offset: int
) -> tuple[int, int]:
    """Error code and low watermark."""
    answer = broker.ask(ApiKey.DELETE_RECORDS, 2, **delete_fields(topic, {0: offset}))
    outcome = answer.topics[0].partitions[0]
    return int(outcome.error_code), int(outcome.low_watermark)


def test_deleted_records_stay_deleted_after_a_kill(broker_process: BrokerProcess) -> None:
    broker_process.client.create_topics({"t": 1})
    for n in range(3):
        broker_process.append("t", batch(n))
    assert delete_records(broker_process, "t", 2) == (0, 2)
    broker_process.kill()
    broker_process.start_again()
    assert broker_process.fetch("t", 1).error_code == 1  # OFFSET_OUT_OF_RANGE
    assert broker_process.fetch("t", 2).log_start_offset == 2


def test_a_deletion_that_cannot_be_written_down_is_to_be_tried_again(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    broker.create_topic("t")
    for n in range(3):
        broker.append("t", batch(n))
    in_the_way = broker.log_dir / "log-start-offset-checkpoint.tmp"
    in_the_way.mkdir()
    assert delete_records(broker, "t", 2) == (56, -1)  # KAFKA_STORAGE_ERROR
    in_the_way.rmdir()
    assert delete_records(broker, "t", 2) == (0, 2)


def test_sigterm_stops_cleanly(broker_process: BrokerProcess) -> None:
    broker_process.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
    assert broker_process.terminate() == 0
    directory = broker_process.log_dir
    assert (directory / ".kafka_cleanshutdown").exists()


# --- rows and directories -------------------------------------------------------------


def test_a_kill_between_row_and_directory_leaves_no_half_topic(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.create_topic("t", partitions=2)
    broker.stop()
    shutil.rmtree(broker.log_dir / "t-1")
    again = make_broker(log_dir=broker.log_dir)
    assert again.append("t", batch(), 1) == 0
    assert again.log("t", 1).topic_id == again.broker.topics.named("t").topic_id


def test_a_deletion_that_was_begun_is_finished(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.create_topic("t", partitions=2)
    broker.create_topic("other")
    broker.stop()
    with opened_store(broker.log_dir) as store:
        (row,) = (row for row in store.load().topics if row.name == "t")
        store.put_topic(row._replace(deleting=True))
    again = make_broker(log_dir=broker.log_dir)
    assert set(again.client.metadata().topics) == {"other"}
    assert not (broker.log_dir / "t-0").exists()


def test_the_metadata_may_be_lost_and_the_records_are_still_served(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    broker.create_topic("t", partitions=2)
    broker.append("t", batch(), 1)
    topic_id = broker.broker.topics.named("t").topic_id
    broker.stop()
    lose_metadata(broker.log_dir)
    again = make_broker(log_dir=broker.log_dir)
    assert again.count("t", 1) == 1
    assert again.broker.topics.named("t").topic_id == topic_id


# --- adoption -------------------------------------------------------------------------


@pytest.fixture
def foreign(make_broker: MakeBroker, tmp_path: Path) -> Path:
    """A log directory of another broker, with old records: a broker's, without its metadata."""
    clock = ManualClock(NOW_MS - 100 * DAY_MS)
    broker = make_broker(clock=clock, log_dir=tmp_path / "foreign")
    broker.create_topic("t", partitions=2)
    for partition in (0, 1):
        records = build_batch([LogRecord(NOW_MS - 100 * DAY_MS, None, b"old")])
        broker.append("t", records, partition)
    broker.stop()
    lose_metadata(broker.log_dir, and_identity=True)
    return broker.log_dir


def expire(broker: RunningBroker) -> int:
    return len(broker.run(broker.service.background_tasks.run_retention()))


def test_serving_a_backup_never_deletes_it(
    make_broker: MakeBroker, foreign: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        caplog.clear()
        broker = make_broker(log_dir=foreign, clock=ManualClock(NOW_MS))
        assert expire(broker) == 0
        assert broker.count("t", 1) == 1
        with broker.connect() as connection:
            answer = connection.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["t"]).responses[0]
            assert answer.error_code == 44
            assert "adopted" in answer.error_message
            topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}]
            refused = connection.ask(ApiKey.DELETE_RECORDS, 2, topics=topics)
            assert refused.topics[0].partitions[0].error_code == 44
            # The answer has no room for a sentence.
            (said,) = [it.message for it in caplog.records if "DeleteRecords" in it.message]
            assert said.startswith("DeleteRecords of t: t was adopted from directories written")
        broker.stop()


def test_an_adopted_topic_that_is_given_settings_expires_like_any_other(
    make_broker: MakeBroker, foreign: Path
) -> None:
    shutil.rmtree(foreign / "t-0")
    broker = make_broker(log_dir=foreign, clock=ManualClock(NOW_MS), horolog_metrics_port="0")
    assert [topic.partitions for topic in broker.broker.topics] == [(1,)]
    held = "horolog_retention_held_partitions"
    assert expire(broker) == 0
    assert scrape(broker).value(held, topic="t", reason="exempt") == 1
    change = {"name": "retention.ms", "config_operation": 0, "value": "1000"}
    resource = {"resource_type": 2, "resource_name": "t", "configs": [change]}
    broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert expire(broker) == 1
    assert not scrape(broker).of(held)
    broker.restart()
    assert [topic.partitions for topic in broker.broker.topics] == [(1,)], "gaps stay"
    assert broker.log("t", 1).log_start_offset == broker.log("t", 1).log_end_offset == 1
    assert not broker.broker.topics.named("t").adopted


def test_adopted_topics_expire_at_once_where_that_was_asked_for(
    make_broker: MakeBroker, foreign: Path
) -> None:
    broker = make_broker(log_dir=foreign, clock=ManualClock(NOW_MS), horolog_adopt_defaults="true")
    assert expire(broker) == 2


@pytest.mark.parametrize(
    ("found", "granted"),
    [
        pytest.param(123_456, FIRST_PRODUCER_ID, id="a Kafka's, which continues to count there"),
        pytest.param(FIRST_PRODUCER_ID + 7, FIRST_PRODUCER_ID + 8, id="a horolog's"),
        pytest.param((1 << 63) - 1, FIRST_PRODUCER_ID, id="none's: a client chose it"),
    ],
)
def test_producer_ids_lie_above_those_in_adopted_logs(
    make_broker: MakeBroker, found: int, granted: int
) -> None:
    first = make_broker()
    first.create_topic("t")
    first.append("t", batch(producer_id=found, producer_epoch=0, base_sequence=0))
    first.stop()
    lose_metadata(first.log_dir, and_identity=True)
    again = make_broker(log_dir=first.log_dir)
    answer = again.ask(ApiKey.INIT_PRODUCER_ID, 4)
    assert answer.producer_id == granted


def test_what_exactly_once_sinks_of_earlier_versions_left_is_as_any_other(
    make_broker: MakeBroker,
) -> None:
    """They wrote batches of producers above 2^62, and two kinds of files."""
    of_sink = {"producer_id": (1 << 62) + 3, "producer_epoch": 7}
    first = make_broker()
    first.create_topic("t")
    assert first.append("t", batch(base_sequence=0, **of_sink)) == 0
    first.stop()
    left = [first.log_dir / "horolog-queries.json", first.log_dir / "t-0" / f"{1:020d}.attempts"]
    for path in left:
        path.write_bytes(b"what they were")
    for crash in (False, True):
        again = make_broker(log_dir=first.log_dir)
        assert again.append("t", batch(base_sequence=0, **of_sink)) == 0  # a retry
        answer = again.produce("t", batch(base_sequence=9, **of_sink))
        assert answer.error_code == 45  # out of sequence
        again.kill() if crash else again.stop()
    assert [path.read_bytes() for path in left] == [b"what they were"] * 2


# --- what does not start --------------------------------------------------------------


def test_two_brokers_do_not_share_a_directory(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with pytest.raises(Misconfigured, match="another process"):
        make_broker(log_dir=broker.log_dir)


def test_a_port_that_is_taken_is_named(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with pytest.raises(Misconfigured, match=str(broker.port)):
        make_broker(listeners=f"PLAINTEXT://127.0.0.1:{broker.port}")


def test_a_partition_that_cannot_be_read_is_offline_and_the_others_are_served(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    broker.create_topic("t", partitions=2)
    broker.append("t", batch(), 1)
    broker.stop()
    log = next((broker.log_dir / "t-0").glob("*.log"))
    log.rename(log.with_suffix(".kept"))
    log.mkdir()
    (broker.log_dir / ".kafka_cleanshutdown").unlink()
    again = make_broker(log_dir=broker.log_dir)
    with again.connect() as connection:
        (topic,) = connection.ask(ApiKey.METADATA, 12, topics=[{"name": "t"}]).topics
        assert [p.error_code for p in topic.partitions] == [5, 0]
        assert [p.leader_id for p in topic.partitions] == [-1, 1]
        answer = connection.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: batch(), 1: batch()}))
        codes = [p.error_code for p in answer.responses[0].partition_responses]
        assert codes == [56, 0]
