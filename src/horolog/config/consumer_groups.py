"""Settings of consumer groups that bound each other (KIP-848)."""

from collections.abc import Mapping
from typing import Any, Final

_BOUNDED: Final = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
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
    for name in _BOUNDED:
        value, least, most = (
            values[f"group_consumer_{bound}{name}"] for bound in ("", "min_", "max_")
        )
        if not least <= value <= most:
            setting = _setting(name)
            raise ValueError(
                f"{setting}={value} is not between {_setting('min_' + name)}={least} and "
                f"{_setting('max_' + name)}={most}"
            )
    session_ms, interval_ms = (values[f"group_consumer_{name}"] for name in _BOUNDED[:2])
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


def _setting(name: str) -> str:
    return f"group.consumer.{name.replace('_', '.')}"
