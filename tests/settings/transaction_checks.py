"""For every broker setting about transactions, the difference it makes."""

import asyncio
from typing import Any

from patience import eventually
from setting_checks import of_broker
from settings_lab import Lab

from horolog.errors import ErrorCode, RequestRefused
from horolog.schemas.transactions import TransactionStatus
from horolog.storage import TopicPartition
from horolog.transactions.values import ProducerIdentity

NEVER = "2000000000"
SOON = "30"
T0 = TopicPartition("t", 0)


def run(lab: Lab, work: Any) -> Any:
    """The result of a call of the coordinator, or the code of its refusal."""
    try:
        return lab.broker.run(work)
    except RequestRefused as error:
        return error.code


def begin(lab: Lab) -> ProducerIdentity:
    lab.topic("t")
    coordinator = lab.broker.broker.transactions
    producer: ProducerIdentity = run(lab, coordinator.initialise("x", 60_000))
    run(lab, coordinator.add_partitions("x", producer, [T0]))
    return producer


def status(lab: Lab) -> TransactionStatus | None:
    for transactional_id, transaction, _ in lab.broker.broker.transactions.all():
        if transactional_id == "x":
            found: TransactionStatus = transaction.status
            return found
    return None


@of_broker("transaction.max.timeout.ms", {"60000": True, "59999": False})
def whether_a_timeout_of_a_minute_is_taken(lab: Lab) -> bool:
    given = run(lab, lab.broker.broker.transactions.initialise("x", 60_000))
    return given is not ErrorCode.invalid_transaction_timeout


@of_broker("transactional.id.expiration.ms", {"1000": 1, "1001": 0})
def how_many_ids_expire_after_a_second(lab: Lab) -> int:
    run(lab, lab.broker.broker.transactions.initialise("x", 60_000))
    lab.clock.advance(1_000)
    return int(run(lab, lab.broker.broker.transactions.remove_expired()))


@of_broker(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms", {SOON: True, NEVER: False}
)
def whether_a_transaction_that_has_timed_out_is_aborted_by_itself(lab: Lab) -> bool:
    begin(lab)
    lab.clock.advance(60_001)
    return eventually(lambda: status(lab) is TransactionStatus.COMPLETE_ABORT, lab.soon_s)


@of_broker(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    {SOON: True, NEVER: False},
    beside={"transactional.id.expiration.ms": "1000"},
)
def whether_an_idle_transactional_id_is_removed_by_itself(lab: Lab) -> bool:
    run(lab, lab.broker.broker.transactions.initialise("x", 60_000))
    lab.clock.advance(1_000)
    return eventually(lambda: status(lab) is None, lab.soon_s)


@of_broker(
    "transaction.partition.verification.enable",
    {"true": ErrorCode.transaction_abortable, "false": ErrorCode.none},
)
def what_becomes_of_a_write_outside_the_transaction(lab: Lab) -> ErrorCode:
    producer = begin(lab)
    other = TopicPartition("t", 1)
    admitted = run(lab, lab.broker.broker.transactions.admit("x", *producer, [other], 11))
    code: ErrorCode = admitted[other]
    return code


@of_broker(
    "add.partitions.to.txn.retry.backoff.max.ms",
    {"0": ErrorCode.concurrent_transactions, "100000": None},
)
def whether_a_new_transaction_waits_for_the_one_before(lab: Lab) -> ErrorCode | None:
    producer = begin(lab)
    coordinator = lab.broker.broker.transactions

    async def add_while_the_former_ends() -> None:
        await coordinator.end("x", producer, 0, commit=True)
        await asyncio.sleep(0)
        await coordinator.add_partitions("x", producer, [T0])

    code: ErrorCode | None = run(lab, add_while_the_former_ends())
    return code
