"""Connections to other brokers of the cluster, one each, over the listener between brokers.

For the event loop's thread only.
"""

from collections.abc import Mapping
from typing import Any

from horolog.client.config import Address
from horolog.client.security import Security
from horolog.network.outgoing import OutgoingConnection
from horolog.wire.api import ApiKey
from horolog.wire.leaders import NodeEndpoint


class OtherBrokers:
    """Asks other brokers; a connection is opened when it is needed."""

    def __init__(self, security: Security, *, client_id: str) -> None:
        self._security = security
        self._client_id = client_id
        self._connections: dict[int, OutgoingConnection] = {}

    async def ask(
        self, node: NodeEndpoint, api_key: ApiKey, body: Mapping[str, Any], /, *, timeout_ms: int
    ) -> Any:
        """Return the body of a broker's response, in the highest version that both support.

        Raises:
            HorologError: there is none; see `OutgoingConnection.ask`.
        """
        address = Address(node.host, node.port)
        connection = self._connections.get(node.node_id)
        if connection is None or connection.address != address:
            former, connection = (
                connection,
                OutgoingConnection(address, self._security, client_id=self._client_id),
            )
            self._connections[node.node_id] = connection
            if former is not None:
                await former.close()
        return await connection.ask(api_key, body, timeout_ms=timeout_ms)

    async def close(self) -> None:
        """Close all connections; requests that wait for their responses fail."""
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.close()
