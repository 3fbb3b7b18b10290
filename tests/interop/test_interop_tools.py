"""Kafka's own console tools, and kcat, against a broker."""

import json
import os
import re
import shutil
import subprocess

import pytest
from tools.peers.kafka import PEERS, run_tool

from horolog.clock import SystemClock

T0_MS = 1_700_000_000_000
FOREVER = "retention.ms=-1"


def tool(broker, name: str, *arguments: str, stdin: bytes | None = None) -> str:
    """What a tool says on standard output; it must end well."""
    done = run_tool(name, "--bootstrap-server", broker.bootstrap, *arguments, stdin=stdin)
    return done.stdout.decode()


@pytest.fixture
def filled(broker, java_client, topic):
    """A topic with four records, out of order in time."""
    name = topic("tools")
    java_client.ask(broker, "create", topic=name, config={"retention.ms": "-1"})
    records = [[T0_MS + at, "k", f"v{at}"] for at in (5, 1, 9, 3)]
    java_client.ask(broker, "produce", topic=name, codec="lz4", records=records)
    return name


def test_topics_are_made_listed_described_widened_and_deleted(broker, topic):
    name = topic("console")
    made = tool(
        broker, "topics", "--create", "--topic", name, "--partitions", "2", "--config", FOREVER
    )
    assert f"Created topic {name}" in made
    assert name in tool(broker, "topics", "--list").split()
    described = tool(broker, "topics", "--describe", "--topic", name)
    assert "PartitionCount: 2" in described
    assert "retention.ms=-1" in described
    assert re.search(r"TopicId: \S{22}\s", described)
    tool(broker, "topics", "--alter", "--topic", name, "--partitions", "3")
    assert "PartitionCount: 3" in tool(broker, "topics", "--describe", "--topic", name)
    tool(broker, "topics", "--delete", "--topic", name)
    assert name not in tool(broker, "topics", "--list").split()


def test_settings_are_changed_and_removed(broker, filled):
    entity = ("--entity-type", "topics", "--entity-name", filled)
    tool(broker, "configs", *entity, "--alter", "--add-config", "segment.ms=7200000")
    assert "segment.ms=7200000" in tool(broker, "configs", *entity, "--describe")
    tool(broker, "configs", *entity, "--alter", "--delete-config", "segment.ms")
    assert "segment.ms" not in tool(broker, "configs", *entity, "--describe")


def test_settings_of_a_group_are_changed_and_removed(broker):
    entity = ("--entity-type", "groups", "--entity-name", "of-tools")
    setting = "consumer.heartbeat.interval.ms"
    tool(broker, "configs", *entity, "--alter", "--add-config", f"{setting}=6000")
    assert f"{setting}=6000" in tool(broker, "configs", *entity, "--describe")
    assert "group of-tools" in tool(broker, "configs", *entity[:2], "--describe")
    tool(broker, "configs", *entity, "--alter", "--delete-config", setting)
    assert f"{setting}=6000" not in tool(broker, "configs", *entity, "--describe")


def test_a_cluster_wide_bound_on_time_is_changed_while_running(broker, java_client, topic):
    name = topic("bound")
    java_client.ask(broker, "create", topic=name)
    entity = ("--entity-type", "brokers", "--entity-default")
    bound = "log.message.timestamp.before.max.ms"
    tool(broker, "configs", *entity, "--alter", "--add-config", f"{bound}=60000")
    try:
        refused = java_client.ask(broker, "produce", topic=name, records=[[T0_MS, "a", "old"]])
        assert refused["records"][0]["error"] == 32
    finally:
        tool(broker, "configs", *entity, "--alter", "--delete-config", bound)
    taken = java_client.ask(broker, "produce", topic=name, records=[[T0_MS, "a", "old"]])
    assert taken["records"][0]["offset"] == 0


