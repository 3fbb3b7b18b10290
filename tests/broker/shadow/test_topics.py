"""Topics are here as they are at the source, whatever happens to them there."""

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from batches import batch
from patience import PATIENCE_S
from running_broker import NOW_MS, RunningBroker, a_broker
from stored import lose_metadata, opened_store, spoil_state

from horolog.broker import FollowedTopics, FollowState, SourcePartition, SourceTopics, TopicAtSource
from horolog.client import Address
from horolog.errors import ErrorCode, RequestRefused
from horolog.metadata import MetadataStore, state

ONE, OTHER = UUID(int=2), UUID(int=3)  # 1 is reserved

# One that follows, and has led a topic before.
broker = a_broker("led", prepare=lambda its: its.restart(horolog_follow="127.0.0.1:1"))


def topic(
    name: str = "t",
    partitions: int = 2,
    topic_id: UUID | None = ONE,
    settings: Mapping[str, str] | None = None,
) -> TopicAtSource:
    its = tuple(SourcePartition(index, 5, 3) for index in range(partitions))
    return TopicAtSource(name, topic_id, its, {} if settings is None else settings)


def seen(*topics: TopicAtSource, deleted: frozenset[str] = frozenset()) -> SourceTopics:
    brokers = {5: Address("kafka", 9092)}
    return SourceTopics("source-id", brokers, {each.name: each for each in topics}, deleted)


def followed(broker: RunningBroker) -> FollowedTopics:
    topics: FollowedTopics = broker.broker.shadow.followed_topics
    return topics


def apply(broker: RunningBroker, found: SourceTopics) -> dict[str, str]:
    """What is left to do is done; why topics are not followed."""
    topics = followed(broker)
    broker.run(topics.apply(found))
    return topics.refused


def test_a_topic_is_made_with_the_sources_id_partitions_and_settings(
    broker: RunningBroker,
) -> None:
    assert not apply(broker, seen(topic(settings={"retention.ms": "1234"})))
    made = broker.broker.topics.named("t")
    assert (made.topic_id, made.partitions) == (ONE, (0, 1))
    assert made.overrides == {"retention.ms": "1234"}
    assert broker.log("t", 1).is_following
    assert broker.produce("t", batch(NOW_MS)).error_code == ErrorCode.not_leader_or_follower
    broker.restart(crash=True)
    again = broker.broker.topics.named("t")
    assert again == made
    assert broker.log("t", 1).is_following
    assert broker.broker.follow_state.source.cluster_id == "source-id"


def test_a_topic_of_a_kafka_without_ids_is_given_one(broker: RunningBroker) -> None:
    assert not apply(broker, seen(topic(topic_id=None)))
    made = broker.broker.topics.named("t")
    assert made.topic_id is not None
    assert not apply(broker, seen(topic(topic_id=ONE))), "that Kafka was upgraded"
    assert broker.broker.topics.named("t").topic_id == made.topic_id
    assert followed(broker).known() == {"t": ONE}


def test_a_topic_grows_as_at_the_source_and_never_shrinks(broker: RunningBroker) -> None:
    apply(broker, seen(topic(partitions=2)))
    assert not apply(broker, seen(topic(partitions=4)))
    assert broker.broker.topics.named("t").partitions == (0, 1, 2, 3)
    assert broker.log("t", 3).is_following
    why = apply(broker, seen(topic(partitions=1)))
    assert why == {"t": "it has 1 partitions there, and 4 here"}
    assert len(broker.broker.topics.named("t").partitions) == 4


def test_settings_follow_the_source_but_where_they_were_altered_here(
    broker: RunningBroker,
) -> None:
    apply(broker, seen(topic(settings={"retention.ms": "1000", "segment.ms": "2000"})))
    broker.alter("t", retention_ms="9000")
    new = {"retention.ms": "1001", "segment.ms": "2001", "retention.bytes": "3"}
    apply(broker, seen(topic(settings=new)))
    expected = {"retention.ms": "9000", "segment.ms": "2001", "retention.bytes": "3"}
    assert broker.broker.topics.named("t").overrides == expected
    broker.restart()
    apply(broker, seen(topic(settings={"retention.ms": "1002"})))
    assert broker.broker.topics.named("t").overrides == {"retention.ms": "9000"}
    broker.alter("t", ("retention.ms", 1, None))
    apply(broker, seen(topic(settings={"retention.ms": "1003"})))
    assert broker.broker.topics.named("t").overrides == {}, "that was altered here, too"


def test_settings_that_are_refused_here_are_kept_and_named_once(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "horolog")
    given = {"min.insync.replicas": "2", "of.the.future": "x", "retention.ms": "5"}
    taken = {"min.insync.replicas": "2", "retention.ms": "5"}
    topics = followed(broker)
    for _ in range(2):
        broker.run(topics.apply(seen(topic(settings=given))))
    assert broker.broker.topics.named("t").overrides == taken
    assert topics.refused_settings("t").keys() == {"of.the.future"}
    assert caplog.text.count("followed without its setting of.the.future") == 1
    broker.restart()
    assert followed(broker).refused_settings("t").keys() == {"of.the.future"}


