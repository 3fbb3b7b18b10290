"""Quotas of clients of a cluster."""

from collections.abc import Mapping
from typing import NamedTuple

from horolog.client.deadline import Deadline
from horolog.client.metadata import refuse
from horolog.client.retrying import RetriedCalls
from horolog.quotas.entities import Entity
from horolog.wire.api import ApiKey


class EntityQuota(NamedTuple):
    """A quota: for whom, what it limits, and its value."""

    entity: Entity
    key: str
    value: float


class ClientQuotas(RetriedCalls):
    """Requests about quotas of clients."""

    def list(self) -> "list[EntityQuota]":
        """Return all quotas."""

        def attempt(deadline: Deadline) -> list[EntityQuota]:
            link = self.brokers.any(deadline)
            request = {"components": (), "strict": False}
            body = link.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, request, deadline)
            refuse(body.error_code, "quotas", body.error_message)
            return [
                EntityQuota(
                    frozenset((part.entity_type, part.entity_name) for part in entry.entity),
                    quota.key,
                    quota.value,
                )
                for entry in body.entries or ()
                for quota in entry.values
            ]

        return self._persist(attempt)

    def change(self, entity: Entity, values: Mapping[str, float | None]) -> None:
        """Set quotas of an entity; None removes one, which need not be there.

        Raises:
            RequestRefused: one of them is not allowed; none has changed.
        """
        entry = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [
                {"key": key, "value": value or 0.0, "remove": value is None}
                for key, value in values.items()
            ],
        }

        def attempt(deadline: Deadline) -> None:
            link = self.brokers.controller(deadline)
            request = {"entries": [entry], "validate_only": False}
            body = link.ask(ApiKey.ALTER_CLIENT_QUOTAS, request, deadline)
            (result,) = body.entries
            refuse(result.error_code, "quotas", result.error_message)

        self._persist(attempt)
