"""A real Prometheus scrapes a broker under load, and its promtool reads page and dashboard."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from patience import PATIENCE_S, eventually
from running_broker import RunningBroker, a_broker

ROOT = Path(__file__).resolve().parents[2]
BINARIES = ROOT / ".peers/prometheus/usr/bin"
LOAD_S = 5

broker = a_broker("load", partitions=3, now_ms=None, horolog_metrics_port="0")


class Prometheus:
    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, query: str) -> dict[str, float]:
        """The values of a query, by topic."""
        asked = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"http://{self._address}/api/v1/query?{asked}") as answer:
            found = json.load(answer)["data"]["result"]
        return {each["metric"].get("topic", ""): float(each["value"][1]) for each in found}


@contextmanager
def scraping(target: str, directory: Path) -> Iterator[Prometheus]:
    config = directory / "prometheus.yml"
    config.write_text(
        "scrape_configs: [{job_name: horolog, scrape_interval: 1s, scrape_timeout: 1s, "
        f'static_configs: [{{targets: ["{target}"]}}]}}]\n'
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


def test_promtool_finds_nothing_wrong_with_a_page_but_milliseconds(broker: RunningBroker) -> None:
    assert broker.service.metrics is not None
    url = f"http://{broker.service.metrics.address}/metrics?partitions=true"
    with urllib.request.urlopen(url) as page:
        check = [BINARIES / "promtool", "check", "metrics"]
        text = page.read().decode()
    done = subprocess.run(check, input=text, capture_output=True, text=True, check=False)
    advice = 'use base unit "seconds" instead of "milliseconds"'  # Kafka's times are milliseconds
    assert all(line.endswith(advice) for line in done.stderr.splitlines()), done.stderr
    assert done.returncode in (0, 3)


def test_promtool_reads_every_query_of_the_dashboard(tmp_path: Path) -> None:
    dashboard = json.loads((ROOT / "docs/grafana-dashboard.json").read_text())
    rules = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "1m")
            rules.append({"record": f"r{len(rules)}", "expr": query})
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    check = [BINARIES / "promtool", "check", "rules", file]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