def test_the_console_producer_and_consumer_speak_to_each_other(broker, topic):
    name = topic("console-pipe")
    tool(broker, "topics", "--create", "--topic", name)
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool(broker, "producer", "--topic", name, *properties, stdin=b"a:one\nb:two\n")
    printed = tool(
        broker,
        "consumer",
        *("--topic", name, "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000"),
        *("--formatter-property", "print.timestamp=true"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"),
    )
    now_ms = SystemClock().now_ms()
    rows = [line.split("\t") for line in printed.splitlines()]
    assert [row[1:] for row in rows] == [["Offset:0", "a", "one"], ["Offset:1", "b", "two"]]
    assert all(now_ms - 60_000 < int(row[0].removeprefix("CreateTime:")) <= now_ms for row in rows)


@pytest.mark.parametrize(
    ("at", "offset"),
    [
        ("earliest", 0),
        ("latest", 4),
        ("max-timestamp", 2),
        (str(T0_MS), 0),
        (str(T0_MS + 6), 2),
    ],
)
def test_the_offset_tool_finds_moments(broker, filled, at, offset):
    printed = tool(broker, "offsets", "--topic", filled, "--time", at)
    assert printed.strip() == f"{filled}:0:{offset}"


def test_the_group_tool_lists_describes_and_moves_groups_to_a_moment(broker, filled, topic):
    group = topic("tool-group")
    tool(
        broker,
        "consumer",
        *("--topic", filled, "--group", group, "--from-beginning"),
        *("--max-messages", "4", "--timeout-ms", "20000"),
    )
    assert group in tool(broker, "groups", "--list").split()
    described = tool(broker, "groups", "--describe", "--group", group)
    assert re.search(rf"{group}\s+{filled}\s+0\s+4\s+4\s+0", described), described
    moment = "2023-11-14T22:13:20.006Z"  # T0 and 6 ms
    moved = tool(
        broker,
        "groups",
        *("--group", group, "--topic", filled, "--reset-offsets"),
        *("--to-datetime", moment, "--execute"),
    )
    assert re.search(rf"{group}\s+{filled}\s+0\s+2", moved), moved
    tool(broker, "groups", "--delete", "--group", group)
    assert group not in tool(broker, "groups", "--list").split()


def test_records_are_deleted_up_to_an_offset(broker, filled, tmp_path):
    asked = tmp_path / "delete.json"
    place = {"topic": filled, "partition": 0, "offset": 3}
    asked.write_text(json.dumps({"version": 1, "partitions": [place]}))
    assert "low_watermark: 3" in tool(broker, "delete-records", "--offset-json-file", str(asked))
    assert tool(broker, "offsets", "--topic", filled, "--time", "earliest").strip().endswith(":3")


def test_log_directories_are_described(broker, filled):
    printed = tool(broker, "log-dirs", "--describe", "--topic-list", filled)
    assert f'"partition":"{filled}-0"' in printed
    assert '"error":null' in printed


def test_versions_are_reported(broker):
    printed = tool(broker, "api-versions")
    assert "Produce(0): 0 to" in printed
    assert "ListOffsets(2): 0 to" in printed


def test_the_performance_tool_runs(broker, topic):
    name = topic("perf")
    tool(broker, "topics", "--create", "--topic", name)
    printed = run_tool(
        "perf-producer",
        *("--topic", name, "--num-records", "5000", "--record-size", "200", "--throughput", "-1"),
        *("--bootstrap-server", broker.bootstrap),
    ).stdout.decode()
    assert "5000 records sent" in printed


# --- kcat -----------------------------------------------------------------------------------------


@pytest.fixture
def kcat(broker):
    """Run kcat (an older librdkafka) and return what it prints."""
    own = PEERS / "kcat" / "usr"
    program = shutil.which("kcat") or str(own / "bin" / "kcat")
    if not os.path.exists(program):
        pytest.skip("no kcat: apt-get install kcat")
    libraries = os.pathsep.join(map(str, own.glob("lib/*-linux-gnu")))

    def run(*arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [program, "-b", broker.bootstrap, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_sends_and_reads_every_codec(broker, kcat, topic, codec):
    name = topic(f"kcat-{codec}")
    tool(broker, "topics", "--create", "--topic", name)
    lines = "".join(f"k{at}:value {at} value {at}\n" for at in range(50))
    kcat("-P", "-t", name, "-K", ":", "-z", codec, stdin=lines)
    printed = kcat("-C", "-t", name, "-e", "-q", "-f", "%o %T %k:%s\n")
    rows = [line.split(" ", 2) for line in printed.splitlines()]
    assert [int(row[0]) for row in rows] == list(range(50))
    assert "".join(row[2] + "\n" for row in rows) == lines


def test_kcat_asks_for_a_moment(kcat, filled):
    assert kcat("-Q", "-t", f"{filled}:0:{T0_MS + 6}").strip() == f"{filled} [0] offset 2"
    printed = kcat("-C", "-t", filled, "-o", f"s@{T0_MS + 6}", "-e", "-q", "-f", "%T %s\n")
    assert printed.splitlines() == [f"{T0_MS + 9} v9", f"{T0_MS + 3} v3"]


def test_kcat_lists_the_broker(kcat, broker, filled):
    listed = kcat("-L")
    assert broker.bootstrap in listed
    assert f'topic "{filled}" with 1 partitions' in listed
