"""Sequential fetches, each sent and received while the result of the one before is processed."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import cycle
from typing import Any, NamedTuple

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
    received: "Future[Any] | None" = None
    """The response, if it is received in the thread."""


class FetchAhead(Closeable):
    """Fetches ahead.

    What was sent ahead is received in a thread, most of which the system does without the
    interpreter. While a request is in flight, the client must not be used otherwise.

    A request sent ahead may fail for any reason: what it was to give is then fetched as
    `Client.fetch` does, with its retries. Closing leaves the client as it was.

    Args:
        client: the client to use; the caller closes it.
        reuses_memory: records are valid only until the next fetch. That saves a third of the cost
            of receiving.
    """

    def __init__(self, client: Client, *, reuses_memory: bool = False) -> None:
        self._client = client
        most_bytes = client.config.max_response_bytes
        # One is received into while the other is processed.
        memories = [ReusedMemory(most_bytes), ReusedMemory(most_bytes)] if reuses_memory else [None]
        self._memories = cycle(memories)
        self._sent: _SentFetch | None = None  # at most one
        self._thread: ThreadPoolExecutor | None = None  # begins with the first request sent ahead

    @property
    def timeout_ms(self) -> int:
        """Request timeout of the client."""
        return self._client.config.timeout_ms

    def send(self, request: PartitionFetch) -> None:
        """Send the request that the next `fetch` will make."""
        sent = self._send(request)
        if sent is None:
            return  # `fetch` will see whether that lasts
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "horolog-fetch-ahead")
        self._sent = sent._replace(received=self._thread.submit(self._receive, sent))

    def fetch(self, request: PartitionFetch) -> Fetched:
        """Return the result of a fetch, like `Client.fetch` with these arguments.

        Raises:
            RequestRefused: like `Client.fetch`.
            NoAnswer: like `Client.fetch`.
        """
        sent = self._sent
        if sent is None or sent.request != request:
            sent = self._sent = self._send(request)
        if sent is not None:
            try:
                received = sent.received
                body = self._receive(sent) if received is None else received.result()
                self._sent = None
                return request.read(body)
            except (RequestRefused, NoAnswer, MalformedResponse):
                self._sent = None
                self._client.brokers.forget()
        return self._client.records.answer_to(request)

    def close(self) -> None:
        """Drop the response that is still to come."""
        self._drop()
        if self._thread is not None:
            self._thread.shutdown()

    def _send(self, request: PartitionFetch) -> _SentFetch | None:
        """Send a request in place of the one sent; None if that fails."""
        self._drop()
        deadline = self._deadline(request)
        try:
            leader, version, fields = request.prepare(self._client.brokers, deadline)
            leader.send(ApiKey.FETCH, version, fields, deadline)
        except (RequestRefused, NoAnswer, MalformedResponse):
            return None
        return _SentFetch(request, leader, version)

    def _receive(self, sent: _SentFetch) -> Any:
        deadline = self._deadline(sent.request)
        return sent.leader.receive(ApiKey.FETCH, sent.version, deadline, next(self._memories))

    def _drop(self) -> None:
        sent, self._sent = self._sent, None
        if sent is None:
            return
        if sent.received is not None:
            sent.leader.connection.interrupt()
            wait([sent.received])
        sent.leader.connection.close()

    def _deadline(self, request: PartitionFetch) -> Deadline:
        return Deadline.after_ms(self.timeout_ms + request.max_wait_ms)
