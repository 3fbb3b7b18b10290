"""Authorization of requests: what each needs, and whether a client has the right to it.

`NEEDS` has a row for each API. The rights are those of the metadata log (horolog.rights). A broker
without an authorizer has none, and every client may do everything.

A handler asks before it looks whether the topic, group or transactional id exists, so that an
answer tells nothing about hidden ones. Shortcuts ask, too.
"""

import logging
from collections import Counter
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from horolog.broker.audit import RIGHTS, AuditLog
from horolog.errors import ErrorCode, RequestRefused, printable
from horolog.network.dispatching import Hangup
from horolog.network.peer import Peer
from horolog.rights.entries import CLUSTER_NAME
from horolog.rights.hosts import host_text
from horolog.rights.model import Decision, Rights
from horolog.wire.acl import AclOperation, AclResource
from horolog.wire.api import ApiKey

BEFORE_AUTHENTICATION: Final = frozenset({ApiKey.API_VERSIONS})
"""Requests that a client without a principal may send; those of a login do not get here."""

_MOST_KEPT: Final = 16_384
_LONGEST_KEPT: Final = 255
"""Longest name whose decisions are kept: clients may ask for names that nothing can have."""

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    AclResource.TOPIC,
    AclResource.GROUP,
    AclResource.CLUSTER,
    AclResource.TRANSACTIONAL_ID,
)
_REFUSALS: Final = {
    TOPIC: (ErrorCode.topic_authorization_failed, "Topic authorization failed."),
    GROUP: (ErrorCode.group_authorization_failed, "Group authorization failed."),
    CLUSTER: (ErrorCode.cluster_authorization_failed, "Cluster authorization failed."),
    TRANSACTIONAL_ID: (
        ErrorCode.transactional_id_authorization_failed,
        "Transactional Id authorization failed.",
    ),
}
_TITLES: Final = {
    TOPIC: "Topic",
    GROUP: "Group",
    CLUSTER: "Cluster",
    TRANSACTIONAL_ID: "TransactionalId",
}
_FIELDS: Final = {TOPIC: 0, GROUP: 1, TRANSACTIONAL_ID: 2, CLUSTER: 3}
"""Places in `Needs`."""
_OF_TOPICS, _OF_GROUPS, _OF_CLUSTER = (
    tuple(AclOperation[name] for name in names.split())
    for names in (
        "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
        "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
        "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
    )
)
_SUPPORTED: Final = {TOPIC: _OF_TOPICS, GROUP: _OF_GROUPS, CLUSTER: _OF_CLUSTER}
_ALL_BITS: Final = {kind: sum(1 << it for it in all_) for kind, all_ in _SUPPORTED.items()}

NO_BITS: Final = -(1 << 31)
"""Authorized operations that were not asked for (KIP-430)."""


class Needs(NamedTuple):
    """Operations that a request needs, by the kind of resource; None: nothing of that kind."""

    topic: AclOperation | None = None
    """On each topic of the request."""
    group: AclOperation | None = None
    transactional_id: AclOperation | None = None
    cluster: AclOperation | None = None
    """On the cluster, for the request as a whole."""
    instead: AclOperation | None = None
    """On the cluster, which spares that on each topic."""


