"""kafka-python 1.0.2 to 1.4.7, told to speak to a broker of a given release.

Runs with the Python of those days: python kafka_python.py WHAT HOST:PORT JSON
"""

import json
import sys

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

try:
    from kafka.structs import OffsetAndMetadata
except ImportError:  # 1.0
    from kafka.common import OffsetAndMetadata


def _release(version):
    """As this release of the client wants it."""
    return ".".join(map(str, version)) if kafka.__version__ < "1.1" else tuple(version)


def _time_of(record):
    kind = getattr(record, "timestamp_type", None)
    return [getattr(record, "timestamp", None), kind]


def produce(bootstrap, version, topic, records, codec="none"):
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        api_version=_release(version),
        compression_type=None if codec == "none" else codec,
        linger_ms=200,
        retries=0,
    )
    sent = []
    for time, key, value in records:
        timed = {"timestamp_ms": time} if version >= [0, 10] else {}
        sent.append(
            producer.send(topic, value and value.encode(), key and key.encode(), 0, **timed)
        )
    producer.flush()
    told = [one.get(30) for one in sent]
    return {
        "records": [[one.offset, getattr(one, "timestamp", None)] for one in told],
    }


def consume(bootstrap, version, topic, count, group=None):
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        api_version=_release(version),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=15000,
    )
    consumer.assign([TopicPartition(topic, 0)])
    records = []
    for record in consumer:
        key, value = record.key and record.key.decode(), record.value and record.value.decode()
        records.append([record.offset, key, value, *_time_of(record)])
        if len(records) == count:
            break
    if group:
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(count, "of old")})
        committed = consumer.committed(TopicPartition(topic, 0))
    else:
        committed = None
    consumer.close()
    return {"records": records, "committed": committed}


def main():
    what, bootstrap, asked = sys.argv[1:]
    sys.stdout.write(json.dumps(globals()[what](bootstrap, **json.loads(asked))))


main()
