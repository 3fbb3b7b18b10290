"""A test of who may do what: a broker with TLS, users and rights in one line.

Needs `pip install 'horolog[security]' pytest confluent-kafka`. Run: pytest examples/pytest_users
"""

import confluent_kafka


def errors_of(broker, user, *topics):
    """Write to topics as a user, and return the errors by topic."""
    producer, errors = confluent_kafka.Producer(broker.librdkafka(user)), {}
    for topic in topics:
        producer.produce(
            topic,
            b"tea",
            on_delivery=lambda error, record: errors.update({record.topic(): error}),
        )
    producer.flush(30)
    return {topic: error and error.name() for topic, error in errors.items()}


def test_the_shop_writes_orders_and_the_report_only_reads_them(horolog_secured):
    reads = ["read topic:ord*", "read group:report"]
    broker = horolog_secured(shop="write topic:orders", report=reads)
    broker.create_topic("orders")
    denied = "TOPIC_AUTHORIZATION_FAILED"
    assert errors_of(broker, "shop", "orders", "wages") == {"orders": None, "wages": denied}
    assert errors_of(broker, "report", "orders") == {"orders": denied}

    consumer = confluent_kafka.Consumer({**broker.librdkafka("report"), "group.id": "report"})
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    assert consumer.poll(30).value() == b"tea"
    consumer.close()
