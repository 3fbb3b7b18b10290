"""What a broker that follows another cluster refuses, and where it sends producers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batches import batch
from command_runner import run_command
from raw_connection import produce_fields
from running_broker import NOW_MS, RunningBroker, a_broker
from stored import lose_metadata, opened_store, spoil_state

from horolog.broker import SourcePartition, SourceTopics, TopicAtSource
from horolog.client import Address
from horolog.errors import ErrorCode, Misconfigured, RequestRefused
from horolog.metadata import FollowedRow, SourceRow, state
from horolog.wire import FOLLOWING, HEALTH, ApiKey

SOURCE = SourceRow("source-id", "kafka:9092", "t.*", "")

broker = a_broker("t", "led", partitions=2)


def follow(broker: RunningBroker, **settings: str) -> None:
    """Start again as a broker that follows `t`."""
    broker.stop()
    with opened_store(broker.log_dir) as store:
        store.put_source(SOURCE)
        for row in store.load().topics:
            if row.name == "t":
                followed = FollowedRow("t", row.topic_id, False, -1, "{}")
                store.put_topic(row._replace(followed=True), None, followed)
    broker.restart(**settings)


def see(broker: RunningBroker, *brokers: tuple[int, str, int]) -> None:
    """Let the source have partitions that are led by these brokers, in epoch 7."""
    partitions = tuple(SourcePartition(n, node, 7) for n, (node, _, _) in enumerate(brokers))
    topics = {"t": TopicAtSource("t", None, partitions, {})}
    seen = SourceTopics(
        SOURCE.cluster_id, {node: Address(host, port) for node, host, port in brokers}, topics
    )
    broker.broker.follow_state.seen = seen


def test_records_of_a_followed_topic_are_refused_and_others_are_taken(
    broker: RunningBroker,
) -> None:
    assert broker.append("t", batch(NOW_MS)) == 0
    follow(broker)
    for version in (3, 9):
        answer = broker.produce("t", batch(NOW_MS), version=version)
        assert answer.error_code == ErrorCode.not_leader_or_follower
    assert "horolog promote t" in answer.error_message
    assert broker.append("led", batch(NOW_MS)) == 0
    assert broker.count("t") == 1, "readers are served"


def test_producers_are_sent_to_the_leader_where_their_version_has_room_for_it(
    broker: RunningBroker,
) -> None:
    follow(broker)
    see(broker, (5, "five.example", 9095), (1, "one.example", 9091))
    records = dict.fromkeys((0, 1), batch(NOW_MS))
    body = broker.ask(ApiKey.PRODUCE, 10, **produce_fields("t", records))
    (topic,) = body.responses
    first, second = (partition.current_leader for partition in topic.partition_responses)
    assert (first.leader_id, first.leader_epoch, second.leader_epoch) == (5, 7, 7)
    assert second.leader_id != 1, "a client has one connection for each id, and 1 is this broker"
    nodes = {node.node_id: (node.host, node.port) for node in body.node_endpoints}
    assert nodes == {5: ("five.example", 9095), second.leader_id: ("one.example", 9091)}


def test_the_shortcut_of_one_partition_names_the_leader_too(broker: RunningBroker) -> None:
    follow(broker)
    see(broker, (5, "five.example", 9095), (5, "five.example", 9095))
    body = broker.ask(ApiKey.PRODUCE, 12, **produce_fields("t", {0: batch(NOW_MS)}))
    assert [(node.node_id, node.host) for node in body.node_endpoints] == [(5, "five.example")]
    body = broker.ask(ApiKey.PRODUCE, 12, **produce_fields("led", {0: batch(NOW_MS)}))
    assert not body.node_endpoints


@pytest.mark.parametrize(
    "change",
    [
        lambda client: client.create_topics({"t2": 1}),
        lambda client: client.delete_topics(["t"]),
        lambda client: client.create_partitions({"t": 5}),
        lambda client: client.topics.reset_append_times("t"),
    ],
)
def test_what_is_the_sources_is_changed_there(
    broker: RunningBroker, change: Callable[[Any], object]
) -> None:
    follow(broker)
    with pytest.raises(RequestRefused) as refused:
        change(broker.client)
    assert refused.value.code == ErrorCode.policy_violation


def test_records_of_a_followed_topic_are_not_deleted(broker: RunningBroker) -> None:
    follow(broker)
    asked = {"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}
    answer = broker.ask(ApiKey.DELETE_RECORDS, 2, topics=[asked], timeout_ms=1000)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.policy_violation


def test_a_topic_that_the_source_may_have_is_not_created_on_first_use(
    broker: RunningBroker,
) -> None:
    follow(broker)
    broker.client.metadata(["t-new", "other"], auto_create=True)
    assert "t-new" not in broker.broker.topics
    assert "other" in broker.broker.topics


def test_settings_of_a_followed_topic_are_altered_here(broker: RunningBroker) -> None:
    follow(broker)
    assert broker.alter("t", retention_ms="12345").error_code == 0
    broker.restart()
    topic = broker.broker.topics.named("t")
    assert (topic.overrides, topic.followed) == ({"retention.ms": "12345"}, True)


def test_a_broker_that_is_started_without_its_source_still_follows(broker: RunningBroker) -> None:
    follow(broker)
    broker.restart(crash=True)
    assert broker.broker.follow_state.source == SOURCE
    assert broker.produce("t", batch(NOW_MS)).error_code == ErrorCode.not_leader_or_follower


def test_new_addresses_of_the_source_are_kept_and_its_cluster_id_is(broker: RunningBroker) -> None:
    follow(broker, horolog_follow="other:9092", horolog_follow_topics="t|u")
    moved = SOURCE._replace(servers="other:9092", topics="t|u")
    assert broker.broker.follow_state.source == moved
    broker.stop()
    with opened_store(broker.log_dir) as store:
        assert store.load().source == moved


def test_a_followed_topic_whose_row_is_lost_is_not_led(broker: RunningBroker) -> None:
    broker.append("t", batch(NOW_MS))
    follow(broker)
    broker.stop()
    spoil_state(broker.log_dir, state.followed_name("t"))
    broker.restart()
    assert broker.produce("t", batch(NOW_MS)).error_code == ErrorCode.not_leader_or_follower
    assert broker.count("t") == 1


def test_a_followed_topic_whose_source_is_lost_is_wrong_until_it_is_promoted(
    broker: RunningBroker,
) -> None:
    follow(broker)
    broker.stop()
    spoil_state(broker.log_dir, state.SOURCE)
    broker.restart()
    (health,) = broker.client.ask.each_broker(HEALTH).values()
    assert {(each.kind, each.subject) for each in health.wrong} == {
        ("not-followed", "t-0"),
        ("not-followed", "t-1"),
    }
    broker.client.promote(["t"])
    assert broker.append("t", batch(NOW_MS)) == 0
    (health,) = broker.client.ask.each_broker(HEALTH).values()
    assert not health.wrong


def test_a_stored_pattern_that_is_none_stops_no_start_and_follows_no_topic(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.append("t", batch(NOW_MS))
    follow(broker)
    broker.stop()
    with opened_store(broker.log_dir) as store:
        store.put_source(SOURCE._replace(topics="(?!_).*"))
    caplog.clear()
    broker.restart()
    (line,) = [each for each in caplog.messages if "is dropped" in each]
    assert "(?!_).*" in line
    assert "look-around" in line
    assert broker.broker.follow_state.source == SOURCE._replace(topics="")
    assert broker.produce("t", batch(NOW_MS)).error_code == ErrorCode.not_leader_or_follower
    assert "no topics" in run_command("follow", "status", "-b", broker.address).out
    entries = broker.client.ask(FOLLOWING).entries
    assert all("pattern of topics was dropped" in each.text for each in entries)
    assert [each.topic for each in entries] == ["t", "t"]
    (health,) = broker.client.ask.each_broker(HEALTH).values()
    assert {each.kind for each in health.wrong} == {"not-followed"}
    broker.client.create_topics({"new": 1})
    broker.restart(horolog_follow=SOURCE.servers, horolog_follow_topics="t")
    assert broker.broker.follow_state.source == SOURCE._replace(topics="t")


def test_a_pattern_that_is_made_to_be_slow_leaves_names_to_be_matched(
    broker: RunningBroker,
) -> None:
    follow(broker, horolog_follow=SOURCE.servers, horolog_follow_topics="(a+)+b")
    assert not broker.broker.follow_state.wants("a" * 249)
    assert not broker.broker.follow_state.wants("a" * 30_000 + "b"), "no topic has such a name"


def test_what_a_broker_that_follows_finds_on_disk_is_not_led_before_the_source_was_asked(
    broker: RunningBroker,
) -> None:
    broker.append("t", batch(NOW_MS))
    broker.append("led", batch(NOW_MS))
    broker.stop()
    lose_metadata(broker.log_dir)
    broker.restart(horolog_follow="127.0.0.1:1", horolog_follow_topics="t.*")
    assert broker.produce("t", batch(NOW_MS)).error_code == ErrorCode.not_leader_or_follower
    assert broker.append("led", batch(NOW_MS)) == 1, "its name does not match"
    assert broker.broker.topics.named("t").adopted, "nothing of it expires"


def test_a_source_that_was_never_reached_is_not_followed_once_everything_is_promoted(
    broker: RunningBroker,
) -> None:
    broker.restart(horolog_follow="127.0.0.1:1")
    with pytest.raises(RequestRefused, match="Create it there"):
        broker.client.create_topics({"new": 1})
    broker.client.promote(None)
    broker.client.create_topics({"new": 1})
    broker.restart()
    broker.client.create_topics({"newer": 1})
    assert broker.client.ask(FOLLOWING).is_ended


@pytest.mark.parametrize(
    "settings",
    [
        {"horolog_follow": "kafka:9092", "horolog_follow_topics": "("},
        {"horolog_follow": "kafka:9092", "horolog_follow_topics": "x" * 2000},
        {"horolog_follow": "kafka:9092", "horolog_follow_topics": "(?!_).*"},
        {"horolog_follow": "kafka:9092", "horolog_follow_topics": ""},
        {"horolog_follow_topics": "t"},
    ],
)
def test_a_source_that_cannot_be_is_refused_at_the_start(
    tmp_path: Path, make_broker: Any, settings: dict[str, str]
) -> None:
    with pytest.raises(Misconfigured, match=r"horolog\.follow"):
        make_broker(log_dir=tmp_path / "d", **settings)
