"""The offsets that may hold a time, asked of brokers that announce `horolog.time.ranges`."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from horolog.client.deadline import Deadline
from horolog.client.metadata import refuse
from horolog.client.retrying import RetriedCalls
from horolog.wire.api import ApiKey
from horolog.wire.features import LOOKUP_WAY, RETENTION, TIME_RANGES, RangeClock
from horolog.wire.malformed import MalformedResponse

__all__ = ["LookupWay", "OffsetSpan", "RangeClock", "RetentionReport", "TimeRangeCalls"]

_TOPIC: Final = 2
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class OffsetSpan(NamedTuple):
    """Offsets from `start` to before `end`, and the bytes of their batches."""

    start: int
    end: int
    size: int


class LookupWay(NamedTuple):
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


class TimeRangeCalls(RetriedCalls):
    """Calls about times that horolog's brokers answer and Apache Kafka's do not."""

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
            None from a broker that cannot tell (Apache Kafka's): every offset may.

        Raises:
            RequestRefused: there is no such partition, or another refusal.
            NoAnswer: no broker answers.
        """
        first = _INT64_MIN if first_ms is None else first_ms
        last = _INT64_MAX if last_ms is None else last_ms
        found: list[OffsetSpan] = []
        while start < end:
            name = f"{TIME_RANGES}/{partition}/{clock}/{first}/{last}/{start}"
            answer = self._persist(partial(self._time_ranges, topic, partition, name))
            if answer is None:
                return None
            spans, said_to = answer
            found += [span._replace(end=min(span.end, end)) for span in spans if span.start < end]
            if said_to <= start:  # the log ends there
                break
            start = said_to
        return found

    def lookup_way(self, topic: str, partition: int, timestamp_ms: int) -> LookupWay | None:
        """How the broker finds the offset of a time; None from one that cannot tell.

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
        """What retention does about each segment, and when; None from a broker that cannot tell.

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

    def _lookup_way(
        self, topic: str, partition: int, name: str, deadline: Deadline
    ) -> LookupWay | None:
        answer = self._answer_about(topic, partition, LOOKUP_WAY, name, deadline)
        if answer is None:
            return None
        try:
            entry = answer.pop("entry")
            return LookupWay(**answer, entry=None if entry is None else (entry[0], entry[1]))
        except (TypeError, KeyError, IndexError):
            raise MalformedResponse(f"{LOOKUP_WAY} was described in another way") from None

    def _time_ranges(
        self, topic: str, partition: int, name: str, deadline: Deadline
    ) -> tuple[list[OffsetSpan], int] | None:
        answer = self._answer_about(topic, partition, TIME_RANGES, name, deadline)
        if answer is None:
            return None
        try:
            spans = [OffsetSpan(*map(int, each)) for each in answer["ranges"]]
            return spans, int(answer["end"])
        except (ValueError, TypeError, KeyError):
            raise MalformedResponse(f"{TIME_RANGES} was described in another way") from None

    def _answer_about(
        self, topic: str, partition: int, feature: str, name: str, deadline: Deadline
    ) -> Any:
        link = self.brokers.leader(topic, partition, deadline)
        if feature not in link.features:
            return None
        wanted = {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": [name]}
        request = {
            "resources": [wanted],
            "include_synonyms": False,
            "include_documentation": False,
        }
        version = link.version(ApiKey.DESCRIBE_CONFIGS)
        body = link.ask(ApiKey.DESCRIBE_CONFIGS, version, request, deadline).body
        for result in body.results:
            refuse(result.error_code, f"{feature} of {topic}-{partition}", result.error_message)
        try:
            ((entry,),) = (result.configs for result in body.results)
            return json.loads(entry.value)
        except (ValueError, TypeError):
            raise MalformedResponse(
                f"{link.connection.address} described {feature} in another way"
            ) from None
