"""ConnectionLimits: how many connections there may be, and how many a second.

Clients beyond `max.connections`, of the broker or of a listener, and beyond the rate, wait to be
accepted, as in Kafka. Where there are several listeners, that of the brokers among themselves has
no limit of the broker: another listener's least recently used connection is closed for its own.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from typing import Final

from horolog.config import BrokerConfig, Endpoint
from horolog.config.listeners import INT_MAX
from horolog.network.connection import ServerConnection
from horolog.network.lifecycle import State
from horolog.quotas.windows import QuotaWindow, WindowedSum

__all__ = ["ConnectionLimits"]

_LOG = logging.getLogger(__name__)

_LEAST_RATE: Final = 1e-9  # for 0, which has no rate to divide by
_LOGGED_EVERY_S: Final = 60.0


class ConnectionLimits:
    """Counts connections by listener, from before their handshake. For the event loop only."""

    def __init__(self, config_now: Callable[[], BrokerConfig], now_s: Callable[[], float]) -> None:
        self.open: Counter[str] = Counter()
        """Connections by the name of their listener."""
        self.pauses = 0
        """Times that a listener paused because of `max.connection.creation.rate`."""
        self.paused_s = 0.0
        self._config_now = config_now
        self._now_s = now_s
        self._accepted = WindowedSum()
        self._accepted_by_listener: defaultdict[str, WindowedSum] = defaultdict(WindowedSum)
        self._logged_at: dict[str, float] = {}

    def is_full(self, listener: Endpoint, connecting: Counter[str]) -> bool:
        """Return True if a listener is to accept no client; `connecting` are not counted yet."""
        config, name = self._config_now(), listener.name
        most = config.listener_limits[name].max_connections
        if self.open[name] + connecting[name] >= most:
            self._log(f"the listener {name} has {most} connections (max.connections of it)")
            return True
        if self._is_of_brokers(listener):
            return False
        if self.open.total() + connecting.total() >= config.max_connections:
            self._log(f"the broker has {config.max_connections} connections (max.connections)")
            return True
        return False

    def pause_s(self, listener: Endpoint) -> float:
        """Count an accepted client; return for how long its listener is to accept none."""
        pause_s = self._pause_s(listener)
        if pause_s:
            self.pauses += 1
            self.paused_s += pause_s
        return pause_s

    def _pause_s(self, listener: Endpoint) -> float:
        config = self._config_now()
        rate = config.max_connection_creation_rate
        own_rate = config.listener_limits[listener.name].max_connection_creation_rate
        pause_s = 0.0
        if rate != INT_MAX:
            pause_s = self._wait_s(self._accepted, rate)
        if own_rate != INT_MAX:
            own_s = self._wait_s(self._accepted_by_listener[listener.name], own_rate)
            pause_s = own_s if self._is_of_brokers(listener) else max(pause_s, own_s)
        elif self._is_of_brokers(listener):
            return 0.0
        return pause_s

    def to_close(self, connections: Collection[ServerConnection]) -> ServerConnection | None:
        """Return the connection to close where brokers have made one too many, if any."""
        excess = self.open.total() - self._config_now().max_connections
        if excess <= 0:
            return None
        staying = [it for it in connections if it.state < State.CLOSING]
        if len(connections) - len(staying) >= excess:  # so many are being closed
            return None
        others = (it for it in staying if not self._is_of_brokers(it.peer.listener))
        return min(others, key=lambda it: it.last_active, default=None)

    def _is_of_brokers(self, listener: Endpoint) -> bool:
        """Return True if other limits hold for a listener: it is the brokers', of several."""
        config = self._config_now()
        return (
            listener.name == config.inter_broker_listener_name and len(config.listener_limits) > 1
        )

    def _wait_s(self, accepted: WindowedSum, rate: int) -> float:
        config = self._config_now()
        span = QuotaWindow(config.quota_window_num, 1000 * config.quota_window_size_seconds)
        now_ms = 1000 * self._now_s()
        accepted.add(1, now_ms, span)
        wait_ms = accepted.wait_ms(max(rate, _LEAST_RATE), now_ms, span)
        return min(wait_ms, span.sample_ms) / 1000

    def _log(self, why: str) -> None:
        """Log why clients wait, each reason once a minute."""
        now_s = self._now_s()
        for earlier, at_s in list(self._logged_at.items()):
            if now_s - at_s >= _LOGGED_EVERY_S:
                del self._logged_at[earlier]
        if why not in self._logged_at:
            self._logged_at[why] = now_s
            _LOG.warning("clients wait to be connected: %s", why)
