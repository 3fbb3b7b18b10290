"""One partition is offline: commands show what is known of the others, at once."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_runner import Run, run_command
from running_broker import RunningBroker
from scripted_broker import ScriptedBroker

from horolog.client import CommittedOffset
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

AT_ONCE_S = 10.0
"""Far less than a client asks for a leader, and enough for a busy machine."""


def take_offline(broker: RunningBroker, *partitions: str) -> None:
    """Stop it, put directories where logs are, and start it again."""
    broker.stop()
    for name in partitions:
        log = next((broker.log_dir / name).glob("*.log"))
        log.rename(log.with_suffix(".kept"))
        log.mkdir()
    (broker.log_dir / ".kafka_cleanshutdown").unlink()
    broker.start()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """`t-0` of two partitions is offline, and `gone` as a whole."""
    with RunningBroker(tmp_path_factory.mktemp("broker") / "log") as broker:
        broker.create_topic("t", 2)
        broker.create_topic("gone")
        now_ms = broker.clock.now_ms()
        for number in (0, 1):
            broker.append("t", build_batch([LogRecord(now_ms, None, b"v%d" % number)]), number)
            broker.client.offset_commit("g", {("t", number): CommittedOffset(1)})
        take_offline(broker, "t-0", "gone-0")
        yield broker


@pytest.fixture
def horolog(broker: RunningBroker) -> Run:
    def run(*args: object, **given: str) -> object:
        started = time.monotonic()
        ran = run_command(*args, **given, HOROLOG_BOOTSTRAP=broker.address)
        assert time.monotonic() - started < AT_ONCE_S
        return ran

    return run


def row_of(out: str, partition: int) -> list[str]:
    (found,) = (line.split() for line in out.splitlines() if line.split()[:1] == [str(partition)])
    return found


def test_it_is_named_with_its_reason_and_a_dash_in_its_row(horolog: Run) -> None:
    described = horolog("topics", "describe", "t")
    assert (described.code, row_of(described.out, 0)) == (0, ["0", *"------"])
    assert row_of(described.out, 1)[:5] == ["1", "1", "0", "1", "1"]
    assert described.err.startswith("t-0 is offline: ")
    assert "no broker leads it" not in described.err
    first, second = horolog("topics", "describe", "t", "--json").json["partitions"]
    assert (first["end_offset"], first["offline"]) == (None, described.err.strip())
    assert (second["end_offset"], second["offline"]) == (1, None)


@pytest.mark.parametrize("clock", ["create", "append"])
def test_offsets_are_those_of_the_others(horolog: Run, clock: str) -> None:
    bounds = horolog("offsets", "t")
    assert (bounds.code, row_of(bounds.out, 0)) == (0, ["0", *"-----"])
    assert [each["latest"] for each in horolog("offsets", "t", "--json").json] == [None, 1]
    found = horolog("offsets", "t", "--at", "-1h", "--clock", clock)
    assert (found.code, row_of(found.out, 0)) == (0, ["0", "-", "-"])
    assert row_of(found.out, 1)[:2] == ["1", "0"]
    as_json = horolog("offsets", "t", "--at", "-1h", "--clock", clock, "--json").json
    assert [each["offset"] for each in as_json["partitions"]] == [None, 0]
    explained = horolog("offsets", "t", "--at", "-1h", "--clock", clock, "--explain")
    assert "partition 1: offset 0" in explained.out
    assert "t-0 is offline" in explained.err


def test_records_of_the_others_are_printed_and_the_exit_code_says_that_some_lack(
    horolog: Run,
) -> None:
    consumed = horolog("consume", "t", "--format", "value")
    assert (consumed.code, consumed.out) == (1, "v1\n")
    assert "t-0 is offline" in consumed.err
    alone = horolog("consume", "t", "--partition", 1)
    assert (alone.code, alone.err) == (0, "")


def test_retention_is_explained_and_simulated_for_the_others(horolog: Run) -> None:
    explained = horolog("retention", "explain", "t")
    assert explained.code == 1
    assert "t-0\n  t-0 is offline: " in explained.out
    assert "t-1\n  cleanup.policy" in explained.out
    first, second = horolog("retention", "explain", "t", "--json").json
    assert (first["segments"], first["damage"][:14]) == ([], "t-0 is offline")
    assert (len(second["segments"]), second["damage"]) == (1, None)
    simulated = horolog("retention", "simulate", "t")
    assert "t-0 is offline" in simulated.err
    assert "t-1" in simulated.out


def test_a_report_is_about_the_others(horolog: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    reported = horolog("report", "-o", page)
    assert reported.code == 0
    assert "t-0 is offline" in reported.err
    text = page.read_text()
    assert "t-0 is offline" in text
    assert "gone-0 is offline" in text


def test_a_lag_names_what_is_committed_of_it(horolog: Run) -> None:
    lag = horolog("lag", "g")
    rows = [line.split() for line in lag.lines if line.startswith("g ")]
    assert (lag.code, rows[0]) == (0, ["g", "t", "0", "1", *"------"])
    assert rows[1][:6] == ["g", "t", "1", "1", "1", "0"]
    assert "t-0 is offline: " in lag.err
    first, second = sorted(horolog("lag", "g", "--json").json, key=lambda each: each["partition"])
    assert (first["committed"], first["end"]) == (1, None)
    assert second["end"] == 1


def test_append_times_of_the_others_are_reset(horolog: Run) -> None:
    reset = horolog("topics", "reset-append-time", "t")
    assert (reset.code, reset.out) == (1, "no append time of t is ahead of the broker's clock\n")
    assert "t-0 is offline" in reset.err
    assert horolog("topics", "reset-append-time", "t", "--json").json["reset"] == 0


def test_topics_are_listed_with_a_sentence_about_those_that_are_offline(horolog: Run) -> None:
    listed = horolog("topics", "list")
    assert listed.code == 0
    assert [line.partition(" is offline: ")[0] for line in listed.err.splitlines()] == [
        "gone-0",
        "t-0",
    ]


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "describe"),
        ("times",),
        ("offsets",),
        ("offsets", "--at", "-1h"),
        ("consume",),
        ("retention", "explain"),
        ("retention", "simulate"),
        ("report",),
    ],
    ids=" ".join,
)
def test_the_exit_code_is_1_where_nothing_is_known(
    horolog: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    more = ("-o", tmp_path / "page.html") if command == ("report",) else ()
    asked = horolog(*command, "gone", *more)
    assert asked.code == 1
    assert "gone-0 is offline" in asked.err + asked.out


def test_a_lag_at_apache_kafka_names_it_too() -> None:
    def committed(_: object) -> dict[str, object]:
        partition = {"partition_index": 5, "committed_offset": 7, "metadata": "", "error_code": 0}
        topic = {"name": "t", "partitions": [{**partition, "committed_leader_epoch": -1}]}
        return {"groups": [{"group_id": "g", "topics": [topic], "error_code": 0}]}

    def coordinator(_: object) -> dict[str, object]:
        where = {"node_id": 1, "host": script.host, "port": script.port}
        return {"coordinators": [{"key": "g", **where, "error_code": 0, "error_message": None}]}

    def metadata(_: object) -> dict[str, object]:
        partition = {"partition_index": 5, "leader_id": -1, "error_code": 5, "replica_nodes": [1]}
        topic = {"name": "t", "topic_id": None, "partitions": [{**partition, "isr_nodes": []}]}
        broker = {"node_id": 1, "host": script.host, "port": script.port}
        return {"brokers": [broker], "controller_id": 1, "topics": [topic]}

    answers = {
        ApiKey.FIND_COORDINATOR: coordinator,
        ApiKey.OFFSET_FETCH: committed,
        ApiKey.METADATA: metadata,
    }
    with ScriptedBroker(answers) as script:
        lag = run_command("lag", "g", "-b", script.bootstrap)
    assert (lag.code, lag.err) == (0, "t-5 is offline: no broker leads it now\n")
    assert lag.lines[2].split() == ["g", "t", "5", "7", *"------"]


def test_records_without_a_key_are_sent_to_the_others(horolog: Run) -> None:
    for _ in range(2):
        sent = horolog("produce", "t", stdin="more\n")
        assert (sent.code, sent.err.partition(": ")[2][:11]) == (0, "partition 1")
