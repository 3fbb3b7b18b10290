"""Several queries of one load(): each has its own rows, whatever plan Spark takes for it."""

import os
from pathlib import Path
from typing import Any

import pytest

from horolog.record.builder import Record, build_batch
from horolog.spark import pushes
from horolog.spark.filters import Interval, TopicTest, Wanted

FEW, MANY = 3, 8


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("apart")
    for topic, count in (("few", FEW), ("many", MANY)):
        (root / f"{topic}-0").mkdir()
        records = [Record(1_000 + each, b"%d" % each, b"v") for each in range(count)]
        batch = build_batch(records, base_offset=40)
        (root / f"{topic}-0" / f"{40:020d}.log").write_bytes(batch)
    return root


@pytest.fixture
def records(spark: Any, log_dir: Path) -> Any:
    return spark.read.format("horolog").option("includeTimestampMs", "true").load(str(log_dir))


def rows_of(frame: Any) -> dict[str, int]:
    return {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}


@pytest.mark.spark
def test_a_query_without_filters_after_one_with_them_sees_every_row(records: Any) -> None:
    assert records.where("topic = 'few'").count() == FEW
    assert records.count() == FEW + MANY
    assert records.where("timestampMs < 1002").count() == 4


@pytest.mark.spark
@pytest.mark.slow
def test_each_branch_of_a_union_has_its_own_rows(records: Any) -> None:
    few, many = records.where("topic = 'few'"), records.where("topic = 'many'")
    assert rows_of(few.union(many)) == {"few": FEW, "many": MANY}
    assert few.join(many, "timestampMs").count() == FEW


@pytest.mark.spark
@pytest.mark.slow
def test_a_cached_aggregate_keeps_its_rows_when_others_run_before_it(records: Any) -> None:
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
def test_an_explained_query_keeps_its_rows(
    records: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    few = records.where("topic = 'few'").groupBy("partition").count()
    few.explain()
    assert "BatchScan" in capsys.readouterr().out
    assert records.where("topic = 'many'").count() == MANY
    assert few.collect()[0]["count"] == FEW


@pytest.mark.spark
@pytest.mark.slow
def test_queries_in_sql_each_have_their_own_rows(spark: Any, records: Any) -> None:
    records.createOrReplaceTempView("horolog_records")
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


@pytest.fixture
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes.tempfile, "gettempdir", lambda: str(tmp_path))


EARLY = Wanted(times_ms=Interval(0, 9), topics=(TopicTest("is", ("a",)),))
LATE = Wanted(times_ms=Interval(50, 59), topics=(TopicTest("is", ("b",)),))


@pytest.mark.usefixtures("_own_place")
def test_a_push_that_is_alone_is_forgotten_once_a_task_reads_by_it() -> None:
    wanted, push = pushes.push("load", EARLY)
    assert wanted == EARLY
    push.begun()
    assert pushes.push("load", LATE)[0] == LATE


@pytest.mark.usefixtures("_own_place")
def test_a_query_that_is_over_leaves_no_note_behind(tmp_path: Path) -> None:
    pushes.push("load", EARLY)[1].begun()
    pushes.push("another load", EARLY)[1].withdrawn()
    (root,) = tmp_path.iterdir()
    assert [path.name for path in root.iterdir() if path.is_dir()] == []


@pytest.mark.usefixtures("_own_place")
def test_notes_that_nobody_asks_for_are_swept_after_a_week(tmp_path: Path) -> None:
    pushes.push("old", EARLY)
    (root,) = tmp_path.iterdir()
    for path in (root / "old", root / "swept"):
        os.utime(path, (0, 0))
    pushes.push("new", EARLY)
    assert [path.name for path in root.iterdir() if path.is_dir()] == ["new"]


@pytest.mark.usefixtures("_own_place")
def test_pushes_that_wait_are_read_together_and_for_good() -> None:
    pushes.push("load", EARLY)
    both, push = pushes.push("load", LATE)
    assert both.times_ms == Interval(0, 59)
    assert both.takes("a", 0)
    assert both.takes("b", 0)
    assert not both.takes("c", 0)
    push.begun()
    assert pushes.push("load", LATE)[0].times_ms == Interval(0, 59)
    assert pushes.push("another load", LATE)[0] == LATE


@pytest.mark.usefixtures("_own_place")
def test_a_place_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    pushes.push("load", EARLY)
    (root,) = tmp_path.iterdir()
    root.chmod(0o777)
    assert pushes.push("load", LATE)[0] == Wanted()


def test_a_hull_of_sets_and_of_all_keeps_all() -> None:
    some = Wanted(partition_set=frozenset({1, 2}))
    other = Wanted(partition_set=frozenset({7}))
    assert pushes.hull(some, other).partition_set == frozenset({1, 2, 7})
    assert pushes.hull(some, Wanted()).partition_set is None
    assert pushes.hull(Wanted(times_ms=Interval(5, 4)), EARLY).times_ms == EARLY.times_ms
