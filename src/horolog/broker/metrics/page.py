"""Serves the metrics over HTTP: `GET /metrics`, with `?partitions=true` for each partition.

One scrape is taken at a time, whoever asks, and the next begins after a pause in proportion to what
the last one took: a client that asks all the time takes a share of the processor and no more.
"""

import asyncio
from typing import Final

from horolog.broker.broker import BrokerParts
from horolog.broker.metrics.exposition import CONTENT_TYPE
from horolog.broker.metrics.process import ProcessNumbers
from horolog.broker.metrics.scrape import Scrape
from horolog.config import Endpoint, host_port
from horolog.network.http import HttpRequest, HttpResponse, HttpServer
from horolog.network.request_times import RequestTimes
from horolog.network.server import Server

PATH: Final = "/metrics"
_PARTITIONS: Final = {"": False, "false": False, "true": True}
_REST: Final = 4
"""Pause before the next scrape, as a multiple of the time of the last one."""


class MetricsPage:
    """Metrics page of one broker. For the event loop's thread only."""

    def __init__(self, broker: BrokerParts, times: RequestTimes, server: Server) -> None:
        """Start listening on the metrics port.

        Raises:
            Misconfigured: the address cannot be bound, or a certificate cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self._scraping = asyncio.Lock()
        self._rested_at = 0.0
        config = broker.config
        endpoint = Endpoint(
            "METRICS", config.horolog_metrics_host, config.horolog_metrics_port or 0
        )
        self._server = HttpServer(endpoint, config, self._respond, config.metrics_tls)
        self._process = ProcessNumbers(broker, server)
        self._scrape = Scrape(broker, times, self._process)
        bound = self._server.bound
        self.address = host_port(bound.host or "localhost", bound.port)
        """Address of the page for clients on this machine."""
        self.url = f"{config.horolog_metrics_protocol}://{self.address}{PATH}"

    def close(self) -> None:
        """Stop listening and close all connections."""
        self._server.close()
        self._process.close()

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        if request.path != PATH:
            return HttpResponse(404, f"metrics are at {PATH}\n".encode())
        by_partition = _PARTITIONS.get(request.query.get("partitions", ""))
        if by_partition is None or request.query.keys() - {"partitions"}:
            return HttpResponse(400, b"the only parameter is partitions=true\n")
        async with self._scraping:
            await asyncio.sleep(max(0.0, self._rested_at - self._loop.time()))
            began_at = self._loop.time()
            try:
                text = await self._scrape.text(by_partition=by_partition)
            finally:  # the client may have gone
                ended_at = self._loop.time()
                self._rested_at = ended_at + _REST * (ended_at - began_at)
        return HttpResponse(200, text, CONTENT_TYPE)
