"""Append times and Apache Kafka: its tool resets them, its broker appends to such logs."""

import re
import shutil
import time
from pathlib import Path

import pytest
from bench.sides import horolog
from command_runner import run_command
from handing_over import complaints, give_to_kafka
from tools.golden import scenarios
from tools.golden.scenarios import Scenario
from tools.peers.kafka import Kafka, run_tool

from horolog.client import Client, RecordClock
from horolog.errors import RequestRefused
from horolog.record import LogRecord, build_batch

T0_MS = 1_577_836_800_000  # 2020-01-01
DAY_MS = 86_400_000


def configs(address: str, kind: str, name: str, *arguments: str) -> str:
    entity = ("--bootstrap-server", address, "--entity-type", kind, "--entity-name", name)
    return run_tool("configs", *entity, *arguments).stdout.decode()


def test_kafkas_tool_resets_append_times_and_sees_no_other_setting(address: str) -> None:
    batch = build_batch([LogRecord(-1, None, b"v")])
    with Client(address) as client:
        client.create_topics({"t": 2}, configs={"message.timestamp.type": "LogAppendTime"})
        configs(address, "brokers", "1", "--alter", "--add-config", "horolog.clock.advance=100d")
        client.produce("t", 0, batch)
        configs(address, "brokers", "1", "--alter", "--add-config", "horolog.clock.advance=-100d")
        assert client.produce("t", 0, batch).log_append_time_ms == T0_MS + 100 * DAY_MS
        reset = "horolog.append.time.reset=[0,1]"
        assert "Completed" in configs(address, "topics", "t", "--alter", "--add-config", reset)
        assert client.produce("t", 0, batch).log_append_time_ms == T0_MS
    described = configs(address, "topics", "t", "--describe", "--all")
    assert not re.search("append.time.(reset|ahead)", described)


def test_apache_kafka_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with Kafka(tmp_path) as kafka:
        with Client(kafka.bootstrap) as client:
            client.create_topics({"t": 1})
        refused = run_command("topics", "reset-append-time", "t", HOROLOG_BOOTSTRAP=kafka.bootstrap)
        assert refused.code == 1
        assert "Apache Kafka's go back with its clock" in refused.err


def test_the_order_of_append_times_is_that_of_apache_kafkas_stamps(tmp_path: Path) -> None:
    with Kafka(tmp_path) as kafka, Client(kafka.bootstrap) as client:
        client.create_topics({"stamped": 2}, configs={"message.timestamp.type": "LogAppendTime"})
        client.create_topics({"created": 1})
        for number in range(10):
            batch = build_batch([LogRecord(T0_MS, None, b"%d" % number)])
            client.appends.append({("stamped", number % 2): batch}, {})
            time.sleep(0.002)  # a millisecond of its own
        client.appends.append({("created", 0): batch}, {})
        order = ("--order", "append-time", "--format", "value", "-b", kafka.bootstrap)
        ran = run_command("consume", "stamped", *order)
        assert (ran.code, ran.lines) == (0, [str(number) for number in range(10)])
        refused = run_command("consume", "created", *order)
        assert refused.code == 1
        assert "created-0 has create times at offset 0" in refused.err


APPEND = RecordClock.APPEND
TOPIC = "arrivals"
SCENARIO = Scenario(TOPIC, "of both clocks", scenarios.nothing)


def send(client: Client, count: int) -> None:
    for _ in range(count):
        client.produce(TOPIC, 0, build_batch([LogRecord(T0_MS, None, b"v")]))


def append_times(client: Client) -> dict[int, int | None]:
    """By offset, as a fetch says it."""
    fetched = client.fetch(TOPIC, 0, 0, with_append_times=True, max_wait_ms=0)
    stretches = fetched.append_times
    ends = [*(each.offset for each in stretches[1:]), fetched.high_watermark]
    return {
        offset: each.ms
        for each, end in zip(stretches, ends, strict=True)
        for offset in range(each.offset, end)
    }


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_what_kafka_appended_in_between_is_unknown_and_nothing_else(
    tmp_path: Path, end: str
) -> None:
    with horolog(directory=tmp_path / "ours") as side, Client(side.bootstrap) as client:
        scenarios.create(side.bootstrap, [SCENARIO])
        send(client, 150)
        time.sleep(0.01)
        send(client, 1)
        ours = append_times(client)
        assert len(ours) == 151
        assert None not in ours.values()
        if end == "killed":
            side.kill()
    kafka = Kafka(tmp_path / "kafka")
    with kafka:
        scenarios.create(kafka.bootstrap, [SCENARIO])
        scenarios.settle(2)
    give_to_kafka(tmp_path / "ours" / "data", kafka)
    said = kafka.output.stat().st_size
    with kafka, Client(kafka.bootstrap) as client:
        scenarios.settle(2)
        send(client, 20)
        with pytest.raises(RequestRefused, match="keeps no append times of records"):
            client.find_records({(TOPIC, 0): 0}, RecordClock.APPEND)
    assert complaints(kafka, said) == []
    assert not list((kafka.log_dir / f"{TOPIC}-0").glob("*.appending.deleted"))
    shutil.copytree(kafka.log_dir, tmp_path / "back" / "data")
    for _ in range(2):
        with horolog(directory=tmp_path / "back") as side, Client(side.bootstrap) as client:
            send(client, 5)
            said_now = append_times(client)
            assert {offset: said_now[offset] for offset in ours} == ours
            assert [said_now[offset] for offset in range(151, 171)] == [None] * 20
            assert None not in [said_now[offset] for offset in said_now if offset >= 171]
            found = client.find_records({(TOPIC, 0): max(filter(None, ours.values())) + 1}, APPEND)
            assert found[TOPIC, 0] is not None
            assert (found[TOPIC, 0].offset, found[TOPIC, 0].ms) == (151, None)
