"""States of a connection and what leads from one to the next; nothing leads back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.network import Event, State, next_state


def test_a_connection_comes_and_goes() -> None:
    state = State.CONNECTING
    seen = [state]
    for event in (
        Event.CONNECTED,
        Event.AUTHENTICATED,
        Event.DRAIN,
        Event.CLOSE,
        Event.LOST,
    ):
        state = next_state(state, event)
        seen.append(state)
    assert seen == list(State)


@given(st.lists(st.sampled_from(list(Event))))
def test_no_state_is_returned_to(events: list[Event]) -> None:
    state = State.CONNECTING
    for event in events:
        try:
            after = next_state(state, event)
        except AssertionError:
            continue
        assert after >= state
        state = after


@pytest.mark.parametrize("state", list(State))
def test_a_connection_may_be_closed_and_lost_in_any_state(state: State) -> None:
    assert next_state(state, Event.CLOSE) in (State.CLOSING, State.CLOSED)
    assert next_state(state, Event.LOST) is State.CLOSED


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (State.CONNECTING, Event.AUTHENTICATED),
        (State.OPEN, Event.AUTHENTICATED),
        (State.OPEN, Event.CONNECTED),
        (State.CLOSING, Event.AUTHENTICATED),
        (State.CONNECTING, Event.DRAIN),
    ],
)
def test_what_cannot_happen_in_a_state_is_a_bug(state: State, event: Event) -> None:
    with pytest.raises(AssertionError, match=f"{event.name} while {state.name}"):
        next_state(state, event)
