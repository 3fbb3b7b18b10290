"""Default settings of a broker for tests."""

from collections.abc import Mapping
from typing import Final

_NEVER_MS: Final = str((1 << 31) - 1)
_ANY_TIME_MS: Final = str((1 << 63) - 1)

QUIET: Final[Mapping[str, str]] = {
    # A clock in 2020 must not make every client, whose own is in the present, fail with
    # INVALID_TIMESTAMP (32), nor fill the log with warnings.
    "log.message.timestamp.after.max.ms": _ANY_TIME_MS,
    "horolog.timestamp.warn.ahead.ms": _ANY_TIME_MS,
    # The client is in the same process, and needs its interpreter.
    "horolog.busy.poll.us": "0",
    # Kafka waits three seconds for more members. Nothing at all would be too short: kafka-python
    # asks for metadata 100 ms after it subscribes, and shares out what it knows until then.
    "group.initial.rebalance.delay.ms": "150",
    # Transactions time out, and what is due is compacted, when the test moves the clock or calls
    # `expire`; retention and expiry run when it calls `expire`; none of it when a timer fires.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": _NEVER_MS,
    "transaction.remove.expired.transaction.cleanup.interval.ms": _NEVER_MS,
    "log.cleaner.backoff.ms": _NEVER_MS,
    "log.retention.check.interval.ms": _NEVER_MS,
    "offsets.retention.check.interval.ms": _NEVER_MS,
    "producer.id.expiration.check.interval.ms": _NEVER_MS,
}


def for_tests(given: Mapping[str, str]) -> dict[str, str]:
    """Return the given settings, with defaults that suit tests.

    A given `log.retention.check.interval.ms` also delays the first check.
    """
    settings = {**QUIET, **given}
    first_ms = settings["log.retention.check.interval.ms"]
    settings.setdefault("log.initial.task.delay.ms", first_ms)
    return settings


def as_text(settings: Mapping[str, object]) -> dict[str, str]:
    """Return settings as Kafka writes them: `True` is `true`.

    Raises:
        TypeError: a value that has no such form.
    """
    return {name: _text(name, value) for name, value in settings.items()}


def _text(name: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            raise TypeError(f"{name}={value!r}: a setting is a text, a number or a boolean")
