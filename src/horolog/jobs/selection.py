"""Input of a job: a location, topics, and a range of time."""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, overload

from horolog.client import Client
from horolog.client.properties import config_of_properties
from horolog.clock import Moment, SystemClock, moment_ms
from horolog.errors import Misconfigured
from horolog.jobs.parameters.shared import Reads
from horolog.offsets import commits_positions
from horolog.patterns import given_pattern
from horolog.record.timestamps import TimeRange
from horolog.sources.broker_log import BrokerLog
from horolog.sources.cut_files import AsOf, Cut, parse_as_of, read_cut
from horolog.sources.file_log import FileLog
from horolog.sources.kafka_settings import PREFIX
from horolog.sources.location import Location
from horolog.sources.options import ReadOptions
from horolog.sources.planning import opened_log
from horolog.sources.row_times import GivenMoment, RowTimes
from horolog.storage.names import TopicPartition
from horolog.times import parse_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A range of time [from_ms, to_ms) of some topics; None is an open end."""

    source: Location
    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the format by name, `kafka.*` and those of object stores; may hold secrets."""

    @classmethod
    def of(
        cls,
        source: str | os.PathLike[str] | Location,
        topics: str | Iterable[str] | None = None,
        topics_pattern: str | None = None,
        from_: Moment | None = None,
        to: Moment | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> "Selection":
        """Make the selection of a job's arguments.

        Relative times count from now. Without topics all topics of files are chosen.

        Raises:
            Misconfigured: an argument is wrong, or contradicts another.
        """
        names = topics.split(",") if isinstance(topics, str) else topics or ()
        chosen = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
        location = Location.parse(source)
        if chosen and topics_pattern is not None:
            raise Misconfigured("give topics or topics-pattern, not both")
        if topics_pattern is not None:
            given_pattern(topics_pattern, "topics-pattern")
        if location.is_broker and not chosen and topics_pattern is None:
            raise Misconfigured(
                "give the topics of the broker: --topics A,B or --topics-pattern RE"
            )
        now_ms = SystemClock().now_ms()
        from_ms, to_ms = (_moment_ms(given, now_ms) for given in (from_, to))
        if from_ms is not None and to_ms is not None and from_ms > to_ms:
            raise Misconfigured(f"from ({from_}) is later than to ({to})")
        return cls(
            source=location,
            topics=chosen,
            topics_pattern=topics_pattern,
            from_ms=from_ms,
            to_ms=to_ms,
            settings=dict(settings or {}),
        )

    @classmethod
    def asked(cls, job: Reads, settings: Mapping[str, str] | None = None) -> "Selection":
        """Return the input of a job, with its settings or others."""
        chosen = job.settings if settings is None else settings
        return cls.of(job.source, job.topics, job.topics_pattern, job.from_, job.to, chosen)

    def options(self, **more: str) -> dict[str, str]:
        """Return the options of `format("horolog")` for these records; `more` override them."""
        options = self._chosen()
        if self.source.bootstrap_servers is not None:
            options["kafka.bootstrap.servers"] = self.source.bootstrap_servers
        elif self.source.path is not None:
            options["path"] = self.source.path.uri
        if self.from_ms is not None:
            options["fromTimestamp"] = str(self.from_ms)
        if self.to_ms is not None:
            options["toTimestamp"] = str(self.to_ms)
        return options | more

    @property
    def times(self) -> TimeRange:
        """Range of time of the records."""
        return TimeRange.between(self.from_ms, self.to_ms)

    def _chosen(self) -> dict[str, str]:
        """Return the settings, and the option that chooses the topics."""
        options = dict(self.settings)
        if self.topics:
            options["subscribe"] = ",".join(self.topics)
        elif self.topics_pattern is not None:
            options["topicsPattern"] = self.topics_pattern
        return options

    def within(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> "Selection":
        """Return a selection of only these offsets, as ranges [start, end) of partitions.

        Offsets that the log has deleted are left out.
        """
        by_topic: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        for partition, numbers in ranges.items():
            by_topic[partition.topic][partition.partition] = numbers
        starts, ends = (
            {
                topic: {number: bounds[which] for number, bounds in numbers.items()}
                for topic, numbers in by_topic.items()
            }
            for which in (0, 1)
        )
        limits = {
            "assign": json.dumps({topic: list(numbers) for topic, numbers in by_topic.items()}),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "failOnDataLoss": "false",
        }
        return replace(self, topics=(), topics_pattern=None, settings={**self.settings, **limits})

    def frame(self, spark: "SparkSession", **more: str) -> "DataFrame":
        """Read the records as a DataFrame; `more` are further options, as `columns`."""
        _register(spark)
        return spark.read.format("horolog").options(**self.options(**more)).load()

    def stream(self, spark: "SparkSession", **more: str) -> "DataFrame":
        """Read the records as a streaming DataFrame."""
        _register(spark)
        return spark.readStream.format("horolog").options(**self.options(**more)).load()

    def read_options(self, **more: str) -> ReadOptions:
        """Return the selection as options of the reading side; `more` override its settings."""
        moments = (
            None if moment is None else GivenMoment(moment) for moment in (self.from_ms, self.to_ms)
        )
        return ReadOptions.parse(
            self._chosen() | more, location=self.source, times=RowTimes(*moments)
        )

    def log(self, is_cut: bool = False, /, **more: str) -> BrokerLog | FileLog:
        """Open the log for planning: its partitions, earliest and latest offsets.

        Args:
            is_cut: True if it is to be cut at a time.
        """
        return opened_log(self.read_options(**more), is_cut=is_cut)

    def client(self, client_id: str = "horolog-jobs") -> Client:
        """Create a client of the source's broker, with the `kafka.*` settings alone."""
        settings = {
            name: value for name, value in self.settings.items() if name.lower().startswith(PREFIX)
        }
        return client_of(self.source, settings, client_id)


def _register(spark: "SparkSession") -> None:
    from horolog.spark import register  # noqa: PLC0415 - not every job needs Spark

    register(spark)


def client_of(
    location: Location, settings: Mapping[str, str], client_id: str = "horolog-jobs"
) -> Client:
    """Create a client of a cluster, with the security and timeouts of the settings.

    Raises:
        Misconfigured: the location is a path, or a setting is wrong.
    """
    if location.bootstrap_servers is None:
        raise Misconfigured(f"{location} is a path, and a broker (HOST:PORT) is needed")
    lowered = {name.lower(): value for name, value in settings.items()}
    unknown = [name for name in lowered if not name.startswith(PREFIX)]
    if unknown:
        raise Misconfigured(f"{unknown[0]} is no setting of a client: write {PREFIX}NAME=VALUE")
    given = {name.removeprefix(PREFIX): value for name, value in lowered.items()}
    return Client.of(config_of_properties(location.bootstrap_servers, given, client_id))


def chosen_groups(client: Client, names: Sequence[str], pattern: str | None) -> list[str]:
    """Return the named groups, or the groups with positions whose whole name matches a pattern."""
    if pattern is None:
        return sorted(dict.fromkeys(names))
    matches = given_pattern(pattern, "groups-pattern").matches
    return [group for group in client.groups.names() if matches(group) and commits_positions(group)]


def as_of(given: "Cut | Moment | os.PathLike[str] | None", options: ReadOptions) -> AsOf | None:
    """Return the cut, or the append time in milliseconds, that an argument of a job names.

    Args:
        options: of the read, whose `asOf` counts without the argument.

    Raises:
        Misconfigured: it is neither a time nor the file of a cut.
    """
    if options.is_latest:
        raise Misconfigured("latestAsOf is an option of reads on Spark: leave it out")
    now_ms = SystemClock().now_ms()
    if given is None or isinstance(given, Cut):
        return options.as_of if given is None else given
    if isinstance(given, os.PathLike):
        return read_cut(os.fspath(given))
    if isinstance(given, str):
        return parse_as_of(given.strip(), lambda text: _moment_ms(text, now_ms))
    return _moment_ms(given, now_ms)


@overload
def _moment_ms(given: Moment, now_ms: int) -> int: ...


@overload
def _moment_ms(given: None, now_ms: int) -> None: ...


def _moment_ms(given: Moment | None, now_ms: int) -> int | None:
    if given is None:
        return None
    if isinstance(given, str):
        return parse_time(given, now_ms=now_ms, rounds_up=True)
    try:
        return moment_ms(given, rounds_up=True)
    except ValueError as error:
        raise Misconfigured(str(error)) from None
