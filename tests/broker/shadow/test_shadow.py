"""A broker that follows another, from attaching it to leading in its place, and back."""

import json
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from batches import batch
from command_runner import run_command
from confluent_kafka import Producer
from faulty_calls import noted_calls
from overrides import override
from patience import PATIENCE_S, eventually
from running_broker import NOW_MS, BrokerProcess, RunningBroker, a_broker

from horolog.client import LATEST, CommittedOffset
from horolog.errors import ErrorCode, Misconfigured, RequestRefused, StorageFailed
from horolog.groups import CommittedOffsets
from horolog.storage import Log
from horolog.wire import FOLLOWING, HEALTH, ApiKey, FollowedEntry, FollowedState

Attach = Callable[..., RunningBroker]

source = a_broker("t", partitions=2)


@pytest.fixture
def attach(make_broker: Any, tmp_path: Path) -> Attach:
    """Start a broker that follows another."""

    def attach(source: RunningBroker, name: str = "shadow", **settings: str) -> RunningBroker:
        given = {"horolog_follow": source.address, "node_id": "2", **settings}
        started: RunningBroker = make_broker(log_dir=tmp_path / name, clock=source.clock, **given)
        return started

    return attach


@pytest.fixture
def shadow(source: RunningBroker, attach: Attach) -> RunningBroker:
    """A shadow of `source` that has followed its one record."""
    source.append("t", batch(NOW_MS))
    shadow = attach(source)
    assert caught_up(shadow, "t")
    return shadow


@pytest.fixture
def empty_shadow(source: RunningBroker, attach: Attach) -> RunningBroker:
    """A shadow of `source` that has its topic, without records."""
    shadow = attach(source)
    assert caught_up(shadow, "t")
    return shadow


def entries(broker: RunningBroker) -> dict[tuple[str, int | None], FollowedEntry]:
    found = broker.client.ask(FOLLOWING)
    assert found is not None
    return {(each.topic, each.partition): each for each in found.entries}


def caught_up(broker: RunningBroker, *topics: str, partitions: int = 2) -> bool:
    """Whether these topics are all here, soon."""

    def are_here() -> bool:
        found = entries(broker)
        its = [found.get((topic, n)) for topic in topics for n in range(partitions)]
        return all(each is not None and each.offsets_behind == 0 for each in its)

    return eventually(are_here)


def same(one: RunningBroker, other: RunningBroker, topic: str, partition: int = 0) -> bool:
    its = [b"".join(_bytes(each, topic, partition)) for each in (one, other)]
    return its[0] == its[1] != b""


def _bytes(broker: RunningBroker, topic: str, partition: int) -> list[bytes]:
    files = sorted(Path(broker.log(topic, partition).directory).glob("*.log"))
    return [file.read_bytes() for file in files]


