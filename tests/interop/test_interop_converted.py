"""Apache Kafka on directories of its own that `horolog log convert` has rewritten."""

from dataclasses import replace
from typing import Any

import pytest
from command_runner import run_command
from handing_over import complaints, logs_of, told, without_epochs
from raw_connection import RawConnection, produce_fields
from tools.golden import scenarios
from tools.golden.scenarios import Scenario
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST, Kafka

from horolog.record import LogRecord, build_batch, iter_headers
from horolog.wire import ApiKey

NAMES = {
    *(f"client-{codec}" for codec in ("none", "gzip", "snappy", "lz4")),
    *("append-time", "out-of-order", "no-time", "before-1970", "several", "index-some"),
    "deleted-records",
}
CHOSEN = [one for one in scenarios.CLEAN if one.topic in NAMES]


def known_to(peer: str, one: Scenario) -> Scenario:
    """The scenario under the names that a release has for its settings."""
    if peer == NEWEST:
        return one
    config = {name.removeprefix("internal."): value for name, value in one.config.items()}
    return replace(one, config=config)


def in_v1(answer: dict[str, Any]) -> dict[str, Any]:
    """What v1 can hold: no record headers, no leader epochs."""
    return without_epochs(answer) | {
        "records": [row[:4] for row in answer["records"]],
        "lookups": [row[:3] for row in answer["lookups"]],
        "max_timestamp": answer["max_timestamp"][:2],
    }


@pytest.mark.timeout(3600)  # Kafka is started three times
@pytest.mark.parametrize("peer", [LAST_WITH_OLD_FORMATS, NEWEST])
def test_kafka_serves_and_appends_to_what_was_converted_there_and_back(peer, tmp_path):
    """To v1, as for a release before 0.11, and to v2 again, as before an upgrade to 4 (KIP-724)."""
    chosen = [known_to(peer, one) for one in CHOSEN]
    kafka = Kafka(tmp_path / "kafka", peer=peer)
    with kafka:
        scenarios.create(kafka.bootstrap, chosen)
        for one in chosen:
            one.write(kafka.bootstrap, one.topic)
        scenarios.settle(2)
        before = told(kafka.bootstrap, chosen)
    appended = 0
    for to in ("v1", "v2"):
        done = run_command("log", "convert", kafka.log_dir, "--to", to, "--zstd-as", "gzip")
        assert f"converted to {to}" in done.out, done.out
        for name, data in logs_of(kafka.log_dir).items():
            formats = {header.magic for _, header in iter_headers(data)}
            assert formats <= {int(to[1])}, name
        verified = run_command("log", "verify", kafka.log_dir)
        assert verified.code == 0, verified.out
        said = kafka.output.stat().st_size
        with kafka:
            scenarios.settle(2)
            served = told(kafka.bootstrap, chosen)
            for name, answer in before.items():
                records = answer["records"]
                if name == "client-lz4-0":
                    assert len(served[name]["records"]) == len(records) + appended
                    continue
                assert in_v1(served[name]) == in_v1(answer), name
            batch = build_batch([LogRecord(scenarios.T0_MS, b"k", b"appended")])
            with RawConnection(kafka.bootstrap, timeout_s=600) as connection:
                fields = produce_fields("client-lz4", {0: batch}, acks=-1)
                answer = connection.ask(ApiKey.PRODUCE, 9, **fields)
            assert answer.responses[0].partition_responses[0].error_code == 0
            appended += 1
        assert complaints(kafka, said) == []
