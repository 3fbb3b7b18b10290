"""Transactions that hang, and those that are only open: what a broker says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from faulty_calls import failing
from metrics_page import Metrics, scrape
from patience import eventually
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker
from transactional import abort, end, init, write

from horolog.broker import transactions
from horolog.clock import ManualClock
from horolog.errors import StorageFailed
from horolog.record import LogRecord, build_batch
from horolog.wire import HEALTH

# Without verification a batch is appended that is in no transaction of the coordinator, as Kafka's
# brokers before KIP-890 did.
broker = a_broker(
    "t",
    partitions=2,
    horolog_metrics_port="0",
    transaction_partition_verification_enable="false",
)


def numbers(metrics: Metrics, **labels: object) -> tuple[float, float, float]:
    names = "open_transactions", "hanging_transactions", "oldest_transaction_age_milliseconds"
    opened, hanging, oldest = (metrics.value(f"horolog_{name}", **labels) for name in names)
    return opened, hanging, oldest


def coordinated(metrics: Metrics) -> tuple[float, float]:
    prefix = "horolog_coordinator_"
    return (
        metrics.value(f"{prefix}open_transactions"),
        metrics.value(f"{prefix}oldest_transaction_age_milliseconds"),
    )


def hanging(broker: RunningBroker) -> list[Any]:
    (health,) = broker.client.ask.each_broker(HEALTH).values()
    assert health is not None
    return [each for each in health.wrong if each.kind == "hanging"]


def test_without_transactions_the_numbers_are_0_and_no_topic_has_one(broker: RunningBroker) -> None:
    found = scrape(broker)
    assert numbers(found) == (0, 0, 0)
    assert coordinated(found) == (0, 0)
    assert list(found.of("horolog_open_transactions")) == [()]


def test_a_transaction_of_the_coordinator_is_open_and_does_not_hang(
    broker: RunningBroker, clock: ManualClock
) -> None:
    producer = init(broker)
    assert write(broker, producer, version=12) == 0
    clock.advance("5s")
    assert write(broker, producer, version=12, partition=1) == 0
    found = scrape(broker)
    assert numbers(found) == numbers(found, topic="t") == (2, 0, 5_000)
    assert coordinated(found) == (1, 5_000)
    by_partition = scrape(broker, "?partitions=true")
    assert numbers(by_partition, topic="t", partition=1) == (1, 0, 5_000)
    assert hanging(broker) == []
    assert end(broker, producer) == 0
    assert numbers(scrape(broker)) == (0, 0, 0)
    assert coordinated(scrape(broker)) == (0, 0)


def test_one_that_no_transactional_id_has_hangs_until_a_tool_aborts_it(
    broker: RunningBroker, clock: ManualClock
) -> None:
    producer = init(broker)
    broker.append("t", build_batch([LogRecord(NOW_MS, None, b"v")]))
    assert write(broker, producer) == 0
    clock.advance("2h")
    found = scrape(broker)
    assert numbers(found, topic="t") == (1, 1, 2 * 3_600_000)
    assert coordinated(found) == (0, 0)
    (wrong,) = hanging(broker)
    assert (wrong.subject, wrong.value) == ("t-0", 1)
    assert f"producer {producer.producer_id}, epoch 0" in wrong.text
    assert "abort --topic t --partition 0 --start-offset 1" in wrong.text
    abort(broker, producer)
    assert hanging(broker) == []
    assert numbers(scrape(broker)) == (0, 0, 0)


def test_a_partition_outside_of_its_producers_transaction_hangs(broker: RunningBroker) -> None:
    producer = init(broker)
    assert write(broker, producer, version=12, partition=1) == 0
    assert write(broker, producer) == 0
    assert [each.subject for each in hanging(broker)] == ["t-0"]
    assert end(broker, producer) == 0
    assert [each.subject for each in hanging(broker)] == ["t-0"]


def test_a_topic_that_is_made_again_has_none_of_the_old_ones_transaction(
    broker: RunningBroker,
) -> None:
    producer = init(broker)
    assert write(broker, producer, version=12) == 0
    broker.client.delete_topics(["t"])
    broker.create_topic("t", 2)
    assert numbers(scrape(broker)) == (0, 0, 0)
    assert write(broker, producer) == 0, "in a transaction of the topic before"
    assert [each.subject for each in hanging(broker)] == ["t-0"]


@pytest.mark.parametrize("crash", [False, True])
def test_after_a_restart_the_age_goes_on_from_what_is_stored(
    broker: RunningBroker, clock: ManualClock, crash: bool
) -> None:
    first, second = init(broker), init(broker, "y")
    assert write(broker, first, version=12) == 0
    assert write(broker, second) == 0
    clock.advance("10s")
    broker.restart(crash=crash)
    broker.run(broker.broker.transactions.settle())
    assert numbers(scrape(broker)) == (2, 1, 10_000)
    assert coordinated(scrape(broker)) == (1, 10_000)
    assert [(each.subject, each.value) for each in hanging(broker)] == [("t-0", 1)]


def test_what_is_open_where_another_cluster_leads_is_not_said_to_hang(
    broker: RunningBroker, make_broker: MakeBroker, tmp_path: Path, clock: ManualClock
) -> None:
    producer = init(broker)
    assert write(broker, producer, version=12) == 0
    shadow = make_broker(
        log_dir=tmp_path / "shadow",
        clock=clock,
        horolog_follow=broker.address,
        node_id="2",
        horolog_metrics_port="0",
    )
    assert eventually(lambda: scrape(shadow).of("horolog_open_transactions").get((("topic", "t"),)))
    assert numbers(scrape(shadow))[:2] == (1, 0)
    assert hanging(shadow) == []


def test_an_unreadable_begin_leaves_the_age_out(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, transactions, "append_time_of", StorageFailed("no"))
    assert write(broker, init(broker)) == 0
    assert numbers(scrape(broker), topic="t") == (1, 1, 0)
