"""Requests to the active controller over real sockets: lost leaders, lost answers, silence."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from patience import eventually
from scripted_broker import HangUp, Silence
from scripted_controller import ScriptedController

from horolog.broker.cluster.controllers import (
    ControllerLink,
    Controllers,
    ControllersUnavailable,
    KnownController,
)
from horolog.broker.cluster.own_rights import OwnRights
from horolog.client.config import parse_bootstrap_servers
from horolog.client.security import PLAINTEXT, Security
from horolog.errors import RequestRefused
from horolog.wire import ApiKey

DENIED = {"error_code": 31, "error_message": None, "topics": [], "nodes": []}
QUORUM: dict[str, Any] = {"topics": []}
Ask = Callable[[ScriptedController, int], Any]


@pytest.fixture
def quorum() -> Iterator[ScriptedController]:
    with ScriptedController(voters=[100, 101]) as controllers:
        yield controllers


def known_of(quorum: ScriptedController, cluster_id: str | None = None) -> KnownController:
    servers = parse_bootstrap_servers(quorum.bootstrap)
    return KnownController(servers, cluster_id or quorum.cluster_id)


def asked_in_a_thread(quorum: ScriptedController, timeout_ms: int) -> Any:
    link = ControllerLink(known_of(quorum), PLAINTEXT, client_id="broker-1-heartbeat")
    try:
        return link.ask(ApiKey.DESCRIBE_QUORUM, QUORUM, timeout_ms=timeout_ms)
    finally:
        link.close()


def asked_on_the_loop(quorum: ScriptedController, timeout_ms: int) -> Any:
    async def ask() -> Any:
        controllers = Controllers(known_of(quorum), PLAINTEXT, client_id="broker-1")
        try:
            return await controllers.ask(ApiKey.DESCRIBE_QUORUM, QUORUM, timeout_ms=timeout_ms)
        finally:
            await controllers.close()

    return asyncio.run(ask())


both = pytest.mark.parametrize("ask", [asked_in_a_thread, asked_on_the_loop])


@both
def test_the_active_controller_is_found_and_asked(quorum: ScriptedController, ask: Ask) -> None:
    quorum.lead(101)
    assert ask(quorum, 10_000).error_code == 0


@both
def test_a_request_is_sent_again_where_its_answer_was_lost(
    quorum: ScriptedController, ask: Ask
) -> None:
    answers = iter([True, True, False])
    quorum.answers[ApiKey.DESCRIBE_QUORUM] = lambda request, usual: (
        HangUp() if next(answers) else usual()
    )
    assert ask(quorum, 10_000).error_code == 0


@both
def test_a_controller_that_lost_the_lead_is_asked_no_more(
    quorum: ScriptedController, ask: Ask
) -> None:
    def lose_once(request: Any, usual: Callable[[], Any]) -> Any:
        del quorum.answers[ApiKey.DESCRIBE_QUORUM]
        quorum.lead(101)
        return {"error_code": 41, "error_message": None, "topics": [], "nodes": []}

    quorum.answers[ApiKey.DESCRIBE_QUORUM] = lose_once
    assert ask(quorum, 10_000).error_code == 0


def test_a_right_that_is_missing_is_named_once_with_who_lacks_it(
    quorum: ScriptedController, caplog: pytest.LogCaptureFixture
) -> None:
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="horolog-4";'
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": login}
    servers = parse_bootstrap_servers(quorum.bootstrap)
    known = KnownController(servers, quorum.cluster_id, OwnRights(Security.of(settings)))
    link = ControllerLink(known, PLAINTEXT, client_id="broker-4-heartbeat")
    quorum.answers[ApiKey.DESCRIBE_QUORUM] = lambda request, usual: DENIED
    for _ in range(2):
        assert link.ask(ApiKey.DESCRIBE_QUORUM, QUORUM, timeout_ms=10_000).error_code == 31
    assert caplog.text.count("DescribeQuorum is denied to User:horolog-4") == 1
    assert "--add --allow-principal User:horolog-4 --operation ClusterAction" in caplog.text
    del quorum.answers[ApiKey.DESCRIBE_QUORUM]
    link.ask(ApiKey.DESCRIBE_QUORUM, QUORUM, timeout_ms=10_000)
    quorum.answers[ApiKey.DESCRIBE_QUORUM] = lambda request, usual: DENIED
    link.ask(ApiKey.DESCRIBE_QUORUM, QUORUM, timeout_ms=10_000)
    assert caplog.text.count("DescribeQuorum is denied") == 2
    link.close()


@both
def test_silence_ends_with_the_time_that_was_given(quorum: ScriptedController, ask: Ask) -> None:
    quorum.answers[ApiKey.DESCRIBE_QUORUM] = lambda request, usual: Silence()
    with pytest.raises(ControllersUnavailable, match="DescribeQuorum was not answered: 127"):
        ask(quorum, 200)


def test_controllers_of_another_cluster_are_not_asked(quorum: ScriptedController) -> None:
    link = ControllerLink(known_of(quorum, "another"), PLAINTEXT, client_id="broker-1")
    with pytest.raises(ControllersUnavailable, match=f"is of cluster {quorum.cluster_id}, not of"):
        link.ask(ApiKey.DESCRIBE_QUORUM, QUORUM, timeout_ms=1_000)
    assert quorum.asked(ApiKey.DESCRIBE_QUORUM) == []
    link.close()


def test_a_request_that_the_controllers_do_not_know_is_refused(quorum: ScriptedController) -> None:
    link = ControllerLink(known_of(quorum), PLAINTEXT, client_id="broker-1")
    with pytest.raises(RequestRefused, match="in version 0 to 13 is needed"):
        link.ask(ApiKey.METADATA, {"topics": None}, timeout_ms=10_000)
    link.close()


def test_an_interrupted_link_ends_the_request_that_waits(quorum: ScriptedController) -> None:
    quorum.answers[ApiKey.DESCRIBE_QUORUM] = lambda request, usual: Silence()
    link = ControllerLink(known_of(quorum), PLAINTEXT, client_id="broker-1")
    errors = []

    def ask() -> None:
        try:
            link.ask(ApiKey.DESCRIBE_QUORUM, QUORUM, timeout_ms=600_000)
        except ControllersUnavailable as error:
            errors.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    eventually(lambda: bool(quorum.asked(ApiKey.DESCRIBE_QUORUM)))
    link.interrupt()
    asking.join()
    assert errors == ["the broker stops"]
    link.close()
