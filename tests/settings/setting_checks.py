"""What shows that a setting is obeyed: one look, under several values, with what must be seen.

A check is entered by its decorator. Its look must differ between values, or it shows nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from settings_lab import Lab, Trial

REFUSED: Final = "the broker does not start"

Seen: TypeAlias = Mapping[str, Any]
"""What must be seen, by the value that was given."""


class TopicCheck(NamedTuple):
    """How one topic setting shows, and the broker settings it falls back to."""

    look: Callable[[Trial], Any]
    seen: Seen
    beside: Mapping[str, str]
    """What else is set on the topic, so that this setting decides."""
    of_fallback: Mapping[str, Seen]
    """The same for a broker setting in another unit."""

    def seen_through(self, name: str) -> Seen:
        """The values to give under the setting's own name, or a broker setting's."""
        return self.of_fallback.get(name, self.seen)


class BrokerCheck(NamedTuple):
    """How one setting of the broker shows."""

    look: Callable[[Lab], Any]
    seen: Seen
    """In values, `{dir}` stands for a directory of the test."""
    beside: Mapping[str, str]


OF_TOPICS: Final[dict[str, TopicCheck]] = {}
OF_BROKERS: Final[dict[str, BrokerCheck]] = {}


def of_topic(
    name: str,
    seen: Seen,
    *,
    beside: Mapping[str, str] | None = None,
    **of_fallback: Seen,
) -> Callable[[Callable[[Trial], Any]], Callable[[Trial], Any]]:
    """Enter a look at a topic; fallbacks in other units by their names with underscores."""

    def enter(look: Callable[[Trial], Any]) -> Callable[[Trial], Any]:
        assert name not in OF_TOPICS, name
        fallbacks = {key.replace("_", "."): given for key, given in of_fallback.items()}
        for given in (seen, *fallbacks.values()):
            _must_differ(name, given)
        OF_TOPICS[name] = TopicCheck(look, seen, beside or {}, fallbacks)
        return look

    return enter


def of_broker(
    name: str, seen: Seen, *, beside: Mapping[str, str] | None = None
) -> Callable[[Callable[[Lab], Any]], Callable[[Lab], Any]]:
    """Enter a look at a broker."""

    def enter(look: Callable[[Lab], Any]) -> Callable[[Lab], Any]:
        assert name not in OF_BROKERS, name
        _must_differ(name, seen)
        OF_BROKERS[name] = BrokerCheck(look, seen, beside or {})
        return look

    return enter


def _must_differ(name: str, seen: Seen) -> None:
    values = list(seen.values())
    assert any(value != values[0] for value in values), f"{name}: the same is seen under any value"
