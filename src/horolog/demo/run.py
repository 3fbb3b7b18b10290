"""Run the demo: a broker, real records, Spark, a summary and a page."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from horolog.client import Client
from horolog.clock import HOUR_MS, Clock, SystemClock
from horolog.demo import clickstream, producing, questions
from horolog.demo.broker_process import running_broker
from horolog.demo.findings import RangeRead, produced_table, rejected_table, summarise
from horolog.demo.git_history import is_repository, read_commits
from horolog.demo.report import Report, late_table
from horolog.errors import Misconfigured, RecordsRejected
from horolog.record.builder import LogRecord, build_batch
from horolog.spark import session

COMMITS, FILES, CLICKS = "git.commits", "git.files", clickstream.TOPIC
MARK = ".horolog-demo"  # only a directory that carries it is ever cleared
KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}
FAULTY_IN_BATCHES, FAULTY_ALONE = 2, 12
DOTS_A_TOPIC = 4_000


@dataclass(frozen=True, kw_only=True)
class DemoPlan:
    """Settings of a run of the demo."""

    repo: Path
    output: Path
    clicks: int = 300_000
    max_commits: int = 50_000


def run(plan: DemoPlan, console: Console, clock: Clock | None = None) -> Path:
    """Run the demo, print a summary, and return the path of the page.

    Raises:
        Misconfigured: the output directory has other files, or a part cannot start.
        AssertionError: broker and files gave different answers.
    """
    clock = clock or SystemClock()
    started = time.monotonic()
    log_dir = _clear(plan.output)
    outcome = producing.SendCounts()
    with running_broker(log_dir, plan.output / "broker.log") as bootstrap:
        console.print(f"[green]✓[/green] broker ready at {bootstrap}", highlight=False)
        with Client(bootstrap) as client:
            for topic, partitions in ((COMMITS, 1), (FILES, 1), (CLICKS, 3)):
                client.create_topics({topic: partitions}, configs=KEEP_ALL)
        now_ms = clock.now_ms()
        with step(console, "git history: every commit a record, every changed file another"):
            producing.send(bootstrap, _history(plan), outcome)
        with step(
            console, f"clickstream: {plan.clicks:,} events, some late, future, in nanoseconds"
        ):
            producing.send(bootstrap, _clicks(plan.clicks, now_ms), outcome)
            producing.send(bootstrap, _faulty(FAULTY_ALONE, now_ms), outcome)
        reasons = _reasons(bootstrap, outcome.rejected)
        report = _ask_spark(bootstrap, log_dir, outcome, now_ms, console)
    report.tables.insert(0, produced_table(outcome))
    report.tables.append(rejected_table(outcome.rejected, reasons))
    page = plan.output / "report.html"
    page.write_text(report.page(), encoding="utf-8")
    summarise(console, report, time.monotonic() - started)
    console.print(f"\nThe pictures: [bold]{page.resolve()}[/bold]", soft_wrap=True)
    return page


def _clear(output: Path) -> Path:
    if output.exists() and any(output.iterdir()) and not (output / MARK).exists():
        raise Misconfigured(f"{output} is not empty and not the demo's own; give --output another")
    shutil.rmtree(output, ignore_errors=True)
    log_dir = output / "log"
    log_dir.mkdir(parents=True)
    (output / MARK).touch()
    return log_dir


def _history(plan: DemoPlan) -> Iterator[producing.DemoEvent]:
    if not is_repository(plan.repo):
        return
    for commit in read_commits(plan.repo, limit=plan.max_commits):
        key = commit.commit.encode()
        yield producing.DemoEvent(COMMITS, key, commit.value(), commit.author_ms)
        for name in commit.files:
            yield producing.DemoEvent(FILES, key, name.encode(), commit.author_ms)


def _clicks(count: int, now_ms: int) -> Iterator[producing.DemoEvent]:
    # A few faulty ones among the healthy: each takes its whole batch down with it.
    faulty = _faulty(FAULTY_IN_BATCHES, now_ms)
    for number, click in enumerate(clickstream.healthy(count, now_ms)):
        yield click
        if number % max(1, count // (2 * FAULTY_IN_BATCHES)) == 0 and (one := next(faulty, None)):
            yield one


def _faulty(of_each: int, now_ms: int) -> Iterator[producing.DemoEvent]:
    yield from clickstream.from_the_future(of_each, now_ms)
    yield from clickstream.in_nanoseconds(of_each, now_ms)


def _reasons(bootstrap: str, rejected: list[producing.DemoEvent]) -> dict[producing.DemoEvent, str]:
    """Return the broker's message for each rejected record, by sending the record again.

    librdkafka keeps only the error's number.
    """
    reasons = {}
    with Client(bootstrap) as client:
        for event in rejected:
            batch = build_batch([LogRecord(event.timestamp_ms, event.key, event.value)])
            try:
                client.produce(event.topic, 0, batch)
            except RecordsRejected as error:
                reasons[event] = error.errors[0].message if error.errors else str(error)
    return reasons


def _ask_spark(
    bootstrap: str, log_dir: Path, outcome: producing.SendCounts, now_ms: int, console: Console
) -> Report:
    running = SparkSession.getActiveSession()
    with step(console, "Spark session"):
        spark = session("horolog demo")
    try:
        topics = ",".join(sorted(outcome.accepted))
        records = questions.from_broker(spark, bootstrap, topics)
        files = questions.from_files(spark, str(log_dir))
        with step(console, "Spark reads a range of time, from the broker and from the files"):
            comparison = _read_range(spark, bootstrap, records, files, now_ms)
        with step(console, "Spark counts events per hour, and how late records came"):
            report = Report(lead=comparison.lead(), tables=[comparison.table()])
            report.hours = questions.events_per_hour(records)
            report.tables.append(late_table(questions.disorder(files)))
            report.dots = questions.dots(files, DOTS_A_TOPIC)
    finally:
        if running is None:
            spark.stop()
    if not comparison.agree:
        raise AssertionError(f"broker and files disagree: {comparison}")
    return report


def _read_range(
    spark: SparkSession, bootstrap: str, records: DataFrame, files: DataFrame, now_ms: int
) -> RangeRead:
    """Read one hour of clicks from the middle of the span in three ways."""
    from_ms = now_ms - clickstream.SPAN_MS // 2
    to_ms = from_ms + HOUR_MS
    by_offsets = questions.from_broker(
        spark, bootstrap, CLICKS, startingTimestamp=from_ms, endingTimestamp=to_ms
    )
    readings = [
        questions.digest(questions.between(frame.where(F.col("topic") == CLICKS), from_ms, to_ms))
        for frame in (records, files, by_offsets)
    ]
    return RangeRead(CLICKS, from_ms, to_ms, *readings)


@contextmanager
def step(console: Console, text: str) -> Iterator[None]:
    """Show a spinner while the block runs, then the time that it took."""
    began = time.monotonic()
    with console.status(text):
        yield
    took = time.monotonic() - began
    console.print(f"[green]✓[/green] {text} ({took:.1f} s)", highlight=False)
