"""Why segments are still there: of a broker's topic, and of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runner import Ran, Run, run_command
from running_broker import EVER, NOW_MS, MakeBroker, RunningBroker, a_broker
from scripted_broker import ScriptedBroker
from stored import lose_metadata

from horolog.client import ResourceType
from horolog.clock import ManualClock
from horolog.errors import RequestRefused
from horolog.record import LogRecord, build_batch
from horolog.wire import RETENTION

DAY = 86_400_000
FAR = 9_000_000_000_000


def fill(broker: RunningBroker) -> None:
    """A topic of three segments, a day apart, the second of which holds a record of 2255."""
    settings = {"retention_ms": str(2 * DAY), "message_timestamp_after_max_ms": EVER}
    broker.create_topic("clicks", 2, segment_ms=EVER, **settings)
    for day, times in enumerate([(0, 1), (0, FAR, 0), (0,)]):
        if day:
            broker.roll("clicks")
        records = [LogRecord(time or broker.clock.now_ms(), None, b"v") for time in times]
        broker.client.produce("clicks", 0, build_batch(records))
        broker.clock.advance("1d")


broker = a_broker(prepare=fill)


@pytest.fixture
def explain(broker: RunningBroker) -> Run:
    def run(*args: object) -> Ran:
        return run_command("retention", "explain", *args, HOROLOG_BOOTSTRAP=broker.address)

    return run


def bare(partition: dict[str, object]) -> dict[str, object]:
    """Without what may differ between a broker and its files."""
    differs = "source", "notes", "unread"
    return {name: value for name, value in partition.items() if name not in differs}


def test_a_broker_and_its_files_explain_the_same(
    explain: Run, broker: RunningBroker, clock: ManualClock
) -> None:
    at = clock.now_ms()
    of_broker = explain("clicks", "--json")
    assert of_broker.code == 1, "a record of 2255 is a finding"
    of_files = explain(broker.log_dir, "--at", f"{at}ms", "--json")
    assert [bare(each) for each in of_files.json] == [bare(each) for each in of_broker.json]
    assert [each["unread"] for each in of_broker.json] == [[], []]
    assert [each["unread"] for each in of_files.json] == [None, None], "a broker alone knows groups"
    first, second, third = of_broker.json[0]["segments"]
    assert (first["goes_now"], first["because"]) == (True, "expired")
    assert (second["because"], second["holder"]["offset"]) == ("ahead-of-clock", 3)
    assert (third["kept_by"], third["goes_ms"]) == (2, FAR + 2 * DAY + 1)
    assert of_broker.json[1]["segments"][0]["because"] == "empty"
    single = explain(
        broker.log_dir / "clicks-0" / "00000000000000000002.log", "--at", f"{at}ms", "--json"
    )
    assert single.json[0]["segments"] == [second]


def test_retention_does_what_the_report_announced(explain: Run, broker: RunningBroker) -> None:
    said = [
        segment["base_offset"]
        for segment in explain("clicks", "-p", 0, "--json").json[0]["segments"]
        if segment["goes_now"]
    ]
    deleted = broker.run(broker.service.background_tasks.run_retention())
    assert [(name, each.base_offset) for name, each in deleted] == [("clicks-0", 0)]
    assert said == [0]


def test_the_table_names_the_record_that_keeps_a_segment(explain: Run) -> None:
    said = explain("clicks", "--partition", 0)
    assert "clicks-0" in said.lines[0]
    assert "retention.ms=172800000" in said.out
    assert "horolog.retention.before.1970=false, " in said.out
    assert "the next check deletes 1 segment, " in said.out
    assert "segment 2 is kept by the record at offset 3, stamped 2255-03-1" in said.out
    assert "1 segment behind it" in said.out
    assert "the segment 2 keeps it" in said.out


def test_settings_are_tried_without_being_set(
    explain: Run, broker: RunningBroker, clock: ManualClock
) -> None:
    at = f"{clock.now_ms()}ms"
    by_append = "horolog.retention.by=append-time"
    for where in ("clicks", broker.log_dir):
        tried = explain(where, "-p", 0, "--at", at, "--json", "--set", by_append)
        assert tried.code == 0
        goes = [each["goes_now"] for each in tried.json[0]["segments"]]
        assert goes == [True, False, False]
        again = ["--set", "retention.ms=1", "--set", by_append]
        goes = [
            each["goes_now"]
            for each in explain(where, "-p", 0, "--at", at, "--json", *again).json[0]["segments"]
        ]
        assert goes == [True, True, True]
    assert explain("clicks", "--json").json[0]["settings"]["horolog.retention.by"] == "create-time"


def test_broker_settings_of_the_start_are_given_for_files_by_their_names(
    tmp_path: Path, make_broker: MakeBroker
) -> None:
    broker = make_broker()
    broker.create_topic("clicks")
    broker.client.produce("clicks", 0, build_batch([LogRecord(1_000, None, b"v")]))
    found = run_command("retention", "explain", broker.log_dir, "--json").json
    assert found[0]["segments"][0]["goes_now"]
    unlimited = ("--set", "log.retention.hours=-1")
    found = run_command("retention", "explain", broker.log_dir, "--json", *unlimited).json
    assert found[0]["segments"][0]["because"] == "no-time-limit"


@pytest.mark.parametrize(
    ("args", "code", "complaint"),
    [
        (["clicks", "--set", "retention.ms=x"], 1, "retention.ms"),
        (["clicks", "--set", "retention.sm=1"], 1, "retention.sm"),
        (["./nowhere"], 2, "there is no ./nowhere"),
        (["nowhere"], 1, "there is no topic nowhere"),
        (["clicks", "-p", "9"], 1, "no partition 9"),
        (["clicks", "--set", "retention.ms"], 2, "--set NAME=VALUE"),
    ],
)
def test_misuse_is_refused(explain: Run, args: list[str], code: int, complaint: str) -> None:
    refused = explain(*args)
    assert complaint in refused.err
    assert refused.code == code


def test_a_bad_setting_is_refused_offline_as_well(tmp_path: Path, golden: Path) -> None:
    refused = run_command("retention", "explain", golden / "clean", "--set", "retention.sm=1")
    assert refused.code == 2
    assert "retention.sm" in refused.err


def test_a_directory_of_apache_kafka_is_explained_by_its_own_settings(golden: Path) -> None:
    """Its metadata is in the directory; what has no settings has Kafka's defaults."""
    found = run_command("retention", "explain", golden / "clean", "--json").json
    by_name = {each["partition"]: each for each in found}
    assert not any(name.startswith("__") for name in by_name)
    assert {each["exempt"] for each in found} == {False}
    assert by_name["client-none-0"]["segments"]


