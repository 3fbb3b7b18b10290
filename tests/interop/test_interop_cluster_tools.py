"""Apache Kafka's own tools at a horolog that is a broker of Kafka's cluster, as at Kafka's broker.

What changes something is asked of horolog, which passes it on; what describes, of both.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_runner import run_command
from patience import eventually
from tools.cluster import Cluster, running_cluster
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST, jars, run_tool

pytestmark = pytest.mark.interop

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
KAFKA, HOROLOG = 0, 1


class Tools:
    """Tools of one release, at a cluster of a Kafka (1) and a horolog (2)."""

    def __init__(self, cluster: Cluster, peer: str) -> None:
        self.cluster = cluster
        self.peer = peer

    def run(self, name: str, *arguments: str, at: int = HOROLOG, stdin: bytes | None = None) -> str:
        """What a tool says; it has to end well."""
        server = ("--bootstrap-server", self.cluster.nodes[at].address)
        if name == "cluster":
            arguments = (arguments[0], *server, *arguments[1:])
        else:
            arguments = (*server, *arguments)
        return run_tool(name, *arguments, peer=self.peer, stdin=stdin).stdout.decode()

    def both(self, name: str, *arguments: str) -> str:
        """What a tool says at horolog; at Kafka's broker it says the same, in any order.

        But for settings of topics: a broker says which its own file has.
        """
        found = (self.run(name, *arguments, at=at) for at in (HOROLOG, KAFKA))
        said = [re.sub(r"Configs: .*", "", it) for it in found]
        assert sorted(said[0].splitlines()) == sorted(said[1].splitlines())
        return said[0]

    def refused(self, name: str, *arguments: str) -> str:
        """What a tool says that ends with an error."""
        done = run_tool(
            name,
            *("--bootstrap-server", self.cluster.nodes[HOROLOG].address),
            *arguments,
            peer=self.peer,
            check=False,
        )
        assert done.returncode != 0, done.stdout
        return (done.stdout + done.stderr).decode()


@pytest.fixture(scope="module", params=[NEWEST, LAST_WITH_OLD_FORMATS])
def tools(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Tools]:
    jars(request.param)
    more: Any = {"peer": request.param, "settings": AUTHORIZER, "of_controllers": AUTHORIZER}
    directory = tmp_path_factory.mktemp("cluster")
    with running_cluster("kh", 1, directory=directory, **more) as cluster:
        yield Tools(cluster, request.param)


def test_topics_are_made_described_grown_and_deleted(tools: Tools) -> None:
    tools.run("topics", "--create", "--topic", "made", "--replica-assignment", "1:2,2:1,1:2")
    assert eventually(lambda: "Isr: 2,1" in tools.run("topics", "--describe", "--topic", "made"))
    said = tools.both("topics", "--describe", "--topic", "made")
    assert "PartitionCount: 3" in said
    assert re.search(r"Partition: 1\s+Leader: 2\s+Replicas: 2,1\s+Isr: 2,1", said)
    tools.run("topics", "--alter", "--topic", "made", "--partitions", "4")
    assert eventually(
        lambda: "PartitionCount: 4" in tools.both("topics", "--describe", "--topic", "made")
    )
    tools.run("topics", "--delete", "--topic", "made")
    assert eventually(lambda: "made" not in tools.both("topics", "--list").split())


def test_settings_of_topics_and_brokers_are_altered_and_described(tools: Tools) -> None:
    tools.run("topics", "--create", "--topic", "set", "--replica-assignment", "1")
    of_topic = ("--entity-type", "topics", "--entity-name", "set")
    tools.run("configs", "--alter", *of_topic, "--add-config", "retention.ms=1234567")
    # Kafka's tool asks any broker, of which Kafka's refuse our settings.
    here, by = ("-b", tools.cluster.nodes[HOROLOG].address), "horolog.retention.by=append-time"
    assert eventually(lambda: "set" in tools.run("topics", "--list").split())
    assert run_command("topics", "alter", "set", *here, "-c", by).code == 0

    def described(at: int, *of: str) -> str:
        return tools.run("configs", "--describe", *of, at=at)

    shown = ("topics", "describe", "set", *here)
    assert eventually(lambda: "append-time" in run_command(*shown).out)
    for at in (HOROLOG, KAFKA):
        assert "retention.ms=1234567" in described(at, *of_topic)
    assert run_command("topics", "alter", "set", *here, "--unset", by.partition("=")[0]).code == 0
    assert eventually(lambda: "append-time" not in run_command(*shown).out)
    shared = ("--entity-type", "brokers", "--entity-default")
    assert "horolog.topic" not in described(KAFKA, *shared)
    tools.run("configs", "--alter", *shared, "--add-config", "log.retention.ms=7777777")
    for at, node_id in ((HOROLOG, "2"), (KAFKA, "1")):
        own = ("--entity-type", "brokers", "--entity-name", node_id)
        tools.run("configs", "--alter", *own, "--add-config", "log.cleaner.threads=2")
        assert eventually(lambda at=at, own=own: "log.cleaner.threads=2" in described(at, *own))
        assert "log.retention.ms=7777777" in described(at, *shared)
        loggers = ("--entity-type", "broker-loggers", "--entity-name", node_id)
        assert "root=" in described(at, *loggers)
    logger = "horolog.broker.service"
    of_2 = ("--entity-type", "broker-loggers", "--entity-name", "2")
    tools.run("configs", "--alter", *of_2, "--add-config", f"{logger}=DEBUG")
    assert f"{logger}=DEBUG" in described(HOROLOG, *of_2)


def test_users_quotas_and_rights_are_those_of_the_cluster(tools: Tools) -> None:
    user = ("--entity-type", "users", "--entity-name", "u")
    tools.run("configs", "--alter", *user, "--add-config", "SCRAM-SHA-256=[password=secret12]")
    tools.run("configs", "--alter", *user, "--add-config", "producer_byte_rate=1000")
    wanted = "producer_byte_rate=1000.0"
    assert eventually(
        lambda: wanted in tools.run("configs", "--describe", "--entity-type", "users")
    )
    said = tools.both("configs", "--describe", "--entity-type", "users")
    assert "SCRAM-SHA-256=iterations=4096" in said
    if tools.peer == NEWEST:  # the tool is elsewhere in older releases
        right = ("--allow-principal", "User:x", "--operation", "Read", "--topic", "t")
        tools.run("acls", "--add", *right)
        assert eventually(lambda: "principal=User:x" in tools.both("acls", "--list"))
        tools.run("acls", "--remove", "--force", *right)
        assert eventually(lambda: "principal=User:x" not in tools.both("acls", "--list"))


def test_the_quorum_and_features_are_described_and_changed(tools: Tools) -> None:
    said = tools.run("quorum", "describe", "--status")
    assert "LeaderId:               100" in said
    replication = tools.run("quorum", "describe", "--replication")
    assert re.search(r"^2\s.*Observer", replication, re.MULTILINE)
    features = tools.run("features", "describe")
    assert re.search(r"Feature: metadata.version\s.*FinalizedVersionLevel: \S+", features)
    if tools.peer == NEWEST:
        assert "downgraded" in tools.run("features", "downgrade", "--feature", "streams.version=0")
        assert eventually(
            lambda: (
                "streams.version"
                not in "".join(
                    line
                    for line in tools.run("features", "describe").splitlines()
                    if "FinalizedVersionLevel: 1" in line
                )
            )
        )
    refused = tools.refused(
        "quorum",
        "remove-controller",
        "--controller-id",
        "9",
        "--controller-directory-id",
        "AAAAAAAAAAAAAAAAAAAAAQ",
    )
    assert "UnsupportedVersionException" in refused


def test_a_partition_moves_here_and_back(tools: Tools, tmp_path: Path) -> None:
    tools.run("topics", "--create", "--topic", "moved", "--replica-assignment", "1")
    tools.run("producer", "--topic", "moved", stdin=b"".join(b"%d\n" % n for n in range(10)))
    for replicas in ([2], [2, 1], [1]):
        file = tmp_path / "replicas.json"
        moved = {"topic": "moved", "partition": 0, "replicas": replicas}
        file.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        given = ("--reassignment-json-file", str(file))
        assert "Successfully started" in tools.run("reassign", *given, "--execute")
        assert eventually(
            lambda given=given: "is completed" in tools.run("reassign", *given, "--verify")
        )
        assert "No partition reassignments found" in tools.run("reassign", "--list")
        said = tools.both("topics", "--describe", "--topic", "moved")
        assert f"Leader: {replicas[0]}" in said
        assert tools.both("offsets", "--topic", "moved") == "moved:0:10\n"
    assert "elected" in tools.run(
        "leader-election", "--election-type", "preferred", "--topic", "moved", "--partition", "0"
    )


def test_records_are_written_and_read_by_groups_through_either_broker(tools: Tools) -> None:
    tools.run("topics", "--create", "--topic", "read", "--replica-assignment", "1:2,2:1")
    tools.run("producer", "--topic", "read", stdin=b"1\n2\n3\n")
    read = tools.run(
        "consumer", "--topic", "read", "--from-beginning", "--group", "g", "--max-messages", "3"
    )
    assert sorted(read.split()) == ["1", "2", "3"]
    assert "g" in tools.run("groups", "--list").split()
    assert "read" in tools.run("groups", "--describe", "--all-groups")
    reset = ("--reset-offsets", "--group", "g", "--topic", "read", "--to-earliest", "--execute")
    assert "read" in tools.run("groups", *reset)
    assert "successful" in tools.run("groups", "--delete", "--group", "g")
    assert "TransactionalId" in tools.run("transactions", "list")
    dirs = json.loads(tools.run("log-dirs", "--describe", "--topic-list", "read").splitlines()[-1])
    assert {it["broker"] for it in dirs["brokers"]} == {1, 2}


def test_offsets_are_those_of_all_leaders(tools: Tools) -> None:
    tools.run("topics", "--create", "--topic", "looked-up", "--replica-assignment", "1:2,2:1")
    tools.run("producer", "--topic", "looked-up", stdin=b"".join(b"%d\n" % n for n in range(50)))
    times = ["-1", "-2", "-3", "-4", "-5", "0", "1700000000000", "9999999999999"]
    for time in times + (["-6"] if tools.peer == NEWEST else []):
        tools.both("offsets", "--topic", "looked-up", "--time", time)
    assert "looked-up:1:" in tools.both("offsets", "--topic", "looked-up")


def test_followers_too_are_asked_for_hanging_transactions(tools: Tools) -> None:
    tools.run("topics", "--create", "--topic", "hanging", "--replica-assignment", "1:2,2:1")
    assert eventually(lambda: "hanging" in tools.both("topics", "--list").split())
    for broker in ("1", "2"):
        said = tools.both("transactions", "find-hanging", "--broker-id", broker)
        assert "StartOffset" in said
        described = ("--topic", "hanging", "--partition", "0", "--broker-id", broker)
        assert "LastSequence" in tools.both("transactions", "describe-producers", *described)


def test_subscriptions_to_clients_metrics_are_those_of_the_cluster(tools: Tools) -> None:
    named = ("--name", "m", "--interval", "5000", "--metrics", "org.apache.kafka.")
    tools.run("client-metrics", "--alter", *named)
    assert eventually(lambda: tools.both("client-metrics", "--list").split() == ["m"])
    said = tools.both("client-metrics", "--describe", "--name", "m")
    assert "interval.ms=5000" in said
    tools.run("client-metrics", "--delete", "--name", "m")
    assert eventually(lambda: not tools.both("client-metrics", "--list").split())


def test_the_cluster_names_its_brokers_and_forgets_none_that_it_does_not_know(tools: Tools) -> None:
    assert tools.cluster.cluster_id in tools.both("cluster", "cluster-id")
    if tools.peer == NEWEST:
        said = tools.both("cluster", "list-endpoints", "--include-fenced-brokers")
        assert str(tools.cluster.nodes[HOROLOG].port) in said
    done = run_tool(
        "cluster",
        *("unregister", "--bootstrap-server", tools.cluster.nodes[HOROLOG].address, "--id", "77"),
        peer=tools.peer,
        check=False,
    )
    assert b"BrokerIdNotRegisteredException" in done.stdout + done.stderr


def test_horologs_own_commands_tell_the_truth_of_the_cluster(tools: Tools) -> None:
    here = ("-b", tools.cluster.nodes[HOROLOG].address)
    tools.run("topics", "--create", "--topic", "told", "--replica-assignment", "1:2,2:1")
    tools.run("producer", "--topic", "told", stdin=b"1\n2\n3\n")
    tools.run(
        "consumer", "--topic", "told", "--from-beginning", "--group", "h", "--max-messages", "3"
    )
    tools.run("producer", "--topic", "told", stdin=b"4\n")
    lags = json.loads(run_command("lag", "h", *here, "--json").out)
    assert {it["topic"] for it in lags} == {"told"}
    assert sum(it["committed"] for it in lags) == 3
    assert sum(it["offsets_behind"] for it in lags) == 1
    health = run_command("health", *here)
    assert (health.code, health.out.splitlines()) == (
        0,
        [health.out.splitlines()[0], "broker 1 is not asked: it is one of Apache Kafka"],
    )
    assert health.out.startswith("broker 2 is ready:")
