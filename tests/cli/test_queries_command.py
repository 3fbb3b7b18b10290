"""`horolog queries` against a broker, as a user sees it."""

import pytest
from command_runner import Ran, Run, run_command
from running_broker import MakeBroker
from scripted_broker import ScriptedBroker

from horolog.client.queries import TaskRows
from horolog.clock import ManualClock


@pytest.fixture
def queries(make_broker: MakeBroker) -> Run:
    """Runs the command against a broker that knows two queries."""
    broker = make_broker(clock=ManualClock(1_700_000_000_000))
    broker.create_topic("clicks")
    client = broker.client
    client.begin_batch("first", 41, topics=["clicks"])
    client.begin_batch("second", 0, tasks=1)
    client.commit_batch("second", 0, 1, [TaskRows(0)])

    def run(*args: object) -> Ran:
        return run_command("queries", *args, HOROLOG_BOOTSTRAP=broker.address)

    return run


def test_queries_are_listed_with_their_last_batches(queries: Run) -> None:
    assert [line.split() for line in queries("list").lines if "11-14" in line] == [
        ["first", "41", "-", "2023-11-14T22:13:20.000Z", "no"],
        ["second", "0", "1", "2023-11-14T22:13:20.000Z", "yes"],
    ]
    assert queries("list", "--json").json[0] == {
        "query": "first",
        "batch": 41,
        "tasks": None,
        "started_ms": 1_700_000_000_000,
        "committed": False,
    }


def test_a_query_is_forgotten_once(queries: Run) -> None:
    assert queries("forget", "first", "second").lines == ["forgot first", "forgot second"]
    assert queries("list").lines == ["no query writes exactly once"]
    again = queries("forget", "first")
    assert again.code == 1
    assert "No query first writes exactly once here" in again.err


def test_a_broker_that_does_not_announce_it_is_named() -> None:
    with ScriptedBroker({}) as kafka:
        ran = run_command("queries", "list", HOROLOG_BOOTSTRAP=kafka.bootstrap)
    assert ran.code == 1
    assert "does not announce horolog.exactly.once" in ran.err
