"""A request whose answer a test does not wait for at once."""

import threading
from typing import Any

from running_broker import Asked

from horolog.wire import ApiKey


class ParallelRequest:
    """One request on a connection of its own, which a thread waits for."""

    def __init__(self, broker: Asked, key: ApiKey, version: int, /, **fields: Any) -> None:
        self._answer: Any = None
        self._connection = broker.connect()
        self._connection.send(key, version, **fields)
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        self._answer = self._connection.receive()[1]

    @property
    def is_answered(self) -> bool:
        return self._answer is not None

    def answer(self) -> Any:
        """The answer, once it is there."""
        self._thread.join()
        self._connection.socket.close()
        return self._answer
