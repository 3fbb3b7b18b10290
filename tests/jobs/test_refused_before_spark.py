"""What a job refuses by its arguments, its topics or a broker that is not there starts no Spark."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_runner import run_command
from overrides import override
from running_broker import RunningBroker, a_broker
from scripted_broker import ScriptedBroker

import horolog.spark
from horolog.wire.api import ApiKey, Versions

broker = a_broker("t", scope="module")
other = a_broker(scope="module")


@pytest.fixture
def dead() -> Iterator[str]:
    """An address at which nothing listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{reserved.getsockname()[1]}"


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(horolog.spark, "session", session)


JOBS = {
    "audit": "audit --source {source} --topics {topic}",
    "audit --follow": "audit --source {source} --topics {topic} --follow --for 1s",
    "latency": "latency --source {source} --topics {topic}",
    "latency --live": "latency --source {source} --topics {topic} --live 1s",
    "mirror": "mirror --source {source} --target {target} --topics {topic} --state {path}/s",
    "mirror --dry-run": "mirror --source {source} --target {target} --topics {topic} --dry-run",
    "mirror to files": "mirror --source {source} --target {path}/d --topics {topic} "
    "--state {path}/s",
    "compare": "compare --source {source} --target {target} --topics {topic}",
    "reprocess": "reprocess --source {source} --target {target} --topics {topic} --from -1h "
    "--state {path}/s",
    "archive": "archive --source {source} --archive {path}/a --topics {topic} --state {path}/s",
    "failover record": "failover record --source {source} --topics {topic} --groups g "
    "--state {path}/s",
}


@pytest.mark.parametrize("job", JOBS)
def test_a_topic_that_is_not_there(
    broker: RunningBroker, other: RunningBroker, tmp_path: Path, job: str
) -> None:
    words = JOBS[job].format(
        source=broker.address, target=other.address, topic="nosuch", path=tmp_path
    )
    refused = run_command("spark", *words.split())
    assert refused.code == 2
    if job != "failover record":
        assert f"There is no topic nosuch at {broker.address}" in refused.err


def assert_unanswered(words: str, dead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job ends with a sentence that names the broker, before Spark starts."""
    override(monkeypatch, "horolog.client", FIRST_CONTACT_MS=100)
    refused = run_command("spark", *words.split())
    assert refused.code == 1
    assert f"no broker answered: {dead}" in refused.err


@pytest.mark.parametrize("job", JOBS)
def test_a_source_that_does_not_answer(
    broker: RunningBroker, dead: str, tmp_path: Path, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = JOBS[job].format(source=dead, target=broker.address, topic="t", path=tmp_path)
    assert_unanswered(words, dead, monkeypatch)


@pytest.mark.parametrize(
    "job",
    [
        "mirror",
        "mirror --dry-run",
        "compare",
        "reprocess",
        "bootstrap",
        "bootstrap --dry-run",
    ],
)
def test_a_target_that_does_not_answer(
    broker: RunningBroker, dead: str, tmp_path: Path, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = "bootstrap --table {path}/x.parquet --target {target} --topic t --time at "
    jobs = {
        **JOBS,
        "bootstrap": f"{loading} --state {{path}}/s",
        "bootstrap --dry-run": f"{loading} --dry-run",
    }
    words = jobs[job].format(source=broker.address, target=dead, topic="t", path=tmp_path)
    assert_unanswered(words, dead, monkeypatch)


@pytest.mark.parametrize(
    "words",
    [
        "spark mirror --source {source} --topics t --state {path}/s",
        "spark mirror --source {source} --topics t --dry-run",
        "spark reprocess --source {source} --topics t --from -1h --state {path}/s",
        "spark bootstrap --table {path}/x.parquet --topic t --time at --state {path}/s",
        "spark bootstrap --table {path}/x.parquet --topic t --time at --dry-run",
        "replay --source {source} --topics t --state {path}/s",
    ],
)
@pytest.mark.parametrize("newest", [{ApiKey.INIT_PRODUCER_ID: -1}, {ApiKey.OFFSET_FETCH: 5}])
def test_a_target_without_transactions(
    broker: RunningBroker, tmp_path: Path, words: str, newest: dict[ApiKey, int]
) -> None:
    versions = {api_key: Versions(0, version) for api_key, version in newest.items()}
    with ScriptedBroker(versions=versions) as old:
        asked = words.format(source=broker.address, path=tmp_path)
        refused = run_command(*asked.split(), "--target", old.bootstrap)
    assert refused.code == 2
    assert "an Apache Kafka before 2.5 (KIP-98, KIP-447). Nothing was sent" in refused.err


@pytest.mark.parametrize(
    "words",
    [
        "audit --source {path}/nothing",
        "latency --source {path}/nothing",
        "index {path}/nothing --state {path}/s",
        "convert {path}/nothing --to v2 --state {path}/s",
        "restore --archive {path}/nothing --target {path}/d --state {path}/s",
        "mirror --source {path}/nothing --target {path}/d --topics t --state {path}/s",
        "archive --source {path}/nothing --archive {path}/a --topics t --state {path}/s",
    ],
)
def test_files_that_are_not_there(tmp_path: Path, words: str) -> None:
    refused = run_command("spark", *words.format(path=tmp_path).split())
    assert refused.code == 2
    assert "nothing" in refused.err
