"""Records in and out, and exact ranges of time among them."""

import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_runner import Run, heed_interrupts
from faulty_calls import noted_results
from patience import PATIENCE_S
from running_broker import RunningBroker

from horolog.client import ConfigEntry, Topics
from horolog.sources import ReadPlan, RecordLog

NINE = 1_795_165_200_000  # 2026-11-20T09:00:00Z


def test_lines_come_out_as_they_went_in(horolog: Run) -> None:
    sent = horolog(
        "produce", "p.lines", "-k", ":", "--timestamp", "2026-11-20T09:00Z", "-H", "h=1",
        stdin="a:1\nb:\nc:x:y\n",
    )  # fmt: skip
    assert sent.code == 0
    assert sent.err == "sent 3 records to p.lines: partition 0 offsets 0 to 2\n"
    assert sent.out == ""
    assert horolog("consume", "p.lines").lines == [
        "2026-11-20T09:00:00.000Z\t0@0\ta\t1\th=1",
        "2026-11-20T09:00:00.000Z\t0@1\tb\t\th=1",
        "2026-11-20T09:00:00.000Z\t0@2\tc\tx:y\th=1",
    ]
    in_berlin = horolog("consume", "p.lines", "--tz", "Europe/Berlin", "-n", 1).out
    assert in_berlin.startswith("2026-11-20T10:00:00.000+01:00\t")
    assert horolog("consume", "p.lines", "--format", "value").out == "1\n\nx:y\n"


def test_a_time_before_1970_is_written_found_and_read(horolog: Run) -> None:
    """KIP-228: with our own commands from end to end."""
    for time, value in (("1955-11-05T06:00:00Z", "old"), ("2026-11-20T09:00Z", "new")):
        sent = horolog("produce", "p.old", "--timestamp", time, "--partition", 0, stdin=value)
        assert sent.code == 0
    old = "1955-11-05T06:00:00.000Z\t0@0\tnull\told"
    assert horolog("consume", "p.old", "--to-time", "1960-01-01T00:00Z").lines == [old]
    assert horolog(
        "consume", "p.old", "--from-time", "1955-11-05T06:00Z", "--to-time", "1955-11-05T06:01Z"
    ).lines == [old]
    assert len(horolog("consume", "p.old", "--from-time", "1955-11-05T06:00Z").lines) == 2
    found = horolog("offsets", "p.old", "--at", "1950-01-01T00:00Z", "-p", 0, "--json").json
    assert [answer["offset"] for answer in found["partitions"]] == [0]


