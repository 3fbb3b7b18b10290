"""Access control entries and users (SCRAM) of a cluster."""

import builtins
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.metadata import refuse
from horolog.client.retrying import RetriedCalls
from horolog.errors import ErrorCode, RequestRefused
from horolog.rights.entries import AclEntry, AclFilter
from horolog.security.scram import LEAST_ITERATIONS, ScramMechanism, new_salted
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey

_LEVEL: Final = "metadata.version"


class ScramUser(NamedTuple):
    """Mechanism of a user, with the iterations of its salted password."""

    user: str
    mechanism: str
    iterations: int


class AccessEntries(RetriedCalls):
    """Requests about access control entries."""

    def list(self, which: AclFilter = AclFilter()) -> "list[AclEntry]":  # noqa: B008 - immutable
        """Return the entries that a filter takes, in order."""

        def attempt(deadline: Deadline) -> list[AclEntry]:
            link = self.brokers.any(deadline)
            body = link.ask(ApiKey.DESCRIBE_ACLS, _filter(which), deadline)
            refuse(body.error_code, "access control entries", body.error_message)
            return sorted(
                _entry(resource, acl) for resource in body.resources for acl in resource.acls
            )

        return self._persist(attempt)

    def metadata_version(self) -> int | None:
        """Return the finalised level of the feature; None if the broker does not tell it."""
        return self._persist(lambda deadline: self.brokers.any(deadline).levels.get(_LEVEL))

    def add(self, entries: Sequence[AclEntry]) -> None:
        """Make entries; those that are there already are no error.

        Raises:
            RequestRefused: one of them cannot be made; the others may have been.
        """
        creations = [
            {
                "resource_type": entry.resource_type,
                "resource_name": entry.name,
                "resource_pattern_type": entry.pattern,
                "principal": entry.principal,
                "host": entry.host,
                "operation": entry.operation,
                "permission_type": entry.permission,
            }
            for entry in entries
        ]

        def attempt(deadline: Deadline) -> None:
            link = self.brokers.controller(deadline)
            body = link.ask(ApiKey.CREATE_ACLS, {"creations": creations}, deadline)
            for entry, result in zip(entries, body.results, strict=True):
                refuse(result.error_code, str(entry), result.error_message)

        self._persist(attempt)

    def remove(self, which: AclFilter) -> "builtins.list[AclEntry]":
        """Delete the entries that a filter takes, and return them."""

        def attempt(deadline: Deadline) -> builtins.list[AclEntry]:
            link = self.brokers.controller(deadline)
            body = link.ask(ApiKey.DELETE_ACLS, {"filters": [_filter(which)]}, deadline)
            (result,) = body.filter_results
            refuse(result.error_code, "access control entries", result.error_message)
            return [_entry(acl, acl) for acl in result.matching_acls]

        return self._persist(attempt)


class ScramUsers(RetriedCalls):
    """Requests about users that log in by SCRAM."""

    def list(self, names: Sequence[str] = ()) -> "list[ScramUser]":
        """Return the users of these names, or all.

        Raises:
            RequestRefused: there is no such user, or users may not be described.
        """
        users = [{"name": name} for name in names] or None

        def attempt(deadline: Deadline) -> list[ScramUser]:
            link = self.brokers.any(deadline)
            _require_describe(link, deadline)
            key = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
            body = link.ask(key, {"users": users}, deadline)
            refuse(body.error_code, "users", body.error_message)
            found = []
            for result in body.results:
                refuse(result.error_code, f"user {result.user}", result.error_message)
                for info in result.credential_infos:
                    mechanism = _title(info.mechanism)
                    found.append(ScramUser(result.user, mechanism, info.iterations))
            return sorted(found)

        return self._persist(attempt)

    def put(self, name: str, password: str, mechanism: ScramMechanism) -> None:
        """Set the password of a user. The broker gets it salted."""
        salt, key = new_salted(mechanism, password)
        upsertion = {
            "name": name,
            "mechanism": mechanism,
            "iterations": LEAST_ITERATIONS,
            "salt": salt,
            "salted_password": key,
        }
        self._alter(name, {"deletions": (), "upsertions": [upsertion]})

    def remove(self, name: str, mechanisms: Sequence[ScramMechanism]) -> None:
        """Remove the password of a user for some mechanisms.

        Raises:
            RequestRefused: it has none for one of them.
        """
        for mechanism in mechanisms:  # a request may name a user once
            deletion = {"name": name, "mechanism": mechanism}
            self._alter(name, {"deletions": [deletion], "upsertions": ()})

    def _alter(self, name: str, request: dict[str, Any]) -> None:
        def attempt(deadline: Deadline) -> None:
            link = self.brokers.controller(deadline)
            body = link.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request, deadline)
            (result,) = body.results
            refuse(result.error_code, f"user {name}", result.error_message)

        self._persist(attempt)


def _require_describe(link: Link, deadline: Deadline) -> None:
    """Refuse where an Apache Kafka leaves a request about users unanswered: it denies it.

    Raises:
        RequestRefused: this principal may not describe the cluster.
    """
    try:
        body = link.ask(
            ApiKey.DESCRIBE_CLUSTER,
            {"include_cluster_authorized_operations": True, "include_fenced_brokers": False},
            deadline,
        )
    except RequestRefused as error:
        if error.code is not ErrorCode.unsupported_version:  # of brokers before 2.8
            raise
        return
    refuse(body.error_code, "users", body.error_message)
    if not body.cluster_authorized_operations >> AclOperation.DESCRIBE & 1:
        raise RequestRefused(
            ErrorCode.cluster_authorization_failed,
            "users: this principal needs DESCRIBE on the cluster",
        )


def _title(number: int) -> str:
    """Return the name of a mechanism, also of one that this client does not know."""
    try:
        return ScramMechanism(number).title
    except ValueError:
        return f"mechanism {number}"


def _entry(resource: Any, acl: Any) -> AclEntry:
    """Return the entry of a response, which may have its resource apart."""
    kind, name, pattern = resource.resource_type, resource.resource_name, resource.pattern_type
    return AclEntry(
        kind, name, pattern, acl.principal, acl.host, acl.operation, acl.permission_type
    )


def _filter(which: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": which.resource_type,
        "resource_name_filter": which.name,
        "pattern_type_filter": which.pattern,
        "principal_filter": which.principal,
        "host_filter": which.host,
        "operation": which.operation,
        "permission_type": which.permission,
    }
