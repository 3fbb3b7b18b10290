"""Authorization of requests: called before the handler of each, and before a shortcut answers it.

There are no ACLs yet: every principal may do everything. Clients that must authenticate first are
refused until they have.
"""

from typing import Final, Protocol

from horolog.network.dispatching import Hangup
from horolog.network.peer import Peer
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey
from horolog.wire.config_resources import ResourceType

BEFORE_AUTHENTICATION: Final = frozenset({ApiKey.API_VERSIONS})
"""The requests that a client may send before authentication; SaslHandshake and SaslAuthenticate
belong here once they are served."""


class Authorise(Protocol):
    """Decides whether a request may be handled."""

    def __call__(self, peer: Peer, api_key: ApiKey, /) -> None:
        """Return if the peer may make this request.

        Raises:
            Hangup: it may not, and the connection is to be closed.
        """
        ...


def authorise(peer: Peer, api_key: ApiKey) -> None:
    """Allow every request of a client with a principal.

    Raises:
        Hangup: the client must authenticate first.
    """
    if peer.principal is None and api_key not in BEFORE_AUTHENTICATION:
        raise Hangup(f"{api_key.title} was sent before authentication")


def authorise_operation(
    peer: Peer, operation: AclOperation, about: ResourceType, name: str
) -> None:
    """Allow every operation on a resource to a client whose request is authorised."""
