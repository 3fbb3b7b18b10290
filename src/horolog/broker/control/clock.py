"""A manual clock, set by actions of the broker and shown among its settings (docs/testing.md).

    horolog.clock.frozen    true: freeze; false: run
    horolog.clock.now       the time to set: ISO 8601 with a zone, or milliseconds since 1970
    horolog.clock.advance   the duration to advance by: 8d, 90m, 1h30m, or milliseconds
                            (after a move transactions that have timed out are aborted, and what is
                            due is compacted, before the response)
    horolog.expire          true: run everything that is due by the clock, then respond

Several in one request are applied in this order. All admin clients can alter and describe broker
settings, so tests in any language can control the clock.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Final

from horolog.broker.broker import BrokerParts
from horolog.broker.control.rows import Perform, performs
from horolog.clock import ManualClock, duration_ms, moment_ms
from horolog.config import DescribedSetting, SettingKind, SettingSource
from horolog.errors import ErrorCode, RequestRefused
from horolog.wire.questions import CLOCK_ADVANCE, CLOCK_FROZEN, CLOCK_NOW, EXPIRE

CLOCK_ACTIONS: Final = (CLOCK_FROZEN, CLOCK_NOW, CLOCK_ADVANCE, EXPIRE)

_SHOWN: Final = (
    (SettingKind.BOOLEAN, "Whether the clock is frozen."),
    (SettingKind.LONG, "The clock's time in milliseconds since 1970; setting it moves the clock."),
    (SettingKind.STRING, "Setting it advances the clock: 8d, 90m, or milliseconds."),
    (SettingKind.BOOLEAN, "Setting it runs everything that is due by the clock."),
)
_BOOLEANS: Final = {"true": True, "false": False}


@performs(*CLOCK_ACTIONS, is_alone=False)
def prepare_clock(broker: BrokerParts, name: str, values: Mapping[str, str]) -> Perform:
    """Check the actions on a manual clock, and whether everything due is to be run.

    Raises:
        RequestRefused: this broker's clock cannot be controlled, or a value is invalid.
    """
    clock = broker.clock
    if not isinstance(clock, ManualClock):
        raise _refusal(
            f"{', '.join(values)}: this broker uses the system's clock; start one with "
            "`horolog serve --clock manual` to control it"
        )
    frozen, now, advance, expire = (values.get(action.name) for action in CLOCK_ACTIONS)
    try:
        return partial(
            _perform,
            broker,
            clock,
            is_frozen=None if frozen is None else _boolean(CLOCK_FROZEN.name, frozen),
            to_ms=None if now is None else moment_ms(now),
            by_ms=0 if advance is None else duration_ms(advance),
            expires=expire is not None and _boolean(EXPIRE.name, expire),
        )
    except ValueError as error:
        raise _refusal(str(error)) from None


async def _perform(
    broker: BrokerParts,
    clock: ManualClock,
    *,
    is_frozen: bool | None,
    to_ms: int | None,
    by_ms: int,
    expires: bool,
) -> None:
    if is_frozen:
        clock.freeze()
    elif is_frozen is not None:
        clock.run()
    try:
        if to_ms is not None:
            clock.set(to_ms)
        if by_ms:
            clock.advance(by_ms)
    except ValueError as error:  # the new time is beyond 64 bits
        raise _refusal(str(error)) from None
    if expires:
        await broker.background_tasks.expire()
    elif to_ms is not None or by_ms:
        await broker.background_tasks.catch_up()


def show_clock(
    broker: BrokerParts, name: str, keys: Collection[str] | None
) -> Iterator[DescribedSetting]:
    """Yield the state of a manual clock for this broker; the resource of all brokers has none.

    The source is DEFAULT, because some tools write back all values with another source.
    """
    clock = broker.clock
    if not name or not isinstance(clock, ManualClock):
        return
    values = ("true" if clock.is_frozen else "false", str(clock.now_ms()), "0", "false")
    for action, value, (kind, documentation) in zip(CLOCK_ACTIONS, values, _SHOWN, strict=True):
        if not keys or action.name in keys:
            yield DescribedSetting(
                action.name, value, SettingSource.DEFAULT, False, False, (), kind, documentation
            )


def _boolean(name: str, text: str) -> bool:
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise ValueError(f"{name}={text}: allowed is true or false")
    return value


def _refusal(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.invalid_config, message)
