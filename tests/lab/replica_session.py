"""A replica's side of a fetch session with partitions that a broker in this process leads."""

from typing import Any

from led_partitions import LedPartitions
from raw_connection import RawConnection

from horolog.wire import ApiKey


class ReplicaSession:
    """A replica's side of a session."""

    def __init__(self, led: LedPartitions, replica: int = 2) -> None:
        self.led, self.replica = led, replica
        self.id = self.epoch = 0

    def fetch(self, asked: dict[int, int] | None = None, **more: Any) -> dict[int, Any]:
        """The partitions in the answer."""
        fields = self.led.fields(asked or {}, replica=self.replica, **more)
        answer = self.led.broker.ask(
            ApiKey.FETCH, 18, session_id=self.id, session_epoch=self.epoch, **fields
        )
        return self._taken(answer)

    def send(
        self, connection: RawConnection, asked: dict[int, int] | None = None, **more: Any
    ) -> None:
        """Send the next fetch, which waits for records; `receive` returns its answer."""
        fields = self.led.fields(asked or {}, replica=self.replica, **more)
        fields |= {"session_id": self.id, "session_epoch": self.epoch, "max_wait_ms": 600_000}
        connection.send(ApiKey.FETCH, 18, **fields)

    def receive(self, connection: RawConnection) -> dict[int, Any]:
        """The partitions in the answer to what was sent."""
        return self._taken(connection.receive()[1])

    def _taken(self, answer: Any) -> dict[int, Any]:
        assert answer.error_code == 0, answer
        self.id, self.epoch = answer.session_id, self.epoch + 1
        return {
            found.partition_index: found for topic in answer.responses for found in topic.partitions
        }
