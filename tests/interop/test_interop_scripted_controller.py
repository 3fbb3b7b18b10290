"""The lab's scripted controller answers as Apache Kafka's does."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from controller_asker import ControllerAsker
from controller_dialogues import DIALOGUES, state
from scripted_controller import ScriptedController
from tools.cluster import Cluster

SESSION_MS = "600000"


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: Any) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("controller")
    cluster = Cluster(
        directory,
        "",
        of_controllers={
            "broker.session.timeout.ms": SESSION_MS,
            "metadata.max.idle.interval.ms": "0",
        },
    )
    with closing(cluster):
        cluster.start()
        cluster.wait_for_controllers()
        yield cluster


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedController]:
    with ScriptedController(session_timeout_ms=int(SESSION_MS)) as quorum:
        yield quorum


@pytest.mark.parametrize("name", DIALOGUES)
def test_dialogue_is_the_same(name: str, kafkas: Cluster, scripted: ScriptedController) -> None:
    first_id, hold = DIALOGUES[name]
    said = []
    for address, cluster_id in (
        (kafkas.controller_bootstrap, kafkas.cluster_id),
        (scripted.bootstrap, scripted.cluster_id),
    ):
        with ControllerAsker(address, cluster_id) as asker:
            asker.first_id = first_id
            said.append(hold(asker))
    theirs, ours = said
    assert ours == theirs


def test_unclean_stops_end_eligibility(tmp_path: Path) -> None:
    """A session has to expire for it, so that these controllers have a short one."""

    def held(asker: ControllerAsker, wait: Callable[[float], None]) -> list[Any]:
        asker.join(1)
        asker.create("t", [[1]])
        said = []
        for previous in (asker.epochs[1], -1):
            said.append(asker.register(1, previous_broker_epoch=previous).error_code)
            wait(4)
            said.append(state(asker, "t"))
            said.append(asker.register(1, previous_broker_epoch=previous).error_code)
            said.append(state(asker, "t"))
            asker.heartbeat(1)
            said.append(state(asker, "t"))
        return said

    cluster = Cluster(tmp_path, "", of_controllers={"broker.session.timeout.ms": "3000"})
    with closing(cluster), ScriptedController(session_timeout_ms=3000) as quorum:
        cluster.start()
        cluster.wait_for_controllers()
        with ControllerAsker(cluster.controller_bootstrap, cluster.cluster_id) as asker:
            theirs = held(asker, time.sleep)
        with ControllerAsker(quorum.bootstrap, quorum.cluster_id) as asker:
            ours = held(asker, lambda seconds: quorum.advance(int(1000 * seconds)))
    assert ours == theirs
