"""A small service: takes orders into a topic of Kafka, and lists those of the last days."""

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

ORDERS = TopicPartition("orders", 0)


class NotTaken(Exception):
    """The order is not in the topic."""


class Orders:
    """Orders of one topic with one partition."""

    def __init__(self, servers: str) -> None:
        """Connect to Kafka at `servers`."""
        self._producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
        self._consumer = KafkaConsumer(bootstrap_servers=servers)
        self._consumer.assign([ORDERS])

    def take(self, order: str) -> int:
        """Append an order, and return its offset; raises NotTaken."""
        try:
            return self._producer.send(ORDERS.topic, order.encode()).get(timeout=30).offset
        except KafkaError as error:
            raise NotTaken(order) from error

    def since(self, time_ms: int) -> list[str]:
        """List the orders that were taken at or after a time."""
        found = self._consumer.offsets_for_times({ORDERS: time_ms})[ORDERS]
        end = self._consumer.end_offsets([ORDERS])[ORDERS]
        orders = []
        self._consumer.seek(ORDERS, end if found is None else found.offset)
        while self._consumer.position(ORDERS) < end:
            for records in self._consumer.poll(1000).values():
                orders += [record.value.decode() for record in records]
        return orders

    def close(self) -> None:
        """Disconnect."""
        self._producer.close()
        self._consumer.close()
