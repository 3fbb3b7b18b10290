"""Several queries of one load(): each has its own rows, and reads no more than it needs."""

import gc
import logging
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from examples import stride
from overrides import override
from patience import eventually
from pyspark import SparkFiles

from horolog.errors import StorageFailed
from horolog.record import LogRecord, TimeRange, build_batch
from horolog.sources import Interval, Names, NameTest, Numbers, RowFilter
from horolog.spark.read import pushes

FEW, MANY = 3, 8


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("apart")
    for topic, count in (("few", FEW), ("many", MANY)):
        (root / f"{topic}-0").mkdir()
        records = [LogRecord(1_000 + each, b"%d" % each, b"v") for each in range(count)]
        batch = build_batch(records, base_offset=40)
        (root / f"{topic}-0" / f"{40:020d}.log").write_bytes(batch)
    return root


@pytest.fixture
def load(spark: Any, log_dir: Path) -> Callable[..., Any]:
    def load(**options: str) -> Any:
        reader = spark.read.format("horolog").options(includeTimestampMs="true", **options)
        return reader.load(str(log_dir))

    return load


@pytest.fixture
def records(load: Callable[..., Any]) -> Any:
    return load()


@pytest.fixture
def shared_records(spark: Any, log_dir: Path) -> Any:
    """As over Spark Connect: one plan for all queries of a load()."""
    plain_load = type(spark.read).load.__wrapped__
    reader = spark.read.format("horolog").option("includeTimestampMs", "true")
    return pushes.marked(plain_load(reader, str(log_dir)))


def rows_of(frame: Any) -> dict[str, int]:
    return {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}


def explained(frame: Any) -> None:
    assert "BatchScan horolog" in frame._jdf.queryExecution().toString()


def planned(frame: Any) -> str:
    return str(frame._jdf.queryExecution().withCachedData().toString())


def tasks_of(frame: Any) -> int:
    return int(frame.rdd.getNumPartitions())


@pytest.mark.slow
@pytest.mark.spark
def test_plans_that_are_never_run_do_not_widen_later_queries(load: Callable[..., Any]) -> None:
    records = load(maxRecordsPerPartition="1")
    few = records.where("topic = 'few'")
    one = records.where("topic = 'many' and offset = 41")
    for each in (records, few, one):
        explained(each)
    few.cache()
    explained(few.union(one).union(records))
    few.unpersist()
    assert few.union(records).count() == 2 * FEW + MANY
    assert tasks_of(records.where("topic = 'many' and offset = 42")) == 1
    assert tasks_of(records.where("topic = 'few'")) == FEW
    assert tasks_of(records.where("topic like 'm%'")) == MANY
    # In one plan, too.
    assert tasks_of(few.union(one)) == FEW + 1


OPERATIONS: list[Callable[[Any], object]] = [
    lambda records: records.count() == FEW + MANY,
    lambda records: records.where("topic = 'few'").count() == FEW,
    lambda records: len(records.where("offset >= 46").collect()) == 2,
    lambda records: records.where("timestampMs < 1002").count() == 4,
    lambda records: records.where("partition = 1").count() == 0,
    lambda records: explained(records.where("topic = 'nothing'")) is None,
    lambda records: explained(records) is None,
    lambda records: (
        rows_of(records.where("topic = 'few'").union(records.where("offset = 47")))
        == {"few": FEW, "many": 1}
    ),
    lambda records: (
        records.where("topic = 'few'").join(records.where("topic = 'many'"), "timestampMs").count()
        == FEW
    ),
    lambda records: len(records.where("topic = 'many'").toPandas()) == MANY,
    lambda records: records.select("offset").distinct().count() == MANY,
]


