"""A manual clock in the hands of any client: names in AlterConfigs that are deeds, not settings.

horolog.clock.frozen    true: stand still; false: run on
horolog.clock.now       a moment to go to: ISO-8601 with a zone, or milliseconds since 1970
horolog.clock.advance   a duration to go on by: 8d, 90m, 1h30m, or milliseconds
horolog.expire          true: do now whatever the clock makes due, and answer when it is done

Several in one request are done in this order. All admin clients can send and describe
settings of a broker, so that tests in any language can turn the clock. Nothing of it is
kept as a setting: DescribeConfigs tells the clock's present time.
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
    FROZEN: (Kind.BOOLEAN, "Whether the clock stands still."),
    NOW: (Kind.LONG, "The clock's time in milliseconds since 1970; set, it goes there."),
    ADVANCE: (Kind.STRING, "Set, the clock goes on by so much: 8d, 90m, or milliseconds."),
    EXPIRE: (Kind.BOOLEAN, "Set, whatever the clock makes due is done now."),
}
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Turn:
    """What one request wants of a clock."""

    clock: ManualClock
    frozen: bool | None
    to_ms: int | None
    by_ms: int
    expire: bool

    async def perform(self, broker: Broker) -> None:
        """Turn the clock; what that makes due is done when this returns, if it is asked for."""
        if self.frozen:
            self.clock.freeze()
        elif self.frozen is not None:
            self.clock.run()
        try:
            if self.to_ms is not None:
                self.clock.set(self.to_ms)
            if self.by_ms:
                self.clock.advance(self.by_ms)
        except ValueError as error:  # where it would stand has no place in 64 bits
            raise _refusal(str(error)) from None
        if self.expire:
            await broker.background_tasks.expire()


def split_changes(broker: Broker, changes: Iterable[Change]) -> tuple[Turn | None, list[Change]]:
    """What is wanted of the clock, if anything, and the changes of settings that remain.

    Raises:
        RequestRefused: this broker's clock cannot be turned, or the value is none.
    """
    deeds: dict[str, str | None] = {}
    others = []
    for change in changes:
        if change.name not in _NAMES:
            others.append(change)
            continue
        if change.operation is not Operation.SET or change.name in deeds:
            raise _refusal(f"{change.name} can be set, once in a request, and nothing else")
        deeds[change.name] = change.value
    return _turn(broker, deeds), others


def split_values(
    broker: Broker, values: Mapping[str, str | None]
) -> tuple[Turn | None, dict[str, str | None]]:
    """The same for the older AlterConfigs."""
    deeds = {name: value for name, value in values.items() if name in _NAMES}
    others = {name: value for name, value in values.items() if name not in _NAMES}
    return _turn(broker, deeds), others


def describe_clock(broker: Broker, names: Collection[str] | None) -> list[DescribedSetting]:
    """The clock as it stands, for DescribeConfigs; nothing where it cannot be turned.

    Told as defaults, for there are tools that write back whatever was set.
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


def _turn(broker: Broker, deeds: Mapping[str, str | None]) -> Turn | None:
    if not deeds:
        return None
    if not isinstance(broker.clock, ManualClock):
        raise _refusal(
            f"{', '.join(deeds)}: this broker goes by the machine's clock; one started with "
            "`horolog serve --clock manual` can be turned"
        )
    given = {name: value for name, value in deeds.items() if value is not None}
    if len(given) < len(deeds):
        raise _refusal(f"{', '.join(deeds.keys() - given.keys())} needs a value")
    try:
        return Turn(
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
