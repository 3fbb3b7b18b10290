"""Tests of a service that uses Kafka, with a broker, a clock and faults for each of them.

Needs `pip install horolog pytest kafka-python`. Run: pytest examples/pytest_project
"""

import pytest
from orders import NotTaken, Orders


@pytest.fixture(scope="session")
def horolog_settings():
    return {"log.message.timestamp.type": "LogAppendTime", "log.retention.hours": 7 * 24}


@pytest.fixture
def orders(horolog_broker):
    horolog_broker.create_topic("orders")
    service = Orders(horolog_broker.bootstrap_servers)
    yield service
    service.close()


def test_orders_are_listed_by_time_and_kept_for_a_week(orders, horolog_broker):
    orders.take("tea")
    later = horolog_broker.clock.advance("6d")
    orders.take("milk")
    assert orders.since(later) == ["milk"]
    horolog_broker.clock.advance("2d")
    horolog_broker.expire()
    assert orders.since(0) == ["tea", "milk"], "a segment goes with its last record"
    horolog_broker.clock.advance("6d")
    horolog_broker.expire()
    assert orders.since(0) == []


def test_an_order_is_taken_once_though_the_broker_fails(orders, horolog_broker):
    horolog_broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    assert orders.take("tea") == 0
    horolog_broker.lose_answer("Produce")
    assert orders.take("milk") == 1
    assert orders.since(0) == ["tea", "milk"]


def test_an_order_that_is_refused_is_not_taken(orders, horolog_broker):
    horolog_broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="orders")
    with pytest.raises(NotTaken):
        orders.take("tea")
    assert orders.since(0) == []