def _needs() -> dict[ApiKey, Needs]:
    a, op = ApiKey, AclOperation
    nothing, member = Needs(), Needs(group=op.READ)
    described, altered = Needs(cluster=op.DESCRIBE), Needs(cluster=op.ALTER)
    configs_described, configs_altered = (
        Needs(operation, operation, cluster=operation)
        for operation in (op.DESCRIBE_CONFIGS, op.ALTER_CONFIGS)
    )
    return {
        a.PRODUCE: Needs(op.WRITE, transactional_id=op.WRITE),
        a.FETCH: Needs(op.READ),  # a replica's needs CLUSTER_ACTION instead
        a.LIST_OFFSETS: Needs(op.DESCRIBE),
        a.METADATA: Needs(op.DESCRIBE),
        a.DESCRIBE_TOPIC_PARTITIONS: Needs(op.DESCRIBE),
        a.OFFSET_COMMIT: Needs(op.READ, op.READ),
        a.OFFSET_FETCH: Needs(op.DESCRIBE, op.DESCRIBE),
        a.FIND_COORDINATOR: Needs(group=op.DESCRIBE, transactional_id=op.DESCRIBE),
        a.JOIN_GROUP: member,
        a.HEARTBEAT: member,
        a.LEAVE_GROUP: member,
        a.SYNC_GROUP: member,
        a.CONSUMER_GROUP_HEARTBEAT: Needs(op.DESCRIBE, op.READ),
        a.CONSUMER_GROUP_DESCRIBE: Needs(op.DESCRIBE, op.DESCRIBE),
        a.DESCRIBE_GROUPS: Needs(group=op.DESCRIBE),
        a.LIST_GROUPS: Needs(group=op.DESCRIBE, instead=op.DESCRIBE),
        a.SASL_HANDSHAKE: nothing,
        a.API_VERSIONS: nothing,
        a.CREATE_TOPICS: Needs(op.CREATE, instead=op.CREATE),
        a.DELETE_TOPICS: Needs(op.DELETE, instead=op.DELETE),  # and DESCRIBE of each
        a.DELETE_RECORDS: Needs(op.DELETE),
        # Without a transactional id IDEMPOTENT_WRITE, or WRITE of any topic.
        a.INIT_PRODUCER_ID: Needs(transactional_id=op.WRITE, cluster=op.IDEMPOTENT_WRITE),
        a.OFFSET_FOR_LEADER_EPOCH: Needs(op.DESCRIBE, instead=op.CLUSTER_ACTION),
        # From version 4 on CLUSTER_ACTION alone.
        a.ADD_PARTITIONS_TO_TXN: Needs(
            op.WRITE, transactional_id=op.WRITE, cluster=op.CLUSTER_ACTION
        ),
        a.ADD_OFFSETS_TO_TXN: Needs(group=op.READ, transactional_id=op.WRITE),
        a.END_TXN: Needs(transactional_id=op.WRITE),
        a.WRITE_TXN_MARKERS: Needs(cluster=op.CLUSTER_ACTION),  # or ALTER
        a.TXN_OFFSET_COMMIT: Needs(op.READ, op.READ, op.WRITE),
        a.DESCRIBE_ACLS: described,
        a.CREATE_ACLS: altered,
        a.DELETE_ACLS: altered,
        # Of the resource; brokers, loggers and client metrics are the cluster's.
        a.DESCRIBE_CONFIGS: configs_described,
        a.ALTER_CONFIGS: configs_altered,
        a.INCREMENTAL_ALTER_CONFIGS: configs_altered,
        a.LIST_CONFIG_RESOURCES: Needs(cluster=op.DESCRIBE_CONFIGS),
        a.DESCRIBE_LOG_DIRS: described,
        a.SASL_AUTHENTICATE: nothing,
        a.CREATE_PARTITIONS: Needs(op.ALTER),
        a.DELETE_GROUPS: Needs(group=op.DELETE),
        a.ELECT_LEADERS: altered,
        a.ALTER_PARTITION_REASSIGNMENTS: altered,
        a.LIST_PARTITION_REASSIGNMENTS: described,
        a.OFFSET_DELETE: Needs(op.READ, op.DELETE),
        a.DESCRIBE_CLIENT_QUOTAS: Needs(cluster=op.DESCRIBE_CONFIGS),
        a.ALTER_CLIENT_QUOTAS: Needs(cluster=op.ALTER_CONFIGS),
        a.DESCRIBE_USER_SCRAM_CREDENTIALS: described,
        a.ALTER_USER_SCRAM_CREDENTIALS: altered,
        a.DESCRIBE_QUORUM: described,
        a.DESCRIBE_CLUSTER: nothing,
        a.DESCRIBE_PRODUCERS: Needs(op.READ),
        a.DESCRIBE_TRANSACTIONS: Needs(op.DESCRIBE, transactional_id=op.DESCRIBE),
        a.LIST_TRANSACTIONS: Needs(transactional_id=op.DESCRIBE),
    }


NEEDS: Final = _needs()
"""What each API needs."""


class Authorise(Protocol):
    """Decides whether a request may be handled."""

    def __call__(self, peer: Peer, api_key: ApiKey, /) -> None:
        """Return if the peer may make this request.

        Raises:
            Hangup: it may not, and the connection is to be closed.
        """
        ...


def authorise(peer: Peer, api_key: ApiKey) -> None:
    """Allow requests of a client with a principal; what they need is asked by their handlers.

    Raises:
        Hangup: the client must authenticate first.
    """
    if peer.principal is None and api_key not in BEFORE_AUTHENTICATION:
        raise Hangup(f"{api_key.title} was sent before authentication")


_Key: TypeAlias = tuple[str | None, str, int, AclResource, str]
"""Principal and host, number of an operation or API, kind and name of a resource."""
_Answer: TypeAlias = tuple[AclOperation, AclResource, str, Decision]
"""Operation, kind and name of what was asked for, and whether it is allowed."""
_KeptT = TypeVar("_KeptT")


