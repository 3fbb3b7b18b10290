"""Settings of consumer groups that bound each other (KIP-848), and those that a group may have."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from horolog.config.tables import broker_settings

_BOUNDED: Final = (
    (
        "group_consumer_session_timeout_ms",
        "group_consumer_min_session_timeout_ms",
        "group_consumer_max_session_timeout_ms",
    ),
    (
        "group_consumer_heartbeat_interval_ms",
        "group_consumer_min_heartbeat_interval_ms",
        "group_consumer_max_heartbeat_interval_ms",
    ),
    (
        "group_consumer_assignment_interval_ms",
        "group_consumer_min_assignment_interval_ms",
        "group_consumer_max_assignment_interval_ms",
    ),
)
"""Settings, each with the least and the most that it may be."""
_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
ASSIGNORS: Final = ("uniform", "range")


def consumer_group_settings(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Check the settings of consumer groups, and return the assignors by their names.

    Args:
        values: fields of `BrokerConfig`.

    Raises:
        ValueError: one is out of the bounds that others give, or an assignor is not known.
    """
    for names in _BOUNDED:
        value, least, most = (values[name] for name in names)
        if not least <= value <= most:
            setting, low, high = (name.replace("_", ".") for name in names)
            raise ValueError(f"{setting}={value} is not between {low}={least} and {high}={most}")
    (session, *_), (interval, *_), _ = _BOUNDED
    session_ms, interval_ms = values[session], values[interval]
    if session_ms <= interval_ms:
        raise ValueError(
            f"group.consumer.session.timeout.ms={session_ms} must be more than "
            f"group.consumer.heartbeat.interval.ms={interval_ms}"
        )
    names = tuple(_CLASSES.get(name, name) for name in values["group_consumer_assignors"])
    unknown = [name for name in names if name not in ASSIGNORS]
    if not names or unknown or len({*names}) < len(names):
        raise ValueError(
            f"group.consumer.assignors={','.join(names)}: give each of {', '.join(ASSIGNORS)} at "
            "most once, and at least one"
        )
    return {"group_consumer_assignors": names}


def check_group(values: Mapping[str, Any], broker: Callable[[str], Any]) -> None:
    """Check the settings of one group against those of the broker.

    Args:
        values: those that the group has, by name.
        broker: returns the value of a broker setting.

    Raises:
        ValueError: one is out of the broker's bounds, or a session is not longer than an interval
            of heartbeats.
    """
    for name, value in values.items():
        kind, _, rest = name.partition(".")
        least, most = (f"group.{kind}.{bound}.{rest}" for bound in ("min", "max"))
        if least in broker_settings() and not broker(least) <= value <= broker(most):
            raise ValueError(
                f"{name} must be in the range {broker(least)} to {broker(most)} inclusive."
            )
    for kind in ("consumer", "share", "streams"):
        names = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        given = values.keys() & {*names}
        session_ms, interval_ms = (values.get(name, broker(f"group.{name}")) for name in names)
        if given and session_ms <= interval_ms:
            raise ValueError(f"{names[0]} must be greater than {names[1]}")
