"""Topics that coordinators keep their state in: made on first use, and read by clients."""

import pytest
from running_broker import NOW_MS, TOPIC, MakeBroker, RunningBroker, a_broker

from horolog.broker import StateTopic
from horolog.client import ResourceType
from horolog.errors import Misconfigured, RequestRefused
from horolog.record import LogRecord, build_batch, parse_header, read_records, stamped_batch
from horolog.schemas.offsets import partition_for
from horolog.storage import CONSUMER_OFFSETS, TRANSACTION_STATE
from horolog.wire import ApiKey

BATCH = build_batch([LogRecord(NOW_MS, b"k", b"v")])
INVALID_TOPIC = 17


broker = a_broker(
    now_ms=None, offsets_topic_num_partitions="3", transaction_state_log_num_partitions="3"
)


def topic_of(broker: RunningBroker, name: str = TRANSACTION_STATE) -> StateTopic:
    its = broker.service.broker
    return its.offsets_topic if name == CONSUMER_OFFSETS else its.transactions_topic


def append(broker: RunningBroker, *batches: bytes, name: str = TRANSACTION_STATE) -> int:
    topic = topic_of(broker, name)

    async def call() -> int:
        await topic.ready()
        index = topic.partition_of("key")
        for batch in batches:
            appending = topic.append(index, topic.prepared(index, batch))
            if appending is not None:
                await appending
        return index

    return broker.run(call())


def append_records(
    broker: RunningBroker, *records: LogRecord, name: str = TRANSACTION_STATE
) -> int:
    topic = topic_of(broker, name)

    async def call() -> int:
        await topic.ready()
        for record in records:
            appending = topic.append_record("key", record)
            if appending is not None:
                await appending
        return topic.partition_of("key")

    return broker.run(call())


def loaded(broker: RunningBroker, index: int, name: str = TRANSACTION_STATE) -> list[bytes]:
    taken: list[bytes] = []
    topic = topic_of(broker, name)
    broker.run(topic.load(index, lambda batch: taken.append(bytes(batch))))
    return taken


def values(batches: list[bytes]) -> list[bytes | None]:
    return [record.value for batch in batches for record in read_records(batch)]


