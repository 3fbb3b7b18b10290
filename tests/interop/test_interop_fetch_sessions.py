"""Fetch sessions (KIP-227) of consumers in Java and Go."""

from typing import Any, NamedTuple

import pytest
from running_broker import MakeBroker, RunningBroker

from horolog.broker import FetchSessions

PARTITIONS, RECORDS, AT_ONCE = 3, 4_000, 100
T0_MS = 1_700_000_000_000


class Address(NamedTuple):
    bootstrap: str


@pytest.fixture
def serving(make_broker: MakeBroker) -> RunningBroker:
    broker = make_broker(log_retention_ms="-1")
    broker.create_topic("t", PARTITIONS)
    return broker


@pytest.mark.parametrize("sessions", ["kept", "lost"])
@pytest.mark.parametrize("name", ["java", "go"])
def test_a_consumer_reads_all_in_sessions(
    serving: RunningBroker,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    sessions: str,
) -> None:
    client: Any = request.getfixturevalue(f"{name}_client")
    rows = [[T0_MS + at, f"key-{at}", f"value {at} " * 100] for at in range(RECORDS)]
    for start in range(0, RECORDS, AT_ONCE):
        some = rows[start : start + AT_ONCE]
        client.ask(Address(serving.address), "produce", topic="t", records=some)
    fetches: list[int] = []
    go_on = FetchSessions.go_on

    def counting(self: FetchSessions, version: int, request: Any) -> Any:
        fetches.append(version)
        if sessions == "lost" and len(fetches) % 2:
            self.end(request.session_id)
        return go_on(self, version, request)

    monkeypatch.setattr(FetchSessions, "go_on", counting)
    read = client.ask(Address(serving.address), "consume", topic="t")["records"]
    assert sorted([row["timestamp"], row["key"], row["value"]] for row in read) == rows
    assert fetches
    assert min(fetches) >= 13, "it names topics by id"