def test_a_compacted_topic_is_cleaned_and_expires_by_its_settings(broker: RunningBroker) -> None:
    given = {"cleanup.policy": "compact,delete", "retention.ms": "1"}
    apply(broker, seen(topic(settings=given)))
    for _ in range(2):
        its = broker.broker.topics.named("t")
        assert not its.compacted
        assert its.overrides == given
        assert broker.log("t").config.cleanup_policy == {"compact", "delete"}
        assert broker.broker.led("t", 0).is_compacted
        broker.restart()
    apply(broker, seen(topic(settings={"cleanup.policy": "delete"})))
    assert not broker.broker.topics.named("t").compacted
    assert broker.log("t").config.cleanup_policy == {"delete"}


def test_a_topic_that_is_deleted_at_the_source_is_deleted_here(broker: RunningBroker) -> None:
    apply(broker, seen(topic(), topic("u", topic_id=OTHER)))
    assert not apply(broker, seen(topic("u", topic_id=OTHER)))
    assert "t" in broker.broker.topics, "it may only be unknown to one broker"
    assert not apply(broker, seen(topic("u", topic_id=OTHER), deleted=frozenset({"t", "led"})))
    assert "t" not in broker.broker.topics
    assert "led" in broker.broker.topics
    broker.restart()
    assert {each.name for each in broker.broker.topics} == {"u", "led"}
    assert followed(broker).known() == {"u": OTHER}


def test_a_topic_that_is_made_again_at_the_source_is_made_again_here(
    broker: RunningBroker,
) -> None:
    apply(broker, seen(topic(partitions=3, settings={"retention.ms": "5"})))
    assert not apply(broker, seen(topic(partitions=1, topic_id=OTHER)))
    made = broker.broker.topics.named("t")
    assert (made.topic_id, made.partitions, made.overrides) == (OTHER, (0,), {})
    assert followed(broker).known() == {"t": OTHER}


def test_a_shadow_that_must_not_delete_keeps_what_the_source_has_deleted(
    broker: RunningBroker,
) -> None:
    broker.restart(delete_topic_enable="false")
    apply(broker, seen(topic()))
    why = apply(broker, seen(deleted=frozenset({"t"})))
    assert "delete.topic.enable=false" in why["t"]
    why = apply(broker, seen(topic(topic_id=OTHER)))
    assert "delete.topic.enable=false" in why["t"]
    assert broker.broker.topics.named("t").topic_id == ONE


def test_a_topic_that_is_no_more_asked_for_is_not_deleted_as_at_the_source(
    broker: RunningBroker,
) -> None:
    apply(broker, seen(topic()))
    broker.restart(horolog_follow_topics="u")
    assert not apply(broker, seen(deleted=frozenset({"t"})))
    assert "t" in broker.broker.topics


def test_a_topic_that_is_led_here_is_left_alone(broker: RunningBroker) -> None:
    broker.append("led", batch(NOW_MS))
    why = apply(broker, seen(topic("led"), topic()))
    assert "horolog follow --demote" in why["led"]
    assert broker.append("led", batch(NOW_MS)) == 1
    assert "t" in broker.broker.topics, "one topic does not stop another"


def test_names_that_kafka_cannot_tell_apart_are_refused_one_by_one(broker: RunningBroker) -> None:
    why = apply(broker, seen(topic("a.b"), topic("a_b", topic_id=OTHER)))
    assert list(why) == ["a_b"]
    assert "collides" in why["a_b"]


def test_nothing_is_made_of_a_topic_whose_settings_are_not_known(broker: RunningBroker) -> None:
    unknown = topic()._replace(settings=None)
    assert "DESCRIBE_CONFIGS" in apply(broker, seen(unknown))["t"]
    assert "t" not in broker.broker.topics


def test_a_source_that_is_this_broker_is_refused(broker: RunningBroker) -> None:
    found = seen(topic())._replace(cluster_id=broker.broker.cluster_id)
    with pytest.raises(RequestRefused, match="the cluster id of this broker"):
        apply(broker, found)
    assert "t" not in broker.broker.topics


def test_a_topic_that_the_source_follows_from_here_is_not_made(broker: RunningBroker) -> None:
    topics = followed(broker)
    broker.run(topics.apply(seen(topic())._replace(from_here=frozenset({"t"}))))
    assert "from here" in topics.refused["t"]
    assert "t" not in broker.broker.topics


def test_a_source_whose_row_is_lost_is_not_taken_for_another_with_topics_of_the_same_names(
    broker: RunningBroker,
) -> None:
    """Else its topics would be deleted, as if they had been re-created."""
    apply(broker, seen(topic()))
    broker.stop()
    spoil_state(broker.log_dir, state.SOURCE)
    broker.restart()
    assert broker.broker.follow_state.source.cluster_id == ""
    other = seen(topic(topic_id=OTHER))._replace(cluster_id="other-id")
    for _ in range(2):
        with pytest.raises(RequestRefused, match="may be another cluster"):
            apply(broker, other)
    assert broker.broker.topics.named("t").topic_id == ONE
    assert not apply(broker, seen(topic()))
    assert broker.broker.follow_state.source.cluster_id == "source-id"


