"""Our own transactional producer at our own broker: rows and offsets count together."""

import pyarrow as pa
import pytest
from patience import eventually
from running_broker import RunningBroker, a_broker

from horolog.client import CommittedOffset, TransactionalProducer
from horolog.errors import ErrorCode, RequestRefused
from horolog.wire import ApiKey

broker = a_broker("t", "source")

ROWS = pa.table({"value": pa.array([b"a", b"b"], pa.binary())})
SOURCE = ("source", 0)


def committed(broker: RunningBroker) -> tuple[int, int]:
    topics = [{"name": "source", "partition_indexes": [0]}]
    answer = broker.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=topics, require_stable=True)
    (partition,) = answer.topics[0].partitions
    return partition.committed_offset, partition.error_code


def begun(broker: RunningBroker) -> TransactionalProducer:
    return TransactionalProducer(broker.client, "tx", now_ms=lambda: 1_700_000_000_000)


def step(producer: TransactionalProducer, offset: int) -> None:
    producer.send("t", ROWS)
    producer.commit_offsets("g", {SOURCE: CommittedOffset(offset)})


def test_rows_and_offsets_are_committed_together(broker: RunningBroker) -> None:
    with begun(broker) as producer:
        step(producer, 5)
        assert committed(broker) == (-1, 88)
        producer.commit()
        step(producer, 6)
        producer.abort()
        step(producer, 7)
        producer.commit()
    assert eventually(lambda: committed(broker) == (7, 0))  # markers follow the answer


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_keeps_a_transaction_open(broker: RunningBroker, crash: bool) -> None:
    with begun(broker) as producer:
        step(producer, 5)
        broker.restart(crash=crash)
        assert committed(broker) == (-1, 88)
    with begun(broker) as another:  # aborts what is open
        assert committed(broker) == (-1, 0)
        step(another, 6)
        another.commit()
    assert eventually(lambda: committed(broker) == (6, 0))  # markers follow the answer


def test_a_fenced_producer_commits_no_offsets(broker: RunningBroker) -> None:
    with begun(broker) as old:
        step(old, 5)
        with begun(broker) as new:
            with pytest.raises(RequestRefused) as refused:
                old.commit_offsets("g", {SOURCE: CommittedOffset(9)})
            assert refused.value.code in (
                ErrorCode.producer_fenced,
                ErrorCode.invalid_producer_epoch,
            )
            step(new, 6)
            new.commit()
        assert eventually(lambda: committed(broker) == (6, 0))  # markers follow the answer
