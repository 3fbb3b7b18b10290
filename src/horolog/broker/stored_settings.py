"""The stored settings of the last run, validated for this version.

Invalid rows stay in the store. A setting that this version does not know is ignored: a later
version wrote it. If a value is invalid, the intended one is unknown, so records do not expire.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from horolog.config.tables import broker_setting, topic_setting
from horolog.metadata.rows import BROKER_SCOPE, SettingRow

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class StoredSettings:
    """`topics` and `brokers` by resource: a topic, a broker id, or "" for all brokers."""

    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    brokers: dict[str, dict[str, str]] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    """Topics with an invalid setting."""
    all_doubtful: bool = False
    """Whether a broker setting is invalid."""

    def may_expire(self, topic: str) -> bool:
        """Whether the retention of a topic is known."""
        return not self.all_doubtful and topic not in self.doubtful


def read_stored_settings(rows: Iterable[SettingRow]) -> StoredSettings:
    """Validate the stored settings; invalid ones are logged."""
    found = StoredSettings()
    for row in rows:
        is_broker = row.scope == BROKER_SCOPE
        whose = f"topic {row.resource}" if not is_broker else f"broker {row.resource or '(all)'}"
        try:
            setting = (broker_setting if is_broker else topic_setting)(row.name)
        except ValueError as error:
            _LOG.warning("A stored setting of %s is ignored: %s", whose, error)
            continue
        try:
            setting.read(row.value, row.name)
        except ValueError as error:
            _LOG.error(
                "A stored setting of %s is ignored: %s. No record %s",
                whose,
                error,
                "expires until it is set to a value, and the broker started again"
                if is_broker
                else "of the topic expires until it is given settings again",
            )
            if is_broker:
                found.all_doubtful = True
            else:
                found.doubtful.add(row.resource)
            continue
        scope = found.brokers if is_broker else found.topics
        scope.setdefault(row.resource, {})[row.name] = row.value
    return found
