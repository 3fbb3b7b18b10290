"""Brokers that a client is connected to, and their cached partition leaders.

    bootstrap addresses ── first contact ──> metadata ──> a link per broker, opened when needed

The cache may be out of date. A caller whose request is refused for that reason calls `forget`,
and the next request reloads the metadata.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

from horolog.client.config import Address, ClientConfig, parse_bootstrap_servers
from horolog.client.connection import Connection, NoAnswer
from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.metadata import (
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
    metadata_request,
    read_metadata,
    refuse,
)
from horolog.errors import ErrorCode
from horolog.offsets import TopicPartition
from horolog.wire.api import ApiKey
from horolog.wire.malformed import MalformedResponse

if TYPE_CHECKING:
    from horolog.client.security.sasl import Sasl
    from horolog.client.security.tls import Tls


class CoordinatorKind(IntEnum):
    """Kind of coordinator, by the numbers of FindCoordinator (KIP-98)."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def title(self) -> str:
        """Name of its keys in errors."""
        return "group" if self is CoordinatorKind.GROUP else "transactional id"


class Brokers:
    """Connections of one client; for one thread at a time."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.was_reached = False
        self.is_interrupted = False
        self._bootstrap = parse_bootstrap_servers(config.bootstrap_servers)
        self._links: dict[Address, Link] = {}
        self._opening: Connection | None = None
        self._nodes: dict[int, Address] = {}
        self._controller: int | None = None
        self._topics: dict[str, TopicMetadata] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._tls: Tls | None = None
        self._sasl: Sasl | None = None

    def any(self, deadline: Deadline) -> Link:
        """Return any broker that answers: a connected one, otherwise a known or a bootstrap one.

        Raises:
            NoAnswer: no broker answers; lists each address with its error.
        """
        for address, link in list(self._links.items()):
            if link.connection.is_usable():
                return link
            del self._links[address]
        failures = []
        for address in dict.fromkeys((*self._nodes.values(), *self._bootstrap)):
            try:
                return self.at(address, deadline)
            except (NoAnswer, MalformedResponse) as error:
                failures.append(str(error))
        raise NoAnswer(f"no broker answered: {', '.join(failures)}")

    def node(self, node_id: int, deadline: Deadline) -> Link:
        """Return a broker by its id, connected at the address that it advertises.

        Raises:
            NoAnswer: the cluster knows no such broker, or it does not answer there.
        """
        if node_id not in self._nodes:
            self.metadata([], deadline)
        address = self._nodes.get(node_id)
        if address is None:
            raise NoAnswer(f"the cluster knows no broker {node_id}")
        try:
            return self.at(address, deadline)
        except NoAnswer as error:
            hint = "" if address in self._bootstrap else " (its advertised.listeners)"
            raise NoAnswer(f"broker {node_id} does not answer: {error}{hint}") from error

    def controller(self, deadline: Deadline) -> Link:
        """Return the controller, which changes topics; any broker if the cluster reports none."""
        if self._controller is None:
            self.metadata([], deadline)
        if self._controller is None:
            return self.any(deadline)
        return self.node(self._controller, deadline)

    def topic(self, name: str, deadline: Deadline, *, auto_create: bool = False) -> TopicMetadata:
        """Return a topic that exists, or that the broker creates for this request.

        Raises:
            RequestRefused: it does not, or cannot be described.
        """
        known = self._topics.get(name)
        if known is None:
            found = self.metadata([name], deadline, auto_create=auto_create)
            known = found.topics.get(name)
            code = ErrorCode.unknown_topic_or_partition if known is None else known.error
            refuse(code, f"topic {name}")
            assert known is not None
        return known

    def partition(self, topic: str, partition: int, deadline: Deadline) -> PartitionMetadata:
        """Return a partition that exists and has a leader.

        Raises:
            RequestRefused: it does not exist, or has no leader now.
        """
        known = self.topic(topic, deadline).partitions.get(partition)
        if known is None:
            self.forget(topic)
            count = len(self.topic(topic, deadline).partitions)
            refuse(
                ErrorCode.unknown_topic_or_partition,
                f"partition {partition} of topic {topic}, which has {count}",
            )
        assert known is not None
        if known.leader is None:
            self.forget(topic)
            code = known.error or ErrorCode.leader_not_available
            refuse(code, f"{topic}-{partition}", "no broker leads it now")
        return known

    def leader(self, topic: str, partition: int, deadline: Deadline) -> Link:
        """Return the broker that leads a partition."""
        leader = self.partition(topic, partition, deadline).leader
        assert leader is not None
        return self.node(leader, deadline)

    def by_leader(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[Link, list[TopicPartition]]:
        """Return the partitions that each broker leads."""
        leaders: dict[Link, list[TopicPartition]] = {}
        for topic, partition in partitions:
            leader = self.leader(topic, partition, deadline)
            leaders.setdefault(leader, []).append((topic, partition))
        return leaders

    def coordinator(
        self, key: str, deadline: Deadline, *, kind: CoordinatorKind = CoordinatorKind.GROUP
    ) -> Link:
        """Return the coordinator of a group or a transactional id, connected."""
        if (kind, key) not in self._coordinators:
            found = self.find_coordinator(key, deadline, kind=kind)
            self._coordinators[kind, key] = found[0]
            self._nodes[found[0]] = found[1]
        return self.node(self._coordinators[kind, key], deadline)

    def find_coordinator(
        self, key: str, deadline: Deadline, *, kind: CoordinatorKind = CoordinatorKind.GROUP
    ) -> tuple[int, Address]:
        """Return node id and address of the coordinator of a group or a transactional id.

        Raises:
            RequestRefused: there is none, at least now.
        """
        lowest = 0 if kind is CoordinatorKind.GROUP else 1  # version 0 knows groups only
        link = self.any(deadline)
        request = {"key": key, "key_type": kind, "coordinator_keys": [key]}
        body = link.ask(ApiKey.FIND_COORDINATOR, request, deadline, lowest=lowest)
        found = body.coordinators[0] if hasattr(body, "coordinators") else body
        refuse(
            found.error_code,
            f"coordinator of {kind.title} {key}",
            getattr(found, "error_message", None),
        )
        return found.node_id, Address(found.host, found.port)

    def metadata(
        self,
        topics: list[str] | None,
        deadline: Deadline,
        *,
        auto_create: bool = False,
        node: int | None = None,
    ) -> ClusterMetadata:
        """Ask for the cluster's metadata; `None` stands for all topics, an empty list for none."""
        link = self.any(deadline) if node is None else self.node(node, deadline)
        # Before version 4, asking for a topic creates it.
        request = metadata_request(topics, auto_create=auto_create)
        body = link.ask(ApiKey.METADATA, request, deadline, lowest=4)
        refuse(getattr(body, "error_code", 0), "Metadata")
        answer = read_metadata(body)
        self._nodes.update({broker.node_id: broker.address for broker in answer.brokers.values()})
        self._controller = answer.controller_id
        for name, topic in answer.topics.items():
            if topic.error == ErrorCode.none:
                self._topics[name] = topic
        return answer

    def forget(self, topic: str | None = None) -> None:
        """Drop cached leaders and coordinators, because the last response was out of date."""
        if topic is not None:
            self._topics.pop(topic, None)
            return
        self._topics.clear()
        self._coordinators.clear()
        self._controller = None

    def interrupt(self) -> None:
        """Make requests that another thread waits for fail now, for good.

        Any thread may call it.
        """
        self.is_interrupted = True
        opening = self._opening
        if opening is not None:
            opening.interrupt()
        for link in list(self._links.values()):
            link.connection.interrupt()

    def close(self) -> None:
        """Close all connections; the next request opens a new one."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()

    def at(self, address: Address, deadline: Deadline) -> Link:
        """Return the broker at an address, and connect to it if necessary.

        Raises:
            NoAnswer, AuthenticationFailed, MalformedResponse: it cannot be, and why.
        """
        link = self._links.get(address)
        if link is not None and link.connection.is_usable():
            return link
        self._read_security()
        connection = Connection.open(
            address,
            deadline.no_later_than_ms(self.config.connect_timeout_ms),
            client_id=self.config.client_id,
            max_response_bytes=self.config.max_response_bytes,
            tls=self._tls,
        )
        by = deadline.no_later_than_ms(self.config.connect_timeout_ms)
        self._opening = connection
        try:
            link = Link.negotiate(connection, by)
            if self._sasl is not None:
                link.authenticate(self._sasl, by)
            self._links[address] = link
        except BaseException:
            connection.close()
            raise
        finally:
            self._opening = None
        self.was_reached = True
        return link

    def _read_security(self) -> None:
        """Read stores and credentials once, on first use."""
        security = self.config.security
        if security.uses_tls and self._tls is None:
            from horolog.client.security.tls import Tls  # noqa: PLC0415 - not without TLS

            self._tls = Tls(security)
        if security.uses_sasl and self._sasl is None:
            from horolog.client.security.sasl import Sasl  # noqa: PLC0415 - not without SASL

            self._sasl = Sasl(security, self.config.oauth_token)
