"""The offsets that may hold a time, asked of brokers that announce `horolog.time.ranges`."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from horolog.client.config import Address
from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.metadata import refuse
from horolog.client.offset_lookups import TopicPartition
from horolog.client.retrying import RetriedCalls
from horolog.json_text import from_json
from horolog.wire.api import ApiKey
from horolog.wire.features import LEFT_BEHIND, LOOKUP_WAY, RETENTION, TIME_RANGES, RangeClock
from horolog.wire.malformed import MalformedResponse

__all__ = ["LookupReport", "OffsetSpan", "RangeClock", "RetentionReport", "TimeRangeCalls"]

_TOPIC: Final = 2
_MOST_NAMES: Final = 500  # in one request
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class OffsetSpan(NamedTuple):
    """Offsets from `start` to before `end`, and the bytes of their batches."""

    start: int
    end: int
    size: int


class LookupReport(NamedTuple):
    """How a broker finds an offset by timestamp."""

    segments: int
    """Of the log."""
    passed: int
    """Segments whose largest times are earlier."""
    base_offset: int | None
    """Of the segment looked into last; None if none reaches the time."""
    entry: tuple[int, int] | None
    """Timestamp and offset of the time index entry that the search begins with."""
    position: int
    """Where in the segment's log it begins."""
    batches: int
    """Batches passed by their headers or searched."""
    scanned_bytes: int
    """Of batches whose records were searched, as they are stored."""


class RetentionReport(NamedTuple):
    """What retention does about the segments of a partition."""

    now_ms: int
    """The clock of the answer."""
    settings: Mapping[str, Any]
    """Those that it depends on, under Kafka's names."""
    is_exempt: bool
    """The partition was adopted, and nothing of it is deleted."""
    segments: Sequence[Mapping[str, Any]]
    """Of each, oldest first, the members that docs/wire.md lists."""


class LeftBehind(NamedTuple):
    """What a Kafka that had the log directory knows of a topic, and its broker does not."""

    is_adopted: bool
    """The topic was found on disk and has no settings here: nothing of it expires."""
    is_made_here: bool
    """That Kafka does not know the topic."""
    settings: Mapping[str, str]
    """Those that it gave the topic and that are without effect here."""
    offsets: Sequence[tuple[str, int, int]]
    """Group, partition and offset of what was committed with it, and not here."""


