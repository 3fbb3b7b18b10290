"""`horolog quotas` against a broker."""

import json
from typing import Any

import pytest
from command_runner import run_command
from running_broker import RunningBroker


@pytest.fixture
def run(broker: RunningBroker) -> Any:
    return lambda *arguments: run_command("quotas", *arguments, "-b", broker.address)


def test_quotas_are_set_listed_and_removed(run: Any) -> None:
    assert run("list").out == "no quotas\n"
    assert run("set", "producer_byte_rate=1048576", "--user", "alice").code == 0
    both = ("--user", "alice", "--default-client-id")
    assert run("set", "producer_byte_rate=10", "consumer_byte_rate=20", *both).code == 0
    listed = json.loads(run("list", "--json").out)
    assert [(row["of"], row["key"], row["value"]) for row in listed] == [
        ({"user": {"name": "alice"}}, "producer_byte_rate", 1048576.0),
        ({"user": {"name": "alice"}, "client-id": {"name": None}}, "consumer_byte_rate", 20.0),
        ({"user": {"name": "alice"}, "client-id": {"name": None}}, "producer_byte_rate", 10.0),
    ]
    assert "user alice, every other client-id" in run("list").out
    removed = run("remove", "consumer_byte_rate", *both)
    assert (removed.code, "consumer_byte_rate" in removed.out) == (0, True)
    assert run("remove", *both).code == 0
    again = run("remove", *both)
    assert (again.code, again.out) == (1, "there are no such quotas\n")
    assert len(json.loads(run("list", "--json").out)) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("set", "producer_byte_rate=1"), "say whose quota it is"),
        (("set", "producer_byte_rate", "--user", "a"), "write KEY=NUMBER"),
        (("set", "producer_byte_rate=x", "--user", "a"), "write KEY=NUMBER"),
        (("set", "producer_byte_rate=0", "--user", "a"), "greater than 0"),
        (("set", "producer_byte_rate=nan", "--user", "a"), "greater than 0"),
        (("set", "speed=1", "--user", "a"), "write KEY=NUMBER with one of"),
        (("set", "producer_byte_rate=1", "--user", "a", "--default-user"), "not both"),
        (("remove", "--user", "a", "--ip", "1.2.3.4"), "there are no such quotas"),
    ],
)
def test_what_is_no_quota_is_refused_with_a_sentence(
    run: Any, arguments: tuple[str, ...], complaint: str
) -> None:
    refused = run(*arguments)
    assert refused.code != 0
    assert complaint in refused.out + refused.err
