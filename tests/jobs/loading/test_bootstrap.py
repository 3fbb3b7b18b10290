"""A table into a topic: times, keys, values, and what is said beforehand."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_runner import run_command
from mirror_lab import rows_of
from overrides import override
from running_broker import MakeBroker, RunningBroker

from horolog import jobs
from horolog.clock import SystemClock
from horolog.errors import Misconfigured, StorageFailed
from horolog.jobs.loading.rows import RowRules
from horolog.jobs.loading.survey import Survey
from horolog.jobs.receiving import ReceivingTopic
from horolog.jobs.state import look_at_state
from horolog.record import LogRecord, partition_of_key
from horolog.spark.errors import TaskFailed

pytestmark = pytest.mark.spark
NOW = 1_763_000_000_000
DAY_MS = 86_400_000


def records_of(broker: RunningBroker, topic: str, partition: int = 0) -> list[LogRecord]:
    return rows_of(broker.address, topic, partition)


def table_of(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """300 rows, out of order in time, from 1960 to 2017."""
    count = 300
    places = [(place * 97) % count for place in range(count)]
    return table_of(
        tmp_path / "orders.parquet",
        id=pa.array(places, pa.int64()),
        customer=pa.array([f"c-{place % 11}" for place in places]),
        at=pa.array(
            [(place - 50) * 70 * DAY_MS * 1_000 + 999 for place in places],
            pa.timestamp("us", "UTC"),
        ),
        amount=pa.array([place / 4 for place in places]),
        gone=pa.array([place % 10 == 0 for place in places]),
        note=pa.array([None if place % 3 else f"n{place}" for place in places]),
    )


def test_each_row_becomes_a_record_of_its_time_key_and_value(
    spark: Any, broker: RunningBroker, orders: Path, tmp_path: Path
) -> None:
    asked = {
        "table": orders,
        "target": broker.address,
        "topic": "orders",
        "time": "at",
        "key": "customer",
        "headers": {"note": "note"},
        "tombstone_when": "gone",
        "partitions": 3,
        "topic_settings": {"retention.ms": "-1"},
        "state": tmp_path / "state",
    }
    done = jobs.bootstrap(spark, **asked)
    assert done.is_ok
    assert (done.records, done.sent) == (300, 300)
    rows = {row["id"]: row for row in pq.read_table(orders).to_pylist()}
    seen = set()
    for partition in range(3):
        records = records_of(broker, "orders", partition)
        assert [record.timestamp for record in records] == sorted(
            record.timestamp for record in records
        )
        assert len(records) == done.counts.get(partition, 0)
        for record in records:
            # Floored: microseconds after a day's start, before 1970 too.
            number, rest = divmod(record.timestamp, 70 * DAY_MS)
            row = rows[number + 50]
            seen.add(row["id"])
            assert rest == 0
            assert record.key == row["customer"].encode()
            assert partition_of_key(record.key, 3) == partition
            assert record.headers == (
                (("note", row["note"].encode()),) if row["note"] is not None else ()
            )
            if row["gone"]:
                assert record.value is None
                continue
            value = json.loads(record.value or b"")
            assert value["amount"] == row["amount"]
            assert value["note"] == row["note"]
            at = datetime.fromtimestamp(record.timestamp / 1000, UTC)
            assert value["at"].startswith(f"{at:%Y-%m-%dT}")
    assert len(seen) == 300
    again = jobs.bootstrap(spark, **asked)
    assert again.was_loaded
    assert (again.records, again.sent) == (300, 0)
    assert sum(len(records_of(broker, "orders", partition)) for partition in range(3)) == 300
    assert not list((tmp_path / "state").rglob("*.log"))
    with pytest.raises(Misconfigured, match="another topic"):
        jobs.bootstrap(spark, **{**asked, "topic": "others"})
    lost = jobs.bootstrap(spark, **{**asked, "state": tmp_path / "lost"})
    assert not lost.is_ok
    assert "orders of the target holds 303 offsets already" in lost.problems[0]
    assert sum(len(records_of(broker, "orders", partition)) for partition in range(3)) == 300
    more = jobs.bootstrap(spark, **{**asked, "state": tmp_path / "more"}, into_nonempty=True)
    assert (more.is_ok, more.sent) == (True, 300)


@pytest.mark.parametrize(
    ("unit", "given", "expected"),
    [
        ("s", [-2, 0, 1_700_000_000], [-2_000, 0, 1_700_000_000_000]),
        ("ms", [-2, 0, 1], [-2, 0, 1]),
        ("us", [-2_001, -1_000_000, 1_999], [-3, -1_000, 1]),
        (
            "ns",
            [-(1 << 63), -1, 1_700_000_000_123_456_789],
            [-9_223_372_036_855, -1, 1_700_000_000_123],
        ),
    ],
)
def test_integers_are_times_in_their_unit_floored_to_milliseconds(
    spark: Any, tmp_path: Path, unit: str, given: list[int], expected: list[int]
) -> None:
    path = table_of(tmp_path / "t.parquet", t=pa.array(given, pa.int64()))
    rules = RowRules(time="t", unit=unit)
    frame = spark.read.parquet(str(path))
    rules.check(frame)
    found = rules.records(frame, 1, NOW).select("timestamp_ms").collect()
    assert [row[0] for row in found] == expected


def test_times_without_a_zone_dates_and_other_keys(spark: Any, tmp_path: Path) -> None:
    path = table_of(
        tmp_path / "t.parquet",
        t=pa.array([-86_399_999_999], pa.timestamp("us")),
        d=pa.array([-1], pa.date32()),
        k=pa.array([b"\xff\0"], pa.binary()),
        n=pa.array([7], pa.int32()),
        p=pa.array([2], pa.int32()),
    )
    frame = spark.read.parquet(str(path))

    def row_of(**rules: Any) -> Any:
        chosen = RowRules(**rules)
        chosen.check(frame)
        return chosen.records(frame, 3, NOW).collect()[0]

    assert row_of(time="t", zone="UTC")["timestamp_ms"] == -86_400_000
    assert row_of(time="t", zone="+02:00")["timestamp_ms"] == -93_600_000
    assert row_of(time="d")["timestamp_ms"] == -86_400_000
    assert row_of()["timestamp_ms"] == NOW
    assert bytes(row_of(key=("k",))["key"]) == b"\xff\0"
    assert bytes(row_of(key=("n",))["key"]) == b"7"
    assert json.loads(bytes(row_of(key=("n", "p"))["key"])) == {"n": 7, "p": 2}
    assert row_of(partition_column="p")["partition"] == 2
    assert bytes(row_of(value="binary", value_columns=("k",))["value"]) == b"\xff\0"
    assert bytes(row_of(value="string", value_columns=("n",))["value"]) == b"7"


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"time": "x"}, "no column x"),
        ({"time": "i"}, "say their unit"),
        ({"time": "ts", "unit": "s"}, "has no unit"),
        ({"time": "ntz"}, "with tz"),
        ({"time": "ts", "tz": "UTC"}, "need no tz"),
        ({"time": "s"}, "a time is a timestamp, a date or an integer"),
        ({"unit": "ms"}, "give time"),
        ({"value": "xml"}, "there are json, string, binary"),
        ({"value": "string"}, "takes one column"),
        ({"value": "binary", "value_columns": "i"}, "write value=string"),
        ({"key": "list"}, "and no text"),
        ({"partition_column": "s"}, "holds no integers"),
        ({"tombstone_when": "s ="}, "PARSE_SYNTAX_ERROR"),
        ({"tombstone_when": "nothing = 1"}, "nothing"),
        ({"table": "nowhere.parquet"}, "table nowhere.parquet: .*PATH_NOT_FOUND"),
        ({"compression": "rar"}, "there are none, gzip"),
        ({"topic": "a/b"}, "a/b"),
        ({"topic": "__consumer_offsets"}, "keeps for itself"),
        ({"partitions": None}, "give --partitions"),
    ],
)
def test_rules_that_the_table_cannot_follow_are_refused(
    spark: Any, broker: RunningBroker, tmp_path: Path, rules: dict[str, Any], sentence: str
) -> None:
    path = table_of(
        tmp_path / "t.parquet",
        i=pa.array([1], pa.int64()),
        s=pa.array(["x"]),
        ts=pa.array([1], pa.timestamp("us", "UTC")),
        ntz=pa.array([1], pa.timestamp("us")),
        list=pa.array([[1]]),
    )
    asked = {"table": path, "topic": "t", "partitions": 1, **rules}
    with pytest.raises((Misconfigured, ValueError), match=sentence):
        jobs.bootstrap(spark, target=broker.address, state=tmp_path / "s", **asked)
    corrected = {"any": "other arguments"}
    assert look_at_state(tmp_path / "s", "bootstrap", corrected) is None


def test_what_the_topic_would_refuse_or_delete_is_said_before_anything_is_sent(
    spark: Any, make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker()
    now_ms = SystemClock().now_ms()
    times = [-5, -1, 0, now_ms - 10 * DAY_MS, now_ms - DAY_MS, now_ms + DAY_MS, None]
    path = table_of(
        tmp_path / "t.parquet",
        at=pa.array(times, pa.int64()),
        k=pa.array(["a", None, "b", "c", "d", "e", "f"]),
    )
    asked = {"table": path, "target": broker.address, "topic": "t", "time": "at", "unit": "ms"}
    bounds = {"message.timestamp.before.max.ms": str(2 * DAY_MS)}
    told = jobs.bootstrap(
        spark, **asked, key="k", partitions=2, topic_settings=bounds, dry_run=True
    )
    assert told.is_dry_run
    assert not told.is_ok
    assert told.survey is not None
    survey = told.survey
    assert (survey.records, survey.without_time, survey.minus_one, survey.before_1970) == (
        7,
        1,
        1,
        1,
    )
    assert (survey.too_early, survey.too_late, survey.without_key) == (3, 1, 1)
    text = "\n".join(told.problems)
    assert "3 records are older than message.timestamp.before.max.ms=172800000" in text
    assert "1 records are further in the future" in text
    assert "1 rows have no time" in text
    # Kafka's default: a week.
    assert "retention will delete 2 of the 7 records" in told.warnings[0]
    assert "the oldest of them is of 1970-01-01T00:00:00.000Z" in told.warnings[0]
    state = tmp_path / "state"
    refused = jobs.bootstrap(
        spark, **asked, key="k", partitions=2, topic_settings=bounds, state=state
    )
    assert refused.problems == told.problems
    assert "t" not in broker.client.metadata().topics
    compacted = ReceivingTopic(
        name="t",
        partitions=2,
        exists=True,
        is_horolog=False,
        settings={"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"},
    )
    (sentence,) = replace(survey, too_early=0, too_late=0, without_time=0).problems(
        compacted, replaces_create_times=False
    )
    assert "1 records have no key, and t is compacted" in sentence
    assert "1 records are of before 1970" in "\n".join(
        replace(survey, expired=0).warnings(compacted, now_ms)
    )
    kept = {"horolog.retention.by": "append-time"}
    told = jobs.bootstrap(spark, **asked, partitions=1, topic_settings=kept, dry_run=True)
    assert not any("retention" in each for each in told.warnings)
    ran = run_command(
        *("spark", "bootstrap", "--table", path, "--target", broker.address, "--topic", "t"),
        *("--time", "at", "--unit", "ms", "--partitions", 1, "--dry-run"),
    )
    assert ran.code == 1
    assert "refused: 1 rows have no time" in ran.out
    assert "warning: retention will delete" in ran.err
    assert "would not be loaded" in ran.out


def test_a_moment_that_would_be_written_as_no_time_is_refused(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    asked = {"target": broker.address, "topic": "t", "time": "at", "partitions": 1, "dry_run": True}
    for number, (times, unit) in enumerate(
        [
            (pa.array([-1], pa.timestamp("us", "UTC")), None),
            (pa.array([-1], pa.int64()), "us"),
            (pa.array([-1], pa.int64()), "ms"),
        ]
    ):
        path = table_of(tmp_path / f"{number}.parquet", at=times)
        told = jobs.bootstrap(spark, table=path, unit=unit, **asked)
        said = "\n".join(told.warnings if unit == "ms" else told.problems)
        assert "-1 ms, which Kafka's formats take for no time" in said
        assert told.is_ok is (unit == "ms")


def test_a_topic_of_log_append_time_is_refused_without_the_flag(
    spark: Any, broker: RunningBroker, orders: Path, tmp_path: Path
) -> None:
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    asked = {"table": orders, "target": broker.address, "topic": "stamped", "time": "at"}
    refused = jobs.bootstrap(spark, **asked, state=tmp_path / "a")
    assert "would replace the times" in refused.problems[0]
    assert records_of(broker, "stamped") == []
    done = jobs.bootstrap(spark, **asked, state=tmp_path / "b", replace_create_times=True)
    assert done.is_ok
    assert len(records_of(broker, "stamped")) == 300


def test_a_record_that_is_too_large_for_the_topic_stops_the_load_before_it_begins(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("small", max_message_bytes="2000")
    path = table_of(tmp_path / "t.parquet", v=pa.array(["x" * 100] * 50 + ["y" * 3_000]))
    asked = {"table": path, "target": broker.address, "topic": "small", "value": "string"}
    done = jobs.bootstrap(spark, **asked, value_columns="v", state=tmp_path / "s")
    assert "max.message.bytes of small is 2000" in done.problems[0]
    assert records_of(broker, "small") == []


def test_a_csv_file_is_loaded_by_the_command_and_again_without_doubling(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text(
        "user,page,at\n" + "".join(f"u{n % 3},/p{n},{1_700_000_000 + n}\n" for n in range(40))
    )
    command = [
        *("spark", "bootstrap", "--table", path, "--target", broker.address, "--topic", "clicks"),
        *("--time", "at", "--unit", "s", "--key", "user", "--value-columns", "page,user"),
        *("--partitions", 2, "--topic-set", "retention.ms=-1", "--compression", "lz4"),
        *("--state", tmp_path / "state"),
    ]
    ran = run_command(*command)
    assert ran.code == 0, ran
    assert "40 records loaded into clicks (2 partitions); the table has 40." in ran.out
    path.unlink()  # what was loaded does not need it any more
    ran = run_command(*command)
    assert "All 40 records were loaded" in ran.out
    records = [*records_of(broker, "clicks", 0), *records_of(broker, "clicks", 1)]
    assert sorted(record.timestamp for record in records) == [
        1_700_000_000_000 + 1_000 * n for n in range(40)
    ]
    assert {tuple(json.loads(record.value or b"")) for record in records} == {("page", "user")}


def test_a_load_that_was_stopped_while_it_sent_goes_on_without_doubling(
    spark: Any, make_broker: MakeBroker, orders: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """Also where the table would have other rows by then."""
    broker = make_broker()
    module = sys.modules["horolog.jobs.loading.run"]
    real = module.mirror

    def killed_after_sending(*arguments: Any, **named: Any) -> Any:
        real(*arguments, **named)
        raise KeyboardInterrupt

    asked = {
        "target": broker.address,
        "topic": "orders",
        "time": "at",
        "partitions": 2,
        "topic_settings": {"retention.ms": "-1"},
        "state": tmp_path / "state",
    }
    monkeypatch.setattr(module, "mirror", killed_after_sending)
    with pytest.raises(KeyboardInterrupt):
        jobs.bootstrap(spark, table=orders, **asked)
    monkeypatch.setattr(module, "mirror", real)
    table_of(orders, other=pa.array([1]))
    done = jobs.bootstrap(spark, table=orders, **asked)
    assert done.is_ok
    assert (done.records, done.sent) == (300, 0)
    assert sum(len(records_of(broker, "orders", number)) for number in range(2)) == 300


def test_an_empty_table_is_loaded_and_what_spark_cannot_compute_is_one_sentence(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    path = table_of(tmp_path / "t.parquet", n=pa.array([], pa.int64()))
    asked = {"target": broker.address, "topic": "t", "partitions": 2}
    done = jobs.bootstrap(spark, table=path, state=tmp_path / "a", **asked)
    assert done.is_ok
    assert (done.records, done.sent) == (0, 0)
    path = table_of(tmp_path / "u.parquet", n=pa.array([1, 0], pa.int64()))
    with pytest.raises(StorageFailed, match="DIVIDE_BY_ZERO"):
        jobs.bootstrap(
            spark, table=path, state=tmp_path / "b", tombstone_when="1 div n = 7", **asked
        )


def test_rows_that_change_between_the_count_and_the_load_stop_it(
    spark: Any, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table_of(tmp_path / "t.parquet", at=pa.array([1, None], pa.int64()))
    monkeypatch.setattr(Survey, "problems", lambda *_, **__: [])
    with pytest.raises(TaskFailed, match="a row has no time, though none was without"):
        jobs.bootstrap(
            spark,
            table=path,
            target=broker.address,
            topic="t",
            time="at",
            unit="ms",
            partitions=1,
            state=tmp_path / "s",
        )
    assert records_of(broker, "t") == []


def test_a_table_of_a_database_is_loaded_and_its_password_is_kept_nowhere(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    url = f"jdbc:derby:memory:{tmp_path.name};create=true"
    rows = [(number, 1_600_000_000_000 + number) for number in range(50)]
    made = spark.createDataFrame(rows, "id long, at long")
    driver = "org.apache.derby.jdbc.EmbeddedDriver"
    written = {"url": url, "dbtable": "clicks", "driver": driver}
    made.write.format("jdbc").options(**written).save()
    done = jobs.bootstrap(
        spark,
        table="clicks",
        format="jdbc",
        options={**written, "user": "APP", "password": "s3cr3t-of-tests"},
        target=broker.address,
        topic="clicks",
        time="at",
        unit="ms",
        key="id",
        partitions=1,
        topic_settings={"retention.ms": "-1"},
        state=tmp_path / "state",
    )
    assert done.is_ok
    assert [record.timestamp for record in records_of(broker, "clicks")] == [at for _, at in rows]
    for path in (tmp_path / "state").rglob("*"):
        assert not path.is_file() or b"s3cr3t" not in path.read_bytes()
    for options, said in (
        ({**written, "dbtable": "absent"}, "Table/View 'ABSENT' does not exist"),
        ({**written, "driver": "no.such.Driver"}, "ClassNotFoundException: no.such.Driver"),
    ):
        with pytest.raises(Misconfigured, match=said) as refused:
            jobs.bootstrap(
                spark,
                table="absent",
                format="jdbc",
                options=options,
                target=broker.address,
                topic="clicks",
                dry_run=True,
            )
        assert str(refused.value).startswith("table absent: ")
        assert "\n" not in str(refused.value)


def test_a_topic_that_was_deleted_since_it_was_loaded_is_refused(
    spark: Any, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table_of(tmp_path / "t.parquet", t=pa.array([NOW, NOW + 1], pa.int64()))
    asked: dict[str, Any] = {"table": path, "target": broker.address, "topic": "t"}
    asked |= {"time": "t", "unit": "ms"}
    asked |= {"partitions": 2, "topic_settings": {"retention.ms": "-1"}}
    with monkeypatch.context() as patched:  # a kill before anything is sent
        override(patched, "horolog.jobs.loading", mirror=lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            jobs.bootstrap(spark, **asked, state=tmp_path / "staged")
    told = jobs.bootstrap(spark, **asked, state=tmp_path / "staged", dry_run=True)
    assert (told.is_ok, told.is_dry_run, told.records, told.sent) == (True, True, 2, 0)
    assert jobs.bootstrap(spark, **asked, state=tmp_path / "loaded").is_ok
    told = jobs.bootstrap(spark, **asked, state=tmp_path / "loaded", dry_run=True)
    assert (told.was_loaded, told.is_dry_run, told.records) == (True, True, 2)
    broker.client.delete_topics(["t"])
    for step, what in (("gone", "was deleted since"), ("there", "was deleted and created again")):
        if step == "there":
            broker.create_topic("t", partitions=2)
        for state in ("staged", "loaded"):
            for dry_run in (True, False):
                with pytest.raises(Misconfigured, match=f"t of the target {what}"):
                    jobs.bootstrap(spark, **asked, state=tmp_path / state, dry_run=dry_run)
    assert [records_of(broker, "t", partition) for partition in range(2)] == [[], []]
    assert jobs.bootstrap(spark, **asked, state=tmp_path / "new").is_ok


def test_a_dry_run_refuses_a_state_that_a_run_would_refuse(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    path = table_of(tmp_path / "t.parquet", t=pa.array([NOW], pa.int64()))
    asked = {"table": path, "target": broker.address, "topic": "t", "time": "t", "unit": "ms"}
    state = tmp_path / "state"
    state.mkdir()
    (state / "theirs").touch()
    for dry_run in (True, False):
        with pytest.raises(Misconfigured, match="is no state directory: it holds theirs"):
            jobs.bootstrap(spark, **asked, partitions=1, state=state, dry_run=dry_run)