class TimeRangeCalls(RetriedCalls):
    """Questions about a topic that horolog's brokers answer and Apache Kafka's do not."""

    def time_ranges(
        self,
        topic: str,
        partition: int,
        first_ms: int | None,
        last_ms: int | None,
        *,
        clock: RangeClock = RangeClock.RECORD,
        start: int = 0,
        end: int,
    ) -> list[OffsetSpan] | None:
        """The offsets between `start` and `end` that may hold records of a time, in order.

        Args:
            topic: its name.
            partition: of the topic.
            first_ms: the first time that is looked for, None without a limit.
            last_ms: the last one.
            clock: whose time it is.
            start: where to begin.
            end: where to stop.

        Returns:
            None from a broker that does not know (Apache Kafka's): every offset may.

        Raises:
            RequestRefused: there is no such partition, or another refusal.
            NoAnswer: no broker answers.
        """
        where = {(topic, partition): (start, end)}
        return self.time_ranges_of(where, first_ms, last_ms, clock=clock)[topic, partition]

    def time_ranges_of(
        self,
        where: Mapping[TopicPartition, tuple[int, int]],
        first_ms: int | None,
        last_ms: int | None,
        *,
        clock: RangeClock = RangeClock.RECORD,
    ) -> dict[TopicPartition, list[OffsetSpan] | None]:
        """The same for many partitions, in one request to each leader, and to all at a time.

        Args:
            where: for each partition where to begin and where to stop.
            first_ms: the first time that is looked for, None without a limit.
            last_ms: the last one.
            clock: whose time it is.

        Raises:
            RequestRefused: for one partition, which it names.
            NoAnswer: no broker answers.
        """
        first = _INT64_MIN if first_ms is None else first_ms
        last = _INT64_MAX if last_ms is None else last_ms
        found: dict[TopicPartition, list[OffsetSpan] | None] = {each: [] for each in where}
        starts = {each: start for each, (start, end) in where.items() if start < end}
        while starts:
            names = {
                each: f"{TIME_RANGES}/{each[1]}/{clock}/{first}/{last}/{start}"
                for each, start in starts.items()
            }
            for each, answer in self._persist(
                partial(self._answers_about, TIME_RANGES, names)
            ).items():
                start, (_, end), spans = starts.pop(each), where[each], found[each]
                if answer is None or spans is None:
                    found[each] = None
                    continue
                more, said_to = _ranges_in(answer)
                spans += [
                    span._replace(end=min(span.end, end)) for span in more if span.start < end
                ]
                if start < said_to < end:  # else the log ends there
                    starts[each] = said_to
        return found

    def lookup_way(self, topic: str, partition: int, timestamp_ms: int) -> LookupReport | None:
        """How the broker finds the offset of a time; None from one that does not report it.

        Raises:
            RequestRefused: there is no such partition, or another refusal.
            NoAnswer: no broker answers.
        """
        name = f"{LOOKUP_WAY}/{partition}/{timestamp_ms}"
        return self._persist(partial(self._lookup_way, topic, partition, name))

    def retention(
        self,
        topic: str,
        partition: int,
        *,
        now_ms: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> RetentionReport | None:
        """What retention does about each segment, and when; None if the broker cannot report it.

        Args:
            topic: its name.
            partition: of the topic.
            now_ms: the time of the question, by default the broker's.
            settings: to be tried, in the place of the topic's.

        Raises:
            RequestRefused: there is no such partition, a setting is invalid, or another refusal.
            NoAnswer: no broker answers.
        """
        first, segments = 0, list[Mapping[str, Any]]()
        while True:
            asked = {"partition": partition, "from": first, "now": now_ms, "set": settings or {}}
            name = f"{RETENTION}/{json.dumps(asked, separators=(',', ':'))}"
            answer = self._persist(partial(self._answer_about, topic, partition, RETENTION, name))
            if answer is None:
                return None
            try:
                now_ms = int(answer["now"])
                segments += answer["segments"]
                if answer["next"] is None:
                    return RetentionReport(
                        now_ms, answer["settings"], answer["is_exempt"], segments
                    )
                first, before = int(answer["next"]), first
                if first <= before:
                    raise ValueError(f"{first} after {before}")
            except (ValueError, TypeError, KeyError):
                raise MalformedResponse(f"{RETENTION} was described in another way") from None

    def left_behind(self, topic: str, partition: int = 0) -> LeftBehind | None:
        """What is not carried over from a Kafka; None from a broker that does not report it.

        Args:
            topic: its name.
            partition: one that it has; its leader is asked.

        Raises:
            RequestRefused: there is no such partition, or another refusal.
            NoAnswer: no broker answers.
        """
        first, entries = 0, list[Sequence[Any]]()
        while True:
            name = f"{LEFT_BEHIND}/{first}"
            answer = self._persist(partial(self._answer_about, topic, partition, LEFT_BEHIND, name))
            if answer is None:
                return None
            try:
                entries += answer["entries"]
                if answer["next"] is None:
                    return LeftBehind(
                        bool(answer["is_adopted"]),
                        bool(answer["is_made_here"]),
                        {each[0]: each[1] for each in entries if len(each) == 2},
                        [(each[0], each[1], each[2]) for each in entries if len(each) > 2],
                    )
                first, before = int(answer["next"]), first
                if first <= before:
                    raise ValueError(f"{first} after {before}")
            except (ValueError, TypeError, KeyError, IndexError):
                raise MalformedResponse(f"{LEFT_BEHIND} was described in another way") from None

    def _lookup_way(
        self, topic: str, partition: int, name: str, deadline: Deadline
    ) -> LookupReport | None:
        answer = self._answer_about(topic, partition, LOOKUP_WAY, name, deadline)
        if answer is None:
            return None
        try:
            entry = answer.pop("entry")
            return LookupReport(**answer, entry=None if entry is None else (entry[0], entry[1]))
        except (TypeError, KeyError, IndexError):
            raise MalformedResponse(f"{LOOKUP_WAY} was described in another way") from None

    def _answer_about(
        self, topic: str, partition: int, feature: str, name: str, deadline: Deadline
    ) -> Any:
        asked = {(topic, partition): name}
        return self._answers_about(feature, asked, deadline)[topic, partition]

    def _answers_about(
        self, feature: str, names: Mapping[TopicPartition, str], deadline: Deadline
    ) -> dict[TopicPartition, Any]:
        """What the leader of each partition says to a name; None where it knows no such feature.

        Each leader has one request under way, of up to `_MOST_NAMES` names.
        """
        by_leader: dict[Link, list[TopicPartition]] = defaultdict(list)
        answers: dict[TopicPartition, Any] = {}
        for partition in names:
            leader = self.brokers.leader(*partition, deadline)
            if feature in leader.features:
                by_leader[leader].append(partition)
            else:
                answers[partition] = None
        for first in range(0, max(map(len, by_leader.values()), default=0), _MOST_NAMES):
            asked = {
                leader: {each: names[each] for each in its[first : first + _MOST_NAMES]}
                for leader, its in by_leader.items()
                if len(its) > first
            }
            answers |= self._ask_all(feature, asked, deadline)
        return answers

    def _ask_all(
        self, feature: str, asked: Mapping[Link, Mapping[TopicPartition, str]], deadline: Deadline
    ) -> dict[TopicPartition, Any]:
        answers: dict[TopicPartition, Any] = {}
        unanswered = []
        try:
            for leader, names in asked.items():
                version = leader.version(ApiKey.DESCRIBE_CONFIGS)
                unanswered.append(leader)
                leader.send(ApiKey.DESCRIBE_CONFIGS, version, _describing(names), deadline)
            for leader, names in asked.items():
                version = leader.version(ApiKey.DESCRIBE_CONFIGS)
                body = leader.receive(ApiKey.DESCRIBE_CONFIGS, version, deadline).body
                unanswered.remove(leader)
                answers |= _answers_in(body, feature, names, leader.connection.address)
        finally:
            for leader in unanswered:  # what is under way there is no answer to a later request
                leader.connection.close()
        return answers


def _describing(names: Mapping[TopicPartition, str]) -> dict[str, Any]:
    """The DescribeConfigs request for these names."""
    by_topic: dict[str, list[str]] = defaultdict(list)
    for (topic, _), name in names.items():
        by_topic[topic].append(name)
    return {
        "resources": [
            {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": keys}
            for topic, keys in by_topic.items()
        ],
        "include_synonyms": False,
        "include_documentation": False,
    }


def _answers_in(
    body: Any, feature: str, names: Mapping[TopicPartition, str], address: Address
) -> dict[TopicPartition, Any]:
    """The answer to each name.

    Raises:
        RequestRefused: of a topic.
        MalformedResponse: one is missing or no JSON.
    """
    values: dict[tuple[str, str], str] = {}
    for result in body.results:
        topic = result.resource_name
        partitions = ", ".join(f"{each[0]}-{each[1]}" for each in names if each[0] == topic)
        refuse(result.error_code, f"{feature} of {partitions:.200}", result.error_message)
        values |= {(topic, entry.name): entry.value for entry in result.configs}
    try:
        return {each: from_json(values[each[0], name]) for each, name in names.items()}
    except (ValueError, TypeError, KeyError):
        raise MalformedResponse(f"{address} described {feature} in another way") from None


def _ranges_in(answer: Any) -> tuple[list[OffsetSpan], int]:
    """The ranges of an answer, and up to where they are all."""
    try:
        return [OffsetSpan(*map(int, each)) for each in answer["ranges"]], int(answer["end"])
    except (ValueError, TypeError, KeyError):
        raise MalformedResponse(f"{TIME_RANGES} was described in another way") from None
