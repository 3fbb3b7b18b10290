"""Server of a broker that joins a cluster: it listens before there is a broker.

The registration needs the ports, and recovery may take long. Meanwhile a `Gate` answers.
"""

import logging
from typing import Self

from horolog.broker.audit import AuditLog
from horolog.broker.broker import BrokerParts, Resources
from horolog.broker.cluster.node import ClusterNode
from horolog.broker.gate import Gate
from horolog.clock import Clock, SystemClock
from horolog.config import BrokerConfig, Endpoint, Settings
from horolog.network.dispatching import Dispatch
from horolog.network.request_times import RequestTimes
from horolog.network.server import Server
from horolog.storage.log_dir.log_dir import OpeningProgress


class EarlyServer:
    """Listeners of a broker, and the node that joins a cluster for it."""

    def __init__(
        self,
        settings: Settings,
        node: ClusterNode,
        resources: Resources,
        times: RequestTimes | None,
    ) -> None:
        self._node = node
        self._resources = resources
        self._config = settings.broker_config()
        self._broker: BrokerParts | None = None
        self.gate = Gate()
        self.server = Server(
            self._config_now,
            self.gate,
            resources.readers,
            file_slots=resources.slices_to_send,
            most_connections=resources.open_files.connections,
            times=times,
            wait_s=self._wait_s,
            audit=AuditLog(logging.getLogger("horolog.broker.logins")).write,
        )
        self.bound: tuple[Endpoint, ...] = ()

    @classmethod
    async def start(
        cls, settings: Settings, clock: Clock | None, times: RequestTimes | None
    ) -> Self:
        """Lock the log directory, and listen.

        Raises:
            Misconfigured: the directory, a port or a setting is unusable.
            StorageFailed: a read or write failed.
        """
        clock = SystemClock() if clock is None else clock
        node = await ClusterNode.begin(settings, clock)
        try:
            early = cls(settings, node, Resources(clock), times)
        except BaseException:
            await node.close()
            raise
        try:
            early.bound = early.server.listen()
        except BaseException:
            await early.abort()
            raise
        return early

    async def join(self, progress: OpeningProgress | None) -> BrokerParts:
        """Register, and open the logs.

        Raises:
            HorologError: the cluster does not take this broker, or a log directory is unusable.
        """
        progress = OpeningProgress() if progress is None else progress
        self._node.membership.progress = progress
        await self._node.join(self.bound)
        broker = self._broker = await BrokerParts.join(self._node, self._resources, progress)
        self._node.reload(self.server.load_tls, self.server.reconsider)
        return broker

    def open(self, dispatch: Dispatch) -> None:
        """Have all requests answered, those that wait first."""
        self.gate.open(dispatch)
        self.server.dispatch_to(dispatch)

    async def abort(self) -> None:
        """Close everything as a crash would."""
        self.gate.close()
        await self.server.abort()
        await self._node.stop(is_clean=False)
        await self._node.close()
        await self._resources.close()

    def _config_now(self) -> BrokerConfig:
        return self._config if self._broker is None else self._broker.config

    def _wait_s(self, host: str) -> float:
        return 0.0 if self._broker is None else self._broker.quotas.connected(host)
