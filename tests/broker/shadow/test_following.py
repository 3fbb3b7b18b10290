"""A broker that follows another: the same offsets, epochs and bytes, whatever happens to either."""

import logging
from typing import Any

import pytest
from faulty_calls import failing
from following import batches_of, is_caught_up, status_of
from patience import eventually
from raw_connection import fetch_fields
from running_broker import ANY_TIME, NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.errors import ErrorCode, StorageFailed
from horolog.record import Codec, LogRecord, TimestampType, build_batch
from horolog.storage import Batch, Log, SourceBatches
from horolog.wire import ApiKey

source = a_broker("t", partitions=2, of_topics=ANY_TIME, log_retention_ms="-1")
ALL = [("t", 0), ("t", 1)]


@pytest.fixture
def shadow(make_broker: MakeBroker, source: RunningBroker) -> RunningBroker:
    return make_broker(clock=source.clock, horolog_follow=source.address, log_retention_ms="-1")


def batch(number: int, count: int = 3, size: int = 50) -> bytes:
    records = [LogRecord(NOW_MS + number + each, b"k", bytes(size)) for each in range(count)]
    return build_batch(records, codec=tuple(Codec)[number % 5])


def fill(source: RunningBroker, count: int, partition: int = 0, *, size: int = 50) -> None:
    for number in range(count):
        source.append("t", batch(number, size=size), partition)


def assert_same(
    source: RunningBroker, shadow: RunningBroker, partition: int = 0, start: int = 0
) -> None:
    assert is_caught_up(shadow, source, [("t", partition)])
    ours = batches_of(shadow.client, "t", partition, start)
    assert ours == batches_of(source.client, "t", partition, start)
    assert ours
    ours_log, theirs_log = (each.log("t", partition) for each in (shadow, source))
    # The log start within a batch counts once the high watermark has passed it.
    assert eventually(lambda: ours_log.epochs.entries == theirs_log.epochs.entries)
    assert ours_log.leader_epoch == theirs_log.leader_epoch


