"""librdkafka 0.11.6 and 1.0.0 through confluent-kafka, told to speak to a broker of a release.

Runs with the Python of those days: python librdkafka.py WHAT HOST:PORT JSON
"""

import json
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition


def _common(bootstrap, version):
    told = {"bootstrap.servers": bootstrap}
    if version:
        told["api.version.request"] = "false"
        told["broker.version.fallback"] = version
    return told


def produce(bootstrap, topic, records, version=None, codec="none"):
    told = []

    def delivered(error, message):
        kind, time = message.timestamp()
        told.append(
            [message.offset(), time if kind else None] if error is None else [error.code(), None]
        )

    config = dict(_common(bootstrap, version))
    config.update({"compression.codec": codec, "queue.buffering.max.ms": 200})
    producer = Producer(config)
    for time, key, value in records:
        producer.produce(topic, value, key, 0, timestamp=time, on_delivery=delivered)
    producer.flush(60)
    return {"records": told}


def consume(bootstrap, topic, count, version=None, group="none"):
    config = dict(_common(bootstrap, version))
    config.update({"group.id": group, "enable.auto.commit": "false"})
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    records = []
    while len(records) < count:
        message = consumer.poll(30)
        if message is None:
            break
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                continue
            raise SystemExit(str(message.error()))
        kind, time = message.timestamp()
        key, value = message.key(), message.value()
        records.append(
            [
                message.offset(),
                key and key.decode(),
                value and value.decode(),
                time if kind else None,
                kind - 1 if kind else None,
            ]
        )
    consumer.close()
    return {"records": records}


def main():
    what, bootstrap, asked = sys.argv[1:]
    sys.stdout.write(json.dumps(globals()[what](bootstrap, **json.loads(asked))))


main()
