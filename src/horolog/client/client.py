"""Blocking client for one thread, with all requests that commands, jobs and tests need."""

from collections.abc import Callable, Mapping
from typing import Any, Self

from horolog.client.appends import Appends
from horolog.client.asking import Ask
from horolog.client.brokers import Brokers
from horolog.client.closing import Closeable
from horolog.client.config import ClientConfig
from horolog.client.groups import Groups
from horolog.client.offsets import Offsets
from horolog.client.quotas import ClientQuotas
from horolog.client.records import Records
from horolog.client.rights import AccessEntries, ScramUsers
from horolog.client.security import PLAINTEXT, Security
from horolog.client.topics import Topics
from horolog.client.transactions import Transactions
from horolog.wire.questions import LEFT_BEHIND, AskEntries, LeftBehind


class Client(Closeable):
    """Client of horolog or Apache Kafka (tried with 3.9, 4.3 and 4.4).

    Connects on first use.

        with Client("127.0.0.1:9092") as client:
            found = client.list_offsets({("clicks", 0): moment_ms})

    `security` holds Kafka's settings (`security.protocol`, `ssl.*`, `sasl.*`); `oauth_token` is a
    function that gives a bearer token for OAUTHBEARER. Each call ends within `timeout_ms`, retries
    included. A pickled client is its configuration: the copy opens its own connections.

    A client holds parts, which share its connections: `topics`, `groups`, `offsets`, `records`,
    `appends`, `transactions`, `acls`, `users`, `quotas`, and `ask` for questions that only
    horolog's brokers answer. The calls that scripts need most are also methods of the client.
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
        self._use(
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
        """Return a client with this configuration."""
        client = cls.__new__(cls)
        client._use(config)
        return client

    def _use(self, config: ClientConfig) -> None:
        self.config = config
        self.brokers = brokers = Brokers(config)
        self.ask = Ask(brokers)
        self.topics = Topics(brokers)
        self.groups = Groups(brokers)
        self.offsets = Offsets(brokers)
        self.records = Records(brokers)
        self.appends = Appends(brokers)
        self.transactions = Transactions(brokers)
        self.acls = AccessEntries(brokers)
        self.users = ScramUsers(brokers)
        self.quotas = ClientQuotas(brokers)

        self.metadata = self.topics.metadata
        self.create_topics = self.topics.create
        self.delete_topics = self.topics.delete
        self.create_partitions = self.topics.create_partitions
        self.describe_configs = self.topics.describe_configs
        self.alter_configs = self.topics.alter_configs
        self.promote = self.topics.promote
        self.promoted = self.topics.promoted
        self.demote = self.topics.demote
        self.list_offsets = self.offsets.list
        self.find_records = self.offsets.find_records
        self.offset_commit = self.groups.commit
        self.offset_fetch = self.groups.committed
        self.fetch = self.records.fetch
        self.produce = self.appends.produce
        self.init_producer_id = self.appends.init_producer_id
        self.init_transactions = self.transactions.init
        self.end_transaction = self.transactions.end

    def left_behind(self, topic: str, partition: int = 0) -> LeftBehind | None:
        """Ask the leader of a partition what it did not carry over from a Kafka."""
        return self.ask.many(LEFT_BEHIND, {(topic, partition): AskEntries()})[topic, partition]

    def close(self) -> None:
        """Close all connections; a later call connects again."""
        self.brokers.close()

    def __reduce__(self) -> tuple[Callable[[ClientConfig], Any], tuple[ClientConfig]]:
        return type(self).of, (self.config,)
