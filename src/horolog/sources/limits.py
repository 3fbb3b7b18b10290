"""Topics, partitions and bounds that a read asks for, parsed from options.

Values, and their reading from options; `bounds` turns them into offsets.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from horolog.errors import Misconfigured
from horolog.patterns import given_pattern, name_pattern
from horolog.sources.java_patterns import UnlikeJavaError, java_matcher
from horolog.sources.option_values import INT64_MAX, is_relative, moment, parsed, topic_name
from horolog.storage.names import INTERNAL_TOPICS, TopicPartition

EARLIEST = -2
LATEST = -1
STARTING = "startingTimestamp"

_NUMBER = re.compile(r"[+-]?[0-9]+")
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "topicsPattern", "assign")
# Of ListOffsets: the largest time (KIP-734), and ends of tiered logs (KIP-405, KIP-1005, KIP-1023).
_OTHER_ENDS = range(-6, EARLIEST)
_TIMES = (
    "it is milliseconds since 1970, -1 for latest or -2 for earliest; what Kafka means by -3 to -6 "
    "is not supported"
)


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Topics by name, from option `subscribe`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Pattern of whole topic names, from `topicsPattern` (RE2) or `subscribePattern` (Java).

    Topics whose whole name matches it; Kafka's internal topics never do.
    """

    expression: str
    is_java: bool = False

    def matcher(self) -> Callable[[str], bool]:
        """Return a function that tells if a topic's name matches."""
        if not self.is_java:
            return name_pattern(self.expression).matches
        return java_matcher(self.expression)


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions by topic and number, from option `assign`."""

    partitions: tuple[TopicPartition, ...]


Subscription = TopicSelection | Pattern | Assigned


def subscribed(
    subscription: Subscription,
    partitions: Collection[TopicPartition],
    where: str,
    *,
    may_miss: bool = False,
) -> list[TopicPartition]:
    """Return the subscribed ones of the `partitions`, in order; errors name the place `where`.

    Raises:
        Misconfigured: one that is named does not exist, unless it `may_miss`.
    """
    match subscription:
        case TopicSelection(topics):
            missing = [topic for topic in topics if topic not in {p.topic for p in partitions}]
            found = [partition for partition in partitions if partition.topic in topics]
            named = "topic" if len(missing) == 1 else "topics"
        case Assigned(assigned):
            missing = [str(partition) for partition in assigned if partition not in partitions]
            found = [partition for partition in assigned if partition in partitions]
            named = "partition" if len(missing) == 1 else "partitions"
        case Pattern() as pattern:
            missing, named = [], ""
            matches = pattern.matcher()
            found = [
                partition
                for partition in partitions
                if partition.topic not in INTERNAL_TOPICS and matches(partition.topic)
            ]
    if missing and not may_miss:
        raise Misconfigured(f"There is no {named} {', '.join(missing)} {where}")
    return sorted(found)


class Everywhere(Enum):
    """One end of the log, the same for all partitions."""

    EARLIEST = "earliest"
    LATEST = "latest"
    LATEST_TIME = "-1"
    """`LATEST` in Kafka's lookup by time; Kafka's source lets batches start there."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """Limit at the first record at or after a moment, in each partition.

    A relative moment (`-3d`) counts from a query's first start.
    """

    timestamp_ms: int
    is_relative: bool = False


@dataclass(frozen=True, slots=True)
class ByPartition:
    """Limit at an offset of each partition, or at its first record at or after a time.

    -2 is the earliest offset of a partition, -1 its latest, as in Kafka's ListOffsets.
    """

    places: Mapping[TopicPartition, int]
    """Offsets, or times in milliseconds."""
    is_time: bool = False


Limit = Everywhere | AtTime | ByPartition


def subscription_of(given: Mapping[str, str]) -> Subscription | None:
    """Read the one of `_SUBSCRIPTIONS` that is given; None when none is.

    Raises:
        Misconfigured: more than one is given, or it names nothing.
    """
    named = [name for name in _SUBSCRIPTIONS if name.lower() in given]
    if len(named) > 1:
        raise Misconfigured(
            "Only one of the following options can be specified: "
            f"{', '.join(_SUBSCRIPTIONS)} (got {' and '.join(named)})"
        )
    match named:
        case ["subscribe"]:
            topics = [topic.strip() for topic in given["subscribe"].split(",")]
            topics = [topic for topic in topics if topic]
            if not topics:
                raise Misconfigured(
                    f"No topics to subscribe to: option 'subscribe' is '{given['subscribe']}'"
                )
            return TopicSelection(
                tuple(topic_name(fromkey, "subscribe") for fromkey in dict.fromkeys(topics))
            )
        case ["subscribePattern"]:
            return _java_pattern(given["subscribepattern"].strip())
        case ["topicsPattern"]:
            return Pattern(
                given_pattern(given["topicspattern"].strip(), "topicsPattern").expression
            )
        case ["assign"]:
            return _assigned(given["assign"])
        case _:
            return None


def _java_pattern(expression: str) -> Pattern:
    if not expression:
        raise Misconfigured("Pattern to subscribe is empty: option 'subscribePattern'")
    try:
        java_matcher(expression)
    except UnlikeJavaError as error:
        raise Misconfigured(
            f"Option 'subscribePattern': '{expression}' cannot be obeyed as Java would: {error}"
        ) from None
    return Pattern(expression, is_java=True)


def _assigned(text: str) -> Assigned:
    example = '{"topicA":[0,1],"topicB":[2,4]}'
    listed = parsed(text, "assign", example)
    partitions: list[TopicPartition] = []
    if not isinstance(listed, dict):
        raise Misconfigured(f"Option 'assign': expected e.g. {example}, got {text}")
    for topic, numbers in listed.items():
        if not isinstance(numbers, list) or not all(_is_count(number) for number in numbers):
            raise Misconfigured(f"Option 'assign': expected e.g. {example}, got {text}")
        topic_name(topic, "assign")
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise Misconfigured(f"No partitions to assign: option 'assign' is '{text}'")
    return Assigned(tuple(dict.fromkeys(partitions)))


def limit_of(given: Mapping[str, str], at_time: str, by_time: str, by_offset: str) -> Limit | None:
    """Return the limit of the first given option of three, as Kafka's source does."""
    if at_time.lower() in given:
        return _at_time(given, at_time)
    if by_time.lower() in given:
        example = '{"topicA":{"0":1700000000000}}'
        times_ms = _by_partition(given[by_time.lower()], by_time, example)
        for partition, time_ms in times_ms.items():
            if time_ms in _OTHER_ENDS:
                raise Misconfigured(f"Option '{by_time}': {partition} is at {time_ms}; {_TIMES}")
        return ByPartition(times_ms, is_time=True)
    if by_offset.lower() not in given:
        return None
    text = given[by_offset.lower()].strip()
    if text.lower() in ("earliest", "latest"):
        limit: Limit = Everywhere(text.lower())
    else:
        example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
        offsets = _by_partition(text, by_offset, example)
        for partition, offset in offsets.items():
            if offset < EARLIEST:
                raise Misconfigured(f"Option '{by_offset}': {partition} cannot be at {offset}")
        limit = ByPartition(offsets)
    if by_offset == "endingOffsets":
        _refuse_ending_earliest(limit)
    return limit


