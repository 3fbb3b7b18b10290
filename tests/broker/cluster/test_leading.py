"""Partitions that are led for replicas: proposals to the controllers, and what they decide."""

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from batches import batch
from led_partitions import EPOCH, LedPartitions
from patience import eventually
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.client import ResourceType
from horolog.errors import ErrorCode, StorageFailed

broker = a_broker("t", partitions=3)


def altered(body: Any, error: int = 0, **fields: Any) -> Any:
    """The answer of controllers that take, or refuse, all that is proposed."""
    return SimpleNamespace(
        error_code=0,
        topics=[
            SimpleNamespace(
                topic_id=topic["topic_id"],
                partitions=[
                    SimpleNamespace(
                        **{
                            "partition_index": partition["partition_index"],
                            "error_code": error,
                            "leader_id": 1,
                            "leader_epoch": partition["leader_epoch"],
                            "isr": tuple(
                                member["broker_id"] for member in partition["new_isr_with_epochs"]
                            ),
                            "leader_recovery_state": 0,
                            "partition_epoch": partition["partition_epoch"] + 1,
                            **fields,
                        }
                    )
                    for partition in topic["partitions"]
                ],
            )
            for topic in body["topics"]
        ],
    )


def isr(led: LedPartitions, index: int = 0) -> tuple[int, ...]:
    leading = led.partition(index).leading
    assert leading is not None
    return tuple(leading.isr)


@pytest.fixture
def alone(broker: RunningBroker) -> Iterator[LedPartitions]:
    """Three partitions whose other replicas are not in sync, with four records in the first."""
    with closing(LedPartitions(broker, isr=(1,))) as led:
        for _ in range(2):
            led.broker.append("t", batch(NOW_MS, NOW_MS))
        yield led


@pytest.fixture
def pair(broker: RunningBroker) -> Iterator[LedPartitions]:
    """Three partitions that have one other replica in sync, and two records in the first."""
    with closing(LedPartitions(broker, isr=(1, 2), lag_max_ms=1_000)) as led:
        broker.append("t", batch(NOW_MS, NOW_MS))
        yield led


def test_a_replica_that_has_caught_up_is_proposed(alone: LedPartitions) -> None:
    alone.answer_with(altered)
    alone.reach(4, 2)
    assert eventually(lambda: isr(alone) == (1, 2))
    (body,) = alone.proposed
    assert (body["broker_id"], body["broker_epoch"]) == (1, 101)
    (topic,) = body["topics"]
    assert topic["topic_id"] == alone.topic_id
    assert topic["partitions"] == [
        {
            "partition_index": 0,
            "leader_epoch": EPOCH,
            "new_isr_with_epochs": [
                {"broker_id": 1, "broker_epoch": 101},
                {"broker_id": 2, "broker_epoch": 102},
            ],
            "leader_recovery_state": 0,
            "partition_epoch": 1,
        }
    ]
    assert alone.leaders.isr_expands == 1


def test_partitions_share_a_request(alone: LedPartitions) -> None:
    alone.reach(4, 2)
    for index in (1, 2):
        alone.reach(0, 2, index=index)
    alone.answer_with(altered)
    assert eventually(lambda: all(isr(alone, index) == (1, 2) for index in range(3)))
    assert len(alone.proposed) == 1


def test_a_replica_that_lags_is_taken_out_and_the_rest_is_committed(pair: LedPartitions) -> None:
    led, broker = pair, pair.broker
    assert led.partition().log.high_watermark == 0
    led.reach(0, 2, index=1)
    led.answer_with(altered)
    broker.clock.advance(1_001)
    broker.run(led.leaders.look())
    assert eventually(lambda: led.partition().log.high_watermark == 2)
    assert isr(led) == (1,)
    assert isr(led, 1) == (1, 2), "it has nothing to lack"
    assert led.leaders.isr_shrinks == 2, "the third partition was never fetched"


