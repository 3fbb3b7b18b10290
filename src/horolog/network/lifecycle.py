"""States of a connection.

    CONNECTING ─connected→ AUTHENTICATING ─authenticated→ OPEN ─drain→ DRAINING
        │                        │                          │              │
        └────────────────────────┴──────── close ───────────┴──────────────┤
                                                                        CLOSING ─lost→ CLOSED

A connection never returns to an earlier state, so states are ordered: requests start up to OPEN,
responses are sent up to DRAINING. A connection may be lost in any state.
"""

from enum import IntEnum


class State(IntEnum):
    """State of a connection."""

    CONNECTING = 0
    """Accepted; there is no transport yet. A TLS handshake takes place here."""
    AUTHENTICATING = 1
    """The principal is not known: dispatch answers only what authentication needs."""
    OPEN = 2
    """Requests are read and answered."""
    DRAINING = 3
    """No requests start; closes after the responses of those in flight."""
    CLOSING = 4
    """The transport sends its buffer; nothing is read, started or answered."""
    CLOSED = 5
    """The transport is gone."""
