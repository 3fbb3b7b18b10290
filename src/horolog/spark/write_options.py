"""The options of `write.format("horolog")`: Spark's Kafka sink's, and a policy for refused times.

Names ignore case. `OPTIONS` says what each does; the option reference in the documents is
made from it and from `producer_settings`.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from horolog.errors import Misconfigured
from horolog.spark.option_values import flag, one_of
from horolog.spark.producer_settings import Producing

OPTIONS = {
    "topic": "where all rows go, whatever the column `topic` says",
    "onInvalidTimestamp": "what becomes of records whose time the broker refuses "
    "(INVALID_TIMESTAMP, error 32): `fail` (default), `null` or `deadLetter`; our own",
    "deadLetterTopic": "where `onInvalidTimestamp=deadLetter` sends them; our own",
    "includeHeaders": "without effect, as in Spark's sink: the column `headers` is written where "
    "there is one",
}

_KNOWN = {name.lower(): name for name in OPTIONS}


class OnInvalidTimestamp(Enum):
    """What becomes of records whose time a broker refuses."""

    FAIL = "fail"
    """The task fails, and names them."""
    NULL = "null"
    """They are written as if their time was null: at the writer's clock."""
    DEAD_LETTER = "deadLetter"
    """They go to another topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a write was asked for; `topic` None is the topic of each row."""

    producing: Producing
    topic: str | None = None
    on_invalid_timestamp: OnInvalidTimestamp = OnInvalidTimestamp.FAIL
    dead_letter_topic: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "WriteOptions":
        """Read the options of one write.

        Raises:
            Misconfigured: an option, its value, or a combination that no write can have.
        """
        given = {name.lower(): value for name, value in options.items()}
        _refuse_misspelt(given)
        if "path" in given or "paths" in given:
            raise Misconfigured(
                "A write goes to a broker: give it option 'kafka.bootstrap.servers' and no path"
            )
        words = [policy.value for policy in OnInvalidTimestamp]
        policy = OnInvalidTimestamp(one_of(given, "onInvalidTimestamp", "fail", *words))
        dead_letters = _topic(given, "deadLetterTopic")
        topic = _topic(given, "topic")
        if (policy is OnInvalidTimestamp.DEAD_LETTER) is not (dead_letters is not None):
            raise Misconfigured(
                "Option 'onInvalidTimestamp' is 'deadLetter' where option 'deadLetterTopic' names "
                "a topic, and only there"
            )
        if topic is not None and topic == dead_letters:
            raise Misconfigured(f"Options 'topic' and 'deadLetterTopic' are both '{topic}'")
        flag(given, "includeHeaders", default=True)
        return cls(
            producing=Producing.parse(given),
            topic=topic,
            on_invalid_timestamp=policy,
            dead_letter_topic=dead_letters,
        )


def _topic(given: Mapping[str, str], option: str) -> str | None:
    topic = given.get(option.lower())
    if topic is not None and not topic.strip():
        raise Misconfigured(f"Option '{option}' names no topic")
    return topic


def _refuse_misspelt(given: Mapping[str, str]) -> None:
    """An option that is nearly one of ours is a mistake; others may belong to someone else."""
    for name in given:
        if name in _KNOWN or name.startswith("kafka."):
            continue
        close = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.8)
        if close:
            raise Misconfigured(f"Unknown option '{name}'; did you mean '{_KNOWN[close[0]]}'?")