def test_a_shadow_has_the_same_bytes_and_says_how_far_it_is(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    source.append("t", batch(NOW_MS + 1, NOW_MS + 2))
    assert eventually(lambda: shadow.log("t").log_end_offset == 3)
    assert caught_up(shadow, "t")
    assert same(source, shadow, "t")
    assert eventually(lambda: shadow.count("t") == 3)
    entry = entries(shadow)["t", 0]
    assert (entry.state, entry.end_offset, entry.lag_ms) == (FollowedState.FOLLOWING, 3, 0)
    following = shadow.client.ask(FOLLOWING)
    assert following is not None
    assert (following.cluster_id, following.error) == (source.broker.cluster_id, None)
    assert following.upstream == (source.broker.cluster_id,)
    assert source.client.ask(FOLLOWING).cluster_id is None


def test_groups_are_where_they_are_at_the_source(source: RunningBroker, attach: Attach) -> None:
    source.client.offset_commit("g", {("t", 1): CommittedOffset(7, "m", 0)})
    shadow = attach(source)
    assert eventually(
        lambda: shadow.client.offset_fetch("g") == {("t", 1): CommittedOffset(7, "m", 0)}
    )


def promote(broker: RunningBroker, *topics: str) -> list[Any]:
    broker.client.promote(topics or None)
    return broker.client.promoted(topics) or []


def test_a_promoted_topic_takes_records_at_once_in_a_later_epoch(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    assert shadow.produce("t", batch(NOW_MS)).error_code == ErrorCode.not_leader_or_follower
    (said,) = promote(shadow, "t")
    assert (said.topic, said.text) == ("t", "")
    assert said.epoch > 0
    assert shadow.append("t", batch(NOW_MS)) == 1
    assert [header.leader_epoch for header in shadow.headers("t")] == [0, said.epoch]
    assert entries(shadow)["t", None].state is FollowedState.PROMOTED
    source.append("t", batch(NOW_MS, NOW_MS))
    source.create_topic("later")
    assert caught_up(shadow, "later", partitions=1), "other topics are followed still"
    shadow.restart(crash=True)
    assert shadow.append("t", batch(NOW_MS)) == 2
    assert shadow.count("t") == 3


def test_producers_that_retry_are_accepted_once_the_topic_is_promoted_and_nothing_comes_between(
    source: RunningBroker, empty_shadow: RunningBroker
) -> None:
    """Under load on both sides: what is here is a first part of the source's, and then ours."""
    ended = threading.Event()
    accepted: list[int] = []

    def write_to_source() -> None:
        while not ended.is_set():
            source.append("t", batch(NOW_MS))

    def write_here() -> None:
        while not ended.is_set():
            answer = empty_shadow.produce("t", batch(NOW_MS))
            if answer.error_code == 0:
                accepted.append(answer.base_offset)
            else:
                assert answer.error_code == ErrorCode.not_leader_or_follower

    writers = [
        threading.Thread(target=write) for write in (write_to_source, write_here, write_here)
    ]
    for writer in writers:
        writer.start()
    try:
        assert eventually(lambda: empty_shadow.log("t").log_end_offset > 20)
        (said,) = promote(empty_shadow, "t")
        at_once = empty_shadow.append("t", batch(NOW_MS))
        assert eventually(lambda: len(accepted) > 20)
    finally:
        ended.set()
        for writer in writers:
            writer.join()
    ours = sorted([*accepted, at_once])
    assert ours == list(range(ours[0], empty_shadow.log("t").log_end_offset))
    epochs = [header.leader_epoch for header in empty_shadow.headers("t")]
    assert epochs == [0] * ours[0] + [said.epoch] * len(ours)
    theirs, here = (b"".join(_bytes(each, "t", 0)) for each in (source, empty_shadow))
    size = sum(header.size for header in empty_shadow.headers("t")[: ours[0]])
    assert here[:size] == theirs[:size]


@pytest.mark.parametrize(
    ("step", "is_led"),
    [
        ("horolog.broker.coordinators.group_coordinator.GroupCoordinator.replace_offset", False),
        ("horolog.broker.producers.ProducerIds.skip_to", False),
        ("horolog.metadata.store.MetadataStore.put_topic", False),
        ("horolog.broker.partitions.Partitions.lead", True),
        ("horolog.metadata.topics.TopicRegistry.put", True),
    ],
)
def test_a_kill_during_a_promotion_leaves_the_topic_followed_or_led(
    source: RunningBroker, attach: Attach, step: str, is_led: bool
) -> None:
    own = source.run(source.broker.producer_ids.next())
    source.append("t", batch(NOW_MS, producer_id=own, producer_epoch=0, base_sequence=0))
    source.client.offset_commit("g", {("t", 1): CommittedOffset(9)})
    shadow = attach(source)
    assert caught_up(shadow, "t")
    assert eventually(lambda: shadow.client.groups.names() == ["g"])
    with patch(step, side_effect=KeyError("killed")), pytest.raises(KeyError):
        shadow.run(shadow.broker.shadow.promote(["t"]))
    shadow.restart(crash=True)
    source.append("t", batch(NOW_MS))
    if not is_led:
        assert caught_up(shadow, "t")
        assert same(source, shadow, "t")
        promote(shadow, "t")
    assert shadow.append("t", batch(NOW_MS)) == (1 if is_led else 2)
    assert shadow.headers("t")[-1].leader_epoch >= 1
    assert shadow.client.offset_fetch("g")["t", 1].offset == 0
    assert shadow.run(shadow.broker.producer_ids.next()) > own


def test_a_promotion_that_fails_is_repeated(empty_shadow: RunningBroker) -> None:
    failure = StorageFailed("no space left")
    for step in ("metadata.store.MetadataStore.put_topic", "broker.partitions.Partitions.lead"):
        with patch(f"horolog.{step}", side_effect=failure), pytest.raises(RequestRefused):
            empty_shadow.run(empty_shadow.broker.shadow.promote(["t"]))
        refused = empty_shadow.produce("t", batch(NOW_MS))
        assert refused.error_code == ErrorCode.not_leader_or_follower
    promote(empty_shadow, "t")
    assert empty_shadow.append("t", batch(NOW_MS)) == 0


def test_a_topic_is_promoted_while_its_source_is_down(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    source.kill()
    assert promote(shadow, "t")
    assert shadow.append("t", batch(NOW_MS)) == 1
    promote(shadow, "t")
    assert shadow.append("t", batch(NOW_MS)) == 2, "twice is once"


def test_a_shadow_that_starts_while_its_source_is_down_is_promoted(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    source.kill()
    shadow.restart()
    assert entries(shadow)["t", 0].state is FollowedState.WAITING
    promote(shadow, "t")
    assert shadow.append("t", batch(NOW_MS)) == 1


def test_everything_is_promoted_and_nothing_followed_any_more(
    source: RunningBroker, attach: Attach
) -> None:
    source.create_topic("u", 2)
    shadow = attach(source)
    assert caught_up(shadow, "t", "u")
    promote(shadow)
    assert shadow.append("u", batch(NOW_MS)) == 0
    source.create_topic("later")
    shadow.restart()
    assert shadow.client.ask(FOLLOWING).is_ended
    shadow.client.create_topics({"later": 1, "other": 1})
    assert shadow.append("t", batch(NOW_MS)) == 0
    assert shadow.append("later", batch(NOW_MS)) == 0


def test_group_offsets_are_clamped_to_what_is_here_and_that_is_said(
    source: RunningBroker, attach: Attach
) -> None:
    for _ in range(3):
        source.append("t", batch(NOW_MS))
    source.client.offset_commit("g", {("t", 0): CommittedOffset(3), ("t", 1): CommittedOffset(9)})
    source.client.offset_commit("h", {("t", 0): CommittedOffset(2)})
    shadow = attach(source)
    assert caught_up(shadow, "t")
    assert eventually(lambda: len(shadow.client.groups.names()) == 2)
    (said,) = promote(shadow, "t")
    assert (said.group, said.partition, said.committed, said.clamped) == ("g", 1, 9, 0)
    expected = {("t", 0): 3, ("t", 1): 0}
    found = shadow.client.offset_fetch("g")
    assert {key: its.offset for key, its in found.items()} == expected
    assert shadow.client.offset_fetch("h")["t", 0].offset == 2


def test_what_sinks_keep_as_offsets_is_not_clamped(source: RunningBroker, attach: Attach) -> None:
    source.client.offset_commit("horolog/batch/q", {("t", 0): CommittedOffset(9, "{}")})
    shadow = attach(source)
    assert caught_up(shadow, "t")
    assert eventually(lambda: shadow.client.groups.names() == ["horolog/batch/q"])
    assert all(entry.group is None for entry in promote(shadow, "t"))
    found = shadow.client.offset_fetch("horolog/batch/q")
    assert found == {("t", 0): CommittedOffset(9, "{}")}


def test_producer_ids_given_out_here_are_above_all_that_were_copied(
    source: RunningBroker, attach: Attach
) -> None:
    own = source.run(source.broker.producer_ids.next()) + 5000
    source.append("t", batch(NOW_MS, producer_id=own, producer_epoch=0, base_sequence=0))
    shadow = attach(source)
    assert caught_up(shadow, "t")
    assert shadow.run(shadow.broker.producer_ids.next()) < own
    promote(shadow, "t")
    assert shadow.run(shadow.broker.producer_ids.next()) > own
    shadow.restart(crash=True)
    assert shadow.run(shadow.broker.producer_ids.next()) > own


def test_a_topic_that_does_not_exist_is_not_promoted_and_others_are(
    empty_shadow: RunningBroker,
) -> None:
    with pytest.raises(RequestRefused, match="1 of 2 topics are not promoted, as none"):
        empty_shadow.client.promote(["none", "t"])
    assert empty_shadow.append("t", batch(NOW_MS)) == 0


def test_the_former_leader_follows_and_sets_aside_what_was_never_followed(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    promote(shadow)
    source.append("t", batch(NOW_MS, NOW_MS))
    shadow.append("t", batch(NOW_MS + 7))
    source.demote(shadow, "t")
    assert caught_up(source, "t")
    assert eventually(lambda: same(shadow, source, "t"))
    assert source.produce("t", batch(NOW_MS)).error_code == ErrorCode.not_leader_or_follower
    assert list(Path(source.log("t").directory).glob("*.cut"))
    source.restart()
    shadow.append("t", batch(NOW_MS + 8))
    assert eventually(lambda: same(shadow, source, "t"))
    promote(source, "t")
    assert source.append("t", batch(NOW_MS)) == 3
    assert source.headers("t")[-1].leader_epoch > shadow.headers("t")[-1].leader_epoch


def test_what_a_killed_leader_took_after_its_restart_is_cut_off_when_it_follows(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    """A start after a kill leads in a new epoch: it must not be that of the promotion."""
    promote(shadow, "t")
    assert shadow.append("t", batch(NOW_MS + 7)) == 1
    source.restart(crash=True)
    assert source.append("t", batch(NOW_MS + 8)) == 1
    promote(shadow)
    source.demote(shadow, "t")
    assert caught_up(source, "t")
    assert eventually(lambda: same(shadow, source, "t"))


def test_a_topic_that_was_promoted_and_deleted_is_followed_after_a_demotion(
    source: RunningBroker, attach: Attach
) -> None:
    source.create_topic("u", 2)
    shadow = attach(source)
    assert caught_up(shadow, "t", "u")
    promote(shadow)
    shadow.client.delete_topics(["t", "u"])
    shadow.demote(source, "t")
    assert caught_up(shadow, "t")
    shadow.restart()
    assert caught_up(shadow, "t")
    assert "u" not in shadow.broker.topics, "it was not asked for"


def test_a_topic_is_not_demoted_to_a_leader_of_an_earlier_epoch_than_its_records(
    source: RunningBroker, empty_shadow: RunningBroker
) -> None:
    """Nobody would lead it, and it could not be followed."""
    promote(empty_shadow, "t")
    empty_shadow.append("t", batch(NOW_MS))
    with pytest.raises(RequestRefused, match="Delete it here, and it is followed anew"):
        empty_shadow.demote(source, "t")
    empty_shadow.append("t", batch(NOW_MS))
    empty_shadow.client.delete_topics(["t"])
    empty_shadow.demote(source, "t")
    assert caught_up(empty_shadow, "t")


def test_a_partition_is_left_alone_that_is_released_while_another_is_waited_for(
    source: RunningBroker, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a promotion does: its log may be led by then."""
    source.create_topic("u", 1)
    for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
        source.append(topic, batch(NOW_MS), partition)
    shadow = attach(source)
    assert caught_up(shadow, "t")
    assert caught_up(shadow, "u", partitions=1)
    told: list[int] = []
    promoting = shadow.broker.follow_state.promoting("t")  # it would end if nothing referred to it
    real = Log.led_in

    def led_in(log: Log, epoch: int) -> None:
        real(log, epoch)
        if log.topic == "t":
            told.append(log.partition)
            shadow.call(promoting.__enter__)
            shadow.call(lambda: shadow.broker.shadow.follower.release("t"))

    monkeypatch.setattr(Log, "led_in", led_in)
    source.restart(crash=True)
    assert eventually(lambda: told)
    for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
        source.append(topic, batch(NOW_MS), partition)
    assert eventually(lambda: shadow.log("u").log_end_offset == 2)
    assert [shadow.log("t", index).log_end_offset for index in (0, 1)] == [1, 1]


def test_two_brokers_that_are_promoted_apart_do_not_lead_in_one_epoch(
    source: RunningBroker, attach: Attach
) -> None:
    shadows = [attach(source, name, node_id=name) for name in ("2", "3")]
    assert all(caught_up(shadow, "t") for shadow in shadows)
    epochs = [said.epoch for shadow in shadows for said in promote(shadow, "t")]
    assert len(set(epochs)) == 2


def test_two_brokers_do_not_follow_a_topic_from_each_other(
    source: RunningBroker, empty_shadow: RunningBroker
) -> None:
    with pytest.raises(RequestRefused, match="from here: promote it there first"):
        source.demote(empty_shadow)
    with pytest.raises(RequestRefused, match="is this broker"):
        source.demote(source)
    assert source.append("t", batch(NOW_MS)) == 0


def test_a_shadow_of_one_cluster_does_not_follow_another_too(
    source: RunningBroker, attach: Attach, make_broker: Any, tmp_path: Path
) -> None:
    shadow = attach(source)
    assert caught_up(shadow, "t")
    other = make_broker(log_dir=tmp_path / "other", clock=source.clock)
    with pytest.raises(RequestRefused, match="promote those first"):
        shadow.demote(other)


@pytest.mark.parametrize("value", ["", "{}", "t", '["t", 1]', "[["])
def test_a_promotion_of_another_form_is_refused(source: RunningBroker, value: str) -> None:
    answer = source.alter("1", ("horolog.promote", 0, value), kind=4)
    assert answer.error_code == ErrorCode.invalid_config


@pytest.mark.parametrize(
    "value",
    [
        *("", "[]", '{"servers":1}', '{"servers":"x"}', '{"servers":""}'),
        *('{"servers":"h:1","topics":"("}', '{"servers":"h:1","topics":"(?=a)"}'),
        *('{"servers":"h:1","topics":"\\ud800"}', '{"servers":"h:1","topics":""}'),
    ],
)
def test_a_demotion_of_another_form_is_refused(source: RunningBroker, value: str) -> None:
    answer = source.alter("1", ("horolog.demote", 0, value), kind=4)
    assert answer.error_code == ErrorCode.invalid_config


@pytest.mark.parametrize("allowed", ["", "other:9092", "127.0.0.1:1"])
def test_an_address_that_the_settings_do_not_name_is_not_connected_to(
    make_broker: Any, tmp_path: Path, allowed: str
) -> None:
    """Else it would be given the credentials of `horolog.follow.config`."""
    secrets = tmp_path / "client.properties"
    secrets.write_text("client.id=x\n")
    asked: Any = make_broker(
        log_dir=tmp_path / "asked",
        horolog_demote_servers=allowed,
        horolog_follow_config=str(secrets),
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        for servers in (address, f"127.0.0.1:1,{address}", f"PLAINTEXT://{address}"):
            value = json.dumps({"servers": servers})
            answer = asked.alter("1", ("horolog.demote", 0, value), kind=4)
            assert answer.error_code == ErrorCode.policy_violation
            assert "horolog.demote.servers" in answer.error_message
        with pytest.raises(TimeoutError):
            listening.accept()


def test_servers_that_may_lead_are_addresses(make_broker: Any, tmp_path: Path) -> None:
    for wrong in ("x", "h:0", "a:1,b", "h:99999"):
        with pytest.raises(Misconfigured, match=r"horolog\.demote\.servers"):
            make_broker(log_dir=tmp_path / "d", horolog_demote_servers=wrong)


def test_one_demotion_runs_at_a_time(make_broker: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        asked: Any = make_broker(log_dir=tmp_path / "asked", horolog_demote_servers=address.upper())
        configs = [
            {
                "name": "horolog.demote",
                "config_operation": 0,
                "value": json.dumps({"servers": address}),
            }
        ]
        resource = {"resource_type": 4, "resource_name": "1", "configs": configs}
        with ExitStack() as stack:
            first = stack.enter_context(asked.connect())
            first.send(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
            )
            connection, _ = silent.accept()
            stack.callback(connection.close)
            threads = threading.active_count()
            for _ in range(50):
                (answer,) = asked.ask(
                    ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
                ).responses
                assert answer.error_code == ErrorCode.policy_violation
                assert "another demotion" in answer.error_message
            # Pools of the broker may have started threads of their own meanwhile.
            assert threading.active_count() < threads + 25
            silent.settimeout(0.2)
            with pytest.raises(TimeoutError):
                silent.accept()
            silent.close()
            connection.close()
            (answer,) = first.receive()[1].responses
            assert "no broker answered" in answer.error_message
        (answer,) = asked.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        ).responses
        assert "no broker answered" in answer.error_message, "another may begin"


def test_what_stands_before_an_address_is_neither_kept_nor_shown(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    promote(shadow)
    source.restart(horolog_demote_servers=shadow.address)
    source.client.demote(f"\x1b[31mFAKE\n://{shadow.address} , ,SSL://{shadow.address}")
    assert source.broker.follow_state.source.servers == shadow.address


def test_a_pattern_that_takes_long_for_all_names_changes_nothing(
    source: RunningBroker, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or each start from then on would take long."""
    source.create_topic("a" * 249)
    shadow = attach(source)
    assert caught_up(shadow, "t")
    override(monkeypatch, "horolog.patterns", MOST_STEPS=100_000)
    promote(shadow)
    with pytest.raises(RequestRefused, match="takes too long to match"):
        source.demote(shadow, "(?:(?:a*){30}){30}|t")
    assert source.append("t", batch(NOW_MS)) == 0
    assert not source.broker.follow_state.is_following
    source.demote(shadow, "(a+)+b|t")
    assert caught_up(source, "t")


def test_a_killed_shadow_stays_one_without_being_told_and_its_directory_is_sound(
    source: RunningBroker, tmp_path: Path
) -> None:
    for number in range(20):
        source.append("t", batch(NOW_MS + number))
    given = {"horolog.follow": source.address, "node.id": "2"}
    with BrokerProcess(tmp_path / "shadow", given) as shadow:
        assert eventually(lambda: _end(shadow) == 20)
        shadow.kill()
        found = run_command("log", "verify", str(shadow.log_dir))
        assert found.code == 0, found.out
        source.append("t", batch(NOW_MS))
        shadow.start_again(without="horolog.follow")
        assert eventually(lambda: _end(shadow) == 21)
        refused = shadow.produce("t", batch(NOW_MS))
        assert refused.error_code == ErrorCode.not_leader_or_follower
        shadow.client.promote(["t"])
        shadow.kill()
        shadow.start_again()
        assert shadow.append("t", batch(NOW_MS)) == 21
        assert shadow.terminate() == 0
        found = run_command("log", "verify", str(shadow.log_dir))
        assert found.code == 0, found.out


def _end(broker: BrokerProcess) -> int | None:
    """The end of what can be read of the first partition; None while there is none."""
    if "t" not in broker.client.metadata().topics:
        return None
    found = broker.client.list_offsets({("t", 0): LATEST})["t", 0]
    return None if found is None else found.offset


def test_a_producer_is_sent_to_the_leader_waits_for_a_promotion_and_moves_on(
    source: RunningBroker, empty_shadow: RunningBroker
) -> None:
    """librdkafka finds the leader by the hint of a broker that follows it (KIP-951)."""
    delivered: list[tuple[object, int]] = []
    limits = {"message.timeout.ms": int(1000 * PATIENCE_S), "linger.ms": 0}

    def send(producer: Producer) -> None:
        producer.produce(
            "t",
            b"v",
            partition=0,
            timestamp=NOW_MS,
            on_delivery=lambda error, message: delivered.append((error, message.offset())),
        )

    with_source = Producer({"bootstrap.servers": source.address, **limits})
    with_shadow = Producer({"bootstrap.servers": empty_shadow.address, **limits})
    for producer in (with_source, with_shadow):
        send(producer)
        assert producer.flush(PATIENCE_S) == 0
    assert source.log("t").log_end_offset == 2, "both were sent to it"
    assert caught_up(empty_shadow, "t")
    source.stop()
    send(with_shadow)
    assert with_shadow.flush(0.5) == 1, "it retries"
    promote(empty_shadow)
    assert with_shadow.flush(PATIENCE_S) == 0
    source.restart()
    source.demote(empty_shadow)
    for producer in (with_source, with_shadow, with_source):
        send(producer)
        assert producer.flush(PATIENCE_S) == 0
    assert delivered == [(None, offset) for offset in range(6)]
    assert caught_up(source, "t")
    assert eventually(lambda: same(empty_shadow, source, "t"))


def test_a_promotion_says_what_is_missing(source: RunningBroker, attach: Attach) -> None:
    for _ in range(3):
        source.append("t", batch(NOW_MS))
    shadow = attach(source)
    assert caught_up(shadow, "t")
    shadow.stop()
    for _ in range(7):
        source.append("t", batch(NOW_MS))
    source.delete_records("t", 8)
    shadow.restart()
    assert caught_up(shadow, "t")
    assert eventually(lambda: shadow.log("t").log_end_offset == 10)
    assert entries(shadow)["t", 0].gaps == 1
    (health,) = shadow.client.ask.each_broker(HEALTH).values()
    assert [(each.kind, each.subject, each.value) for each in health.wrong] == [("gap", "t-0", 1)]
    (said,) = promote(shadow, "t")
    assert said.text.startswith("partition 0: offsets 3 to 7 were deleted there")
    assert shadow.append("t", batch(NOW_MS)) == 10
    assert shadow.count("t") == 3 + 2 + 1


def test_a_partition_that_is_offline_is_led_once_it_is_back(
    source: RunningBroker, attach: Attach
) -> None:
    source.append("t", batch(NOW_MS), 1)
    shadow = attach(source)
    assert caught_up(shadow, "t")
    shadow.stop()
    directory, away = shadow.log_dir / "t-1", shadow.log_dir.parent / "away"
    directory.rename(away)
    directory.write_text("no directory")
    shadow.restart()
    assert caught_up(shadow, "t", partitions=1)
    said = promote(shadow, "t")
    assert any("partition 1 is offline" in each.text for each in said)
    shadow.stop()
    directory.unlink()
    away.rename(directory)
    shadow.restart()
    assert shadow.append("t", batch(NOW_MS), 1) == 1
    assert shadow.headers("t", 1)[-1].leader_epoch == said[0].epoch


def test_a_promotion_of_many_topics_looks_at_each_group_and_partition_for_its_own_topic(
    source: RunningBroker, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"many-{number}" for number in range(20)]
    for topic in topics:
        source.create_topic(topic)
    shadow = attach(source)
    assert caught_up(shadow, *topics, partitions=1)
    for topic in topics:
        shadow.client.offset_commit(f"of-{topic}", {(topic, 0): CommittedOffset(7)})
    asked = noted_calls(monkeypatch, CommittedOffsets, "get", lambda _, group, *__: group)
    lines = 0

    def traced(frame: object, event: str, arg: object) -> object:
        nonlocal lines
        lines += event == "line"
        return traced

    def release() -> None:
        before = sys.gettrace()
        sys.settrace(traced)
        try:
            shadow.broker.shadow.follower.release("none of them")
        finally:
            sys.settrace(before)

    shadow.call(release)
    assert lines < len(topics)
    shadow.client.promote(None)
    assert len(asked) < 4 * len(topics)
    assert all(not shadow.broker.topics.named(topic).followed for topic in topics)
    for topic in topics:
        clamped = shadow.client.offset_fetch(f"of-{topic}")[topic, 0]
        assert clamped is not None
        assert clamped.offset == 0
