"""Headers, and the administration of topics, with the Java client, franz-go and KafkaJS."""

import time

from bench.sides import HOROLOG

T0_MS = 1_700_000_000_000
HEADERS = [{}, {"trace": "abc"}, {"a": "", "\N{SNOWMAN}": "\N{SNOWMAN}"}]
RECORDS = [[T0_MS + at, "k", f"v{at}", headers] for at, headers in enumerate(HEADERS)]


def test_headers_come_back_through_every_client(broker, client, every_client, topic):
    name = topic("headers")
    client.ask(broker, "create", topic=name, config={"retention.ms": "-1"})
    sent = client.ask(broker, "produce", topic=name, codec="gzip", records=RECORDS)["records"]
    assert [row["offset"] for row in sent] == [0, 1, 2]
    for reader in every_client:
        read = reader.ask(broker, "consume", topic=name)["records"]
        assert [row["headers"] for row in read] == HEADERS, reader.name


def test_topics_are_made_widened_listed_and_deleted(broker, client, topic):
    name = topic("administered")
    client.ask(broker, "create", topic=name, partitions=2)
    time.sleep(0.5)  # Apache Kafka tells its brokers of a new topic when it gets to it
    told = client.ask(broker, "administer", topic=name, partitions=5)
    assert (told["before"], told["listed"]) == (2, True)
    if broker.name == HOROLOG:  # Apache Kafka takes a moment to tell of what it has done
        assert (told["after"], told["left"]) == (5, False)