class Access:
    """Answers whether clients may do something. For the event loop's thread only."""

    __slots__ = ("_answers", "_audit", "_decisions", "_generation", "denials", "rights")

    def __init__(self, rights: Rights | None) -> None:
        self.rights = rights
        """None: every client may do everything, and nothing has to be asked."""
        self.denials: Counter[tuple[str, str]] = Counter()
        """How often a client was denied an operation on a kind of resource, for metrics."""
        self._audit = AuditLog(RIGHTS)
        self._generation = -1
        self._decisions: dict[_Key, Decision] = {}  # of operations
        self._answers: dict[_Key, _Answer] = {}  # the same of requests

    def allows(self, peer: Peer, api_key: ApiKey, kind: AclResource, name: str) -> bool:
        """Return True if a client may do what its request does with a resource."""
        rights = self.rights
        if rights is None:
            return True
        if self._generation != rights.generation:
            self._forget()
        key = peer.principal, peer.host, api_key, kind, name
        try:
            answer = self._answers[key]
        except KeyError:
            answer = self._answer(peer, api_key, kind, name)
            self._keep(self._answers, key, answer)
        operation, asked_kind, asked_name, decision = answer
        is_allowed = decision.is_allowed
        if not is_allowed or RIGHTS.isEnabledFor(logging.DEBUG):
            self._note(peer, api_key, operation, asked_kind, asked_name, decision)
        return is_allowed

    def _answer(self, peer: Peer, api_key: ApiKey, kind: AclResource, name: str) -> _Answer:
        """Decide what a request needs of a resource, or instead of it on the cluster."""
        needs = NEEDS[api_key]
        if needs.instead is not None and kind is not CLUSTER:
            decision = self._decide(peer, needs.instead, CLUSTER, CLUSTER_NAME)
            if decision.is_allowed:
                return needs.instead, CLUSTER, CLUSTER_NAME, decision
        operation = needs[_FIELDS[kind]]
        assert operation is not None, f"{api_key.title} needs nothing of {kind.name}"
        return operation, kind, name, self._decide(peer, operation, kind, name)

    def allows_operation(
        self,
        peer: Peer,
        api_key: ApiKey,
        operation: AclOperation,
        kind: AclResource,
        name: str,
    ) -> bool:
        """Return True if a client may do an operation that depends on more than the API."""
        if self.rights is None:
            return True
        decision = self._decide(peer, operation, kind, name)
        self._note(peer, api_key, operation, kind, name, decision)
        return decision.is_allowed

    def check(
        self, peer: Peer, api_key: ApiKey, kind: AclResource, name: str = CLUSTER_NAME
    ) -> None:
        """Refuse what a client may not do.

        Raises:
            RequestRefused: it may not (29, 30, 31 or 53).
        """
        if not self.allows(peer, api_key, kind, name):
            raise refusal(kind)

    def sees(self, peer: Peer, operation: AclOperation, kind: AclResource, name: str) -> bool:
        """Return True if a list may contain a resource for a client. Nothing is audited."""
        return self.rights is None or self._decide(peer, operation, kind, name).is_allowed

    def may_be_idempotent(self, peer: Peer) -> bool:
        """Return True if a client may get a producer id without a transactional id."""
        api_key, operation = ApiKey.INIT_PRODUCER_ID, AclOperation.IDEMPOTENT_WRITE
        if self.rights is None or self.sees(peer, operation, CLUSTER, CLUSTER_NAME):
            return True
        principal, host = peer.principal or "", host_text(peer.host)
        if self.rights.allows_any(principal, host, AclOperation.WRITE, TOPIC):
            return True
        return self.allows_operation(peer, api_key, operation, CLUSTER, CLUSTER_NAME)

    def bits(self, peer: Peer, kind: AclResource, name: str = CLUSTER_NAME) -> int:
        """Return the operations that a client may do with a resource: bit n is operation n."""
        if self.rights is None:
            return _ALL_BITS[kind]
        return sum(
            1 << operation
            for operation in _SUPPORTED[kind]
            if self.sees(peer, operation, kind, name)
        )

    def _note(
        self,
        peer: Peer,
        api_key: ApiKey,
        operation: AclOperation,
        kind: AclResource,
        name: str,
        decision: Decision,
    ) -> None:
        """Count a denial, and write the line of Kafka's audit: denials at INFO, grants at DEBUG."""
        if not decision.is_allowed:
            self.denials[operation.name, _TITLES[kind]] += 1
        level = logging.DEBUG if decision.is_allowed else logging.INFO
        if not self._audit.is_enabled_for(level):
            return
        verdict = "Allowed" if decision.is_allowed else "Denied"
        line = (
            f"Principal = {peer.principal} is {verdict} operation = {operation.name} from host = "
            f"{host_text(peer.host)} on resource = {_TITLES[kind]}:LITERAL:{name} for request = "
            f"{api_key.title} with resourceRefCount = 1 based on rule {decision}"
        )
        self._audit.write(level, printable(line))

    def _decide(
        self, peer: Peer, operation: AclOperation, kind: AclResource, name: str
    ) -> Decision:
        rights = self.rights
        assert rights is not None
        if self._generation != rights.generation:
            self._forget()
        key = peer.principal, peer.host, operation, kind, name
        decision = self._decisions.get(key)
        if decision is None:
            principal, host = peer.principal or "", host_text(peer.host)
            decision = rights.decide(principal, host, operation, kind, name)
            self._keep(self._decisions, key, decision)
        return decision

    def _forget(self) -> None:
        """Forget what was decided before entries changed."""
        assert self.rights is not None
        self._generation = self.rights.generation
        self._decisions.clear()
        self._answers.clear()

    def _keep(self, kept: dict[_Key, _KeptT], key: _Key, value: _KeptT) -> None:
        """Keep a decision for the next time, unless its name is too long."""
        if len(key[-1]) > _LONGEST_KEPT:
            return
        if len(kept) >= _MOST_KEPT:
            kept.clear()
        kept[key] = value


def refusal(kind: AclResource) -> RequestRefused:
    """Return the error for a client that may not do something with a resource."""
    return RequestRefused(*_REFUSALS[kind])
