"""For every broker setting about quotas, the difference it makes."""

import time

from raw_connection import produce_fields
from setting_checks import of_broker
from settings_lab import Lab

from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey


def _whole_seconds_waited(lab: Lab) -> int:
    with lab.connect() as connection:
        entry = {
            "entity": [{"entity_type": "client-id", "entity_name": "test"}],
            "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
        }
        connection.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=False)
        batch = build_batch([LogRecord(0, None, bytes(50_000))])
        answer = connection.ask(ApiKey.PRODUCE, 9, **produce_fields("none", {0: batch}))
        return int(answer.throttle_time_ms) // 1000


@of_broker("quota.window.num", {"11": 40, "21": 30})
def wait_for_samples(lab: Lab) -> int:
    return _whole_seconds_waited(lab)


@of_broker("quota.window.size.seconds", {"1": 40, "3": 20})
def wait_for_longer_samples(lab: Lab) -> int:
    return _whole_seconds_waited(lab)


def _codes(lab: Lab) -> list[int]:
    with lab.connect() as connection:
        entry = {
            "entity": [{"entity_type": "client-id", "entity_name": "test"}],
            "ops": [{"key": "controller_mutation_rate", "value": 1.0, "remove": False}],
        }
        connection.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=False)
        topics = [{"name": name, "num_partitions": 12} for name in ("a", "b")]
        answer = connection.ask(ApiKey.CREATE_TOPICS, 7, topics=topics)
        return [topic.error_code for topic in answer.topics]


@of_broker("controller.quota.window.num", {"11": [0, 89], "12": [0, 0]})
def errors_of_topics_by_samples(lab: Lab) -> list[int]:
    return _codes(lab)


@of_broker("controller.quota.window.size.seconds", {"1": [0, 89], "2": [0, 0]})
def errors_of_topics_by_length_of_samples(lab: Lab) -> list[int]:
    return _codes(lab)


@of_broker("max.connection.creation.rate", {"2147483647": False, "1": True, "0": True})
def whether_many_connections_wait_to_be_accepted(lab: Lab) -> bool:
    begun = time.monotonic()
    connections = [lab.connect() for _ in range(15)]
    for connection in connections:
        with connection:
            connection.ask(ApiKey.METADATA, 4, topics=[])
    return time.monotonic() - begun > 2  # for the last ones a sample each
