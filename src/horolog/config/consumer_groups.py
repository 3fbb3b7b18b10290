"""Settings of consumer groups that bound each other (KIP-848)."""

from collections.abc import Mapping
from typing import Any, Final

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
