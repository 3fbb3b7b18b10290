"""A blocking client for one thread: everything a command, a job or a test asks of a broker."""

from collections.abc import Callable, Mapping
from typing import Any, Self

from horolog.client.admin import AdminCalls
from horolog.client.appends import AppendCalls
from horolog.client.config import ClientConfig
from horolog.client.control import ControlCalls
from horolog.client.groups import GroupCalls
from horolog.client.offset_lookups import OffsetLookups
from horolog.client.records import RecordCalls
from horolog.client.security import PLAINTEXT, Security
from horolog.client.transactions import TransactionCalls

__all__ = ["Client"]


class Client(
    OffsetLookups,
    RecordCalls,
    AppendCalls,
    TransactionCalls,
    AdminCalls,
    GroupCalls,
    ControlCalls,
):
    """Asks horolog or Apache Kafka (tried with 3.9 and 4.3); connects when first asked.

        with Client("127.0.0.1:9092") as client:
            found = client.list_offsets({("clicks", 0): moment_ms})

    `security` holds Kafka's settings (`security.protocol`, `ssl.*`, `sasl.*`); `oauth_token` is a
    function that gives a bearer token for OAUTHBEARER. Each call ends within `timeout_ms`, retries
    included. A pickled client is its configuration: the copy opens its own connections.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "horolog",
        timeout_ms: int = 30_000,
        connect_timeout_ms: int = 10_000,
        max_response_bytes: int = 512 << 20,
        security: Security | Mapping[str, str] = PLAINTEXT,
        oauth_token: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(
            ClientConfig(
                bootstrap_servers=bootstrap_servers,
                client_id=client_id,
                timeout_ms=timeout_ms,
                connect_timeout_ms=connect_timeout_ms,
                max_response_bytes=max_response_bytes,
                security=security if isinstance(security, Security) else Security.of(security),
                oauth_token=oauth_token,
            )
        )

    @classmethod
    def of(cls, config: ClientConfig) -> Self:
        """A client with this configuration."""
        client = cls.__new__(cls)
        super(Client, client).__init__(config)
        return client

    def __reduce__(self) -> tuple[Callable[[ClientConfig], Any], tuple[ClientConfig]]:
        return type(self).of, (self.config,)
