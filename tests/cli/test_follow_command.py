"""`horolog follow` and `horolog promote`: what they print, and their exit codes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from batches import batch
from command_runner import run_command as run
from overrides import override
from patience import eventually
from running_broker import NOW_MS, RunningBroker, a_broker
from secrets_kept import password

from horolog.cli.serve import follow_settings
from horolog.client import Client, CommittedOffset, NoAnswer, Topics
from horolog.errors import Misconfigured
from horolog.security import ScramMechanism
from horolog.storage import FOLLOWED_OFFSETS

source = a_broker("t", "u", partitions=2)


@pytest.fixture
def broker(
    source: RunningBroker, make_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RunningBroker:
    """One that follows `source`, in topics of one letter."""
    override(monkeypatch, "horolog.broker", LOOK_S=0.1, GROUPS_S=0.05)
    source.append("t", batch(NOW_MS))
    source.alter("t", min_insync_replicas="2")
    source.client.offset_commit("g", {("t", 1): CommittedOffset(9)})
    started: RunningBroker = make_broker(
        log_dir=tmp_path / "shadow",
        clock=source.clock,
        node_id="2",
        horolog_follow=source.address,
        horolog_follow_topics=".",
    )

    def is_here() -> bool:
        found = status(started)
        its = [each for each in found["entries"] if each["partition"] is not None]
        its = [each for each in its if each["topic"] != FOLLOWED_OFFSETS]
        is_there = len(its) == 4 and all(each["offsets_behind"] == 0 for each in its)
        return is_there and "g" in started.client.groups.names()

    assert eventually(is_here)
    return started


def status(broker: RunningBroker) -> Any:
    ran = run("follow", "status", "-b", broker.address, "--json")
    assert ran.code == 0
    return json.loads(ran.out)


def test_status_names_the_source_and_how_far_each_partition_is(
    source: RunningBroker, broker: RunningBroker
) -> None:
    ran = run("follow", "status", "-b", broker.address)
    assert ran.code == 0
    assert f"following {source.address} (cluster {source.broker.cluster_id})" in ran.out
    assert "topics that match ." in ran.out
    assert broker.broker.topics.named("t").overrides == {"min.insync.replicas": "2"}
    found = status(broker)
    assert found["cluster_id"] == source.broker.cluster_id
    (first,) = [each for each in found["entries"] if (each["topic"], each["partition"]) == ("t", 0)]
    assert (first["state"], first["end_offset"], first["offsets_behind"]) == ("following", 1, 0)
    assert {"records_behind", "lag_ms"} <= first.keys()


def test_status_of_one_that_is_behind_its_source_gives_0_too(
    source: RunningBroker, broker: RunningBroker
) -> None:
    source.kill()

    def is_said() -> bool:
        return "It cannot be followed now" in run("follow", "status", "-b", broker.address).out

    assert eventually(is_said)
    assert status(broker)["error"]


def test_status_of_a_broker_that_follows_none_says_so(source: RunningBroker) -> None:
    ran = run("follow", "status", "-b", source.address)
    assert (ran.code, ran.out.strip()) == (0, "this broker follows no cluster")


def test_a_promotion_names_what_it_has_clamped_and_gives_0(broker: RunningBroker) -> None:
    ran = run("promote", "t", "-b", broker.address)
    assert ran.code == 0
    found = re.search(r"t is led here, from epoch (\d+) on", ran.out)
    assert found is not None
    assert [line.split()[:5] for line in ran.out.splitlines() if " g " in line] == [
        ["t", "g", "1", "9", "0"]
    ]
    assert broker.append("t", batch(NOW_MS)) == 1
    ran = run("promote", "t", "-b", broker.address, "--json")
    assert ran.code == 0
    assert [each["epoch"] for each in json.loads(ran.out)] == [int(found[1])]


def test_status_and_promotion_name_users_whose_passwords_are_not_here(
    source: RunningBroker, broker: RunningBroker
) -> None:
    source.client.users.put("alice", password("alice"), ScramMechanism.SHA_512)
    asked = ("follow", "status", "-b", broker.address)
    assert eventually(lambda: "`horolog users add`: alice\n" in run(*asked).out)
    assert status(broker)["notes"] == [
        "passwords of the source: no broker gives them. Set them here by `horolog users add`: alice"
    ]
    promoted = run("promote", "--all", "-b", broker.address, "--json")
    assert "Not copied: passwords of the source" in promoted.err
    assert not status(broker)["notes"], "nothing is followed any more"


def test_everything_is_promoted(broker: RunningBroker) -> None:
    ran = run("promote", "--all", "-b", broker.address)
    assert ran.code == 0
    assert "t is led here" in ran.out
    assert "u is led here" in ran.out
    assert "all topics were promoted" in run("follow", "status", "-b", broker.address).out
    ran = run("promote", "--all", "-b", broker.address)
    assert (ran.code, ran.out.strip()) == (0, "no topic was followed")


def test_what_cannot_be_promoted_gives_1_and_the_others_are_named(broker: RunningBroker) -> None:
    ran = run("promote", "none", "t", "-b", broker.address)
    assert ran.code == 1
    assert "1 of 2 topics are not promoted, as none" in ran.err
    assert "t is led here" in ran.out


def test_the_former_leader_is_demoted(source: RunningBroker, broker: RunningBroker) -> None:
    assert run("promote", "--all", "-b", broker.address).code == 0
    arguments = ("--source", broker.address, "--topics-pattern", "t", "-b", source.address)
    ran = run("follow", "--demote", *arguments)
    assert ran.code == 1
    assert "horolog.demote.servers of this broker does not have it" in ran.err
    source.restart(horolog_demote_servers=f"{source.address}, {broker.address}")
    ran = run("follow", "--demote", *arguments)
    assert ran.code == 0, ran.err
    assert f"following {broker.address}" in ran.out
    assert source.broker.topics.named("t").followed
    assert not source.broker.topics.named("u").followed
    ran = run("follow", "--demote", "--source", source.address, "-b", source.address)
    assert ran.code == 1
    assert "is this broker" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("promote",),
        ("promote", "t", "--all"),
        ("follow", "--demote"),
        ("follow", "--source", "h:1"),
        ("follow", "--demote", "--source", "h:1", "status"),
        ("serve", "--topics-pattern", "t"),
        ("serve", "--follow", "h:1", "--topics", "t"),
        ("follow", "--demote", "--source", "h:1", "--topics", "t"),
    ],
)
def test_misuse_gives_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).code == 2


def test_options_of_serve_are_settings(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    assert follow_settings("h:1", "t.*", file) == {
        "horolog.follow": "h:1",
        "horolog.follow.topics": "t.*",
        "horolog.follow.config": str(file),
    }
    assert follow_settings(None, None, None) == {}
    with pytest.raises(Misconfigured, match="--follow"):
        follow_settings(None, "t", None)


def test_promote_waits_for_as_long_as_topics_come_to_be_led(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, answers = Topics.promote, iter([True, False])

    def promote(client: Client, topics: list[str] | None) -> None:
        if next(answers):
            plain(client, topics)
        raise NoAnswer("no answer in time")

    monkeypatch.setattr(Topics, "promote", promote)
    ran = run("promote", "--all", "-b", broker.address)
    assert ran.code == 1
    assert "no answer in time" in ran.err
    assert "t is led here" in ran.out
    assert next(answers, None) is None, "asked once more while topics came to be led"
    monkeypatch.undo()
    assert run("promote", "--all", "-b", broker.address).code == 0
