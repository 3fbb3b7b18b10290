"""Rows written exactly once to horolog's brokers: what tasks and the driver of a write do."""

import pytest
from running_broker import BrokerProcess, RunningBroker, a_broker
from transactional_writes import SinkInTransactions, Write, commit_until

from horolog.client import Client
from horolog.errors import RequestRefused

broker = a_broker(now_ms=None, scope="module")


@pytest.fixture
def bootstrap(broker: RunningBroker) -> str:
    return broker.address


class TestSink(SinkInTransactions):
    """The cases that hold at Apache Kafka, too."""

    def test_queries_that_write_to_one_topic_do_not_hold_each_other_up(
        self, bootstrap: str, topic: str
    ) -> None:
        first, second = (Write(bootstrap, topic) for _ in range(2))
        second.query = f"other {topic}"
        open_first = first.run(0, ["a"], ["b"])
        open_second = second.run(0, ["c"], ["d"])
        first.commit(open_first)
        second.commit(open_second)
        abandoned = second.run(1, ["e"])
        first.commit(first.run(1, ["f"]))
        assert abandoned[0].transaction is not None
        with Client(bootstrap) as client:
            client.end_transaction(abandoned[0].transaction, commit=False)
        assert first.seen() == second.seen() == ["a", "b", "c", "d", "f"]

    def test_a_time_longer_than_the_broker_allows_is_refused_by_name(
        self, bootstrap: str, topic: str
    ) -> None:
        write = Write(bootstrap, topic, **{"kafka.transaction.timeout.ms": "900001"})
        with pytest.raises(RequestRefused, match="INVALID_TRANSACTION_TIMEOUT"):
            write.task(0, 0, "a")


@pytest.mark.parametrize("kill", [False, True])
def test_a_broker_that_restarts_between_a_task_and_the_commit_commits_what_was_written(
    broker: RunningBroker, kill: bool
) -> None:
    with Client(broker.address) as client:
        topic = f"restarted-{kill}"
        client.create_topics({topic: 3})
    write = Write(broker.address, topic)
    attempts = write.run(0, ["a", "bb"], ["ccc"])
    broker.restart(crash=kill)
    write.commit(attempts)
    broker.restart(crash=kill)
    again = write.run(0, ["a", "bb"], ["ccc"])
    assert [each.transaction for each in again] == [None, None]
    write.commit(again)
    assert write.seen() == ["a", "bb", "ccc"]


@pytest.mark.parametrize("committed", [0, 1, 2])
def test_a_driver_and_a_broker_killed_between_two_commits_leave_what_the_next_run_completes(
    broker_process: BrokerProcess, committed: int
) -> None:
    broker_process.client.create_topics({"t": 3})
    write = Write(broker_process.address, "t")
    batch = (["a", "b"], ["c"], ["d", "e"])
    attempts = write.run(0, *batch)
    with pytest.MonkeyPatch.context() as patched:
        commit_until(write, attempts, patched, tasks=committed)
    broker_process.kill()
    broker_process.start_again()
    write.commit(write.run(0, *batch))
    assert write.seen() == ["a", "b", "c", "d", "e"]