@pytest.mark.spark
def test_queries_in_any_order_have_their_own_rows(records: Any) -> None:
    rng = random.Random(5)
    for operation in rng.choices(OPERATIONS, k=12 // stride(2)):
        assert operation(records)


@pytest.mark.spark
@pytest.mark.slow
def test_queries_in_any_order_have_their_own_rows_where_plans_are_shared(
    shared_records: Any,
) -> None:
    rng = random.Random(6)
    for operation in [*OPERATIONS, *rng.choices(OPERATIONS, k=30)]:
        assert operation(shared_records)


@pytest.mark.spark
def test_threads_that_query_one_dataframe_do_not_meet(records: Any) -> None:
    wrong: list[object] = []

    def query(condition: str, expected: int) -> None:
        for _ in range(3):
            found = records.where(condition).count()
            if found != expected:
                wrong.append((condition, found))

    cases = [("topic = 'few'", FEW), ("offset = 41", 2), ("offset >= 0", FEW + MANY)]
    threads = [threading.Thread(target=query, args=case) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.spark
def test_a_query_without_filters_after_one_with_them_sees_every_row(shared_records: Any) -> None:
    assert shared_records.where("topic = 'few'").count() == FEW
    assert shared_records.count() == FEW + MANY
    assert shared_records.where("timestampMs < 1002").count() == 4


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["records", "shared_records"])
def test_a_cached_aggregate_keeps_its_rows_when_others_run_before_it(
    request: pytest.FixtureRequest, kind: str
) -> None:
    records = request.getfixturevalue(kind)
    few = records.where("topic = 'few'").groupBy("topic").count().cache()
    many = records.where("topic = 'many'").groupBy("topic").count().cache()
    try:
        assert records.where("offset = 41").count() == 2
        assert many.collect()[0]["count"] == MANY
        assert records.where("offset = 42").count() == 2
        assert few.collect()[0]["count"] == FEW
    finally:
        few.unpersist()
        many.unpersist()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["records", "shared_records"])
def test_an_explained_query_keeps_its_rows(request: pytest.FixtureRequest, kind: str) -> None:
    records = request.getfixturevalue(kind)
    few = records.where("topic = 'few'").groupBy("partition").count()
    explained(few)
    assert records.where("topic = 'many'").count() == MANY
    assert few.collect()[0]["count"] == FEW


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["records", "shared_records"])
def test_queries_in_sql_each_have_their_own_rows(
    spark: Any, request: pytest.FixtureRequest, kind: str
) -> None:
    request.getfixturevalue(kind).createOrReplaceTempView("horolog_records")
    answer = spark.sql(
        "select count(*), (select count(*) from horolog_records where topic = 'many') "
        "from horolog_records where topic = 'few'"
    )
    assert tuple(answer.collect()[0]) == (FEW, MANY)


@pytest.mark.spark
@pytest.mark.slow
def test_a_reader_without_the_mark_reads_everything_and_spark_filters(
    spark: Any, log_dir: Path
) -> None:
    plain_load = type(spark.read).load.__wrapped__
    frame = plain_load(spark.read.format("horolog"), str(log_dir))
    assert frame.where("topic = 'few'").count() == FEW
    assert frame.count() == FEW + MANY


@pytest.mark.spark
def test_what_is_cached_of_one_load_is_found_by_its_queries_alone(
    load: Callable[..., Any], log_dir: Path
) -> None:
    records, others = load(), load()
    table, other = (each._jdf.queryExecution().analyzed().table() for each in (records, others))
    assert table.equals(table)
    assert not table.equals(other)
    assert not table.equals(None)
    assert table.hashCode() == table.hashCode()
    assert "PythonTable" in table.toString()
    records.cache()
    try:
        assert "InMemoryRelation" in planned(records.where("topic = 'few'"))
        assert "InMemoryRelation" not in planned(others.where("topic = 'few'"))
    finally:
        records.unpersist()


@pytest.mark.spark
def test_every_scan_has_a_provider_of_its_own_that_has_its_source(records: Any) -> None:
    relation = records._jdf.queryExecution().analyzed()
    providers = []
    for _ in range(2):
        builder = relation.table().newScanBuilder(relation.options())
        field = builder.getClass().getDeclaredFields()[0]
        field.setAccessible(True)
        providers.append(field.get(builder))
    one, other = providers
    assert one.hashCode() != other.hashCode()
    # The same objects: no Python worker makes the source again for each scan.
    nothing = records.sparkSession._jvm.scala.Option.empty()
    created = [
        each.getOrCreateDataSourceInPython("no such format", relation.options(), nothing)
        for each in providers
    ]
    assert created[0].equals(created[1])
    assert one.source().equals(other.source())


@pytest.mark.spark
def test_a_dataframe_that_is_gone_leaves_no_table_in_the_jvm(
    spark: Any, load: Callable[..., Any]
) -> None:
    records = load()
    assert records.where("topic = 'few'").count() == FEW
    table = records._jdf.queryExecution().analyzed().table()
    held = spark._jvm.java.lang.ref.WeakReference(table)
    assert held.get() is not None
    del records, table

    def is_gone() -> bool:
        gc.collect()  # py4j lets go of an object in the JVM with Python's
        spark._jvm.java.lang.System.gc()
        return held.get() is None

    assert eventually(is_gone, 60)


