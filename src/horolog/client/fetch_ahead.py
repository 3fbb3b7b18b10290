"""Sequential fetches, each sent while the result of the one before is processed."""

from typing import NamedTuple

from horolog.client.client import Client
from horolog.client.closing import Closeable
from horolog.client.connection import NoAnswer, ReusedMemory
from horolog.client.deadline import Deadline
from horolog.client.fetching import Fetched, PartitionFetch
from horolog.client.link import Link
from horolog.errors import RequestRefused
from horolog.wire.api import ApiKey
from horolog.wire.malformed import MalformedResponse


class _SentFetch(NamedTuple):
    """Request whose response is not read yet."""

    request: PartitionFetch
    leader: Link
    version: int


class FetchAhead(Closeable):
    """Fetches ahead.

    While a request is in flight, the client must not be used otherwise.

    A request sent ahead may fail for any reason: what it was to give is then fetched as
    `Client.fetch` does, with its retries. Closing leaves the client as it was.

    Args:
        client: the client to use; the caller closes it.
        reuses_memory: the next fetch overwrites the records. That saves a third of the cost of
            receiving.
    """

    def __init__(self, client: Client, *, reuses_memory: bool = False) -> None:
        self._client = client
        self._memory = ReusedMemory(client.config.max_response_bytes) if reuses_memory else None
        self._sent: _SentFetch | None = None  # at most one

    @property
    def timeout_ms(self) -> int:
        """Request timeout of the client."""
        return self._client.config.timeout_ms

    def send(self, request: PartitionFetch) -> None:
        """Send the request that the next `fetch` will make."""
        self._drop()
        deadline = self._deadline(request)
        try:
            leader, version, fields = request.prepare(self._client.brokers, deadline)
            leader.send(ApiKey.FETCH, version, fields, deadline)
        except (RequestRefused, NoAnswer, MalformedResponse):
            return  # `fetch` will see whether that lasts
        self._sent = _SentFetch(request, leader, version)

    def fetch(self, request: PartitionFetch) -> Fetched:
        """Return the result of a fetch, like `Client.fetch` with these arguments.

        Raises:
            RequestRefused: like `Client.fetch`.
            NoAnswer: like `Client.fetch`.
        """
        if self._sent is None or self._sent.request != request:
            self._drop()
            self.send(request)
        if self._sent is not None:
            (_, leader, version), self._sent = self._sent, None
            try:
                deadline = self._deadline(request)
                return request.read(leader.receive(ApiKey.FETCH, version, deadline, self._memory))
            except (RequestRefused, NoAnswer, MalformedResponse):
                self._client.brokers.forget()
        return self._client.records.answer_to(request)

    def close(self) -> None:
        """Drop the response that is still to come."""
        self._drop()

    def _drop(self) -> None:
        if self._sent is not None:
            self._sent.leader.connection.close()
            self._sent = None

    def _deadline(self, request: PartitionFetch) -> Deadline:
        return Deadline.after_ms(self.timeout_ms + request.max_wait_ms)