def test_a_damaged_partition_does_not_hide_its_neighbours(
    broker: RunningBroker, explain: Run
) -> None:
    at = broker.clock.now_ms()
    broker.stop()
    for name in ("companion", "timeindex", "index"):
        (broker.log_dir / "clicks-0" / f"00000000000000000000.{name}").unlink()
    log = broker.log_dir / "clicks-0" / "00000000000000000000.log"
    log.write_bytes(b"\xff" * log.stat().st_size)
    found = explain(broker.log_dir, "--at", f"{at}ms", "--json")
    assert found.code == 1
    assert [each["damage"] is None for each in found.json] == [False, True]
    assert found.json[1]["segments"]


def test_an_adopted_topic_is_said_to_be_exempt(explain: Run, broker: RunningBroker) -> None:
    broker.stop()
    lose_metadata(broker.log_dir)
    broker.restart()
    said = explain("clicks", "-p", 0)
    assert said.code == 0
    assert "nothing is deleted: the topic was adopted" in said.out
    offline = run_command("retention", "explain", broker.log_dir, "-p", 0)
    assert "nothing is deleted: the topic was adopted" in offline.out
    tried = run_command(
        *("retention", "explain", broker.log_dir, "-p", 0, "--set", "retention.ms=1", "--json")
    )
    assert tried.json[0]["segments"][0]["goes_now"]


def test_a_name_that_is_a_path_and_a_topic_is_a_topic_where_a_broker_is_named(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks").mkdir()
    as_path = run_command("retention", "explain", "clicks", HOROLOG_BOOTSTRAP=broker.address)
    assert as_path.code == 2
    assert "is not a log directory" in as_path.err
    as_topic = run_command("retention", "explain", "clicks", "-b", broker.address, "--json")
    assert len(as_topic.json) == 2


def test_apache_kafka_is_distinguished_in_one_sentence() -> None:
    with ScriptedBroker({}) as kafka:  # announces no feature
        refused = run_command("retention", "explain", "clicks", HOROLOG_BOOTSTRAP=kafka.bootstrap)
        assert refused.code == 1
        assert "does not explain retention" in refused.err


@pytest.mark.parametrize(
    "question",
    [
        "",
        "x",
        "[]",
        "{}",
        '{"partition":"0"}',
        '{"partition":true}',
        '{"partition":0,"more":1}',
        '{"partition":0,"now":1e3}',
        '{"partition":0,"now":""}',
        '{"partition":0,"now":false}',
        '{"partition":0,"now":[]}',
        '{"partition":0,"start":null}',
        '{"partition":0,"settings":null}',
        f'{{"partition":0,"now":{1 << 63}}}',
        '{"partition":0,"settings":[]}',
        '{"partition":0,"settings":{"retention.ms":1}}',
        '{"partition":7}',
        '{"partition":-1}',
        "[" * 5_000,
        '{"partition":0,"settings":{"retention.ms":"' + "1" * 9_000 + '"}}',
    ],
)
def test_a_question_of_another_form_is_refused(broker: RunningBroker, question: str) -> None:
    name, resource = f"{RETENTION.name}/{question}", (ResourceType.TOPIC, "clicks")
    with pytest.raises(RequestRefused):
        broker.client.describe_configs([resource], names=[name])


@pytest.mark.parametrize(("factor", "unit"), [(1_000_000, "nanoseconds"), (1_000, "microseconds")])
def test_a_time_in_another_unit_is_named(make_broker: MakeBroker, factor: int, unit: str) -> None:
    broker = make_broker(clock=ManualClock(NOW_MS), log_message_timestamp_after_max_ms=EVER)
    broker.create_topic("t")
    broker.append("t", build_batch([LogRecord(NOW_MS * factor, None, b"v")]))
    shown = run_command("retention", "explain", "t", HOROLOG_BOOTSTRAP=broker.address).out
    assert f"stamped {NOW_MS * factor} ms (looks like {unit})" in shown


def test_a_log_of_several_answers_is_explained_as_its_files_are(
    explain: Run, broker: RunningBroker, clock: ManualClock
) -> None:
    """A string of the protocol holds some hundred segments."""

    at, data = clock.now_ms(), build_batch([LogRecord(FAR, b"k", b"v")])
    for _ in range(400):
        broker.client.produce("clicks", 1, data)
        broker.call(lambda: broker.log("clicks", 1).roll(at))
    (of_broker,) = explain("clicks", "-p", 1, "--json").json
    (of_files,) = explain(broker.log_dir / "clicks-1", "--at", f"{at}ms", "--json").json
    assert len(of_broker["segments"]) == 401
    assert bare(of_broker) == bare(of_files)
