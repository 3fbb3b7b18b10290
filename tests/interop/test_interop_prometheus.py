"""A real Prometheus scrapes a busy broker and answers its dashboard; promtool reads pages."""

from __future__ import annotations

import json
import math
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from patience import PATIENCE_S, eventually
from raw_connection import fetch_fields
from running_broker import RunningBroker, a_broker

from horolog.client import CommittedOffset
from horolog.errors import ErrorCode
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

ROOT = Path(__file__).resolve().parents[2]
BINARIES = ROOT / ".peers/prometheus/usr/bin"
LOAD_S = 5

PROVOKED = {
    f"Horolog{what}"
    for what in (
        "CompletenessWithdrawn",
        "ConsumerLostRecords",
        "RecordsExpireOnArrival",
        "RecordsRefused",
        "RetentionKeeps",
        "RetentionOvertakesConsumer",
        "ProduceErrors",
    )
}

source = a_broker("followed", now_ms=None)
broker = a_broker("load", partitions=3, now_ms=None, horolog_metrics_port="0")


class Prometheus:
    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, query: str) -> dict[str, float]:
        """The values of a query, by topic."""
        found = self._get("query", query=query)["result"]
        return {each["metric"].get("topic", ""): float(each["value"][1]) for each in found}

    def has_numbers(self, query: str) -> bool:
        """Whether a query has a value that a panel can show."""
        return any(map(math.isfinite, self.ask(query).values()))

    def has_values(self, metric: str, label: str) -> bool:
        """Whether there are values of a label to choose from."""
        return bool(self._get(f"label/{label}/values", **{"match[]": metric}))

    def alerts(self) -> dict[str, tuple[str, str]]:
        """Health and state of each rule, by its alert."""
        groups = self._get("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return {rule["name"]: (rule["health"], rule["state"]) for rule in rules}

    def _get(self, path: str, **asked: str) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)["data"]


