"""Groups with living members of both protocols, in a directory that goes from broker to broker."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bench.sides import horolog
from heartbeat_twins import Twin
from migration_twins import SETTINGS, MigrationTwins
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection
from tools.peers.kafka import Kafka

from horolog.wire import ApiKey

GROUPS, STEPS = 8, 40


class Alone(MigrationTwins):
    """The same members with one broker."""

    def __init__(self, address: str, prefix: str, chance: Random) -> None:
        super().__init__(address, address, prefix, chance)
        self.both.pop().connection.socket.close()

    def alike(self, what: str, ask: Callable[[Twin], Any]) -> Any:
        answer = ask(self.both[0])
        self.log.append(f"{what} -> {answer}")
        return answer

    def written(self, until: str = "", *, only_last: bool = False) -> Any:
        return []

    def skip(self) -> None:
        pass

    def at(self, address: str) -> None:
        """Go on at another broker."""
        self.both[0].connection.socket.close()
        self.both[0].connection = RawConnection(address, timeout_s=PATIENCE_S)

    def seen(self) -> Any:
        """What the broker says of the group; of a classic one with members that it has some."""
        connection = self.both[0].connection
        listed = connection.ask(ApiKey.LIST_GROUPS, 5).groups
        kinds = [(it.group_type, it.group_state) for it in listed if it.group_id == self.prefix]
        if not kinds or kinds[0][0] == "classic":
            return [(kind, state == "Empty") for kind, state in kinds]
        asked = {"group_ids": [self.prefix], "include_authorized_operations": False}
        (group,) = connection.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **asked).groups
        members = [
            (
                *(it.member_id, it.instance_id, it.member_epoch, it.member_type),
                *(it.client_id, it.client_host, sorted(it.subscribed_topic_names)),
                self.both[0].named(it.assignment.topic_partitions),
                self.both[0].named(it.target_assignment.topic_partitions),
            )
            for it in group.members
        ]
        state = group.group_state, group.group_epoch, group.assignment_epoch
        return kinds, (group.error_code, *state, sorted(members, key=repr))


@contextmanager
def theirs(kafka: Kafka, *, killed: bool) -> Iterator[str]:
    with kafka:
        yield kafka.bootstrap
        if killed:
            kafka.kill()


@contextmanager
def ours(directory: Path, *, killed: bool) -> Iterator[str]:
    with horolog(SETTINGS, directory) as side:
        yield side.bootstrap
        if killed:
            side.kill()


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_members_go_on_at_the_next_broker_where_they_were(killed: bool, tmp_path: Path) -> None:
    with ExitStack() as stack:
        _move(tmp_path, stack, killed=killed)


def _move(directory: Path, stack: ExitStack, *, killed: bool) -> None:
    kafka = Kafka(directory, settings=SETTINGS)
    with ours(directory, killed=killed) as address:
        groups = [Alone(address, f"moved-{seed}-", Random(seed)) for seed in range(GROUPS)]
        for group in groups:
            stack.callback(group.close)
            group.run(STEPS)
        before = [group.seen() for group in groups]
    for of_kafka in (True, False, True):
        broker = theirs(kafka, killed=killed) if of_kafka else ours(directory, killed=killed)
        with broker as address:
            for group, was in zip(groups, before, strict=True):
                group.at(address)
                eventually(lambda group=group, was=was: group.seen() == was)
            for group in groups:
                for _ in range(STEPS // 2):
                    group.step_of_either()
            before = [group.seen() for group in groups]
    said = kafka.output.read_text(errors="replace")
    assert "Failed to load" not in said
    assert len({str(it) for it in before}) > 1