def _at_time(given: Mapping[str, str], option: str) -> Limit:
    """Return the limit of a moment, or the end of the log that Kafka names -1 or -2."""
    at = AtTime(moment(given, option), is_relative(given, option))
    if _NUMBER.fullmatch(given[option.lower()].strip()) is None:
        return at
    match at.timestamp_ms:
        case -2:
            return Everywhere.EARLIEST
        case -1:
            return Everywhere.LATEST_TIME
        case number if number in _OTHER_ENDS:
            raise Misconfigured(f"Option '{option}' is {number}; {_TIMES}")
        case _:
            return at


def _refuse_ending_earliest(limit: Limit) -> None:
    if limit is Everywhere.EARLIEST:
        raise Misconfigured("endingOffsets can't be earliest for batch queries")
    if isinstance(limit, ByPartition):
        for partition, offset in limit.places.items():
            if offset == EARLIEST:
                raise Misconfigured(
                    f"endingOffsets for {partition} can't be earliest for batch queries"
                )


def _by_partition(text: str, option: str, example: str) -> dict[TopicPartition, int]:
    listed = parsed(text, option, example)
    found: dict[TopicPartition, int] = {}
    try:
        for topic, numbers in listed.items():
            for partition, number in numbers.items():
                value = int(number)
                if isinstance(number, bool) or value != number or abs(value) > INT64_MAX:
                    raise ValueError(number)
                if _NUMBER.fullmatch(partition) is None:
                    raise ValueError(partition)
                found[TopicPartition(topic, int(partition))] = value
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise Misconfigured(f"Option '{option}': expected e.g. {example}, got {text}") from None
    return found


def check_order(starting: Limit | None, ending: Limit) -> None:
    """Check that both ends name the same partitions, and that no start is after its end."""
    match starting, ending:
        case ByPartition(first, is_time), ByPartition(last, of_time) if is_time == of_time:
            _check_places("OffsetsByTimestamp" if is_time else "Offsets", first, last)
        case AtTime(first_ms), AtTime(last_ms) if first_ms > last_ms:
            raise Misconfigured(
                f"startingTimestamp ({first_ms}) is after endingTimestamp ({last_ms})"
            )


def _check_places(
    name: str, first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int]
) -> None:
    if first.keys() != last.keys():
        raise Misconfigured(
            f"starting{name} and ending{name} name different partitions: "
            f"{_names(first)} and {_names(last)}"
        )
    for partition, start in first.items():
        if 0 <= last[partition] < start:
            raise Misconfigured(
                f"starting{name} for {partition} ({start}) is after "
                f"ending{name} ({last[partition]})"
            )


def _names(partitions: Mapping[TopicPartition, int]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
