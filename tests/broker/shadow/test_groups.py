"""Offsets of groups are here what they are at the source, but for groups that read here."""

import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from running_broker import RunningBroker, a_broker

from horolog.broker import (
    FollowedGroups,
    SourcePartition,
    SourceTopics,
    TopicAtSource,
    committed_at,
)
from horolog.client import CommittedOffset
from horolog.wire import ApiKey

source = a_broker("t", "u", partitions=2)


def start_following(leader: RunningBroker) -> None:
    """Follow `t`, and lead another topic."""
    leader.restart(horolog_follow="127.0.0.1:1", horolog_follow_topics="t")
    topics = leader.broker.shadow.followed_topics
    partitions = tuple(SourcePartition(n, 5, 0) for n in range(2))
    t = TopicAtSource("t", UUID(int=1), partitions, {})
    leader.run(topics.apply(SourceTopics("source-id", {}, {"t": t})))


broker = a_broker("led", prepare=start_following)


def follow(broker: RunningBroker) -> FollowedGroups:
    return FollowedGroups(broker.broker.catalogue, broker.broker.groups)


def apply(
    broker: RunningBroker, groups: FollowedGroups, found: Mapping[str, Mapping[Any, int]]
) -> None:
    offsets = {
        group: {key: CommittedOffset(offset, "note", 3) for key, offset in its.items()}
        for group, its in found.items()
    }
    broker.run(groups.apply(offsets, groups.topic_ids()))


def committed(broker: RunningBroker, group: str) -> dict[tuple[str, int], int]:
    found = broker.client.offset_fetch(group)
    return {key: its.offset for key, its in found.items() if its is not None}


def test_what_groups_have_committed_at_the_source_is_known(source: RunningBroker) -> None:
    source.client.offset_commit("g", {("t", 1): CommittedOffset(7, "m", 2)})
    source.client.offset_commit("h", {("u", 0): CommittedOffset(8)})
    found, why = committed_at(source.client)
    assert found == {
        "g": {("t", 1): CommittedOffset(7, "m", 2)},
        "h": {("u", 0): CommittedOffset(8)},
    }
    assert not why


def test_offsets_of_followed_topics_are_committed_with_what_belongs_to_them(
    broker: RunningBroker,
) -> None:
    groups = follow(broker)
    apply(broker, groups, {"g": {("t", 0): 5, ("led", 0): 6, ("none", 0): 7, ("t", 9): 8}})
    assert broker.client.offset_fetch("g") == {("t", 0): CommittedOffset(5, "note", 3)}
    broker.restart(crash=True)
    assert committed(broker, "g") == {("t", 0): 5}


def test_an_offset_goes_back_as_at_the_source(broker: RunningBroker) -> None:
    groups = follow(broker)
    for offset in (5, 9, 2):
        apply(broker, groups, {"g": {("t", 0): offset}})
        assert committed(broker, "g") == {("t", 0): offset}


def test_offsets_of_a_topic_that_was_made_again_meanwhile_are_not_committed(
    broker: RunningBroker,
) -> None:
    """What the source said may be of the records of before: a consumer would skip the new ones."""
    groups = follow(broker)
    asked = groups.topic_ids()
    partitions = tuple(SourcePartition(n, 5, 0) for n in range(2))
    again = TopicAtSource("t", UUID(int=2), partitions, {})
    topics = broker.broker.shadow.followed_topics
    broker.run(topics.apply(SourceTopics("source-id", {}, {"t": again})))
    broker.run(groups.apply({"g": {("t", 0): CommittedOffset(900)}}, asked))
    assert committed(broker, "g") == {}
    apply(broker, groups, {"g": {("t", 0): 3}})
    assert committed(broker, "g") == {("t", 0): 3}


def test_what_a_group_commits_here_stays_until_it_moves_on_at_the_source(
    broker: RunningBroker,
) -> None:
    groups = follow(broker)
    apply(broker, groups, {"g": {("t", 0): 5}})
    broker.client.offset_commit("g", {("t", 0): CommittedOffset(50)})
    apply(broker, groups, {"g": {("t", 0): 5}})
    assert committed(broker, "g") == {("t", 0): 50}
    apply(broker, follow(broker), {"g": {("t", 0): 5}})
    assert committed(broker, "g") == {("t", 0): 50}, "nor after a start"
    apply(broker, groups, {"g": {("t", 0): 6}})
    assert committed(broker, "g") == {("t", 0): 6}


def test_an_offset_that_has_expired_here_is_committed_again(broker: RunningBroker) -> None:
    groups = follow(broker)
    apply(broker, groups, {"g": {("t", 0): 5}})
    broker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
    apply(broker, groups, {"g": {("t", 0): 5}})
    assert committed(broker, "g") == {("t", 0): 5}


def test_a_group_with_members_here_commits_for_itself(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "horolog")
    groups = follow(broker)
    member = _join(broker, "g")
    apply(broker, groups, {"g": {("t", 0): 5}, "h": {("t", 0): 6}})
    assert committed(broker, "g") == {}
    assert committed(broker, "h") == {("t", 0): 6}, "one group does not stop another"
    # The source itself, which is not there, may be named meanwhile.
    assert "offsets of group 'g'" not in caplog.text, "that is as it should be"
    members = [{"member_id": member, "group_instance_id": None, "reason": None}]
    broker.ask(ApiKey.LEAVE_GROUP, 4, group_id="g", members=members)
    apply(broker, groups, {"g": {("t", 0): 5}})
    assert committed(broker, "g") == {("t", 0): 5}


def _join(broker: RunningBroker, group: str) -> str:
    fields = {
        "group_id": group,
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    return str(broker.ask(ApiKey.JOIN_GROUP, 3, **fields).member_id)


def test_a_topic_that_is_promoted_takes_no_more_offsets_of_the_source(
    broker: RunningBroker,
) -> None:
    groups = follow(broker)
    state = broker.broker.follow_state
    with state.promoting("t"):
        apply(broker, groups, {"g": {("t", 0): 5}})
    assert committed(broker, "g") == {}
    row = state.rows["t"]._replace(led=True, epoch=9)
    broker.run(broker.broker.controller.promote(broker.broker.topics.named("t"), row))
    apply(broker, groups, {"g": {("t", 0): 5}})
    assert committed(broker, "g") == {}
