"""The job `bootstrap`: a table into a topic, with the times of its rows (KIP-33, use case 2).

    rows       which record each row becomes
    survey     what the topic would refuse or delete of them, before any is sent
    staging    the records as segment files, written once, by partition and in order

The files are then mirrored (`mirroring`): to horolog and to Apache Kafka, without loss and without
doubling, whenever a run is killed.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from horolog.clock import SystemClock
from horolog.errors import Misconfigured, RequestRefused, StorageFailed
from horolog.jobs.loading import staging
from horolog.jobs.loading.rows import RowRules
from horolog.jobs.loading.survey import LoadedTopic, Survey
from horolog.jobs.location import Location
from horolog.jobs.mirroring import Control, mirror
from horolog.jobs.selection import client_of
from horolog.jobs.state import JobState
from horolog.metadata.topics import check_name
from horolog.record.compression import Codec
from horolog.spark.errors import without_spark
from horolog.spark.object_stores import shown
from horolog.spark.uris import absolute
from horolog.storage.names import INTERNAL_TOPICS

_BATCH_BYTES: Final = 1_000_000
_SPARE_BYTES = 1_000  # of a batch, for its header and what does not compress
_PLAN, _STAGED, _LOADED = "plan", "staged", "loaded"
_CSV = {"header": "true", "inferSchema": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrapped:
    """What a run did, or would do."""

    topic: str
    partitions: int
    records: int
    """In the table; all are in the topic if `is_ok`, but for a dry run."""
    sent: int = 0
    """By this run: an earlier one may have sent the others."""
    survey: Survey | None = None
    """What was counted beforehand; None where an earlier run did it."""
    problems: tuple[str, ...] = ()
    """What keeps the table from being loaded; nothing was sent."""
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """What stopped partitions; run it again once it is mended."""
    is_dry_run: bool = False
    was_loaded: bool = False
    """An earlier run with this state has loaded all of it; this one did nothing."""
    counts: Mapping[int, int] = field(default_factory=dict)
    """Records by partition."""

    @property
    def is_ok(self) -> bool:
        """Whether all of it is loaded, or could be."""
        return not (self.problems or self.errors)


def bootstrap(
    spark: SparkSession,
    *,
    table: DataFrame | str | os.PathLike[str],
    target: str,
    topic: str,
    format: str | None = None,  # noqa: A002 - Spark's name
    options: Mapping[str, str] | None = None,
    time: str | None = None,
    unit: str | None = None,
    tz: str | None = None,
    key: str | Iterable[str] | None = None,
    value: str = "json",
    value_columns: str | Iterable[str] | None = None,
    headers: Mapping[str, str] | None = None,
    tombstone_when: str | None = None,
    partition_column: str | None = None,
    order_by: str | Iterable[str] | None = None,
    compression: str = "none",
    partitions: int | None = None,
    topic_settings: Mapping[str, str] | None = None,
    replace_create_times: bool = False,
    settings: Mapping[str, str] | None = None,
    state: str | os.PathLike[str] | None = None,
    stage: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Bootstrapped:
    """Load a table into a topic: one record a row, with the time of the row.

    The table is read once and written down as segment files, by partition and in order; these are
    sent. So a run that was killed is run again with the same state directory, and neither loses
    nor doubles a record, at horolog and at Apache Kafka; a kill before all is written down begins
    with the table anew, when nothing was sent. A state directory is of one load: run again after
    it has ended, nothing happens.

    Args:
        spark: the session.
        table: a DataFrame, or a path that Spark reads.
        target: `host:port` of a broker.
        topic: the topic; created if it is not there and `partitions` is given.
        format: how a path is read: parquet (default), csv, json, orc, jdbc (without a path).
        options: of that format, by Spark's names; may hold secrets.
        time: column of the record times: timestamp, date, or integer. Without it the time of
            the load.
        unit: of integers: s, ms, us or ns since 1970. Floored to milliseconds.
        tz: zone of a column of times without one.
        key: columns of the key. One: its text, or its bytes if it is binary. Several: a JSON
            object. Without any, records have no key.
        value: json (an object of the columns), string (the text of one column) or binary.
        value_columns: which; for json all by default. A null in the column of string and binary
            is a tombstone.
        headers: column by the name of a header, as text; a null is no header.
        tombstone_when: a condition in SQL; rows that meet it become records without a value.
        partition_column: column of partition numbers. Without it partitions are those of Kafka's
            clients (murmur2 of the key); records without a key are spread by a hash of the value.
        order_by: columns that order the records of a partition; the time by default.
        compression: none, gzip, snappy, lz4 or zstd.
        partitions: of a topic that is created.
        topic_settings: of a topic that is created.
        replace_create_times: load into a topic of LogAppendTime, which replaces the times.
        settings: of the clients, `kafka.*`.
        state: directory of what is done.
        stage: directory of the segment files, shared by all executors; in the state by default.
        dry_run: send nothing; count what the topic would refuse or delete.
        on_progress: called with what is done, how much, and of how much.

    Raises:
        Misconfigured: an argument that cannot be, or a state of another run.
        RequestRefused, NoAnswer: the broker refuses, or does not answer.
    """
    location = Location.parse(target, "target")
    try:
        check_name(topic)
    except RequestRefused as error:
        raise Misconfigured(str(error)) from None
    if topic in INTERNAL_TOPICS:
        raise Misconfigured(f"{topic} is a topic that Kafka keeps for itself")
    if compression.upper() not in Codec.__members__:
        raise Misconfigured(f"compression is {compression}: there are {', '.join(_codecs())}")
    if state is None and not dry_run:
        raise Misconfigured("give a state directory, or dry_run")
    rules = RowRules(
        time=time,
        unit=unit,
        zone=tz,
        key=_names(key),
        value=value,
        value_columns=_names(value_columns),
        headers=tuple((headers or {}).items()),
        tombstone_when=tombstone_when,
        partition_column=partition_column,
        order_by=_names(order_by),
    )
    load = _Load(
        spark,
        location,
        settings or {},
        topic,
        topic_settings or {},
        partitions,
        rules,
        Codec[compression.upper()],
        replace_create_times,
        on_progress,
    )
    if dry_run or state is None:
        frame = _frame_of(spark, table, format, options)
        return load.look(frame, SystemClock().now_ms())[1]
    arguments = {
        "table": "DataFrame" if isinstance(table, DataFrame) else shown(os.fspath(table)),
        "format": format,
        "target": str(location),
        "topic": topic,
        "rules": {name: getattr(rules, name) for name in RowRules.__slots__},
        "compression": compression,
    }
    with JobState(state, "bootstrap", arguments) as kept:
        directory = Path(stage) if stage is not None else kept.path / "stage"
        if stage is not None:
            # Several loads may share the directory that executors share.
            directory /= f"{topic}-{crc32c(os.fsencode(kept.path.absolute())):08x}"
        # Executors need not run where the driver does.
        return load.run(
            kept, directory.absolute(), lambda: _frame_of(spark, table, format, options)
        )


@dataclass(frozen=True, slots=True)
class _Load:
    """A load of one topic."""

    spark: SparkSession
    target: Location
    settings: Mapping[str, str]
    topic: str
    topic_settings: Mapping[str, str]
    partitions: int | None
    rules: RowRules
    codec: Codec
    replaces_create_times: bool
    on_progress: Callable[[str, int, int], None]

    def look(self, frame: DataFrame, now_ms: int) -> tuple[LoadedTopic, Bootstrapped]:
        """Count what the topic would refuse or delete."""
        try:
            self.rules.check(frame)
            self.rules.records(frame, 1, now_ms)
        except AnalysisException as error:
            raise Misconfigured(_first_line(error)) from None
        with closing(client_of(self.target, self.settings, "horolog-bootstrap")) as client:
            topic = LoadedTopic.of(client, self.topic, self.partitions, self.topic_settings)
            topic.create(client, self.topic_settings, dry_run=True)
        records = self.rules.records(frame, topic.partitions, now_ms)
        with _in_one_sentence():
            survey = Survey.of(records, topic, now_ms)
        return topic, Bootstrapped(
            topic=self.topic,
            partitions=topic.partitions,
            records=survey.records,
            survey=survey,
            problems=tuple(
                survey.problems(topic, replaces_create_times=self.replaces_create_times)
            ),
            warnings=tuple(survey.warnings(topic, now_ms)),
            is_dry_run=True,
        )

    def run(
        self, kept: JobState, directory: Path, frame_of: Callable[[], DataFrame]
    ) -> Bootstrapped:
        """Load it, or go on where an earlier run ended."""
        loaded = kept.read(_LOADED)
        if loaded is not None:
            staging.remove(directory)  # a kill may have left it
            return Bootstrapped(**{**loaded, "counts": _counts(loaded["counts"])}, was_loaded=True)
        staged = kept.read(_STAGED)
        looked = None
        if staged is None:
            plan = kept.read(_PLAN)
            now_ms = SystemClock().now_ms() if plan is None else plan["now_ms"]
            frame = frame_of()
            topic, looked = self.look(frame, now_ms)
            if looked.problems:
                return _really(looked)
            if plan is None:
                # Rows without a time get the same one in each run.
                kept.write(_PLAN, {"now_ms": now_ms})
            with closing(client_of(self.target, self.settings, "horolog-bootstrap")) as client:
                topic.create(client, self.topic_settings, dry_run=False)
            staged = self._stage(kept, directory, frame, topic, now_ms, looked)
            if staged["problems"]:
                return _really(looked, staged["problems"], staged["warnings"])
        return self._send(kept, directory, staged, looked)

    def _stage(
        self,
        kept: JobState,
        directory: Path,
        frame: DataFrame,
        topic: LoadedTopic,
        now_ms: int,
        looked: Bootstrapped,
    ) -> dict[str, Any]:
        self.on_progress("staging", 0, looked.records)
        records = self.rules.records(frame, topic.partitions, now_ms)
        ordered = self.rules.ordered(records, topic.partitions)
        batch_bytes = max(1, min(_BATCH_BYTES, topic.max_message_bytes - _SPARE_BYTES))
        with _in_one_sentence():
            staged = staging.stage(ordered, directory, self.topic, self.codec, batch_bytes)
        problems, warnings = [], list(looked.warnings)
        largest = max((each.largest_batch for each in staged), default=0)
        if largest > topic.max_message_bytes:
            problems.append(
                f"a record makes a batch of {largest} bytes, and max.message.bytes of {self.topic} "
                f"is {topic.max_message_bytes}: raise it for the topic"
            )
        most = max((each.bytes for each in staged), default=0)
        if 0 <= topic.retention_bytes < most:
            warnings.append(
                f"retention will delete the beginning: a partition gets {most} bytes, and "
                f"retention.bytes is {topic.retention_bytes}"
            )
        document = {
            "partitions": topic.partitions,
            "staged": staging.to_json(staged),
            "warnings": warnings,
            "problems": problems,
        }
        if not problems:
            kept.write(_STAGED, document)
        return document

    def _send(
        self,
        kept: JobState,
        directory: Path,
        document: Mapping[str, Any],
        looked: Bootstrapped | None,
    ) -> Bootstrapped:
        staged = [staging.Staged(**each) for each in document["staged"]]
        log = staging.put_in_place(directory, self.topic, document["partitions"], staged)
        total = sum(each.records for each in staged)
        done = mirror(
            self.spark,
            source=log,
            target=str(self.target),
            topics=self.topic,
            state=kept.path / "mirror",
            target_settings=self.settings,
            replace_create_times=self.replaces_create_times,
            control=Control(
                on_progress=lambda now: self.on_progress("sending", total - now.lag, total)
            ),
        )
        errors = [*done.errors]
        errors += [
            f"{each.topic}-{each.partition}: {each.error}"
            for each in done.partitions
            if each.error and not any(each.error in known for known in errors)
        ]
        loaded = sum(each.records for each in done.partitions)
        if not errors and loaded != total:
            errors.append(f"{loaded} of {total} records were sent: run it again")
        result = Bootstrapped(
            topic=self.topic,
            partitions=document["partitions"],
            records=total,
            sent=done.records,
            survey=None if looked is None else looked.survey,
            warnings=tuple(document["warnings"]),
            errors=tuple(errors),
            counts={each.number: each.records for each in staged},
        )
        if not errors:
            kept.write(
                _LOADED,
                {
                    "topic": result.topic,
                    "partitions": result.partitions,
                    "records": result.records,
                    "warnings": list(result.warnings),
                    "counts": {str(number): count for number, count in result.counts.items()},
                },
            )
            staging.remove(directory)
        return result


def _really(
    looked: Bootstrapped, problems: Iterable[str] = (), warnings: Iterable[str] = ()
) -> Bootstrapped:
    return Bootstrapped(
        topic=looked.topic,
        partitions=looked.partitions,
        records=looked.records,
        survey=looked.survey,
        problems=(*looked.problems, *problems),
        warnings=tuple(warnings) or looked.warnings,
    )


def _counts(kept: Mapping[str, int]) -> dict[int, int]:
    return {int(number): count for number, count in kept.items()}


def _frame_of(
    spark: SparkSession,
    table: DataFrame | str | os.PathLike[str],
    form: str | None,
    options: Mapping[str, str] | None,
) -> DataFrame:
    if isinstance(table, DataFrame):
        if form is not None or options:
            raise Misconfigured("format and options are of a path, and the table is a DataFrame")
        return table
    path = os.fspath(table)  # relative to this process, whatever Spark's is
    chosen = (form or ("csv" if path.endswith((".csv", ".csv.gz")) else "parquet")).lower()
    given = {**(_CSV if chosen == "csv" else {}), **(options or {})}
    reader = spark.read.format(chosen).options(**given)
    try:
        return reader.load() if chosen == "jdbc" else reader.load(absolute(path))
    except PySparkException as error:
        raise Misconfigured(f"table {shown(path)}: {_first_line(error)}") from None


@contextmanager
def _in_one_sentence() -> Iterator[None]:
    """Say what Spark could not read or compute; its own trace goes through Java and back."""
    try:
        with without_spark():
            yield
    except PySparkException as error:
        raise StorageFailed(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _names(given: str | Iterable[str] | None) -> tuple[str, ...]:
    names = given.split(",") if isinstance(given, str) else given or ()
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def _codecs() -> list[str]:
    return [codec.name.lower() for codec in Codec]