def test_every_record_survives_the_way_through_json(horolog: Run) -> None:
    records = [
        {"timestamp": NINE + i * 7 - 20_000, "key": key, "value": value, "headers": headers}
        for i, (key, value, headers) in enumerate(
            [
                ("k", "täglich\n", [{"key": "h", "value": "1"}, {"key": "h", "value": None}]),
                (None, None, []),
                ("", "", []),
            ]
        )
    ]
    records.append({"timestamp": -1, "key_base64": "/w==", "value_base64": "gA=="})
    lines = "".join(json.dumps(record) + "\n" for record in records)
    assert (
        horolog("produce", "p.json", "--format", "json", "--codec", "zstd", stdin=lines).code == 0
    )
    printed = horolog("consume", "p.json", "--format", "json").out
    assert horolog("produce", "p.copy", "--format", "json", stdin=printed).code == 0
    copied = horolog("consume", "p.copy", "--format", "json").out

    def essence(text: str) -> list[dict[str, object]]:
        rows = [json.loads(line) for line in text.splitlines()]
        return [{key: row[key] for key in row if key != "topic"} for row in rows]

    assert essence(copied) == essence(printed)
    first, second, _, last = essence(printed)
    assert (first["value"], first["headers"]) == ("täglich\n", records[0]["headers"])
    assert (second["key"], second["value"]) == (None, None)
    assert (last["key_base64"], last["timestamp"], last["time"]) == ("/w==", -1, None)
    assert first["timestamp_type"] == "CreateTime"


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A file of records whose times are far out of order, and the times."""
    chance = random.Random(20)
    times = [NINE + chance.randrange(-50_000, 50_000) for _ in range(900)]
    times[::50] = [-5_000 - i for i in range(len(times[::50]))]
    times[1::70] = [-1] * len(times[1::70])
    times[5] = NINE
    path = tmp_path_factory.mktemp("lines") / "scattered.jsonl"
    with path.open("w") as file:
        for number, time in enumerate(times):
            partition = number % 3
            row = {"timestamp": time, "value": str(number), "partition": partition}
            file.write(json.dumps(row) + "\n")
    return path, times


@pytest.mark.parametrize(
    ("from_ms", "to_ms"),
    [
        (NINE - 10_000, NINE + 10_000),
        (NINE, NINE + 1),
        (NINE + 49_000, None),
        (None, NINE - 49_000),
        (-6_000, 0),
        (None, None),
        (NINE + 60_000, None),
    ],
)
def test_a_range_of_time_is_exact_late_records_included(
    horolog: Run, scattered: tuple[Path, list[int]], from_ms: int | None, to_ms: int | None
) -> None:
    path, times = scattered
    if "p.scattered" not in {row["topic"] for row in horolog("topics", "list", "--json").json}:
        horolog("topics", "create", "p.scattered", "--partitions", 3, "-c", "segment.bytes=2000")
        # In pieces, so that there are many batches.
        for start in range(0, 900, 60):
            piece = "".join(path.read_text().splitlines(keepends=True)[start : start + 60])
            assert horolog("produce", "p.scattered", "--format", "json", stdin=piece).code == 0
    bounds = []
    if from_ms is not None:
        bounds += ["--from-time", from_ms]
    if to_ms is not None:
        bounds += ["--to-time", to_ms]
    out = horolog("consume", "p.scattered", "--format", "json", *bounds).out
    rows = [json.loads(line) for line in out.splitlines()]
    everything = from_ms is None and to_ms is None
    expected = {
        number: time
        for number, time in enumerate(times)
        if everything
        or (time != -1 and (from_ms is None or time >= from_ms) and (to_ms is None or time < to_ms))
    }
    assert {int(row["value"]): row["timestamp"] for row in rows} == expected
    assert len(rows) == len(expected)


def test_reading_begins_and_ends_at_the_given_offsets(horolog: Run) -> None:
    horolog("topics", "create", "p.places", "--partitions", 2)
    for partition in (0, 1):
        lines = "".join(f"{partition}.{number}\n" for number in range(5))
        horolog("produce", "p.places", "-p", partition, stdin=lines)

    def values(*args: object) -> list[str]:
        return horolog("consume", "p.places", "--format", "value", *args).lines

    assert values("-p", 1, "--offset", 3) == ["1.3", "1.4"]
    assert values("--offset", 4) == ["0.4", "1.4"]
    assert values("-p", 0, "-n", 2) == ["0.0", "0.1"]
    assert values("--from-beginning", "-p", 1)[0] == "1.0"
    assert values("--from-end") == []
    refused = horolog("consume", "p.places", "--offset", 9)
    assert (refused.code, refused.err) == (
        1, "horolog: p.places-0 has no offset 9: it has 0 up to 5\n"
    )  # fmt: skip


def test_records_that_come_are_followed(horolog: Run) -> None:
    horolog("produce", "p.follow", stdin="1\n2\n")
    followed = horolog("consume", "p.follow", "-f", "-n", 2, "--format", "value")
    assert followed.lines == ["1", "2"]


@pytest.mark.parametrize("follow", [[], ["-f", "-n", 60]])
def test_records_deleted_before_they_are_read_do_not_come_back(
    horolog: Run, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, follow: list[object]
) -> None:
    topic = "p.deleted" + "".join(map(str, follow))
    horolog("produce", topic, stdin="".join(f"{number}\n" for number in range(100)))
    plan = RecordLog.plan

    def deleted_meanwhile(log: RecordLog, *args: Any) -> ReadPlan:
        planned = plan(log, *args)
        broker.log(topic, 0).delete_records(40)
        return planned

    monkeypatch.setattr(RecordLog, "plan", deleted_meanwhile)
    consumed = horolog("consume", topic, "--format", "value", *follow)
    assert consumed.code == 0
    assert consumed.lines == [str(number) for number in range(40, 100)]
    said = f"{topic}-0 was to be read from offset 0, and starts at 40 now"
    assert consumed.err == f"{said}; reading what is left\n"


def test_following_goes_on_until_it_is_interrupted(horolog: Run, broker: RunningBroker) -> None:
    horolog("produce", "p.forever", stdin="1\n")
    command = [sys.executable, "-m", "horolog", "consume", "p.forever", "-f", "--format", "value"]
    with subprocess.Popen(
        [*command, "-b", broker.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,  # noqa: PLW1509 - it takes no lock
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        horolog("produce", "p.forever", stdin="2\n")
        assert process.stdout.readline() == "2\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_keys_stay_together_and_a_partition_can_be_chosen(horolog: Run) -> None:
    horolog("topics", "create", "p.keys", "--partitions", 4)
    horolog("produce", "p.keys", "-k", "=", stdin="abc=1\nfoobar=2\nabc=3\n")
    rows = [json.loads(line) for line in horolog("consume", "p.keys", "--format", "json").lines]
    where = {(row["key"], row["partition"]) for row in rows}
    assert where == {("abc", 479470107 % 4), ("foobar", (-790332482 & 0x7FFFFFFF) % 4)}
    refused = horolog("produce", "p.keys", "-p", 4, stdin="x\n")
    assert refused.code == 1
    assert "no partition 4: it has 0 to 3" in refused.err


def test_a_batch_that_is_too_large_is_refused_with_the_limit(horolog: Run) -> None:
    horolog("topics", "create", "p.small", "-c", "max.message.bytes=1000")
    ran = horolog("produce", "p.small", stdin="x" * 2_000 + "\n")
    assert ran.code == 1
    assert (
        "the topic's max.message.bytes is the limit (MESSAGE_TOO_LARGE), of 1000 bytes" in ran.err
    )


def test_a_refused_batch_names_its_lines(horolog: Run) -> None:
    horolog("topics", "create", "p.strict", "-c", "message.timestamp.before.max.ms=1000")
    lines = '{"at": "now"}\n{"at": "2001-01-01T00:00Z"}\n{"at": "now"}\n'
    refused = horolog("produce", "p.strict", "--timestamp-field", "at", stdin=lines)
    assert refused.code == 1
    assert "no record of lines 1 to 3 was appended" in refused.err
    assert "line 2: Timestamp 978307200000 of message with offset 1 is out of range" in refused.err
    assert "line 1:" not in refused.err
    assert "\\n" not in refused.err
    assert horolog("consume", "p.strict").out == ""
    alone = horolog("produce", "p.strict", "--timestamp", "2001-01-01T00:00Z", stdin="x\n")
    assert "horolog: line 1 was not appended: produce to p.strict-0" in alone.err


def test_a_bad_line_ends_with_its_number_and_what_was_sent(horolog: Run) -> None:
    refused = horolog("produce", "p.bad", "--format", "json", stdin='{"value": "1"}\nnonsense\n')
    assert refused.code == 1
    assert "horolog: line 2: not JSON" in refused.err
    assert "sent 0 records to p.bad" in refused.err


def test_files_are_read_one_after_the_other(horolog: Run, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("3")
    sent = horolog("produce", "p.files", tmp_path / "a", tmp_path / "b")
    assert "sent 3 records" in sent.err
    assert horolog("consume", "p.files", "--format", "value").lines == ["1", "2", "3"]
    missing = horolog("produce", "p.files", tmp_path / "c")
    assert missing.code == 1
    assert "No such file" in missing.err


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written_and_read(horolog: Run, codec: str) -> None:
    topic = f"p.{codec}"
    value = "tick" * 50
    horolog("produce", topic, "--codec", codec, stdin=f"{value}\n" * 20)
    assert horolog("consume", topic, "--format", "value").lines == [value] * 20


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["consume", "p.lines", "--from-time", "yesterday"], "yesterday is not a time"),
        (["consume", "p.lines", "--from-time", "2026-11-20T09:00"], "has no zone"),
        (
            ["consume", "p.lines", "--from-time", "now", "--to-time", "-1h"],
            "is not before --to-time",
        ),
        (
            ["consume", "p.lines", "--from-time", "-1h", "--to-time", "-1h"],
            "the range is empty",
        ),
        (
            ["consume", "p.lines", "--from-time", "now", "--offset", 1],
            "each sets the start position",
        ),
        (["consume", "p.lines", "--tz", "Mars"], "no such zone"),
        (["produce", "p.lines", "--timestamp", "1795165200"], "looks like seconds"),
        (
            ["produce", "p.lines", "--timestamp", "1969-12-31T23:59:59.999Z"],
            "which Kafka's formats take for no timestamp",
        ),
        (
            ["produce", "p.lines", "--timestamp", "now", "--timestamp-field", "x"],
            "sets the timestamps",
        ),
    ],
)
def test_misuse_is_explained(horolog: Run, args: list[object], complaint: str) -> None:
    refused = horolog(*args, stdin="")
    assert refused.code == 2
    assert complaint in refused.err


def test_a_topic_that_is_not_there_is_a_finding(horolog: Run) -> None:
    refused = horolog("consume", "p.missing")
    assert refused.code == 1
    assert "there is no topic p.missing" in refused.err


def test_a_range_of_append_times_is_consumed_by_them(horolog: Run) -> None:
    lines = "".join(f'{{"timestamp": {number}, "value": "v{number}"}}\n' for number in range(3))
    assert horolog("produce", "c.appended", "--format", "json", stdin=lines).code == 0
    by = ("consume", "c.appended", "--clock", "append", "--format", "json")
    rows = [json.loads(line) for line in horolog(*by, "--from-time", "-1h").lines]
    assert [row["value"] for row in rows] == ["v0", "v1", "v2"]
    last = rows[-1]["append_time"]
    assert last > 1_600_000_000_000
    assert [row["timestamp"] for row in rows] == [0, 1, 2]
    assert horolog(*by, "--from-time", f"{last + 1}ms").lines == []
    assert len(horolog(*by, "--to-time", f"{last + 1}ms").lines) == 3
    assert horolog(*by, "--to-time", f"{rows[0]['append_time']}ms").lines == []
    text = horolog("consume", "c.appended", "--clock", "append").lines
    assert text[0].startswith("20")


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_both_times_of_a_record_are_shown(horolog: Run, broker: RunningBroker, kind: str) -> None:
    topic = f"c.both.{kind}"
    horolog("topics", "create", topic, "--config", f"message.timestamp.type={kind}")
    horolog("produce", topic, "--format", "json", stdin='{"timestamp": 7, "value": "v"}\n')
    (row,) = [json.loads(line) for line in horolog("consume", topic, "--format", "json").lines]
    (inspected,) = [
        json.loads(line)
        for line in horolog(
            "log", "inspect", broker.log_dir / f"{topic}-0", "--records", "--json"
        ).lines
        if '"offset"' in line
    ]
    if kind == "CreateTime":
        assert (row["timestamp"], "create_time" in row) == (7, False)
        assert inspected["timestamp"] == 7
        assert inspected["append_time"] > 1_600_000_000_000
    else:
        assert row["timestamp"] > 1_600_000_000_000
        assert row["create_time"] == inspected["create_time"] == 7
        assert inspected["append_time"] == row["timestamp"]


HINT = "is older than {} keeps records (retention.ms is 7d)"


@pytest.mark.parametrize(
    ("settings", "is_hinted"),
    [
        ((), True),
        (("cleanup.policy=compact,delete",), True),
        (("cleanup.policy=compact",), False),
        (("horolog.retention.by=append-time",), False),
        (("horolog.retention.by=later",), False),
        (("message.timestamp.type=LogAppendTime",), False),
        (("retention.ms=-1",), False),
    ],
    ids=str,
)
def test_a_record_that_retention_deletes_at_once_is_hinted_at(
    horolog: Run, settings: tuple[str, ...], is_hinted: bool
) -> None:
    topic = "old." + re.sub("[^a-z]", "", "".join(settings))
    given = ["-c", "retention.ms=604800000", *(part for each in settings for part in ("-c", each))]
    assert horolog("topics", "create", topic, *given).code == 0
    lines = '{"key": "k", "value": "v", "timestamp": "-8d"}\n' * 2
    old = horolog("produce", topic, "--format", "json", stdin=lines)
    assert old.code == 0
    assert (HINT.format(topic) in old.err) is is_hinted
    assert old.err.count("horolog topics alter") == int(is_hinted)
    young = horolog("produce", topic, "-k", ":", "--timestamp", "-6d", stdin="k:v\n")
    assert "is older" not in young.err


def test_a_broker_whose_retention_is_no_number_gives_no_hint(
    horolog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say_no_number(described: dict[Any, dict[str, ConfigEntry]]) -> None:
        for entries in described.values():
            entries["retention.ms"] = entries["retention.ms"]._replace(value="")

    asked = noted_results(monkeypatch, Topics, "describe_configs", say_no_number)
    sent = horolog("produce", "old.odd", "-k", ":", "--timestamp", "-8d", stdin="k:v\n")
    assert len(asked) == 1
    assert sent.code == 0
    assert "is older" not in sent.err
