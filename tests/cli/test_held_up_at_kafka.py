"""Open transactions in `horolog lag` at brokers that answer only as Apache Kafka does (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from command_runner import run_command
from overrides import override
from running_broker import NOW_MS, RunningBroker, a_broker
from scripted_broker import HangUp, ScriptedBroker
from transactional import abort, end, init, write

from horolog.client import Client, CommittedOffset, HeldUp, UnstableStretch, group_lags, held_up
from horolog.clock import MINUTE_MS, ManualClock
from horolog.errors import ErrorCode
from horolog.record import LogRecord, build_batch
from horolog.wire import GROUP_LAG, ApiKey, Versions

broker = a_broker("t", partitions=2, transaction_partition_verification_enable="false")
PLAIN = build_batch([LogRecord(NOW_MS, None, b"v")] * 3)
LATER_MS = NOW_MS + 16 * MINUTE_MS
"""When no transaction of `NOW_MS` can be open at a coordinator."""


@pytest.fixture(autouse=True)
def _answers_as_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    override(monkeypatch, "horolog.client", GROUP_LAG=replace(GROUP_LAG, name="not.announced"))


def shown(
    broker: RunningBroker, now_ms: int = NOW_MS, *, read_committed: bool = False
) -> HeldUp | None:
    broker.client.offset_commit("g", {("t", 0): CommittedOffset(0)})
    (found,) = group_lags(broker.client, ["g"], now_ms, read_committed=read_committed)
    return found.held_up


def test_the_transaction_that_holds_readers_up_is_named(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.append("t", PLAIN)
    assert shown(broker) is None
    clock.advance("10s")
    producer = init(broker)
    assert write(broker, producer, version=12, count=2) == 0
    broker.append("t", PLAIN)
    for read_committed in (False, True):
        assert shown(broker, LATER_MS, read_committed=read_committed) == HeldUp(
            producer_id=producer.producer_id,
            producer_epoch=0,
            transactional_id="x",
            is_hanging=False,
            offset=3,
            since_ms=NOW_MS + 10_000,
            offsets=5,
            records=None,
            open_transactions=1,
        )
    said = run_command("lag", "g", "--read-committed", HOROLOG_BOOTSTRAP=broker.address).out
    assert (
        f"wait at offset 3 of t-0 for the transaction of 'x' (producer {producer.producer_id}"
        in said
    )
    assert "5 offsets from there on" in said
    assert end(broker, producer) == 0
    assert shown(broker) is None


def test_what_no_transactional_id_has_hangs_once_it_is_older_than_any_may_be(
    broker: RunningBroker,
) -> None:
    producer = init(broker)
    assert write(broker, producer) == 0
    assert write(broker, init(broker, "y")) == 0
    young, old = shown(broker), shown(broker, LATER_MS)
    assert young is not None
    assert old is not None
    assert (young.transactional_id, young.is_hanging, young.since_ms) == (None, None, None)
    assert old == young._replace(is_hanging=True)
    assert old.open_transactions == 2
    said = run_command("lag", "g", HOROLOG_BOOTSTRAP=broker.address).out
    assert "kafka-transactions.sh abort --topic t --partition 0 --start-offset 0" in said
    abort(broker, producer)
    second = shown(broker, LATER_MS)
    assert second is not None
    assert second.offset == 1


def test_groups_of_one_partition_have_the_same_transaction(broker: RunningBroker) -> None:
    assert write(broker, init(broker), version=12) == 0
    broker.append("t", PLAIN, 1)
    for group in ("a", "b"):
        committed = {("t", partition): CommittedOffset(0) for partition in (0, 1)}
        broker.client.offset_commit(group, committed)
    found = group_lags(broker.client, ["a", "b"], NOW_MS)
    assert [each.held_up and each.held_up.transactional_id for each in found] == [
        *("x", None),
        *("x", None),
    ]


# --- brokers that do not say it ---------------------------------------------------------

OPENED = {
    "producer_id": 7,
    "producer_epoch": 2,
    "last_sequence": 0,
    "last_timestamp": NOW_MS,
    "coordinator_epoch": 0,
    "current_txn_start_offset": 10,
}


def producers(*opened: Mapping[str, Any], error: int = 0) -> dict[str, Any]:
    its = {"partition_index": 5, "error_code": error, "active_producers": opened}
    return {"topics": [{"name": "t", "partitions": [{**its, "error_message": None}]}]}


def listed(*ids: str, error: int = 0) -> dict[str, Any]:
    states = [
        {"transactional_id": each, "producer_id": 7, "transaction_state": "Ongoing"} for each in ids
    ]
    return {"error_code": error, "unknown_state_filters": [], "transaction_states": states}


def described(topic: str = "t", error: int = 0, producer_id: int = 7) -> dict[str, Any]:
    state = {
        "error_code": error,
        "transactional_id": "x",
        "transaction_state": "Ongoing",
        "transaction_timeout_ms": 60_000,
        "transaction_start_time_ms": NOW_MS - 5,
        "producer_id": producer_id,
        "producer_epoch": 2,
        "topics": [{"topic": topic, "partitions": [5]}],
    }
    return {"transaction_states": [state]}


ANSWERS = {
    ApiKey.DESCRIBE_PRODUCERS: producers(OPENED),
    ApiKey.LIST_TRANSACTIONS: listed("x"),
    ApiKey.DESCRIBE_TRANSACTIONS: described(),
}
UNKNOWN = HeldUp(7, 2, None, None, 10, None, 20, None, 1)
NAMED = UNKNOWN._replace(transactional_id="x", is_hanging=False, since_ms=NOW_MS - 5)
HANGING = UNKNOWN._replace(is_hanging=True)


@contextmanager
def scripted(
    answers: Mapping[ApiKey, Any], versions: Mapping[ApiKey, Versions] | None = None
) -> Iterator[tuple[ScriptedBroker, Client]]:
    script = ScriptedBroker({**ANSWERS, **answers}, versions=versions or {})
    with script, Client(script.bootstrap, timeout_ms=5_000) as client:
        yield script, client


def found(client: Client, now_ms: int = LATER_MS) -> HeldUp | None:
    return held_up(client, {("t", 5): UnstableStretch(10, 30)}, now_ms).get(("t", 5))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({}, NAMED),
        ({ApiKey.DESCRIBE_PRODUCERS: producers()}, None),
        ({ApiKey.DESCRIBE_PRODUCERS: producers({**OPENED, "current_txn_start_offset": -1})}, None),
        (
            {
                ApiKey.DESCRIBE_PRODUCERS: producers(
                    OPENED, error=ErrorCode.topic_authorization_failed
                )
            },
            None,
        ),
        ({ApiKey.DESCRIBE_PRODUCERS: HangUp()}, None),
        ({ApiKey.LIST_TRANSACTIONS: HangUp()}, UNKNOWN),
        ({ApiKey.LIST_TRANSACTIONS: b"\0"}, UNKNOWN),
        (
            {ApiKey.LIST_TRANSACTIONS: listed(error=ErrorCode.coordinator_load_in_progress)},
            UNKNOWN,
        ),
        (
            {ApiKey.DESCRIBE_TRANSACTIONS: described(error=ErrorCode.not_coordinator)},
            UNKNOWN,
        ),
        ({ApiKey.LIST_TRANSACTIONS: listed()}, HANGING),
        ({ApiKey.DESCRIBE_TRANSACTIONS: described("another")}, HANGING),
        ({ApiKey.DESCRIBE_TRANSACTIONS: described(producer_id=8)}, HANGING),
        (
            {
                ApiKey.LIST_TRANSACTIONS: listed(),
                ApiKey.DESCRIBE_PRODUCERS: producers({**OPENED, "last_timestamp": -1}),
            },
            UNKNOWN,
        ),
    ],
)
def test_what_brokers_leave_open_is_left_open(
    answers: Mapping[ApiKey, Any], expected: HeldUp | None
) -> None:
    with scripted(answers) as (_, client):
        assert found(client) == expected


@pytest.mark.parametrize(
    ("missing", "expected"),
    [(ApiKey.DESCRIBE_PRODUCERS, None), (ApiKey.LIST_TRANSACTIONS, UNKNOWN)],
)
def test_a_broker_from_before_these_requests_names_none(
    missing: ApiKey, expected: HeldUp | None
) -> None:
    with scripted({}, {missing: Versions(77, 78)}) as (script, client):
        assert found(client) == expected
        assert not script.asked(missing)


def test_a_transaction_that_ends_meanwhile_does_not_hang() -> None:
    answers = iter([producers(OPENED), producers({**OPENED, "current_txn_start_offset": 12})])
    changed = {
        ApiKey.DESCRIBE_PRODUCERS: lambda _: next(answers),
        ApiKey.LIST_TRANSACTIONS: listed(),
    }
    with scripted(changed) as (_, client):
        assert found(client) == UNKNOWN


def test_a_few_requests_do_for_many_partitions() -> None:
    def of_asked(request: Any) -> dict[str, Any]:
        return {
            "topics": [
                {"name": each.name, "partitions": [producers(OPENED)["topics"][0]["partitions"][0]]}
                for each in request.topics
            ]
        }

    waiting = {(f"t{number}", 5): UnstableStretch(10, 30) for number in range(1_200)}
    with scripted({ApiKey.DESCRIBE_PRODUCERS: of_asked}) as (script, client):
        client.metadata([topic for topic, _ in waiting])
        assert len(held_up(client, waiting, NOW_MS)) == 1_000
        assert len(script.asked(ApiKey.DESCRIBE_PRODUCERS)) == 10
        assert len(script.asked(ApiKey.LIST_TRANSACTIONS)) == 1


def test_nothing_is_asked_where_nobody_waits() -> None:
    with scripted({}) as (script, client):
        assert held_up(client, {}, NOW_MS) == {}
        assert not script.asked(ApiKey.DESCRIBE_PRODUCERS)
