"""Finding the active controller: whom to ask, whom to believe, and for how long."""

from types import SimpleNamespace
from typing import Any

import pytest

from horolog.broker.cluster.controllers import KnownController
from horolog.client.config import Address
from horolog.client.connection import NoAnswer

ONE, TWO, THREE = (Address("127.0.0.1", port) for port in (9001, 9002, 9003))
CLUSTER = "the-cluster"


def described(active: int, *, cluster_id: str = CLUSTER, error: int = 0) -> Any:
    """An answer to DescribeCluster of three controllers."""
    nodes = [
        SimpleNamespace(broker_id=node_id, host=address.host, port=address.port)
        for node_id, address in enumerate((ONE, TWO, THREE), 101)
    ]
    return SimpleNamespace(
        error_code=error, cluster_id=cluster_id, controller_id=active, brokers=nodes
    )


def active_port(known: KnownController) -> int | None:
    return None if known.active is None else known.active.address.port


@pytest.fixture
def known() -> KnownController:
    return KnownController([ONE], CLUSTER)


def test_a_controller_names_the_active_one_and_all_others(known: KnownController) -> None:
    known.described(ONE, described(102))
    assert active_port(known) == TWO.port
    assert known.controllers() == {101, 102, 103}


def test_all_controllers_are_asked_in_turn(known: KnownController) -> None:
    assert {known.next_server() for _ in range(3)} == {ONE}
    known.described(ONE, described(102))
    assert {known.next_server() for _ in range(3)} == {ONE, TWO, THREE}


def test_an_active_controller_that_did_not_answer_is_not_believed_at_once_again(
    known: KnownController,
) -> None:
    known.described(ONE, described(102))
    known.lost(TWO, "no answer")
    assert active_port(known) is None
    with pytest.raises(NoAnswer, match=r"names 127\.0\.0\.1:9002 as active, which does not answer"):
        known.described(ONE, described(102))
    known.described(ONE, described(103))
    assert active_port(known) == THREE.port


def test_a_controller_that_did_not_know_is_believed_once_it_leads(known: KnownController) -> None:
    known.described(ONE, described(102))
    known.lost(TWO, "no answer")
    known.not_found(f"{ONE} knows no active controller")
    known.described(ONE, described(101))
    assert active_port(known) == ONE.port


def test_a_late_failure_does_not_forget_the_one_found_since(known: KnownController) -> None:
    known.described(ONE, described(102))
    known.lost(TWO, "no answer")
    known.described(ONE, described(103))
    known.lost(TWO, "no answer, of another connection")
    assert active_port(known) == THREE.port


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (described(-1), "knows no active controller"),
        (described(7), "knows no active controller"),
        (described(102, cluster_id="other"), "is of cluster other, not of the-cluster"),
        (described(102, error=115), "with error 115"),
    ],
)
def test_an_answer_without_an_active_controller_is_refused(
    known: KnownController, answer: Any, why: str
) -> None:
    with pytest.raises(NoAnswer, match=why):
        known.described(ONE, answer)
    assert known.active is None


def test_a_leader_named_by_an_answer_is_asked_from_then_on(known: KnownController) -> None:
    """KAFKA-19354: an observer that has lost its leader is not left with the bootstrap servers."""
    known.described(ONE, described(102))
    known.redirect(103)
    assert active_port(known) == THREE.port
    known.redirect(105, Address("127.0.0.1", 9005))
    assert active_port(known) == 9005


@pytest.mark.parametrize("leader", [-1, 105])
def test_an_unknown_leader_is_looked_for(known: KnownController, leader: int) -> None:
    known.described(ONE, described(102))
    known.redirect(leader)
    assert active_port(known) is None


def test_the_reason_is_kept_until_one_answers(
    known: KnownController, caplog: pytest.LogCaptureFixture
) -> None:
    complaints = [known.complaint]
    for why in ("connection refused", "still refused"):
        known.lost(ONE, why)
        complaints.append(known.complaint)
    known.described(ONE, described(102))
    known.answered(TWO)
    complaints.append(known.complaint)
    assert complaints == [None, "connection refused", "still refused", None]
    assert [record.levelname for record in caplog.records if record.levelno >= 30] == ["WARNING"]