@pytest.mark.parametrize("error", [ErrorCode.not_controller, ErrorCode.ineligible_replica])
def test_a_refused_proposal_is_made_again(
    alone: LedPartitions, error: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = [error, error]
    alone.answer_with(lambda body: altered(body, refusals.pop() if refusals else 0))
    alone.reach(4, 2)
    assert eventually(lambda: alone.tick() and isr(alone) == (1, 2))
    assert len(alone.proposed) == 3
    assert alone.leaders.failed_isr_updates == 2
    assert [record.levelname for record in caplog.records if "refuse" in record.message] == [
        "WARNING"
    ]


@pytest.mark.parametrize(
    "garbage",
    [
        lambda body: SimpleNamespace(error_code=77, topics=[]),
        lambda body: SimpleNamespace(error_code=-999, topics=[]),
        lambda body: SimpleNamespace(error_code=0, topics=[]),
        lambda body: altered(body, leader_id=3),
        lambda body: altered(body, isr=(2,)),
        lambda body: altered(body, isr=(1, 2, 3, 4)),
        lambda body: altered(body, partition_epoch=-1),
        lambda body: altered(body, partition_index=7),
        lambda body: altered(body, -999),
    ],
    ids=[
        "stale broker",
        "unknown error",
        "nothing",
        "another leader",
        "without us",
        "stranger",
        "old epoch",
        "another partition",
        "partition's error",
    ],
)
def test_an_answer_that_makes_no_sense_is_no_answer(alone: LedPartitions, garbage: Any) -> None:
    answers = [garbage]
    alone.answer_with(lambda body: answers.pop()(body) if answers else altered(body))
    alone.reach(4, 2)
    alone.broker.append("t", batch(NOW_MS, NOW_MS))
    assert eventually(lambda: alone.tick() and isr(alone) == (1, 2))
    assert alone.partition().log.high_watermark == 4
    assert len(alone.proposed) == 2


def test_without_controllers_nothing_is_committed_that_the_replica_lacks(
    alone: LedPartitions,
) -> None:
    def unavailable(body: Any) -> Any:
        raise StorageFailed("no controller answers")

    alone.answer_with(unavailable)
    alone.reach(4, 2)
    alone.broker.append("t", batch(NOW_MS, NOW_MS))
    assert eventually(lambda: alone.tick() and len(alone.proposed) > 2)
    assert alone.partition().log.high_watermark == 4


def test_an_answer_after_the_leadership_has_no_effect(alone: LedPartitions) -> None:
    def lose_then_answer(body: Any) -> Any:
        alone.leaders.stop(alone.record())
        return altered(body)

    alone.answer_with(lose_then_answer)
    alone.reach(4, 2)
    assert eventually(lambda: len(alone.leaders) == 2)
    assert alone.partition().leading is None
    assert alone.leaders.isr_expands == 0


def test_an_append_between_election_and_notice_is_committed_all_the_same(
    alone: LedPartitions,
) -> None:
    async def append_first() -> None:
        partition = alone.partition()
        alone.leaders.stop(alone.record())  # an append in a thread finds no leader to notice it
        appended = await partition.change(lambda log: log.log_end_offset)
        assert appended == 4
        alone.leaders.lead(partition, alone.record())

    alone.broker.run(append_first())
    assert alone.partition().log.high_watermark == 4


def test_replicas_of_a_partition_without_others_are_refused(alone: LedPartitions) -> None:
    alone.change(replicas=(1,))
    assert alone.partition().leading is None
    assert alone.fetch(4).error_code == ErrorCode.unknown_leader_epoch


def test_a_partition_gets_replicas_while_it_is_led(alone: LedPartitions) -> None:
    alone.change(replicas=(1,))
    alone.change(replicas=(1, 3), adding=(3,))
    alone.answer_with(altered)
    alone.reach(4, 3)
    assert eventually(lambda: isr(alone) == (1, 3))


def test_a_new_minimum_counts_at_once(pair: LedPartitions) -> None:
    led, broker = pair, pair.broker
    broker.client.alter_configs({(ResourceType.TOPIC, "t"): {"min.insync.replicas": "3"}})
    broker.run(led.leaders.look())
    led.reach(2, 2)
    assert led.partition().log.high_watermark == 0


def test_all_who_lead_are_counted(alone: LedPartitions) -> None:
    assert len(alone.leaders) == 3
    assert {partition.index for partition, _ in alone.leaders} == {0, 1, 2}
    alone.broker.run(alone.leaders.close())
    assert len(alone.leaders) == 0
    assert alone.partition().leading is None