def test_a_topic_that_is_being_promoted_is_not_deleted_as_at_the_source(
    broker: RunningBroker,
) -> None:
    apply(broker, seen(topic()))
    with broker.broker.follow_state.promoting("t"):
        why = apply(broker, seen(deleted=frozenset({"t"})))
    assert "is being promoted" in why["t"]
    assert "t" in broker.broker.topics


def test_a_topic_whose_row_is_lost_is_followed_again_and_keeps_its_records(
    broker: RunningBroker,
) -> None:
    apply(broker, seen(topic(settings={"retention.ms": "1"})))
    broker.stop()
    lose_metadata(broker.log_dir)
    broker.restart()
    assert broker.log("t").is_following
    assert followed(broker).known() == {}
    why = apply(broker, seen(topic(topic_id=OTHER, settings={"retention.ms": "1"})))
    assert "horolog promote" in why["t"]
    assert not apply(broker, seen(topic(settings={"retention.ms": "1"})))
    its = broker.broker.topics.named("t")
    assert followed(broker).known() == {"t": ONE}
    assert (its.adopted, its.overrides) == (True, {}), "its settings here may have kept more"
    why = apply(broker, seen(deleted=frozenset({"t"})))
    assert "found on disk" in why["t"]
    assert "t" in broker.broker.topics


def test_a_promoted_topic_is_not_followed_again(broker: RunningBroker) -> None:
    apply(broker, seen(topic()))
    state: FollowState = broker.broker.follow_state
    row = state.rows["t"]._replace(led=True, epoch=9)
    broker.run(broker.broker.controller.promote(broker.broker.topics.named("t"), row))
    assert broker.append("t", batch(NOW_MS)) == 0
    assert broker.headers("t")[0].leader_epoch == 9
    apply(broker, seen(topic(topic_id=OTHER), deleted=frozenset({"t"})))
    assert broker.append("t", batch(NOW_MS)) == 1
    broker.client.delete_topics(["t"])
    broker.restart()
    apply(broker, seen(topic()))
    assert "t" not in broker.broker.topics, "nor after it was deleted here"
    broker.client.create_topics({"t": 1})
    assert broker.append("t", batch(NOW_MS)) == 0


def test_a_topic_of_the_name_of_a_promoted_one_is_not_compacted_as_that_was(
    broker: RunningBroker,
) -> None:
    apply(broker, seen(topic(settings={"cleanup.policy": "compact"})))
    broker.client.promote(["t"])
    broker.restart()
    assert broker.log("t").config.cleanup_policy == {"compact"}, "it is as it was followed"
    broker.client.delete_topics(["t"])
    broker.client.create_topics({"t": 1})
    broker.restart()
    assert broker.log("t").config.cleanup_policy == {"delete"}


def test_a_compacted_topic_whose_own_policy_is_taken_back_does_not_expire(
    broker: RunningBroker,
) -> None:
    apply(broker, seen(topic(settings={"cleanup.policy": "compact"})))
    broker.alter("t", cleanup_policy="delete")
    assert broker.log("t").config.cleanup_policy == {"delete"}
    broker.alter("t", ("cleanup.policy", 1, None))
    assert broker.log("t").config.cleanup_policy == {"compact"}


def test_a_promotion_that_a_kill_interrupts_is_completed_at_the_start(
    broker: RunningBroker,
) -> None:
    apply(broker, seen(topic()))
    broker.kill()
    with opened_store(broker.log_dir) as store:
        (row,) = [row for row in store.load().topics if row.name == "t"]
        (of_source,) = store.load().followed
        promoted = of_source._replace(led=True, epoch=9)
        store.put_topic(row._replace(followed=False), None, promoted)
    broker.restart()
    for _ in range(2):
        assert broker.log("t", 1).leader_epoch >= 9
        broker.append("t", batch(NOW_MS), 1)
        broker.restart(crash=True)
    assert broker.headers("t", 1)[0].leader_epoch == 9


def test_a_topic_that_is_made_when_the_following_ends_is_whole(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_written, goes_on = threading.Event(), threading.Event()
    put_topic = MetadataStore.put_topic

    def slowly(*given: Any) -> None:
        is_written.set()
        assert goes_on.wait(PATIENCE_S)
        put_topic(*given)

    monkeypatch.setattr(MetadataStore, "put_topic", slowly)

    async def run() -> None:
        making = asyncio.create_task(followed(broker).apply(seen(topic("late"))))
        await asyncio.to_thread(is_written.wait, PATIENCE_S)
        making.cancel()
        asyncio.get_running_loop().call_soon(goes_on.set)
        with pytest.raises(asyncio.CancelledError):
            await making

    broker.run(run())
    assert broker.broker.topics.find("late") is not None