@pytest.mark.parametrize("name", [CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_it_is_made_on_first_use_and_can_be_read_by_clients(
    broker: RunningBroker, name: str
) -> None:
    assert not [*broker.log_dir.glob(f"{name}-*")]
    index = append(broker, BATCH, BATCH, name=name)
    assert index == partition_for("key", 3)
    (topic,) = broker.ask(ApiKey.METADATA, 12, topics=[{"name": name}]).topics
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 3)
    assert broker.count(name, index) == 2
    assert broker.run(broker.service.broker.offsets_topic.ready()) is None


def lag_of(broker: RunningBroker, name: str = CONSUMER_OFFSETS) -> str | None:
    broker.run(topic_of(broker, name).ready())
    return broker.service.broker.topics.named(name).overrides.get("min.compaction.lag.ms")


def alter_history(broker: RunningBroker, ms: int | None) -> None:
    value = None if ms is None else str(ms)
    broker.client.alter_configs({(ResourceType.BROKER, ""): {"horolog.history.ms": value}})


def test_history_is_off_until_it_is_asked_for(make_broker: MakeBroker) -> None:
    broker = make_broker()
    assert lag_of(broker) is None
    assert lag_of(broker, TRANSACTION_STATE) is None
    alter_history(broker, 5000)
    assert lag_of(broker) == "5000"
    broker.restart()
    alter_history(broker, 6000)
    assert lag_of(broker) == "6000"
    alter_history(broker, None)
    assert lag_of(broker) is None


def test_a_new_topic_of_groups_keeps_commits_as_long_as_the_broker_says(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(horolog_history_ms="5000")
    assert lag_of(broker) == "5000"
    assert lag_of(broker, TRANSACTION_STATE) is None


def test_history_that_is_longer_than_any_lag_may_be_is_refused(make_broker: MakeBroker) -> None:
    longest = {"log_cleaner_max_compaction_lag_ms": "5000"}
    with pytest.raises(Misconfigured, match=r"horolog\.history\.ms is 5001, and must not be above"):
        make_broker(horolog_history_ms="5001", **longest)
    broker = make_broker(horolog_history_ms="5000", **longest)
    assert lag_of(broker) == "5000"
    with pytest.raises(RequestRefused, match=r"horolog\.history\.ms is 5001"):
        alter_history(broker, 5001)


def test_a_lag_that_is_set_by_hand_stays(make_broker: MakeBroker) -> None:
    broker = make_broker(horolog_history_ms="5000")
    assert lag_of(broker) == "5000"
    for by_hand in ("7000", None):
        change = {(ResourceType.TOPIC, CONSUMER_OFFSETS): {"min.compaction.lag.ms": by_hand}}
        broker.client.alter_configs(change)
        broker.restart()
        assert lag_of(broker) == by_hand
        alter_history(broker, 5000)  # as it is
        assert lag_of(broker) == by_hand
    broker.client.alter_configs(
        {(ResourceType.TOPIC, CONSUMER_OFFSETS): {"min.compaction.lag.ms": "7000"}}
    )
    alter_history(broker, 6000)
    assert lag_of(broker) == "7000"


def test_the_week_of_earlier_versions_stays_until_history_is_altered(broker: RunningBroker) -> None:
    lag_of(broker)
    week = {(ResourceType.TOPIC, CONSUMER_OFFSETS): {"min.compaction.lag.ms": "604800000"}}
    broker.client.alter_configs(week)
    broker.restart()
    assert lag_of(broker) == "604800000"
    alter_history(broker, 86_400_000)
    assert lag_of(broker) == "86400000"


def test_an_altered_history_that_cannot_be_stored_changes_nothing(broker: RunningBroker) -> None:
    lag_of(broker)
    with pytest.raises(RequestRefused):
        alter_history(broker, -1)
    assert lag_of(broker) is None


@pytest.mark.parametrize("crash", [False, True])
def test_what_is_appended_is_loaded_in_order_after_a_restart(
    broker: RunningBroker, crash: bool
) -> None:
    batches = [build_batch([LogRecord(NOW_MS, b"k", bytes([n]))]) for n in range(5)]
    index = append(broker, *batches)
    broker.restart(crash=crash)
    index = append(broker, build_batch([LogRecord(NOW_MS, b"k", None)]))
    found = loaded(broker, index)
    assert values(found) == [*(bytes([n]) for n in range(5)), None]
    assert [parse_header(batch).base_offset for batch in found] == [*range(6)]


def test_a_record_is_the_batch_of_it_alone(broker: RunningBroker) -> None:
    now_ms = broker.service.broker.clock.now_ms() + 60_000  # no append time that is given is later
    records = [LogRecord(now_ms, b"k", bytes([n])) for n in range(3)] + [
        LogRecord(now_ms, b"k", None)
    ]
    index = append_records(broker, *records)
    append(broker, *(stamped_batch([each], now_ms).data for each in records))
    found = loaded(broker, index)
    assert [batch[12:] for batch in found[:4]] == [batch[12:] for batch in found[4:]]
    broker.restart(crash=True)
    assert loaded(broker, index) == found
    assert values(found[:4]) == [each.value for each in records]


def test_nothing_is_loaded_of_a_topic_that_was_never_made(broker: RunningBroker) -> None:
    assert loaded(broker, 0) == []
    assert not [*broker.log_dir.glob("__transaction_state-*")]


def test_batches_of_a_transaction_need_no_sequences(broker: RunningBroker) -> None:
    def within(epoch: int) -> bytes:
        return build_batch(
            [LogRecord(NOW_MS, b"k", b"v")],
            producer_id=7,
            producer_epoch=epoch,
            is_transactional=True,
        )

    index = append(broker, within(3), within(3), within(4), name=CONSUMER_OFFSETS)
    log = broker.log(CONSUMER_OFFSETS, index)
    assert log.log_end_offset == 3
    assert dict(log.producers.unended()) == {7: 0}
    assert len(loaded(broker, index, CONSUMER_OFFSETS)) == 3


def test_a_batch_that_no_segment_holds_is_refused(make_broker: MakeBroker) -> None:
    broker = make_broker(offsets_topic_segment_bytes="1000")
    big = build_batch([LogRecord(NOW_MS, b"k", bytes(2000))])
    with pytest.raises(Exception, match=r"segment\.bytes"):
        append(broker, big, name=CONSUMER_OFFSETS)
    with pytest.raises(RequestRefused, match=r"segment\.bytes"):
        append_records(broker, LogRecord(NOW_MS, b"k", bytes(2000)), name=CONSUMER_OFFSETS)
    index = append(broker, *[BATCH] * 100, name=CONSUMER_OFFSETS)  # several segments
    assert len(loaded(broker, index, CONSUMER_OFFSETS)) == 100
    append_records(broker, *[LogRecord(NOW_MS, b"k", b"v")] * 100, name=CONSUMER_OFFSETS)
    assert len(loaded(broker, index, CONSUMER_OFFSETS)) == 200


def test_damage_in_a_rolled_segment_costs_only_what_is_damaged(make_broker: MakeBroker) -> None:
    broker = make_broker(offsets_topic_segment_bytes="1000")
    batches = [build_batch([LogRecord(NOW_MS, b"k", b"%d" % n)]) for n in range(100)]
    index = append(broker, *batches, name=CONSUMER_OFFSETS)
    (first, *_) = sorted((broker.log_dir / f"{CONSUMER_OFFSETS}-{index}").glob("*.log"))
    data = bytearray(first.read_bytes())
    data[len(batches[0]) + 65] ^= 1
    first.write_bytes(data)
    found = values(loaded(broker, index, CONSUMER_OFFSETS))
    assert found == [b"%d" % n for n in range(100) if n != 1]


@pytest.mark.parametrize("name", [CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_clients_cannot_write_or_change_it(broker: RunningBroker, name: str) -> None:
    append(broker, BATCH, name=name)
    assert broker.produce(name, BATCH).error_code == INVALID_TOPIC
    new = {"name": name, "num_partitions": 1, "replication_factor": 1}
    (made,) = broker.ask(ApiKey.CREATE_TOPICS, 7, topics=[new]).topics
    assert made.error_code == INVALID_TOPIC
    (deleted,) = broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[name]).responses
    assert deleted.error_code == INVALID_TOPIC
    (grown,) = broker.ask(ApiKey.CREATE_PARTITIONS, 3, topics=[{"name": name, "count": 9}]).results
    assert grown.error_code == INVALID_TOPIC
    asked = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}]
    (cut,) = broker.ask(ApiKey.DELETE_RECORDS, 2, topics=asked).topics
    assert cut.partitions[0].error_code == INVALID_TOPIC
    assert broker.alter(name, kind=TOPIC, segment_bytes="2000000").error_code == 0


def test_one_whose_settings_are_lost_gets_them_again(broker: RunningBroker) -> None:
    index = append(broker, BATCH)
    broker.stop()
    for path in broker.log_dir.glob("__cluster_metadata-0/*"):
        path.unlink()
    broker.start()
    assert broker.service.broker.topics.find(TRANSACTION_STATE).adopted
    assert append(broker, BATCH) == index
    topic = broker.service.broker.topics.find(TRANSACTION_STATE)
    assert (topic.adopted, topic.overrides["cleanup.policy"]) == (False, "compact")
    assert len(loaded(broker, index)) == 2
