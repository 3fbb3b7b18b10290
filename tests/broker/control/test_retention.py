"""What a broker says of retention, while settings change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.broker.control import partitions
from horolog.record import LogRecord, build_batch
from horolog.wire import RETENTION, AskRetention

broker = a_broker("t", of_topics={"retention_ms": "1000"})


def test_retention_is_explained_with_the_settings_that_it_was_judged_by(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.append("t", build_batch([LogRecord(NOW_MS, None, b"v")]))
    partition, fit = broker.broker.led("t", 0), partitions.as_many_as_fit

    def beside_a_change(*args: Any) -> Any:
        found = fit(*args)
        config = replace(partition.log.config, retention_ms=5)
        partition.obey(config, retention_exempt=True)
        return found

    monkeypatch.setattr(partitions, "as_many_as_fit", beside_a_change)
    found = broker.client.ask(RETENTION, "t", AskRetention(0))
    assert found is not None
    assert found.settings["retention.ms"] == 1000
    assert not found.is_exempt
    (segment,) = found.segments
    assert segment["due_ms"] == NOW_MS + 1001