def test_what_is_there_and_what_comes_is_followed_byte_by_byte(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    fill(source, 20)
    assert_same(source, shadow)
    fill(source, 20)
    fill(source, 5, partition=1)
    assert_same(source, shadow)
    assert_same(source, shadow, 1)


def test_a_follower_fetches_in_one_session(source: RunningBroker, shadow: RunningBroker) -> None:
    for number in range(6):
        source.append("t", batch(number), number % 2)
        assert_same(source, shadow, number % 2)
    sessions = source.broker.fetch_sessions
    assert (len(sessions), sessions.partitions) == (1, 2)
    (first,) = sessions.ids
    source.call(lambda: sessions.end(first))
    source.append("t", batch(7))
    assert_same(source, shadow)
    assert eventually(lambda: len(sessions) == 1)


def test_a_topic_that_is_made_grown_and_deleted_is_followed(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    source.create_topic("u")
    source.append("u", batch(1))
    assert eventually(lambda: shadow.broker.partitions.find("u", 0) is not None)
    assert is_caught_up(shadow, source, [("u", 0)])
    source.client.create_partitions({"u": 3})
    source.append("u", batch(2), 2)
    assert eventually(lambda: shadow.broker.partitions.find("u", 2) is not None)
    assert is_caught_up(shadow, source, [("u", 2)])
    source.client.delete_topics(["u"])
    assert eventually(lambda: shadow.broker.partitions.find("u", 0) is None)
    assert eventually(lambda: status_of(shadow, "u") is None)  # once the look has ended


def test_a_topic_that_is_made_again_begins_anew(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    fill(source, 5)
    assert_same(source, shadow)
    source.client.delete_topics(["t"])
    source.create_topic("t", **ANY_TIME)
    source.append("t", batch(77))
    topic_id = source.broker.topics.named("t").topic_id
    assert eventually(lambda: getattr(shadow.broker.topics.find("t"), "topic_id", 0) == topic_id)
    assert_same(source, shadow)
    assert len(batches_of(shadow.client, "t")) == 1


def test_either_side_may_stop_and_start_again(source: RunningBroker, shadow: RunningBroker) -> None:
    for crash in (False, True):
        fill(source, 3)
        assert_same(source, shadow)
        source.restart(crash=crash)
        fill(source, 3)
        assert_same(source, shadow)
        shadow.restart(crash=crash)
        fill(source, 3)
        assert_same(source, shadow)


def test_consumers_here_are_told_of_every_epoch_of_the_source(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    """Also where no record was written in it."""
    fill(source, 3)
    assert_same(source, shadow)
    source.restart(crash=True)
    epoch = source.log("t").leader_epoch
    assert epoch == 1
    assert eventually(lambda: shadow.log("t").leader_epoch == epoch)
    described = shadow.client.metadata(["t"]).topics["t"].partitions[0]
    assert described.leader_epoch == epoch
    fields = fetch_fields("t", {0: 9})
    fields["topics"][0]["partitions"][0]["current_leader_epoch"] = 0
    (answer,) = shadow.ask(ApiKey.FETCH, 12, **fields).responses
    assert answer.partitions[0].error_code == ErrorCode.fenced_leader_epoch


def test_it_goes_on_without_being_told_the_source_again(
    source: RunningBroker, make_broker: MakeBroker, shadow: RunningBroker
) -> None:
    fill(source, 3)
    assert_same(source, shadow)
    shadow.stop()
    again = make_broker(log_dir=shadow.log_dir, clock=source.clock)
    fill(source, 3)
    assert_same(source, again)


def lose_tail(source: RunningBroker) -> None:
    """Have the source come back from a crash without its last batches."""
    source.stop()
    (source.log_dir / ".kafka_cleanshutdown").unlink()
    log = next((source.log_dir / "t-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-100])
    source.restart()


def test_nothing_is_appended_while_the_disk_refuses_to_cut(
    source: RunningBroker, shadow: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(source, 10)
    assert_same(source, shadow)
    shadow.stop()
    lose_tail(source)
    fill(source, 20)
    refused: list[int] = []

    def is_refused(log: Log, offset: int, now_ms: int) -> bool:
        if len(refused) == 2:
            return False
        refused.append(log.log_end_offset)
        return True

    failing(monkeypatch, Log, "truncate_to", StorageFailed("the disk is full"), when=is_refused)
    shadow.restart(replica_fetch_backoff_ms="10")
    assert_same(source, shadow)
    assert refused == [30, 30]


def why_waits(shadow: RunningBroker, partition: int) -> str | None:
    status = status_of(shadow, "t", partition)
    assert status is not None
    return status.why


def test_a_bug_with_one_partition_does_not_hold_up_the_others_of_its_leader(
    source: RunningBroker, shadow: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(source, 1)
    fill(source, 1, partition=1)
    assert is_caught_up(shadow, source, ALL)

    def is_of_the_source(log: Log, batch: Batch, *_: Any, **__: Any) -> bool:
        return log.partition == 1 and isinstance(batch, SourceBatches)

    with monkeypatch.context() as patched:
        failing(patched, Log, "append", ValueError("a bug"), when=is_of_the_source)
        for _ in range(3):
            fill(source, 1)
            fill(source, 1, partition=1)
            assert is_caught_up(shadow, source, [("t", 0)])
        assert eventually(lambda: why_waits(shadow, 1) == "a bug: see the log")
        assert why_waits(shadow, 0) is None
        assert shadow.log("t", 1).log_end_offset == 3
    assert_same(source, shadow, 1)


def test_what_the_source_lost_is_cut_off_and_set_aside(
    source: RunningBroker, shadow: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The source comes back from a crash without its last batches, and writes others."""
    fill(source, 10)
    assert_same(source, shadow)
    lose_tail(source)
    end = source.log("t").log_end_offset
    assert end < 30
    fill(source, 7)
    assert_same(source, shadow)
    assert "parts from the one here at offset" in caplog.text
    assert [*(shadow.log_dir / "t-0").glob("*.cut*")], "what was cut off is set aside"


def test_a_gap_is_named_and_what_is_before_it_is_still_served(
    source: RunningBroker, shadow: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fill(source, 5)
    assert_same(source, shadow)
    before = batches_of(shadow.client, "t")
    shadow.stop()
    fill(source, 5)
    source.delete_records("t", 24)
    fill(source, 2)
    shadow.restart()
    assert is_caught_up(shadow, source, [("t", 0)])
    assert batches_of(shadow.client, "t") == before + batches_of(source.client, "t", start=24)
    assert "offsets 15 to 23 are missing" in caplog.text
    status = status_of(shadow, "t")
    assert status is not None
    assert [*status.gaps] == [(15, 24)]


@pytest.mark.parametrize("start", [9, 10])
def test_a_fresh_log_starts_where_the_source_does(
    source: RunningBroker, make_broker: MakeBroker, start: int
) -> None:
    """Also within a batch: its first records are deleted at the source."""
    fill(source, 6)
    source.delete_records("t", start)
    shadow = make_broker(clock=source.clock, horolog_follow=source.address)
    assert_same(source, shadow, start=start)
    assert shadow.log("t").log_start_offset == start
    status = status_of(shadow, "t")
    assert status is not None
    assert not status.gaps


def test_readers_are_served_and_woken_and_producers_sent_away(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    fill(source, 3)
    assert_same(source, shadow)
    with shadow.connect() as reader:
        sent = {
            "max_wait_ms": 100_000,
            "topics": [
                {
                    "topic": "t",
                    "partitions": [
                        {"partition": 0, "fetch_offset": 9, "partition_max_bytes": 1 << 20}
                    ],
                }
            ],
        }
        reader.send(ApiKey.FETCH, 12, **sent)
        fill(source, 1)
        answer = reader.receive()[1].responses[0].partitions[0]
    assert len(answer.records)
    assert shadow.produce("t", batch(1)).error_code == ErrorCode.not_leader_or_follower


def test_a_large_batch_and_many_small_topics_come_together(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    for number in range(30):
        source.create_topic(f"small{number}", **ANY_TIME)
    source.alter("t", max_message_bytes=str(20 << 20))
    source.append("t", build_batch([LogRecord(NOW_MS, None, bytes(12 << 20))]))
    for number in range(30):
        source.append(f"small{number}", batch(number))
    fill(source, 20, size=200_000)
    smalls = [(f"small{number}", 0) for number in range(30)]
    assert eventually(lambda: all(shadow.broker.partitions.find(*each) for each in smalls))
    assert is_caught_up(shadow, source, smalls)
    assert_same(source, shadow)


def test_another_cluster_at_the_address_is_refused(
    source: RunningBroker, shadow: RunningBroker, make_broker: MakeBroker
) -> None:
    fill(source, 3)
    assert_same(source, shadow)
    before = batches_of(shadow.client, "t")
    source.stop()
    other = make_broker(listeners=f"PLAINTEXT://{source.address}", clock=source.clock)
    other.create_topic("t", 2, **ANY_TIME)
    other.append("t", batch(5))

    def why() -> str:
        return str(shadow.broker.shadow.follower.why)

    assert eventually(lambda: "cluster" in why() and "which was followed" in why())
    assert batches_of(shadow.client, "t") == before
    other.stop()
    source.restart()
    fill(source, 3)
    assert_same(source, shadow)


def test_the_log_says_once_that_it_has_caught_up(
    source: RunningBroker, make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fill(source, 3)
    shadow = make_broker(clock=source.clock, horolog_follow=source.address)
    assert_same(source, shadow)
    assert eventually(lambda: "caught up" in caplog.text)
    fill(source, 3)
    assert_same(source, shadow)
    assert caplog.text.count("caught up") == 1


def test_a_stop_does_not_wait_for_the_source(source: RunningBroker, shadow: RunningBroker) -> None:
    fill(source, 3)
    assert_same(source, shadow)
    assert shadow.call(shadow.loop.time) > 0
    shadow.stop()


def test_times_stamped_by_the_source_stay(source: RunningBroker, shadow: RunningBroker) -> None:
    source.create_topic("stamped", message_timestamp_type="LogAppendTime")
    source.append("stamped", batch(1))
    assert eventually(lambda: shadow.broker.partitions.find("stamped", 0) is not None)
    assert is_caught_up(shadow, source, [("stamped", 0)])
    assert batches_of(shadow.client, "stamped") == batches_of(source.client, "stamped")
    (header,) = shadow.headers("stamped")
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