@contextmanager
def scraping(target: str, directory: Path) -> Iterator[Prometheus]:
    config = directory / "prometheus.yml"
    rules = ROOT / "monitoring/alerts.yml"
    config.write_text(
        f"{{global: {{evaluation_interval: 1s}}, rule_files: [{rules}], "
        "scrape_configs: [{job_name: horolog, scrape_interval: 1s, scrape_timeout: 1s, "
        f'static_configs: [{{targets: ["{target}"]}}]}}]}}\n'
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    said = directory / "said"
    with said.open("w") as output:
        process = subprocess.Popen(
            [
                BINARIES / "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={address}",
            ],
            stderr=output,
        )
    try:
        assert eventually(lambda: "Server is ready" in said.read_text()), said.read_text()
        yield Prometheus(address)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_prometheus_agrees_with_what_was_sent_and_misses_no_scrape(
    broker: RunningBroker, tmp_path: Path
) -> None:
    assert broker.service.metrics is not None
    with scraping(broker.service.metrics.address, tmp_path) as prometheus:
        assert eventually(lambda: prometheus.ask("up") == {"": 1})
        producer, sent = Producer({"bootstrap.servers": broker.address}), 0
        until = time.monotonic() + LOAD_S
        while time.monotonic() < until:
            for _ in range(100):
                producer.produce("load", b"x" * 200, timestamp=broker.clock.now_ms() - 50)
                sent += 1
            producer.flush()
        messages = "kafka_server_brokertopicmetrics_messagesin_total"
        assert eventually(lambda: prometheus.ask(messages) == {"": sent, "load": sent})
        latency = "horolog_create_to_append_latency_milliseconds"
        assert prometheus.ask(f"{latency}_count") == {"load": sent}
        assert prometheus.ask(f'{latency}_bucket{{le="9"}}') == {"load": 0}
        assert prometheus.ask("min_over_time(up[1m])") == {"": 1}


def test_promtool_finds_nothing_wrong_but_milliseconds_and_names_of_kafka(
    broker: RunningBroker,
) -> None:
    assert broker.service.metrics is not None
    url = f"http://{broker.service.metrics.address}/metrics?partitions=true"
    with urllib.request.urlopen(url) as page:
        check = [BINARIES / "promtool", "check", "metrics"]
        text = page.read().decode()
    done = subprocess.run(check, input=text, capture_output=True, text=True, check=False)
    advice = 'use base unit "seconds" instead of "milliseconds"'  # Kafka's times are milliseconds
    lines = [line for line in done.stderr.splitlines() if not line.startswith("kafka_")]
    assert all(line.endswith(advice) for line in lines), done.stderr
    assert done.returncode in (0, 3)


def test_every_panel_and_every_variable_of_the_dashboard_has_something_to_show(
    broker: RunningBroker, source: RunningBroker, tmp_path: Path
) -> None:
    broker.restart(horolog_follow=source.address, horolog_follow_topics="followed")
    dashboard = json.loads((ROOT / "monitoring/grafana-dashboard.json").read_text())
    queries = [each["expr"] for panel in dashboard["panels"] for each in panel.get("targets", ())]
    variables = [
        re.findall(r"label_values\((\w+), (\w+)\)", each["query"]["query"])[0]
        for each in dashboard["templating"]["list"]
        if each["type"] == "query"
    ]
    values = {each["name"]: each.get("allValue") for each in dashboard["templating"]["list"]}
    values["__rate_interval"] = "15s"
    assert broker.service.metrics is not None
    hour_ms, now_ms = 3_600_000, broker.clock.now_ms()
    broker.create_topic("short", retention_ms=str(hour_ms), segment_ms=str(hour_ms))
    appended(broker, "short", now_ms - hour_ms // 2, -1)
    far = {"message_timestamp_after_max_ms": str(9 * hour_ms)}
    broker.create_topic("held", retention_ms=str(hour_ms), **far)
    appended(broker, "held", now_ms + 2 * hour_ms)
    broker.create_topic("bounded", message_timestamp_before_max_ms=str(hour_ms))
    eager = {"min_cleanable_dirty_ratio": "0", "min_compaction_lag_ms": "0"}
    broker.create_topic("compacted", cleanup_policy="compact", **eager)
    for _ in range(2):
        broker.append("compacted", build_batch([LogRecord(now_ms, b"k", b"v")]))
        broker.roll("compacted")
    broker.create_topic("withdrawn", message_timestamp_before_max_ms=str(hour_ms))
    broker.alter("withdrawn", message_timestamp_before_max_ms=str(9 * hour_ms))
    broker.create_topic("old", retention_ms=str(hour_ms))
    old_batch = build_batch([LogRecord(now_ms - 2 * hour_ms, None, b"v")])
    broker.append("old", old_batch)
    broker.run(broker.service.background_tasks.run_retention())
    broker.run(broker.service.background_tasks.catch_up())
    broker.client.offset_commit("lost", {("load", 0): CommittedOffset(0)})
    appended(broker, "load", 1, 2)
    cut = {"name": "load", "partitions": [{"partition_index": 0, "offset": 1}]}
    broker.ask(ApiKey.DELETE_RECORDS, 2, topics=[cut])

    def show_all(prometheus: Prometheus) -> list[str]:
        """What shows nothing, after some more of everything that there is a panel for."""
        now_ms = broker.clock.now_ms()
        appended(broker, "load", now_ms - 500, now_ms + 60_000, -1)
        refused = broker.produce("load", build_batch([LogRecord(1000 * now_ms, None, b"v")]))
        assert refused.error_code == ErrorCode.invalid_timestamp
        with broker.connect() as connection:
            connection.ask(ApiKey.FETCH, 2, **fetch_fields("load", {0: 1}))
        assert broker.produce("old", old_batch).error_code == ErrorCode.none
        for topic in ("load", "short"):
            broker.client.offset_commit("slow", {(topic, 0): CommittedOffset(1)})
        empty = [query for query in queries if not prometheus.has_numbers(filled(query, values))]
        return empty + [str(each) for each in variables if not prometheus.has_values(*each)]

    with scraping(broker.service.metrics.address, tmp_path) as prometheus:
        assert eventually(lambda: not show_all(prometheus)), show_all(prometheus)

        def alerting() -> set[str]:
            show_all(prometheus)
            alerts = prometheus.alerts()
            assert {health for health, _ in alerts.values()} == {"ok"}
            alerts.pop("HorologDiskFills")  # others write to this machine's disk, too
            return {name for name, (_, state) in alerts.items() if state != "inactive"}

        assert eventually(lambda: alerting() == PROVOKED), alerting() ^ PROVOKED
        (overtaken,) = (query for query in queries if query.startswith("count("))
        assert prometheus.ask(filled(overtaken, values)) == {"": 2}, "groups"


def appended(broker: RunningBroker, topic: str, *times: int) -> None:
    broker.append(topic, build_batch([LogRecord(each, None, b"v") for each in times]))


def filled(query: str, values: dict[str, str]) -> str:
    """As Grafana asks it, where all is chosen."""
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], query)


@pytest.mark.parametrize("command", [["check", "rules"], ["test", "rules"]])
def test_promtool_finds_the_rules_right_and_each_fires_when_it_should(command: list[str]) -> None:
    name = "alerts.yml" if command[0] == "check" else "alerts_test.yml"
    done = subprocess.run(
        [BINARIES / "promtool", *command, name],
        cwd=ROOT / "monitoring",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("place", ["compose", "page", "collector"])
def test_promtool_takes_each_configuration_that_users_get(place: str, tmp_path: Path) -> None:
    config = tmp_path / "prometheus.yml"
    if place == "compose":
        (tmp_path / "alerts.yml").write_text((ROOT / "monitoring/alerts.yml").read_text())
        config.write_text((ROOT / "monitoring/prometheus.yml").read_text())
    else:
        blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/metrics.md").read_text(), re.DOTALL)
        read = yaml.safe_load(blocks[place == "collector"])
        its = read["receivers"]["prometheus"]["config"] if place == "collector" else read
        config.write_text(yaml.safe_dump(its))
    check = [BINARIES / "promtool", "check", "config", config]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
