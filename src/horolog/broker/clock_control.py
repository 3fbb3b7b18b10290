"""Controls a manual clock through AlterConfigs, with names that are actions, not settings.

horolog.clock.frozen    true: freeze; false: run
horolog.clock.now       the time to set: ISO 8601 with a zone, or milliseconds since 1970
horolog.clock.advance   the duration to advance by: 8d, 90m, 1h30m, or milliseconds
horolog.expire          true: run everything that is due by the clock, then respond

Several in one request are applied in this order. All admin clients can alter and describe broker
settings, so tests in any language can control the clock. None of them is stored as a setting:
DescribeConfigs returns the clock's current time.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from horolog.broker.broker import Broker
from horolog.clock import ManualClock, duration_ms, moment_ms
from horolog.config import Change, DescribedSetting, Kind, Operation, Source
from horolog.errors import ErrorCode, RequestRefused

FROZEN: Final = "horolog.clock.frozen"
NOW: Final = "horolog.clock.now"
ADVANCE: Final = "horolog.clock.advance"
EXPIRE: Final = "horolog.expire"

_NAMES: Final = {
    FROZEN: (Kind.BOOLEAN, "Whether the clock is frozen."),
    NOW: (Kind.LONG, "The clock's time in milliseconds since 1970; setting it moves the clock."),
    ADVANCE: (Kind.STRING, "Setting it advances the clock: 8d, 90m, or milliseconds."),
    EXPIRE: (Kind.BOOLEAN, "Setting it runs everything that is due by the clock."),
}
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ClockActions:
    """The clock actions of one request."""

    clock: ManualClock
    frozen: bool | None
    to_ms: int | None
    by_ms: int
    expire: bool

    async def perform(self, broker: Broker) -> None:
        """Move the clock; if requested, run everything that is due before returning."""
        if self.frozen:
            self.clock.freeze()
        elif self.frozen is not None:
            self.clock.run()
        try:
            if self.to_ms is not None:
                self.clock.set(self.to_ms)
            if self.by_ms:
                self.clock.advance(self.by_ms)
        except ValueError as error:  # the new time is beyond 64 bits
            raise _refusal(str(error)) from None
        if self.expire:
            await broker.background_tasks.expire()


def split_changes(
    broker: Broker, changes: Iterable[Change]
) -> tuple[ClockActions | None, list[Change]]:
    """Split clock actions, if any, from changes of settings.

    Raises:
        RequestRefused: this broker's clock cannot be controlled, or a value is missing.
    """
    actions: dict[str, str | None] = {}
    others = []
    for change in changes:
        if change.name not in _NAMES:
            others.append(change)
            continue
        if change.operation is not Operation.SET or change.name in actions:
            raise _refusal(f"{change.name} can be set, once in a request, and nothing else")
        actions[change.name] = change.value
    return _clock_actions(broker, actions), others


def split_values(
    broker: Broker, values: Mapping[str, str | None]
) -> tuple[ClockActions | None, dict[str, str | None]]:
    """The same for the older AlterConfigs."""
    actions = {name: value for name, value in values.items() if name in _NAMES}
    others = {name: value for name, value in values.items() if name not in _NAMES}
    return _clock_actions(broker, actions), others


def describe_clock(broker: Broker, names: Collection[str] | None) -> list[DescribedSetting]:
    """The clock's state for DescribeConfigs; empty if it cannot be controlled.

    The source is DEFAULT, because some tools write back all values with another source.
    """
    clock = broker.clock
    if not isinstance(clock, ManualClock):
        return []
    shown = {
        FROZEN: "true" if clock.is_frozen else "false",
        NOW: str(clock.now_ms()),
        ADVANCE: "0",
        EXPIRE: "false",
    }
    return [
        DescribedSetting(name, shown[name], Source.DEFAULT, False, False, (), kind, documentation)
        for name, (kind, documentation) in _NAMES.items()
        if not names or name in names
    ]


def _clock_actions(broker: Broker, actions: Mapping[str, str | None]) -> ClockActions | None:
    if not actions:
        return None
    if not isinstance(broker.clock, ManualClock):
        raise _refusal(
            f"{', '.join(actions)}: this broker uses the system's clock; start one with "
            "`horolog serve --clock manual` to control it"
        )
    given = {name: value for name, value in actions.items() if value is not None}
    if len(given) < len(actions):
        raise _refusal(f"{', '.join(actions.keys() - given.keys())} needs a value")
    try:
        return ClockActions(
            clock=broker.clock,
            frozen=_boolean(FROZEN, given[FROZEN]) if FROZEN in given else None,
            to_ms=moment_ms(given[NOW]) if NOW in given else None,
            by_ms=duration_ms(given.get(ADVANCE, "0")),
            expire=_boolean(EXPIRE, given.get(EXPIRE, "false")),
        )
    except ValueError as error:
        raise _refusal(str(error)) from None


def _boolean(name: str, text: str) -> bool:
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise ValueError(f"{name}={text}: allowed is true or false")
    return value


def _refusal(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.invalid_config, message)
