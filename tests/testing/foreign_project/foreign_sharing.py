"""The tests of a foreign project that share one broker; several processes run them at a time."""

import os

import confluent_kafka

_seen = []


def test_one(horolog_session_broker):
    _seen.append(horolog_session_broker.bootstrap_servers)
    horolog_session_broker.create_topic("shared")


def test_other(horolog_session_broker, horolog_broker):
    assert _seen == [horolog_session_broker.bootstrap_servers]
    assert horolog_broker.bootstrap_servers not in _seen
    assert horolog_broker.log_dir != horolog_session_broker.log_dir
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": horolog_session_broker.bootstrap_servers}
    )
    producer.produce("shared", str(os.getpid()).encode())
    assert producer.flush(180) == 0


def test_the_log_holds_only_what_this_process_wrote(horolog_session_broker):
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": horolog_session_broker.bootstrap_servers, "group.id": "g"}
    )
    partition = confluent_kafka.TopicPartition("shared", 0)
    assert consumer.get_watermark_offsets(partition, timeout=180) == (0, 1)
    consumer.assign([confluent_kafka.TopicPartition("shared", 0, 0)])
    assert consumer.poll(10).value() == str(os.getpid()).encode()
    consumer.close()
