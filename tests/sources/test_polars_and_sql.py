"""Topics as frames of polars and tables of DuckDB: the right rows, and no more read than needed."""

import json
import operator
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from command_runner import run_command
from hypothesis import given
from hypothesis import strategies as st
from log_reading import bytes_read_by
from overrides import override
from patience import eventually
from running_broker import MakeBroker, RunningBroker

from horolog.client import Client
from horolog.clock import ManualClock
from horolog.errors import CorruptBatch, Misconfigured
from horolog.polars import scan_horolog
from horolog.record import BLOCK_KERNELS, COLUMN_KERNELS, SCAN_KERNELS, LogRecord, build_batch
from horolog.sources import sql
from horolog.testing import Broker

MINUTE = 60_000
T0 = datetime(2026, 3, 1, tzinfo=UTC)
T0_MS = 1_772_323_200_000
BEYOND = (1 << 63) - 1


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Three partitions: late records, records without a time, and one at the edge of 64 bits."""
    directory = tmp_path_factory.mktemp("clicks")
    settings = {"log.message.timestamp.after.max.ms": BEYOND, "num.partitions": 3}
    with Broker(settings, clock=ManualClock(T0_MS), log_dir=directory) as broker:
        broker.create_topic("clicks", partitions=3)
        broker.create_topic("my.topic")
        with Client(broker.bootstrap_servers) as client:
            for number in range(20):
                for partition in range(3):
                    times = [
                        T0_MS + number * MINUTE,
                        -1,
                        T0_MS + (number - 7 * partition) * MINUTE + 1,
                    ]
                    records = [LogRecord(ms, b"k%d" % number, b"v", (("h", b"1"),)) for ms in times]
                    client.produce("clicks", partition, build_batch(records))
                broker.clock.advance("1m")
            client.produce("clicks", 2, build_batch([LogRecord(BEYOND, None, None)]))
            client.produce("my.topic", 0, build_batch([LogRecord(T0_MS, b"a", b"b")]))
        yield broker


@pytest.fixture(scope="module")
def frame(clicks: Any) -> pl.DataFrame:
    return scan_horolog(clicks.bootstrap_servers, "clicks").collect()


@pytest.fixture(params=["broker", "directory"])
def source(request: pytest.FixtureRequest, clicks: Any) -> Any:
    return clicks.bootstrap_servers if request.param == "broker" else clicks.log_dir


def test_a_frame_has_all_records_with_both_times(source: Any) -> None:
    frame = scan_horolog(source, "clicks").collect()
    assert dict(frame.schema) == {
        "timestamp": pl.Datetime("ms", "UTC"),
        "append_time": pl.Datetime("ms", "UTC"),
        "partition": pl.Int32(),
        "offset": pl.Int64(),
        "key": pl.Binary(),
        "value": pl.Binary(),
        "headers": pl.List(pl.Struct({"key": pl.String, "value": pl.Binary})),
    }
    assert frame.height == 181
    first = frame.filter((pl.col("partition") == 1) & (pl.col("offset") == 3)).to_dicts()
    assert first == [
        {
            "timestamp": at(1),
            "append_time": at(1),
            "partition": 1,
            "offset": 3,
            "key": b"k1",
            "value": b"v",
            "headers": [{"key": "h", "value": b"1"}],
        }
    ]
    assert frame["timestamp"].null_count() == 60


COMPARISONS: list[Callable[[Any, Any], Any]] = [
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]
moments = st.integers(-10, 25).map(at)
leaves = st.one_of(
    st.builds(
        lambda name, compare, value: compare(pl.col(name), value),
        st.sampled_from(["timestamp", "append_time"]),
        st.sampled_from(COMPARISONS),
        moments,
    ),
    st.builds(
        lambda name, compare, value: compare(pl.col(name), value),
        st.sampled_from(["partition", "offset"]),
        st.sampled_from(COMPARISONS),
        st.integers(-2, 65),
    ),
    st.builds(
        lambda name, is_null: pl.col(name).is_null() if is_null else pl.col(name).is_not_null(),
        st.sampled_from(["timestamp", "append_time", "key"]),
        st.booleans(),
    ),
    st.builds(
        lambda first, last, closed: pl.col("timestamp").is_between(first, last, closed),
        moments,
        moments,
        st.sampled_from(["both", "left", "right", "none"]),
    ),
    st.lists(st.integers(-1, 4), max_size=3).map(pl.col("partition").is_in),
    st.sampled_from([b"k3", b"none"]).map(lambda key: pl.col("key") == key),
    st.just(pl.col("timestamp").dt.minute() > 5),
)
predicates = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: two[0] & two[1]),
        st.tuples(inner, inner).map(lambda two: two[0] | two[1]),
        inner.map(operator.invert),
    ),
    max_leaves=5,
)


@given(predicate=predicates, is_file=st.booleans())
def test_predicates_of_polars_leave_the_rows_that_they_leave_of_a_frame(
    predicate: pl.Expr, is_file: bool, clicks: Any, frame: pl.DataFrame
) -> None:
    source = clicks.log_dir if is_file else clicks.bootstrap_servers
    found = scan_horolog(source, "clicks").filter(predicate).collect()
    assert found.equals(frame.filter(predicate)), predicate


def test_a_limit_and_columns_are_pushed(clicks: Any) -> None:
    lazy = scan_horolog(clicks.log_dir, "clicks")
    assert lazy.select("value").head(3).collect().to_dict(as_series=False) == {"value": [b"v"] * 3}
    assert lazy.select(pl.len()).collect().item() == 181
    assert lazy.filter(pl.col("offset") == 4).select("key").collect().height == 3


CONDITIONS = [
    "timestamp between '2026-03-01T00:05Z' and '2026-03-01T00:09Z'",
    "timestamp < '2026-03-01 00:00:00'",
    "timestamp is null and partition = 2",
    "timestamp is null or append_time > '2026-03-01T00:18Z'",
    "not (timestamp >= '2026-03-01T00:05Z')",
    "append_time >= '2026-03-01T00:03Z' and append_time < '2026-03-01T00:04Z'",
    'partition in (0, 2) and "offset" between 3 and 8',
    "partition <> 1 and key = 'k4'",
    "\"offset\" % 7 = 3 and timestamp > '2026-03-01T00:10Z'",
    "timestamp + interval 1 hour > '2026-03-01T01:10Z'",
    "timestamp = 'infinity'",
    "extract(minute from timestamp) = 4 or partition = 7",
    "false",
    "timestamp between '2026-03-01T00:09Z' and '2026-03-01T00:05Z'",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_of_sql_leave_the_rows_that_they_leave_of_a_table(
    condition: str, source: Any, clicks: Any
) -> None:
    whole = sql("select * from clicks", clicks.bootstrap_servers)
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.register("clicks", whole)
        query = f'select * from clicks where {condition} order by partition, "offset"'
        expected = connection.sql(query).to_arrow_table()
    found = sql(query, source)
    assert found.equals(expected)
    counted = sql(f"select count(*) as n from clicks where {condition}", source)
    assert counted["n"].to_pylist() == [expected.num_rows]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select count(*) from my.topic", [1]),
        ('select count(*) from "my.topic" t join clicks c on t.timestamp = c.timestamp', [3]),
        ("with late as (select * from clicks where key = 'k1') select count(*) from late", [9]),
        ("with clicks as (select * from clicks limit 5) select count(*) from clicks", [5]),
        ("from clicks select count(*)", [181]),
        ("select typeof(timestamp) from clicks limit 1", ["TIMESTAMP WITH TIME ZONE"]),
        ("select count(*) from clicks where key in (select key from my.topic)", [0]),
        ('select max(count) from (summarize select "offset" from clicks)', [181]),
    ],
)
def test_queries_of_all_kinds_find_their_topics(
    query: str, rows: list[object], source: Any
) -> None:
    (column,) = sql(query, source).columns
    assert column.to_pylist() == rows


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select 1", "names no topic"),
        ("select * from none", "none"),
        ("selec", "syntax error"),
        ("drop table clicks", "only SELECT"),
        ("copy clicks to 'x.csv'", "only SELECT"),
        ("select 1 from clicks; select 2 from clicks", "one SELECT"),
        ("select wrong from clicks", "wrong"),
        ("select * from clicks where timestamp > 'soon'", "soon"),
        ("select * from 'x.parquet'", "x.parquet"),
    ],
)
def test_queries_that_cannot_be_are_refused_in_a_sentence(
    query: str, said: str, source: Any
) -> None:
    with pytest.raises(Misconfigured, match=said) as refused:
        sql(query, source)
    assert "\n" not in str(refused.value)


def test_a_zone_is_that_of_times_without_one(clicks: Any) -> None:
    query = "select count(*) from clicks where timestamp = '2026-03-01 01:00:00'"
    counts = [
        sql(query, clicks.log_dir, timezone=zone).columns[0].to_pylist()
        for zone in ("UTC", "Europe/Berlin")
    ]
    assert counts == [[0], [3]]
    with pytest.raises(Misconfigured, match="Nowhere"):
        sql(query, clicks.log_dir, timezone="Nowhere/'Here")


def test_variables_of_the_caller_are_no_tables(clicks: Any) -> None:
    mine = pl.DataFrame({"a": [1]})
    with pytest.raises(Misconfigured, match="mine"):
        sql("select * from mine, clicks", clicks.log_dir)
    assert mine.height == 1


@pytest.fixture
def large(make_broker: MakeBroker) -> RunningBroker:
    """Three partitions of 20 blocks each, a minute and an offset a block."""
    for kernels in (BLOCK_KERNELS, COLUMN_KERNELS, SCAN_KERNELS):
        kernels.load()  # not by a thread, while bytes are counted
    clock = ManualClock(T0_MS)
    broker = make_broker(clock=clock)
    broker.create_topic("large", 3)
    for _ in range(20):
        batch = build_batch([LogRecord(clock.now_ms(), None, bytes(300_000))])
        for partition in range(3):
            broker.append("large", batch, partition)
        clock.advance("1m")
    broker.restart()
    return broker


@pytest.mark.parametrize(
    ("condition", "most_blocks"),
    [
        ("timestamp >= '2026-03-01T00:04Z' and timestamp < '2026-03-01T00:05Z'", 3),
        ("append_time = '2026-03-01T00:04Z' and partition = 1", 1),
        ('"offset" >= 17 and partition = 2', 3),
        ('"offset" between 3 and 4', 6),
        ("partition in (1)", 20),
        ("timestamp = '2026-03-01T00:04Z' or timestamp = '2026-03-01T00:05Z'", 6),
        ("not (timestamp > '2026-03-01T00:01Z')", 6),
        ("timestamp is null", 0),
    ],
)
def test_no_other_block_is_read(condition: str, most_blocks: int, large: RunningBroker) -> None:
    query = f"select octet_length(value) as size from large where {condition}"
    path: Path = large.log_dir

    def read() -> None:
        assert sql(query, path).num_rows == most_blocks

    read()  # so that what is loaded with a first query is not counted
    assert bytes_read_by(read) < (most_blocks + 1) * 450_000


def test_polars_reads_no_other_block(large: RunningBroker) -> None:
    lazy = scan_horolog(large.log_dir, "large").filter(pl.col("timestamp") == at(4))
    assert bytes_read_by(lambda: lazy.select("value").collect()) < 4 * 450_000


def test_damage_is_reported_as_it_is(large: RunningBroker) -> None:
    large.stop()
    log = large.log_dir / "large-1" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[700_000] ^= 1
    log.write_bytes(content)
    with pytest.raises(CorruptBatch):
        sql("select sum(octet_length(value)) from large", large.log_dir)
    with pytest.raises(CorruptBatch):
        scan_horolog(large.log_dir, "large").select(pl.col("value")).collect()


def test_a_topic_or_path_that_is_not_there_is_refused_at_once(clicks: Any, tmp_path: Path) -> None:
    for source, topic in (
        (clicks.log_dir, "none"),
        (clicks.bootstrap_servers, "none"),
        (tmp_path / "none", "clicks"),
    ):
        with pytest.raises(Misconfigured, match="none"):
            scan_horolog(source, topic)


# --- the command --------------------------------------------------------------------------

COLUMNS = 'timestamp, append_time, partition, "offset", key, value, headers'
QUERY = f'select {COLUMNS} from clicks where partition = 1 and "offset" in (3, 4) order by "offset"'


def test_the_command_prints_a_table(source: Any) -> None:
    arguments = ["-b", source] if isinstance(source, str) else [source]
    ran = run_command("sql", QUERY, *arguments)
    assert ran.code == 0, ran.err
    assert ran.lines[0].split() == [
        "timestamp",
        "append_time",
        "partition",
        "offset",
        "key",
        "value",
        "headers",
    ]
    cells = [
        "2026-03-01T00:01:00.000Z",
        "2026-03-01T00:01:00.000Z",
        "1",
        "3",
        "k1",
        "v",
        '[{"key":',
        '"h",',
        '"value":',
        '"1"}]',
    ]
    assert ran.lines[2].split() == cells
    assert ran.lines[3].split()[:4] == ["-", "2026-03-01T00:01:00.000Z", "1", "4"]


def test_the_command_prints_csv_and_json(clicks: Any) -> None:
    path = clicks.log_dir
    ran = run_command("sql", QUERY, path, "--format", "csv", "--tz", "Europe/Berlin")
    assert ran.lines[1] == (
        "2026-03-01T01:01:00.000+01:00,2026-03-01T01:01:00.000+01:00,1,3,k1,v,"
        '"[{""key"": ""h"", ""value"": ""1""}]"'
    )
    assert ran.lines[2].startswith(",2026")
    ran = run_command("sql", QUERY, path, "--format", "json")
    assert [json.loads(line) for line in ran.lines] == [
        {
            "timestamp": timestamp,
            "append_time": "2026-03-01T00:01:00.000Z",
            "partition": 1,
            "offset": offset,
            "key": "k1",
            "value": "v",
            "headers": [{"key": "h", "value": "1"}],
        }
        for timestamp, offset in (("2026-03-01T00:01:00.000Z", 3), (None, 4))
    ]
    ran = run_command(
        "sql", "select max(timestamp) t, '\\xff'::blob b from clicks", path, "--format", "json"
    )
    assert json.loads(ran.out) == {"t": "infinity", "b_base64": "/w=="}


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_the_command_writes_a_file_when_it_is_complete(
    suffix: str, clicks: Any, tmp_path: Path
) -> None:
    output = tmp_path / f"out.{suffix}"
    output.write_text("before")
    failed = run_command("sql", "select 1 / wrong from clicks", clicks.log_dir, "-o", output)
    assert failed.code == 2
    assert output.read_text() == "before"
    ran = run_command("sql", "select * from clicks", clicks.log_dir, "-o", output)
    assert (ran.code, ran.out) == (0, "")
    with duckdb.connect() as connection:
        counts = connection.sql(f"select count(*) from '{output}'").fetchall()
    assert counts == [(181,)]
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["select * from clicks", "none"], "none"),
        (["select * from clicks", "{path}", "--format", "parquet"], "--output"),
        (["select * from clicks", "{path}", "-b", "localhost:1"], "one source"),
        (["select * from clicks", "{path}", "-o", "{path}/none/x.csv"], "cannot be written"),
        (["select * from clicks", "{path}", "-o", "x.txt"], "--format"),
        (["select 1", "{path}"], "names no topic"),
        (["select * from clicks", "{path}", "--tz", "+05:30"], "name the zone"),
    ],
)
def test_the_command_refuses_in_a_sentence(arguments: list[str], said: str, clicks: Any) -> None:
    ran = run_command("sql", *(text.replace("{path}", str(clicks.log_dir)) for text in arguments))
    assert ran.code in (1, 2)
    assert said in ran.err
    assert ran.out == ""


def test_a_long_result_is_cut_in_a_table_and_whole_elsewhere(clicks: Any) -> None:
    query = 'select a."offset" from clicks a, clicks b where a.partition = 0 and b.partition = 1'
    ran = run_command("sql", query, clicks.log_dir)
    assert len(ran.lines) == 1_002
    assert "2,600 more rows" in ran.err
    assert len(run_command("sql", query, clicks.log_dir, "--format", "csv").lines) == 3_601


def test_an_offset_is_that_of_a_whole_hour_or_a_name(clicks: Any) -> None:
    query = "select count(*) from clicks where timestamp = '2026-02-28 22:00:00'"
    ran = run_command("sql", query, clicks.log_dir, "--tz=-02:00", "--format", "csv")
    assert ran.lines[1] == "3"


def test_names_of_topics_that_differ_in_case_alone_are_refused_together(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    for topic, count in (("clicks", 1), ("Clicks", 2)):
        broker.create_topic(topic)
        broker.append(topic, build_batch([LogRecord(T0_MS, None, None)] * count))
    assert sql("select count(*) n from Clicks", broker.address).to_pylist() == [{"n": 2}]
    within = "with Mine as (select * from clicks) select count(*) n from mine"
    assert sql(within, broker.address).to_pylist() == [{"n": 1}]
    with pytest.raises(Misconfigured, match="cannot tell Clicks from clicks"):
        sql("select (select count(*) from clicks), count(*) from Clicks", broker.address)


def test_a_query_reads_no_file(clicks: Any, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("x")
    with pytest.raises(Misconfigured, match="Permission"):
        sql(f"select content from read_text('{file}'), clicks", clicks.bootstrap_servers)


@pytest.mark.parametrize(
    ("query", "said"), [("select count(*) from clicks", ""), ("select 1", "horolog: the query")]
)
def test_the_process_says_nothing_else_at_its_end(query: str, said: str, clicks: Any) -> None:
    command = [sys.executable, "-m", "horolog", "sql", query, str(clicks.log_dir)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert "leaked" not in done.stderr
    assert done.stderr.startswith(said)


def test_a_long_query_ends_by_ctrl_c(clicks: Any) -> None:
    query = (
        "select count(*) from clicks, range(100000) a, range(10000000) b"
        " where a.range * b.range % 7 = 1"
    )
    command = [sys.executable, "-m", "horolog", "sql", query, str(clicks.log_dir)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            time.sleep(4)  # longer than it takes to begin
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(10) != 0
        finally:
            process.kill()


@pytest.mark.parametrize("api", ["Fetch", "ListOffsets"])
def test_a_query_that_waits_for_a_broker_ends_by_ctrl_c(api: str) -> None:
    main = threading.get_ident()
    with Broker() as broker:
        broker.create_topic("t")
        with Client(broker.bootstrap_servers) as client:
            client.produce("t", 0, build_batch([LogRecord(5, None, b"")]))
        broker.delay(api, "1h")

        def interrupt() -> None:
            assert eventually(lambda: not broker._faults)
            signal.pthread_kill(main, signal.SIGINT)

        with ThreadPoolExecutor(1) as thread:
            interrupted = thread.submit(interrupt)
            begun = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                sql("select count(*) from t", broker.bootstrap_servers)
            assert time.monotonic() - begun < 25  # a request times out after 30 seconds
            interrupted.result()


def test_times_in_lists_and_dates_beyond_those_of_python_are_printed(clicks: Any) -> None:
    query = (
        "select [timestamp, null] l, {'t': timestamp} s, timestamp::date d, 'nan'::double n"
        " from clicks where timestamp > '9999-01-01' or partition = 0 and \"offset\" = 0 order by 3"
    )
    for shape in ("table", "csv"):
        ran = run_command("sql", query, "-b", clicks.bootstrap_servers, "--format", shape)
        assert ran.code == 0
        assert "infinity" in ran.lines[-1]
    ran = run_command("sql", query, "-b", clicks.bootstrap_servers, "--format", "json")
    first, last = map(json.loads, ran.lines)
    moment = "2026-03-01T00:00:00.000Z"
    assert first == {"l": [moment, None], "s": {"t": moment}, "d": "2026-03-01", "n": "nan"}
    assert last == {"l": ["infinity", None], "s": {"t": "infinity"}, "d": "infinity", "n": "nan"}


def test_append_times_are_null_at_brokers_that_keep_none(
    clicks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.client.offsets", APPEND_TIME="of.no.broker")
    where = "timestamp is not null or append_time is null"
    query = f"select count(*) n, count(append_time) known from clicks where {where}"
    assert sql(query, clicks.bootstrap_servers).to_pylist() == [{"n": 181, "known": 0}]
    frame = scan_horolog(clicks.bootstrap_servers, "clicks")
    assert frame.collect()["append_time"].null_count() == 181
    assert frame.filter(pl.col("append_time") > T0).collect().height == 0