@pytest.mark.spark
def test_branches_that_threads_of_spark_run_have_their_own_rows(records: Any) -> None:
    few = records.where("topic = 'few'").hint("broadcast")
    assert records.join(few, ["topic", "offset"]).join(few, "offset").count() == FEW


@pytest.mark.spark
def test_a_spark_that_cannot_be_taught_is_marked_with_a_warning(
    spark: Any, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(frame: Any) -> Any:
        raise RuntimeError("no such class here")

    override(monkeypatch, "horolog.spark", with_scans_apart=refuse)
    with pytest.warns(RuntimeWarning, match=r"SPARK-58551\): no such class here"):
        frame = spark.read.format("horolog").load(str(log_dir))
    assert frame.where("topic = 'few'").count() == FEW
    assert frame.count() == FEW + MANY


# The notes of pending pushes, where plans are shared.


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    return tmp_path / "horolog-pushes"


def wanting(first: int, last: int, topic: str) -> RowFilter:
    return RowFilter(
        {
            "timestampMs": Numbers(Interval(first, last)),
            "topic": Names(((NameTest("is", (topic,)),),)),
        }
    )


EARLY, LATE = wanting(0, 9, "a"), wanting(50, 59, "b")


@pytest.mark.usefixtures("notes")
def test_a_push_that_is_alone_is_forgotten_once_a_task_reads_by_it() -> None:
    rows, push = pushes.push("load", EARLY)
    assert rows == EARLY
    assert push.is_alone
    push.forget()
    assert pushes.push("load", LATE)[0] == LATE


def test_a_query_that_is_over_leaves_no_note_behind(notes: Path) -> None:
    pushes.push("load", EARLY)[1].forget()
    pushes.push("another load", EARLY)[1].forget()
    assert list(notes.iterdir()) == []


def test_pending_pushes_are_read_together_for_good_and_said_to_be(
    notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pushes.push("load", EARLY)
    assert caplog.records == []
    both, push = pushes.push("load", LATE)
    assert both.times == TimeRange(0, 59)
    assert both.takes("a", 0)
    assert both.takes("b", 0)
    assert not both.takes("c", 0)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "reads more than its filters need" in said
    assert "SPARK-58551" in said
    assert not push.is_alone  # so that no task forgets it
    assert pushes.push("load", LATE)[0].times == TimeRange(0, 59)
    assert pushes.push("another load", LATE)[0] == LATE
    # All of it is in the directory that Spark removes when it stops.
    assert notes.parent == Path(SparkFiles._root_directory or "")


def test_a_push_that_cannot_be_noted_ends_the_query(notes: Path) -> None:
    notes.write_text("a file in the way")
    with pytest.raises(StorageFailed, match="cannot be noted"):
        pushes.push("load", EARLY)


def test_where_nothing_can_be_noted_nothing_is_narrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "_root_directory", None)
    rows, push = pushes.push("load", EARLY)
    assert rows == RowFilter()
    push.forget()


@pytest.mark.usefixtures("notes")
def test_a_query_that_wants_nothing_more_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        pushes.push("load", EARLY)
        pushes.push("load", EARLY)
    assert caplog.records == []


def test_a_hull_of_lists_and_of_all_keeps_all() -> None:
    some = RowFilter({"partition": Numbers(listed=frozenset({1, 2}))})
    other = RowFilter({"partition": Numbers(Interval(7, 7))})
    listed = RowFilter({"partition": Numbers(listed=frozenset({7}))})
    both = some.hull(listed)
    assert [number for number in range(9) if both.takes("t", number)] == [1, 2, 7]
    assert all(some.hull(other).takes("t", number) for number in (1, 2, 7))
    assert some.hull(RowFilter()) == RowFilter()
    assert wanting(5, 4, "a").hull(wanting(0, 9, "a")).times == TimeRange(0, 9)


@pytest.mark.parametrize(
    "rows",
    [
        EARLY,
        EARLY.hull(LATE),
        RowFilter({"partition": Numbers(listed=frozenset())}),
        RowFilter({"offset": Numbers(Interval(first=1 << 63))}),
    ],
)
def test_a_push_is_read_as_it_was_written(notes: Path, rows: RowFilter) -> None:
    pushes.push("load", rows)
    assert pushes.push("load", rows)[0] == rows
