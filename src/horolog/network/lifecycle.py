"""The states of a connection and their transitions.

    CONNECTING ─connected→ AUTHENTICATING ─authenticated→ OPEN ─drain→ DRAINING
        │                        │                          │              │
        └────────────────────────┴──────── close ───────────┴──────────────┤
                                                                        CLOSING ─lost→ CLOSED

A connection never returns to an earlier state, so states are ordered: requests start up to OPEN,
responses are sent up to DRAINING. A connection may be lost in any state.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from types import MappingProxyType
from typing import Final


class State(IntEnum):
    """The state of a connection."""

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


class Event(Enum):
    """An event that changes the state."""

    CONNECTED = auto()
    AUTHENTICATED = auto()
    DRAIN = auto()
    CLOSE = auto()
    LOST = auto()


_TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(
    {
        (State.CONNECTING, Event.CONNECTED): State.AUTHENTICATING,
        (State.AUTHENTICATING, Event.AUTHENTICATED): State.OPEN,
        **{
            (state, Event.DRAIN): State(max(state, State.DRAINING))
            for state in State
            if state is not State.CONNECTING
        },
        **{(state, Event.CLOSE): State(max(state, State.CLOSING)) for state in State},
        **{(state, Event.LOST): State.CLOSED for state in State},
    }
)


def next_state(state: State, event: Event) -> State:
    """The state after an event; an event that is impossible in this state is a bug."""
    after = _TRANSITIONS.get((state, event))
    assert after is not None, f"{event.name} while {state.name}"
    return after
