"""Fetch sessions (KIP-227) of the Java consumer."""

from typing import Any, NamedTuple

import pytest
from running_broker import MakeBroker, RunningBroker

from horolog.broker.fetch_sessions import FetchSessions

PARTITIONS, RECORDS = 3, 3_000
T0_MS = 1_700_000_000_000


class Address(NamedTuple):
    bootstrap: str


@pytest.fixture
def serving(make_broker: MakeBroker) -> RunningBroker:
    broker = make_broker(log_retention_ms="-1")
    broker.create_topic("t", PARTITIONS)
    return broker


@pytest.mark.parametrize("sessions", ["kept", "lost"])
def test_the_java_consumer_reads_all_in_sessions(
    serving: RunningBroker, java_client: Any, monkeypatch: pytest.MonkeyPatch, sessions: str
) -> None:
    rows = [[T0_MS + at, f"key-{at}", f"value {at} " * 100] for at in range(RECORDS)]
    java_client.ask(Address(serving.address), "produce", topic="t", records=rows)
    fetches: list[int] = []
    go_on = FetchSessions.go_on

    def counting(self: FetchSessions, version: int, request: Any) -> Any:
        fetches.append(version)
        if sessions == "lost" and len(fetches) % 2:
            self.end(request.session_id)
        return go_on(self, version, request)

    monkeypatch.setattr(FetchSessions, "go_on", counting)
    read = java_client.ask(Address(serving.address), "consume", topic="t")["records"]
    assert sorted([row["timestamp"], row["key"], row["value"]] for row in read) == rows
    assert len(fetches) >= 2
    assert min(fetches) >= 13, "it names topics by id"
