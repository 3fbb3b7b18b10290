"""The client against a running broker, in the newest versions that both know and in the oldest."""

import uuid
from pathlib import Path

import pytest
from overrides import override
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.client import (
    EARLIEST,
    LATEST,
    LOWEST,
    MAX_TIMESTAMP,
    Client,
    CommittedOffset,
    FoundOffset,
    Link,
    NoAnswer,
    ResourceType,
)
from horolog.clock import ManualClock
from horolog.errors import ErrorCode, RecordsRejected, RequestRefused
from horolog.record import Codec, LogRecord, build_batch, iter_headers, read_records, renamed
from horolog.wire import SUPPORTED, ApiKey

SECOND_MS = 1_000


broker = a_broker(scope="module")


@pytest.fixture(params=["newest", "oldest"])
def client(
    broker: RunningBroker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Client:
    override(monkeypatch, "horolog.client", UNKNOWN_TOPIC_MS=100)
    if request.param == "oldest":
        newest_version = Link.version

        def oldest_version(
            self: Link, api_key: ApiKey, *, lowest: int = 0, highest: int = 0x7FFF
        ) -> int:
            newest_version(self, api_key, lowest=lowest, highest=highest)
            return max(lowest, LOWEST.get(api_key, SUPPORTED[api_key].min))

        monkeypatch.setattr(Link, "version", oldest_version)
    return broker.client


@pytest.fixture
def topic(client: Client) -> str:
    """A topic of two partitions whose second has five records, a second apart, before now."""
    name = f"clicks-{uuid.uuid4()}"
    client.create_topics({name: 2})
    first = [LogRecord(NOW_MS - (9 - i) * SECOND_MS, b"k%d" % i, b"v") for i in range(3)]
    late = [LogRecord(NOW_MS - (7 - i) * SECOND_MS, None, b"late") for i in range(2)]
    assert client.produce(name, 1, build_batch(first, codec=Codec.LZ4)).base_offset == 0
    assert client.produce(name, 1, build_batch(late), acks=-1).base_offset == 3
    return name


def test_records_come_back_as_they_went(client: Client, topic: str) -> None:
    fetched = client.fetch(topic, 1, 0)
    assert (fetched.high_watermark, fetched.last_stable_offset) == (5, 5)
    records = list(read_records(fetched.records))
    assert [r.value for r in records] == [b"v"] * 3  # read_records reads the first batch
    assert [r.timestamp for r in records] == [NOW_MS - i * SECOND_MS for i in (9, 8, 7)]


def test_an_offset_inside_a_batch_gives_the_whole_batch(client: Client, topic: str) -> None:
    assert client.fetch(topic, 1, 1).records == client.fetch(topic, 1, 0).records
    from_the_second = client.fetch(topic, 1, 3).records
    assert [r.offset for r in read_records(from_the_second)] == [3, 4]


def test_nothing_new_is_nothing_after_the_wait(client: Client, topic: str) -> None:
    assert client.fetch(topic, 1, 5, max_wait_ms=1).records == b""


def test_an_offset_out_of_range_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(RequestRefused, match="from offset 99: OFFSET_OUT_OF_RANGE") as refused:
        client.fetch(topic, 1, 99)
    assert refused.value.code is ErrorCode.offset_out_of_range


@pytest.mark.parametrize(
    ("ago_ms", "expected"),
    [(10_000, 0), (9_000, 0), (8_500, 1), (6_001, 4), (6_000, 4), (5_999, None)],
)
def test_the_first_offset_at_or_after_a_time(
    client: Client, topic: str, ago_ms: int, expected: int | None
) -> None:
    found = client.list_offsets({(topic, 1): NOW_MS - ago_ms})[topic, 1]
    assert (found and found.offset) == expected


def test_special_offsets_of_several_partitions(client: Client, topic: str) -> None:
    both = {(topic, 0): LATEST, (topic, 1): LATEST}
    ends = client.list_offsets(both)
    assert {tp: found and found.offset for tp, found in ends.items()} == {
        (topic, 0): 0,
        (topic, 1): 5,
    }
    start = client.list_offsets({(topic, 1): EARLIEST})[topic, 1]
    assert start is not None
    assert (start.offset, start.timestamp) == (0, -1)
    newest = client.list_offsets({(topic, 1): MAX_TIMESTAMP})[topic, 1]
    assert newest is not None
    assert (newest.offset, newest.timestamp) == (4, NOW_MS - 6 * SECOND_MS)


def test_a_record_from_the_future_is_rejected_with_its_place(client: Client, topic: str) -> None:
    batch = build_batch([LogRecord(NOW_MS, None, b"v"), LogRecord(NOW_MS * 1000, None, b"v")])
    with pytest.raises(RequestRefused, match=f"produce to {topic}-1") as rejected:
        client.produce(topic, 1, batch)
    assert rejected.value.code is ErrorCode.invalid_timestamp
    if isinstance(rejected.value, RecordsRejected):  # versions before 8 say only the number
        assert [each.batch_index for each in rejected.value.errors] == [1]
    assert client.list_offsets({(topic, 1): LATEST})[topic, 1].offset == 5


def test_append_time_is_returned_where_the_topic_keeps_it(client: Client, topic: str) -> None:
    about = (ResourceType.TOPIC, topic)
    batch = build_batch([LogRecord(NOW_MS - 1, None, b"v")])
    assert client.produce(topic, 0, batch).log_append_time_ms is None
    client.alter_configs({about: {"message.timestamp.type": "LogAppendTime"}})
    assert client.produce(topic, 0, batch).log_append_time_ms == NOW_MS
    client.alter_configs({about: {"message.timestamp.type": None}})
    assert client.produce(topic, 0, batch).log_append_time_ms is None


def test_settings_are_described_changed_and_set_back(client: Client, topic: str) -> None:
    about = (ResourceType.TOPIC, topic)
    client.alter_configs({about: {"retention.ms": "12345"}})
    changed = client.describe_configs([about], names=["retention.ms"])[about]
    assert list(changed) == ["retention.ms"]
    assert (changed["retention.ms"].value, changed["retention.ms"].is_default) == ("12345", False)
    client.alter_configs({about: {"retention.ms": None}})
    whole = client.describe_configs([about])[about]
    assert whole["retention.ms"].is_default
    assert len(whole) > 10
    with pytest.raises(RequestRefused, match=f"topic {topic}: .*retention.ms") as refused:
        client.alter_configs({about: {"retention.ms": "soon"}})
    assert refused.value.code is ErrorCode.invalid_config


def test_topics_are_made_enlarged_and_deleted(client: Client, topic: str) -> None:
    with pytest.raises(RequestRefused, match="already exists") as refused:
        client.create_topics({topic: 1})
    assert refused.value.code is ErrorCode.topic_already_exists
    client.create_partitions({topic: 4})
    described = client.metadata([topic]).topics[topic]
    assert sorted(described.partitions) == [0, 1, 2, 3]
    client.delete_topics([topic])
    gone = client.metadata([topic]).topics[topic]
    assert gone.error is ErrorCode.unknown_topic_or_partition
    with pytest.raises(RequestRefused, match=f"topic {topic}: UNKNOWN_TOPIC_OR_PARTITION"):
        client.list_offsets({(topic, 0): LATEST})


def test_reading_an_unknown_topic_does_not_create_it_and_writing_does(client: Client) -> None:
    name = f"new-{uuid.uuid4()}"
    with pytest.raises(RequestRefused, match=f"topic {name}: UNKNOWN_TOPIC_OR_PARTITION"):
        client.fetch(name, 0, 0)
    assert name not in client.metadata().topics
    batch = build_batch([LogRecord(NOW_MS, None, b"v")])
    assert client.produce(name, 0, batch).base_offset == 0
    assert name in client.metadata().topics


def test_a_group_without_members_keeps_offsets(client: Client, topic: str) -> None:
    group = f"nightly-{uuid.uuid4()}"
    client.offset_commit(
        group, {(topic, 1): CommittedOffset(3, "half"), (topic, 0): CommittedOffset(0)}
    )
    assert client.offset_fetch(group, [(topic, 1)])[topic, 1] == CommittedOffset(3, "half")
    everything = client.offset_fetch(group)
    assert {tp: kept and kept.offset for tp, kept in everything.items()} == {
        (topic, 0): 0,
        (topic, 1): 3,
    }
    assert client.offset_fetch("unheard of", [(topic, 1)]) == {(topic, 1): None}
    assert client.groups.coordinator(group).node_id in client.metadata([]).brokers


def test_a_broker_that_restarts_is_found_again(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path, clock=ManualClock(NOW_MS))
    with broker as running, Client(running.address) as client:
        client.create_topics({"clicks": 1})
        batch = build_batch([LogRecord(NOW_MS, None, b"v")])
        client.produce("clicks", 0, batch)
        running.restart()
        assert client.list_offsets({("clicks", 0): NOW_MS}) == {
            ("clicks", 0): FoundOffset(0, NOW_MS, 0)
        }
        running.restart()
        assert client.produce("clicks", 0, batch).base_offset == 1


def test_a_broker_that_is_gone_is_reported_as_gone(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path)
    with broker as running, Client(running.address, timeout_ms=3_000) as client:
        client.create_topics({"clicks": 1})
        running.stop()
        with pytest.raises(NoAnswer, match=r"127.0.0.1:\d+ \(connection refused\)"):
            client.fetch("clicks", 0, 0)


def test_raw_batches_are_copied_as_another_producers(client: Client, topic: str) -> None:
    copy = f"copy-{uuid.uuid4()}"
    client.create_topics({copy: 1})
    producer = client.init_producer_id()
    for _ in range(2):  # the second time every batch is a repeat, and nothing is appended
        fetched = client.fetch(topic, 1, 0)
        sequence, data = 0, memoryview(fetched.records)
        for at, header in iter_headers(data):
            batch = renamed(header, data[at : at + header.size], producer, sequence)
            sequence += header.records_count
            client.produce(copy, 0, batch, acks=-1)
    copied = client.fetch(copy, 0, 0).records
    headers = [header for _, header in iter_headers(copied)]
    assert [(h.producer_id, h.base_sequence, h.codec) for h in headers] == [
        (producer.id, 0, Codec.LZ4),
        (producer.id, 3, Codec.NONE),
    ]
    end = client.list_offsets({(copy, 0): LATEST})[copy, 0]
    assert end is not None
    assert end.offset == 5


def test_cluster_time_is_the_brokers_clock(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.topics.cluster_time_ms() == broker.clock.now_ms()
    broker.clock.advance("1h")
    assert client.topics.cluster_time_ms() == broker.clock.now_ms()
    broker.clock.advance("-1h")

    def unknown(self: Link, api_key: ApiKey, *, lowest: int = 0, highest: int = 0x7FFF) -> int:
        if api_key is ApiKey.DESCRIBE_QUORUM:
            raise RequestRefused(ErrorCode.unsupported_version, "not here")
        return SUPPORTED[api_key].max

    monkeypatch.setattr(Link, "version", unknown)
    assert client.topics.cluster_time_ms() is None


def test_only_the_quorum_of_the_metadata_is_described(broker: RunningBroker) -> None:
    asked = [{"topic_name": "clicks", "partitions": [{"partition_index": 0}]}]
    refused = broker.ask(ApiKey.DESCRIBE_QUORUM, 2, topics=asked)
    assert refused.error_code == ErrorCode.invalid_request
    assert "only partition 0 of __cluster_metadata" in refused.error_message


def test_a_commit_with_topic_ids_refuses_a_topic_that_was_re_created(
    tmp_path: Path,
) -> None:
    with RunningBroker(tmp_path) as broker:
        client = broker.client
        client.create_topics({"again": 1, "other": 1})
        ids = {
            name: topic.topic_id
            for name, topic in client.metadata(["again", "other"]).topics.items()
            if topic.topic_id is not None
        }
        offsets = {("again", 0): CommittedOffset(1), ("other", 0): CommittedOffset(2)}
        client.offset_commit("by-id", offsets, ids)
        assert client.offset_fetch("by-id")["again", 0] == CommittedOffset(1)
        client.delete_topics(["again"])
        client.create_topics({"again": 1})
        with pytest.raises(RequestRefused, match="to again-0: UNKNOWN_TOPIC_ID"):
            client.offset_commit("by-id", offsets, ids)
        assert client.offset_fetch("by-id", [("again", 0)]) == {("again", 0): None}
        client.offset_commit("by-id", offsets, {"other": ids["other"]})  # by names
        assert client.offset_fetch("by-id")["again", 0] == CommittedOffset(1)
