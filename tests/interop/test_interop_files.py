"""Our files before Kafka: its dump tool, and an Apache Kafka that serves our directory."""

import shutil
from pathlib import Path

import pytest
from bench.sides import horolog
from confluent_kafka import Producer
from tools.golden import answers, scenarios
from tools.golden.scenarios import QUIET, Scenario
from tools.peers.kafka import NEWEST, Kafka

# What one broker of ours writes today: no compaction, no transactions.
UNBUILT = {"compacted", "transactions", "transaction-open"}
WRITTEN = [one for one in scenarios.CLEAN if one.topic not in UNBUILT]


def write(bootstrap: str, written: list[Scenario]) -> None:
    scenarios.create(bootstrap, written)
    for one in written:
        one.write(bootstrap, one.topic)


def told(bootstrap: str, written: list[Scenario]) -> dict[str, dict]:
    return {
        f"{one.topic}-{partition}": answers.of_partition(bootstrap, one.topic, partition)
        for one in written
        for partition in range(one.partitions)
    }


def without_epochs(answered: dict) -> dict:
    """Another start is another leader epoch; what stands in the batches stays."""
    return {**answered, "latest": answered["latest"][:2], "earliest": answered["earliest"][:2]}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A directory that horolog wrote and closed, and what it answered about it."""
    base = tmp_path_factory.mktemp("ours")
    with horolog({"log.retention.check.interval.ms": "500"}, base) as side:
        write(side.bootstrap, WRITTEN)
        scenarios.settle(2)  # retention is to have done its work
        answered = told(side.bootstrap, WRITTEN)
    return base / "data", answered


def test_the_dump_tool_finds_no_fault_in_any_file(directory):
    """`of_files` fails on any complaint about an index and on any batch that is not valid."""
    log_dir, answered = directory
    dumped = answers.of_files(log_dir, peer=NEWEST)
    for name, answer in answered.items():
        logs = [rows for file, rows in dumped[name].items() if file.endswith(".log")]
        batches = [row for rows in logs for row in rows]
        assert all(isinstance(row, list) for row in batches), name
        last = answers.COLUMNS.index("last_offset")
        if batches:
            assert batches[-1][last] + 1 == answer["latest"][0]


def test_the_dump_tool_finds_no_fault_after_a_kill(tmp_path):
    written = [one for one in WRITTEN if one.topic in {"index-some", "out-of-order", "idempotent"}]
    with horolog(directory=tmp_path) as side:
        write(side.bootstrap, written)
        side.kill()
    with horolog(directory=tmp_path) as side:
        recovered = told(side.bootstrap, written)
    dumped = answers.of_files(tmp_path / "data", peer=NEWEST)
    for name, answer in recovered.items():
        assert dumped[name]
        assert answer["latest"][0] == len(answer["records"])


def test_kafka_answers_from_our_directory_as_we_did(directory, tmp_path):
    """In KRaft mode Kafka sets aside what its metadata does not know, so the topics are made there
    first, and our files take their ids."""
    ours, answered = directory
    kafka = Kafka(tmp_path / "kafka")
    with kafka:
        scenarios.create(kafka.bootstrap, WRITTEN)
        scenarios.settle(2)
    for name in answered:
        theirs = kafka.log_dir / name
        topic_id = (theirs / "partition.metadata").read_text()
        shutil.rmtree(theirs)
        shutil.copytree(ours / name, theirs)
        (theirs / "partition.metadata").write_text(topic_id)
    for checkpoint in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        merge(ours / checkpoint, kafka.log_dir / checkpoint)
    merge(
        ours / "recovery-point-offset-checkpoint", kafka.log_dir / "replication-offset-checkpoint"
    )
    with kafka:
        scenarios.settle(2)
        by_kafka = told(kafka.bootstrap, WRITTEN)
        send(kafka.bootstrap, "index-some")
    for name, answer in answered.items():
        if name == "deleted-all-0":
            # Kafka names the largest time of what was deleted too (tests/golden).
            by_kafka[name]["max_timestamp"] = answer["max_timestamp"]
        assert without_epochs(by_kafka[name]) == without_epochs(answer), name


def test_we_answer_from_kafkas_directory_after_it_served_ours(directory, tmp_path):
    """There and back: Kafka appended, and we adopt the whole directory."""
    ours, answered = directory
    shutil.copytree(ours, tmp_path / "data")
    with horolog(directory=tmp_path) as side:
        again = told(side.bootstrap, WRITTEN)
    for name, answer in answered.items():
        assert without_epochs(again[name]) == without_epochs(answer), name


def merge(from_: Path, into: Path) -> None:
    """Add one checkpoint's lines to another's."""
    lines = {}
    for path in (into, from_):
        if path.exists():
            rows = path.read_text().split("\n")[2:]
            lines.update({row.rsplit(" ", 1)[0]: row for row in rows if row})
    into.write_text("\n".join(["0", str(len(lines)), *lines.values()]) + "\n")


def send(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **QUIET})
    producer.produce(topic, value=b"appended by Kafka", partition=0)
    assert producer.flush(20) == 0
