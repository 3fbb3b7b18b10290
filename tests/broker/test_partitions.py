"""The partitions of a broker: those that go, and the disk that refuses."""

import pytest
from batches import batch
from faulty_calls import full_disk
from running_broker import RunningBroker, a_broker

from horolog.errors import ErrorCode

broker = a_broker()


def test_some_partitions_of_a_topic_are_removed_and_the_others_are_served(
    broker: RunningBroker,
) -> None:
    broker.create_topic("t", 3)
    for index in range(3):
        broker.append("t", batch(5), index)
    partitions, topic = broker.broker.partitions, broker.broker.topics.find("t")
    broker.run(partitions.remove(topic, [0, 2]))
    assert [key for key in partitions if key[0] == "t"] == [("t", 1)]
    assert broker.count("t", 1) == 1
    names = {entry.name for entry in broker.log_dir.iterdir() if entry.name.startswith("t-")}
    assert {name for name in names if not name.endswith("-delete")} == {"t-1"}
    broker.run(partitions.remove(topic))
    assert not [key for key in partitions if key[0] == "t"]


def test_what_the_disk_refuses_is_known_until_it_takes_records_again(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t")
    broker.append("t", batch(5))
    partitions = broker.broker.partitions
    assert broker.call(lambda: partitions.failure) is None
    with monkeypatch.context() as patched:
        full_disk(patched)
        assert broker.produce("t", batch(5)).error_code == ErrorCode.kafka_storage_error
    failure = broker.call(lambda: partitions.failure)
    assert failure is not None
    assert failure.startswith("t-0: Cannot write")
    broker.append("t", batch(5))
    assert broker.call(lambda: partitions.failure) is None


def test_high_watermarks_are_checkpointed_when_they_are_asked_for(broker: RunningBroker) -> None:
    broker.create_topic("t")
    broker.append("t", batch(5))
    broker.run(broker.broker.partitions.checkpoint_replicas())
    text = (broker.log_dir / "replication-offset-checkpoint").read_text()
    assert "\nt 0 1\n" in text
