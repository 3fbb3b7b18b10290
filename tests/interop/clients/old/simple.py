"""kafka-python 0.9.5 of 2016: Produce 0, Fetch 0, ListOffsets 0, OffsetCommit 0, OffsetFetch 0.

Runs with the Python of those days: python simple.py WHAT HOST:PORT JSON
"""

import json
import sys

from kafka import KafkaClient, SimpleConsumer
from kafka.common import OffsetCommitRequest, OffsetFetchRequest, OffsetRequest, ProduceRequest
from kafka.protocol import CODEC_GZIP, CODEC_NONE, CODEC_SNAPPY, create_message_set

CODECS = {"none": CODEC_NONE, "gzip": CODEC_GZIP, "snappy": CODEC_SNAPPY}


def produce(client, topic, records, codec="none"):
    messages = [(value and value.encode(), key and key.encode()) for _, key, value in records]
    sent = create_message_set(messages, CODECS[codec], None)
    (answer,) = client.send_produce_request([ProduceRequest(topic, 0, sent)])
    return {"offset": answer.offset}


def consume(client, topic, count, group=None):
    consumer = SimpleConsumer(client, group, topic, auto_commit=False, iter_timeout=10)
    consumer.seek(0, 0)
    read = consumer.get_messages(count=count, block=True, timeout=10)
    return {
        "records": [
            [
                one.offset,
                one.message.key and one.message.key.decode(),
                one.message.value and one.message.value.decode(),
            ]
            for one in read
        ]
    }


def offsets(client, topic, time, most):
    (answer,) = client.send_offset_request([OffsetRequest(topic, 0, time, most)])
    return {"offsets": list(answer.offsets)}


def commit(client, topic, group, offset):
    (answer,) = client.send_offset_commit_request(
        group, [OffsetCommitRequest(topic, 0, offset, b"of old")]
    )
    return {"error": answer.error}


def committed(client, topic, group):
    (answer,) = client.send_offset_fetch_request(
        group, [OffsetFetchRequest(topic, 0)], fail_on_error=False
    )
    return {"offset": answer.offset, "error": answer.error, "metadata": answer.metadata.decode()}


def main():
    what, bootstrap, asked = sys.argv[1:]
    asked = json.loads(asked)
    asked.pop("version", None)
    asked["topic"] = asked["topic"].encode()
    if asked.get("group"):
        asked["group"] = asked["group"].encode()
    client = KafkaClient(bootstrap)
    client.ensure_topic_exists(asked["topic"])
    sys.stdout.write(json.dumps(globals()[what](client, **asked)))


main()
