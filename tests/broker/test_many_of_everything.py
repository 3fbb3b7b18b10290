"""Work that grows with the number of topics or groups gives the event loop back between slices."""

import json

import pytest
from overrides import override
from running_broker import RunningBroker, a_broker

from horolog.broker import turns
from horolog.errors import ErrorCode
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

MANY = 300
_IN_A_SLICE = 100  # groups or partitions, at most

broker = a_broker("t")


class CountedTurns:
    """How often work has given the loop back; each slice ends where it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = turns.next_turn

        async def counted() -> None:
            self.count += 1
            await real()

        override(monkeypatch, "horolog.broker", SLICE_SECONDS=-1.0)
        monkeypatch.setattr(turns, "next_turn", counted)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> CountedTurns:
    return CountedTurns(monkeypatch)


def alter_default(broker: RunningBroker, name: str, value: str) -> ErrorCode:
    answer = broker.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[
            {
                "resource_type": 4,
                "resource_name": "",
                "configs": [{"name": name, "config_operation": 0, "value": value}],
            }
        ],
        validate_only=False,
    )
    return ErrorCode(answer.responses[0].error_code)


def test_a_setting_of_the_broker_is_checked_and_applied_topic_by_topic(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        broker.create_topic(f"many-{number}")
    taken = CountedTurns(monkeypatch)
    assert alter_default(broker, "log.retention.ms", "777777") is ErrorCode.none
    assert taken.count >= 2 * 20
    configs = {broker.log(f"many-{number}").config.retention_ms for number in range(20)}
    assert configs == {777777}


def commit(broker: RunningBroker, group: str, topic: str = "t", partitions: int = 1) -> None:
    offset = {"committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    rows = [{"partition_index": index, **offset} for index in range(partitions)]
    member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    topics = [{"name": topic, "partitions": rows}]
    answer = broker.ask(ApiKey.OFFSET_COMMIT, 7, group_id=group, topics=topics, **member)
    assert {one.error_code for one in answer.topics[0].partitions} == {0}


def ask(broker: RunningBroker, kind: int, name: str, key: str) -> dict[str, object]:
    answer = broker.ask(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": [key]}],
        include_synonyms=False,
        include_documentation=False,
    )
    found: dict[str, object] = json.loads(answer.results[0].configs[0].value)
    return found


def test_what_groups_have_not_read_is_found_some_groups_at_a_time(
    broker: RunningBroker, taken: CountedTurns
) -> None:
    broker.append("t", build_batch([LogRecord(-1, None, b"v")]))
    for number in range(MANY):
        commit(broker, f"g{number}")
    before = taken.count
    found = ask(broker, 2, "t", 'horolog.retention.unread/{"partition":0}')
    assert "unread" in found
    assert taken.count - before >= MANY // _IN_A_SLICE


def test_the_lag_of_a_group_is_measured_some_partitions_at_a_time(
    broker: RunningBroker, taken: CountedTurns
) -> None:
    broker.create_topic("wide", MANY)
    commit(broker, "g", "wide", MANY)
    before = taken.count
    found = ask(broker, 32, "g", "horolog.group.lag/{}")
    assert len(found["lags"]) == MANY  # type: ignore[arg-type]
    assert taken.count - before >= 2 * (MANY // _IN_A_SLICE)
