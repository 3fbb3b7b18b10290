"""Patterns that members of a consumer group subscribe to: when they are resolved, and to what.

A pattern is resolved to the names of the topics that match it, all patterns of a group together and
off the event loop. The topics count for all members of a pattern, and are those that the member may
describe whose heartbeat began it.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from horolog.groups.consumers.change import Now, hash_of
from horolog.groups.consumers.group import ConsumerGroup
from horolog.groups.consumers.values import GroupStep, TopicLookup
from horolog.schemas.group_records import GroupEpochKey, GroupEpochValue, PatternKey, PatternValue

_PAUSE_MS: Final = 10_000
"""Between two resolutions of one group, also for a new pattern."""


class Resolution(NamedTuple):
    """Topics of patterns, as they were at one moment."""

    topics: Mapping[str, Collection[str]]
    """Names by pattern."""
    names_version: int
    """Version of the topics that were looked at."""
    offset: int
    """Offset in the metadata log, for the record."""
    now: Now


def patterns_due(group: ConsumerGroup, topics: TopicLookup, now_ms: int) -> tuple[str, ...]:
    """Return all patterns of a group if it is time to resolve them, else none.

    Args:
        now_ms: the time of the event loop, in milliseconds.
    """
    if not group.regexes:
        return ()
    since_ms = group.resolved_at_ms
    if since_ms is not None and now_ms - since_ms <= _PAUSE_MS:
        return ()
    is_due = (
        since_ms is None
        or any(regex not in group.patterns for regex in group.regexes)
        or group.resolved_version != topics.version
        or now_ms - since_ms >= group.limits.regex_refresh_ms
    )
    return tuple(group.regexes) if is_due else ()


def resolved(group: ConsumerGroup, topics: TopicLookup, found: Resolution) -> GroupStep:
    """Return the step by which topics of patterns count.

    The members are assigned anew with the next heartbeat if a pattern has other topics than before.
    """
    group_id = group.group_id
    values = {
        regex: PatternValue(tuple(sorted(names)), found.offset, found.now.clock_ms)
        for regex, names in found.topics.items()
        if regex in group.regexes
    }
    records = [(PatternKey(group_id, regex), value) for regex, value in values.items()]
    changed = any(
        set(value.topics) != set(group.patterns[regex].topics if regex in group.patterns else ())
        for regex, value in values.items()
    )
    after = group.subscribed_topics(patterns={**group.patterns, **values})
    now_hash = hash_of(topics, after)
    if changed or now_hash != group.metadata_hash:
        epoch = GroupEpochValue(group.epoch + 1, now_hash)
        return GroupStep(
            None, [*records, (GroupEpochKey(group_id), epoch)], checked_version=topics.version
        )
    return GroupStep(None, records, checked_version=topics.version)
