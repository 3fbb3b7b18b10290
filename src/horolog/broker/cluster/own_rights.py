"""Rights of this broker at others: what it sends them as a broker needs CLUSTER_ACTION there."""

from collections.abc import Hashable
from logging import Logger

from horolog.client.security import Security
from horolog.security.jaas import parse_jaas

__all__ = ["OwnRights"]


class OwnRights:
    """Names the principal of this broker, and says what to grant it.

    Args:
        security: settings of the connections to the others.
    """

    def __init__(self, security: Security) -> None:
        jaas = security.get("sasl.jaas.config") if security.uses_sasl else None
        user = None if jaas is None else parse_jaas(jaas).options.get("username")
        self.principal = "PRINCIPAL"
        """Name of this broker at the others; PRINCIPAL where its settings do not say so."""
        if user is not None:
            self.principal = f"User:{user}"
        elif not security.uses_sasl and not security.uses_tls:
            self.principal = "User:ANONYMOUS"
        self.grant = (
            f"name {self.principal} in super.users there, or run: kafka-acls --bootstrap-server "
            f"HOST:PORT --add --allow-principal {self.principal} --operation ClusterAction "
            "--cluster"
        )
        """What an operator has to do."""
        self._refused: set[Hashable] = set()

    def note(self, log: Logger, what: Hashable, *, is_denied: bool) -> None:
        """Log that a kind of request is denied, once until it is allowed."""
        if not is_denied:
            self._refused.discard(what)
        elif what not in self._refused:
            self._refused.add(what)
            log.error("%s is denied to %s: %s", what, self.principal, self.grant)
