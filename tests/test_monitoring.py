"""Alert rules, dashboard and compose.yaml name what exists, and fit each other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from metrics_page import scrape
from running_broker import RunningBroker, a_broker

from horolog.client import Client
from horolog.config import Settings, parse_properties, with_provided

ROOT = Path(__file__).parent.parent
MONITORING = ROOT / "monitoring"
METRIC = re.compile(r"\b(?:horolog|kafka|process)_\w+")
JOB = "horolog"

broker = a_broker(horolog_metrics_port="0")


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def rules() -> list[dict[str, Any]]:
    groups = read("monitoring/alerts.yml")["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> list[str]:
    panels = json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_rules_dashboard_and_the_page_on_metrics_name_what_a_broker_exports(
    broker: RunningBroker,
) -> None:
    exported = set()
    for name, kind in scrape(broker).kinds.items():
        exported |= {name, f"{name}_bucket", f"{name}_count"} if kind == "histogram" else {name}
    expressions = [*(rule["expr"] for rule in rules()), *queries()]
    named = {name for expression in expressions for name in METRIC.findall(expression)}
    assert named <= exported
    rows = re.findall(r"^\| `(\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    assert set(rows) == set(scrape(broker).kinds)
    kinds = {f'kind="{kind}"' for kind in re.findall(r'kind="([\w-]+)"', " ".join(expressions))}
    assert kinds
    for kind in kinds:
        assert scrape(broker).of("horolog_health_problems")[("kind", kind[6:-1]),] == 0


def test_a_metric_whose_name_others_use_too_is_asked_for_of_brokers_alone() -> None:
    for rule in rules():
        for name, labels in re.findall(r"\b(up|(?:kafka|process)_\w+)(\{[^}]*\})?", rule["expr"]):
            ours = name.startswith("kafka_consumergroup") or f'job="{JOB}"' in labels
            assert ours, (rule["alert"], name)


def test_each_alert_says_what_happened_and_what_to_do_and_where_to_read_on() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 30
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        notes = rule["annotations"]
        assert notes.keys() <= {"summary", "runbook", "docs"}
        assert notes["summary"]
        assert notes["runbook"].endswith(".")
        page, _, section = notes.get("docs", "docs/operating.md").partition("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
        assert not section or section in {head.lower().replace(" ", "-") for head in headings}


def test_the_table_of_alerts_has_the_rules_with_their_runbooks() -> None:
    text = (ROOT / "docs/operating.md").read_text().partition("## Alerts\n")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert [(name, runbook) for name, _, runbook in rows[1:]] == [
        (
            f"**{rule['alert']}**" if rule["labels"]["severity"] == "critical" else rule["alert"],
            rule["annotations"]["runbook"],
        )
        for rule in rules()
    ]


def test_each_alert_has_a_test_in_which_it_fires() -> None:
    fires = [
        re.findall(r'alertname="(\w+)"', sample["labels"])
        for test in read("monitoring/alerts_test.yml")["tests"]
        for asked in test["promql_expr_test"]
        for sample in asked["exp_samples"]
    ]
    assert {name for (name,) in fires} == {rule["alert"] for rule in rules()}


def test_compose_mounts_what_exists_at_the_places_that_the_services_read() -> None:
    services = read("compose.yaml")["services"]
    assert services.keys() == {"horolog", "prometheus", "grafana"}
    inside: dict[str, dict[str, Path]] = {name: {} for name in services}
    for name, service in services.items():
        for mount in service["volumes"]:
            outside, place, *mode = mount.split(":")
            if outside.startswith("."):
                assert mode == ["ro"]
                inside[name][place] = ROOT / outside
                assert inside[name][place].is_file()
            else:
                assert outside in read("compose.yaml")["volumes"]
    prometheus = inside["prometheus"]
    config = yaml.safe_load(prometheus["/etc/prometheus/prometheus.yml"].read_text())
    assert [f"/etc/prometheus/{name}" for name in config["rule_files"]] == [
        place for place in prometheus if place.endswith("alerts.yml")
    ]
    grafana = inside["grafana"]
    (provider,) = yaml.safe_load(
        grafana["/etc/grafana/provisioning/dashboards/horolog.yml"].read_text()
    )["providers"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).parent == Path(provider["options"]["path"])
    assert grafana[home] == MONITORING / "grafana-dashboard.json"
    (source,) = yaml.safe_load(
        grafana["/etc/grafana/provisioning/datasources/horolog.yml"].read_text()
    )["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"]


def test_compose_opens_ports_on_this_machine_alone_and_names_no_registry() -> None:
    for name, service in read("compose.yaml")["services"].items():
        (port,) = service["ports"]
        assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port), name
        host, slash, _ = service["image"].partition("/")
        assert not slash or not re.search(r"[.:]", host), name


def test_the_broker_of_compose_asks_for_a_login_and_takes_the_password_of_a_secret(
    tmp_path: Path,
) -> None:
    compose = read("compose.yaml")
    service = compose["services"]["horolog"]
    assert service["secrets"] == ["admin"]
    assert compose["secrets"] == {"admin": {"file": "./secrets/admin"}}
    assert "secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    (tmp_path / "admin").write_text("pencil")
    assert service["healthcheck"]["test"] == ["CMD", "horolog", "health", "--alive"]
    file = service["command"][service["command"].index("--config") + 1]
    mounts = {place: outside for outside, place, *_ in map(split, service["volumes"])}
    text = (ROOT / mounts[file]).read_text().replace("/run/secrets", str(tmp_path))
    settings = with_provided(parse_properties(text, file))
    config = Settings(settings).broker_config()
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="admin" password="pencil";'
        ),
    }
    listeners = ",".join(f"{it.name}://127.0.0.1:0" for it in config.listeners)
    here = {"listeners": listeners, "advertised.listeners": listeners, "horolog.metrics.port": "0"}
    with RunningBroker(
        tmp_path / "log", {**settings, "log.dir": str(tmp_path / "log"), **here}
    ) as (broker):
        for bound in broker.bound:
            with Client(f"{bound.host}:{bound.port}", security=login) as client:
                assert client.acls.list() == []
    assert config.log_dir in mounts
    ports = {endpoint.port for endpoint in config.listeners}
    assert {int(split(port)[-1]) for port in service["ports"]} < ports
    (scraped,) = read("monitoring/prometheus.yml")["scrape_configs"]
    assert scraped["job_name"] == JOB
    assert scraped["static_configs"] == [{"targets": [f"horolog:{config.horolog_metrics_port}"]}]
    inside = {endpoint.host for endpoint in config.advertised_listeners}
    assert inside == {"localhost", "horolog"}


def split(mount: str) -> list[str]:
    return mount.split(":")


@pytest.mark.parametrize("place", range(2))
def test_configurations_on_the_page_on_metrics_scrape_the_job_of_the_alerts(place: int) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/metrics.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    config = yaml.safe_load(blocks[place])
    if place:
        pipeline = config["service"]["pipelines"]["metrics"]
        assert set(pipeline["receivers"]) <= config["receivers"].keys()
        assert set(pipeline["exporters"]) <= config["exporters"].keys()
        config = config["receivers"]["prometheus"]["config"]
    (scraped,) = config["scrape_configs"]
    assert scraped["job_name"] == JOB
