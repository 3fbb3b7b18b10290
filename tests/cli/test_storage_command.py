"""`horolog storage`: the identity of a log directory, as Kafka's tool writes it."""

from pathlib import Path

import pytest
from command_runner import run_command

CLUSTER_ID = "AAECAwQFBgcICQoLDA0ODw"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return properties(tmp_path)


def properties(tmp_path: Path, *, roles: str = "broker") -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        f"process.roles={roles}\n"
        "node.id=7\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "controller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:0\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    return path


def test_a_directory_is_formatted_once(config: Path, tmp_path: Path) -> None:
    made = run_command("storage", "format", "--cluster-id", CLUSTER_ID, "--config", config)
    assert (made.code, made.out) == (
        0,
        f"{tmp_path / 'data'} is formatted: node 7 of cluster {CLUSTER_ID}\n",
    )
    lines = (tmp_path / "data" / "meta.properties").read_text().splitlines()
    assert lines[:3] == ["version=1", f"cluster.id={CLUSTER_ID}", "node.id=7"]
    assert lines[3].startswith("directory.id=")
    again = run_command("storage", "format", "-t", CLUSTER_ID, "-c", config)
    assert again.code == 2
    assert "is formatted already; --ignore-formatted" in again.err
    kept = run_command("storage", "format", "-g", "-t", CLUSTER_ID, "-c", config, "--json").json
    assert kept["was_formatted"]
    assert (tmp_path / "data" / "meta.properties").read_text().splitlines() == lines
    other = run_command("storage", "format", "-g", "-t", "another", "-c", config)
    assert f"is of cluster {CLUSTER_ID}, not of another" in other.err


def test_what_has_metadata_of_another_broker_is_not_formatted(config: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "__cluster_metadata-0").mkdir(parents=True)
    refused = run_command("storage", "format", "-t", CLUSTER_ID, "-c", config)
    assert "the metadata of another broker" in refused.err
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["__cluster_metadata-0"]


def test_a_node_alone_needs_no_format(tmp_path: Path) -> None:
    config = properties(tmp_path, roles="broker,controller")
    refused = run_command("storage", "format", "-t", CLUSTER_ID, "-c", config)
    assert "is that of a node alone, whose directory needs no format" in refused.err


def test_the_identity_and_the_last_stop_are_shown(config: Path, tmp_path: Path) -> None:
    assert run_command("storage", "info", "-c", config, "--json").json["formatted"] == "no"
    run_command("storage", "format", "-t", CLUSTER_ID, "-c", config)
    assert "closed" not in run_command("storage", "info", "-c", config, "--json").json
    (tmp_path / "data" / "events-0").mkdir()
    assert "closed: not cleanly, or in use" in run_command("storage", "info", "-c", config).lines
    (tmp_path / "data" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":42}')
    shown = run_command("storage", "info", "--config", config).lines
    assert f"cluster.id: {CLUSTER_ID}" in shown
    assert "of: a cluster" in shown
    assert shown[-1] == "closed: cleanly, in broker epoch 42"


def test_new_ids_are_never_options() -> None:
    made = {run_command("storage", "random-uuid").out.strip() for _ in range(20)}
    assert len(made) == 20
    assert {len(text) for text in made} == {22}
    assert not any(text.startswith("-") for text in made)
