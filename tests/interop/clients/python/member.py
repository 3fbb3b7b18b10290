"""A member of a group that says what it has and reads: a program, to be killed.

    python member.py KIND ADDRESS GROUP SUBSCRIPTION [NAME=VALUE...]

It reads until its input ends, and commits what it has said. A subscription that begins with ^ is a
pattern; others are names of topics. Each line it says is a `Said` of `members_said`.
"""

import asyncio
import sys
import threading
import warnings
from collections.abc import Iterable
from typing import Any

from horolog.clock import SystemClock

AT_ONCE = 20
"""Records that are said before they are committed."""


def say(what: str, topic: str, partition: int, offset: int = -1) -> None:
    line = f"{SystemClock().now_ms()} {what} {topic} {partition} {offset}\n"
    sys.stdout.write(line)
    sys.stdout.flush()


def say_all(what: str, partitions: Iterable[Any]) -> None:
    for each in partitions:
        say(what, each.topic, each.partition)


def end_of_input() -> threading.Event:
    ended = threading.Event()

    def read() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    return ended


def with_confluent(
    address: str, group: str, subscribed: list[str], more: dict[str, str], ended: threading.Event
) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 1000,
            **more,
        }
    )

    def commit() -> bool:
        try:
            consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            return bool(error.args[0].code() == confluent_kafka.KafkaError._NO_OFFSET)
        return True

    def on_revoke(_: object, partitions: list[Any]) -> None:
        commit()
        say_all("-", partitions)

    consumer.subscribe(
        subscribed,
        on_assign=lambda _, partitions: say_all("+", partitions),
        on_revoke=on_revoke,
        on_lost=lambda _, partitions: say_all("!", partitions),
    )
    uncommitted = 0
    while not ended.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            say("r", message.topic(), message.partition(), message.offset())
            uncommitted += 1
        if (uncommitted and message is None) or uncommitted >= AT_ONCE:
            uncommitted = 0 if commit() else uncommitted
    consumer.close()


def with_kafka_python(
    address: str, group: str, subscribed: list[str], more: dict[str, Any], ended: threading.Event
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kafka
        from kafka.coordinator.assignors.range import RangePartitionAssignor

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            say_all("-", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            say_all("+", assigned)

        def on_partitions_lost(self, lost: Any) -> None:
            say_all("!", lost)

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=500,
        metadata_max_age_ms=1000,
        partition_assignment_strategy=[RangePartitionAssignor],
        **more,
    )
    consumer.subscribe(subscribed, listener=Listener())
    while not ended.is_set():
        for messages in consumer.poll(500, max_records=AT_ONCE).values():
            for message in messages:
                say("r", message.topic, message.partition, message.offset)
            try:
                consumer.commit()
            except kafka.errors.KafkaError:
                continue  # with the next
    consumer.close()


def with_aiokafka(
    address: str, group: str, subscribed: list[str], more: dict[str, Any], ended: threading.Event
) -> None:
    import aiokafka
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            say_all("-", revoked)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            say_all("+", assigned)

    async def consume() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=1000,
            partition_assignment_strategy=[RangePartitionAssignor],
            **more,
        )
        consumer.subscribe(subscribed, listener=Listener())
        await consumer.start()
        while not ended.is_set():
            batches = await consumer.getmany(timeout_ms=200, max_records=AT_ONCE)
            for messages in batches.values():
                for message in messages:
                    say("r", message.topic, message.partition, message.offset)
            if batches:
                try:
                    await consumer.commit()
                except aiokafka.errors.KafkaError:
                    continue  # with the next
        await consumer.stop()

    asyncio.run(consume())


KINDS = {
    "confluent-kafka": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


if __name__ == "__main__":
    kind, address, group, subscription, *settings = sys.argv[1:]
    more: dict[str, Any] = dict(each.split("=", 1) for each in settings)
    if kind != "confluent-kafka":
        more = {name: int(value) if value.isdecimal() else value for name, value in more.items()}
    KINDS[kind](address, group, subscription.split(","), more, end_of_input())
