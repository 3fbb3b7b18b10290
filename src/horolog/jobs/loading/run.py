"""Steps of a load: survey the table, write its records down, send them; each once for a state."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from horolog.client import Client
from horolog.client.topic_facts import topic_ids
from horolog.clock import SystemClock
from horolog.errors import Misconfigured, StorageFailed
from horolog.jobs.loading import staging
from horolog.jobs.loading.rows import RowRules
from horolog.jobs.loading.survey import Survey
from horolog.jobs.mirroring import Control, mirror
from horolog.jobs.parameters.bootstrap import Bootstrap
from horolog.jobs.receiving import ReceivingTopic, refuse_records, require_transactions
from horolog.jobs.selection import client_of
from horolog.jobs.state import DocumentsOnly
from horolog.record.compression import Codec
from horolog.results import Aside, Outcome, Shown
from horolog.sources.location import Location
from horolog.sources.uris import absolute, shown
from horolog.spark.errors import without_spark

_BATCH_BYTES: Final = 1_000_000
_SPARE_BYTES = 1_000  # of a batch, for its header and what does not compress
_PLAN, _TOPIC, _STAGED, _LOADED = "plan", "topic", "staged", "loaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrapped(Outcome):
    """Result of a run, or of a dry run."""

    topic: str
    partitions: int
    records: int
    """Number of records in the table; all are in the topic after a run that is ok."""
    sent: int = 0
    """Number of records that this run sent; earlier runs may have sent others."""
    survey: Survey | None = None
    """Counts before the load; None if an earlier run made them."""
    problems: tuple[str, ...] = ()
    """Reasons why the table cannot be loaded; nothing was sent."""
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """Errors that stopped partitions; a later run continues."""
    is_dry_run: bool = False
    was_loaded: bool = False
    """An earlier run with this state has loaded all of it; this one did nothing."""
    counts: Mapping[int, int] = field(default_factory=dict)
    """Records by partition."""

    @property
    def is_ok(self) -> bool:
        """True if the whole table is loaded, or could be."""
        return not (self.problems or self.errors)

    def to_json(self) -> dict[str, Any]:
        """The members, by their names on the command line."""
        return {"ok": self.is_ok, **asdict(self)}

    def lines(self) -> Iterator[Shown]:
        """Warnings, refusals and errors, and how many records were loaded."""
        yield from (Aside(f"warning: {warning}") for warning in self.warnings)
        yield from (f"refused: {problem}" for problem in self.problems)
        yield from (f"stopped: {error}" for error in self.errors)
        where = f"{self.topic} ({self.partitions} partitions)"
        if self.was_loaded:
            yield f"All {self.records} records were loaded into {where} by an earlier run."
        elif self.is_dry_run:
            survey, verb = self.survey, "would not be" if self.problems else "would be"
            tombstones = "" if survey is None else f", {survey.tombstones} of them tombstones"
            yield (
                f"{self.records} records{tombstones}, {verb} loaded into {where}; nothing was "
                "changed."
            )
        elif self.problems:
            yield f"Nothing was loaded into {where}."
        else:
            yield f"{self.sent} records loaded into {where}; the table has {self.records}."


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a table into one topic."""

    spark: SparkSession
    job: Bootstrap
    target: Location
    rules: RowRules
    codec: Codec

    def receiving(self) -> tuple[ReceivingTopic, str | None]:
        """Return the topic, and the reason why nothing can be loaded into it.

        Raises:
            Misconfigured: a setting of the clients is wrong, or the target has no transactions.
            RequestRefused, NoAnswer: the broker refuses, or does not answer.
        """
        with client_of(self.target, self.job.settings or {}, "horolog-bootstrap") as client:
            require_transactions(client)
            topic = ReceivingTopic.of(
                client, self.job.topic, self.job.partitions, self.job.topic_settings or {}
            )
            topic.create(client, self.job.topic_settings or {}, dry_run=True)
            return topic, None if self.job.into_nonempty else _held(client, topic)

    def look(
        self, frame: DataFrame, now_ms: int, topic: ReceivingTopic, held: str | None
    ) -> Bootstrapped:
        """Count the records that the topic would refuse or delete."""
        try:
            self.rules.check(frame)
            self.rules.records(frame, 1, now_ms)
        except AnalysisException as error:
            raise Misconfigured(first_line(error)) from None
        records = self.rules.records(frame, topic.partitions, now_ms)
        with _in_one_sentence():
            survey = Survey.of(records, topic, now_ms)
        return Bootstrapped(
            topic=self.job.topic,
            partitions=topic.partitions,
            records=survey.records,
            survey=survey,
            problems=(
                *([] if held is None else [held]),
                *survey.problems(
                    topic,
                    replaces_create_times=self.job.replace_create_times,
                    has_moments=self.rules.unit != "ms",
                ),
            ),
            warnings=tuple(survey.warnings(topic, now_ms)),
            is_dry_run=self.job.dry_run,
        )

    def run(self, state: DocumentsOnly | None) -> Bootstrapped:
        """Load the table, or continue where an earlier run ended; a dry run changes nothing.

        Raises:
            Misconfigured: the topic was deleted, or created again, since an earlier run.
        """
        is_dry_run = self.job.dry_run
        plan, staged, loaded = (
            None if state is None else state.read(name) for name in (_PLAN, _STAGED, _LOADED)
        )
        if state is not None and not (staged is None and loaded is None):
            self._check_topic(state)
        if state is not None and loaded is not None:
            if not is_dry_run:
                staging.remove(self._stage_of(state))  # a kill may have left it
            counts = {int(number): count for number, count in loaded["counts"].items()}
            return Bootstrapped(
                **{**loaded, "counts": counts}, was_loaded=True, is_dry_run=is_dry_run
            )
        surveyed = None
        if staged is None:
            now_ms = SystemClock().now_ms() if plan is None else plan["now_ms"]
            topic, held = self.receiving()
            frame = frame_of(self.spark, self.job.table, self.job.format, self.job.options)
            surveyed = self.look(frame, now_ms, topic, held)
            if surveyed.problems or is_dry_run or state is None:
                return surveyed
            if plan is None:
                # Rows without a time get the same one in each run.
                state.write(_PLAN, {"now_ms": now_ms})
            with client_of(self.target, self.job.settings or {}, "horolog-bootstrap") as client:
                topic.create(client, self.job.topic_settings or {}, dry_run=False)
                self._write_topic(state, client)
            staged = self._stage(state, frame, topic, now_ms, surveyed)
            if staged["problems"]:
                problems, warnings = tuple(staged["problems"]), tuple(staged["warnings"])
                return replace(surveyed, problems=problems, warnings=warnings)
            self._check_topic(state)
        if is_dry_run or state is None:
            counts = {part["number"]: part["records"] for part in staged["staged"]}
            return Bootstrapped(
                topic=self.job.topic,
                partitions=staged["partitions"],
                records=sum(counts.values()),
                warnings=tuple(staged["warnings"]),
                is_dry_run=True,
                counts=counts,
            )
        return self._send(state, staged, surveyed)

    def _stage_of(self, state: DocumentsOnly) -> Path:
        """Return the directory of the stage; executors need not run where the driver does."""
        if self.job.stage is None:
            return (state.path / "stage").absolute()
        # Several loads may share the directory that executors share.
        mark = crc32c(os.fsencode(state.path.absolute()))
        return (Path(self.job.stage) / f"{self.job.topic}-{mark:08x}").absolute()

    def _check_topic(self, state: DocumentsOnly) -> None:
        """Refuse a topic that was deleted or created again since the state began to load it.

        Raises:
            Misconfigured: it was deleted, or created again.
            NoAnswer: the target does not say.
        """
        known, topic = state.read(_TOPIC), self.job.topic
        with client_of(self.target, self.job.settings or {}, "horolog-bootstrap") as client:
            ids = topic_ids(client, [topic])
            if known is None:
                self._write_topic(state, client)
        if topic not in ids:
            what = "was deleted"
        elif (
            known is not None
            and None not in (known["id"], ids[topic])
            and (known["id"] != ids[topic])
        ):
            what = "was deleted and created again"
        else:
            return
        raise Misconfigured(
            f"{topic} of the target {what} since this state directory began to load it: what was "
            "sent is not there. Load the table with another --state"
        )

    def _write_topic(self, state: DocumentsOnly, client: Client) -> None:
        """Record the id of the topic, unless its broker does not know the topic yet."""
        topic_id = topic_ids(client, [self.job.topic]).get(self.job.topic)
        if topic_id is not None:
            state.write(_TOPIC, {"id": topic_id})

    def _stage(
        self,
        state: DocumentsOnly,
        frame: DataFrame,
        topic: ReceivingTopic,
        now_ms: int,
        surveyed: Bootstrapped,
    ) -> dict[str, Any]:
        self.job.on_progress(0, surveyed.records, "staging")
        records = self.rules.records(frame, topic.partitions, now_ms)
        ordered = self.rules.ordered(records, topic.partitions)
        batch_bytes = max(1, min(_BATCH_BYTES, topic.max_message_bytes - _SPARE_BYTES))
        with _in_one_sentence():
            staged = staging.stage(
                ordered, self._stage_of(state), self.job.topic, self.codec, batch_bytes
            )
        problems, warnings = [], list(surveyed.warnings)
        largest = max((part.largest_batch for part in staged), default=0)
        if largest > topic.max_message_bytes:
            problems.append(
                f"a record makes a batch of {largest} bytes, and max.message.bytes of "
                f"{self.job.topic} is {topic.max_message_bytes}: raise it for the topic"
            )
        most = max((part.bytes for part in staged), default=0)
        if 0 <= topic.retention_bytes < most:
            warnings.append(
                f"retention will delete the beginning: a partition gets {most} bytes, and "
                f"retention.bytes is {topic.retention_bytes}"
            )
        document = {
            "partitions": topic.partitions,
            "staged": [asdict(part) for part in staged],
            "warnings": warnings,
            "problems": problems,
        }
        if not problems:
            state.write(_STAGED, document)
        return document

    def _send(
        self,
        state: DocumentsOnly,
        document: Mapping[str, Any],
        surveyed: Bootstrapped | None,
    ) -> Bootstrapped:
        staged = [staging.Staged(**part) for part in document["staged"]]
        directory = self._stage_of(state)
        log = staging.put_in_place(directory, self.job.topic, document["partitions"], staged)
        total = sum(part.records for part in staged)
        done = mirror(
            self.spark,
            source=log,
            target=str(self.target),
            topics=self.job.topic,
            state=state.path / "mirror",
            target_settings=self.job.settings,
            replace_create_times=self.job.replace_create_times,
            into_nonempty=True,  # `look` has refused it
            control=Control(
                on_progress=lambda now: self.job.on_progress(total - now.lag, total, "sending")
            ),
        )
        errors = [*done.errors]
        errors += [
            f"{partition.topic}-{partition.partition}: {partition.error}"
            for partition in done.partitions
            if partition.error and not any(partition.error in known for known in errors)
        ]
        loaded = sum(partition.records for partition in done.partitions)
        if not errors and loaded != total:
            errors.append(f"{loaded} of {total} records were sent: run it again")
        result = Bootstrapped(
            topic=self.job.topic,
            partitions=document["partitions"],
            records=total,
            sent=done.records,
            survey=None if surveyed is None else surveyed.survey,
            warnings=tuple(document["warnings"]),
            errors=tuple(errors),
            counts={part.number: part.records for part in staged},
        )
        if not errors:
            state.write(
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


def _held(client: Client, topic: ReceivingTopic) -> str | None:
    """Return the refusal of a topic that has records; None if it has none."""
    if not topic.exists:
        return None
    try:
        refuse_records(client, topic.name, range(topic.partitions))
    except Misconfigured as error:
        return str(error)
    return None


@contextmanager
def _in_one_sentence() -> Iterator[None]:
    """Raise errors of Spark again with their first line alone, without traces of Java."""
    try:
        with without_spark():
            yield
    except PySparkException as error:
        raise StorageFailed(first_line(error)) from error


_CALL: Final = re.compile(r"An error occurred while calling \S+\s+: (?:[a-z]\w*\.)*")
_CSV: Final = {"header": "true", "inferSchema": "true"}


def frame_of(
    spark: SparkSession,
    table: DataFrame | str | os.PathLike[str],
    form: str | None,
    options: Mapping[str, str] | None,
) -> DataFrame:
    """Return a DataFrame as it is, or read one from a path.

    Raises:
        Misconfigured: Spark cannot read it, or a DataFrame has options.
    """
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
    except (PySparkException, Py4JJavaError) as error:  # the second is a driver's of JDBC
        raise Misconfigured(f"table {shown(path)}: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """Return the message of a Spark error without its trace."""
    return _CALL.sub("", str(error).strip(), count=1).partition("\n")[0]
