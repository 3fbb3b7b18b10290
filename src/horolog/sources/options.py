"""Options of `format("horolog")`: names, rules and defaults of Spark's Kafka source.

Names ignore case. What Kafka's source refuses is refused here, with a sentence;
what its Java consumer would only be tuned by is accepted without effect (`consumer_settings`).
Of our own are `path`, `columns`, `includeTimestampMs`, `includeProducer`, `commitOffsetsToGroup`,
and the moments of `row_times`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from horolog.client import ClientConfig, Security
from horolog.errors import Misconfigured
from horolog.record.timestamps import EVER_APPENDED, TimeRange
from horolog.sources import consumer_settings, row_times
from horolog.sources.columns import INCLUDED_BY
from horolog.sources.cut_files import AsOf, Cut, parse_as_of
from horolog.sources.kafka_settings import security_of
from horolog.sources.limits import (
    LATEST,
    STARTING,
    AtTime,
    ByPartition,
    Everywhere,
    Limit,
    Subscription,
    TopicSelection,
    check_order,
    limit_of,
    subscription_of,
)
from horolog.sources.location import Location
from horolog.sources.object_stores import NO_OPTIONS, StoreOptions
from horolog.sources.option_values import (
    duration,
    flag,
    integer,
    moment,
    one_of,
    parsed,
    positive,
    refuse_misspelt,
)
from horolog.sources.read_option_table import OPTIONS
from horolog.sources.row_times import (
    ANY_TIME,
    BACKFILL,
    RowTimes,
    append_times_of,
)
from horolog.sources.uris import LogPath
from horolog.times import bytes_of


@dataclass(frozen=True, slots=True)
class Fetching:
    """Settings of requests to brokers; times in milliseconds, sizes in bytes."""

    max_bytes: int = 8 << 20
    max_wait_ms: int = 500
    min_bytes: int = 1
    poll_timeout_ms: int = 120_000
    lookup_retries: int = 3
    lookup_retry_interval_ms: int = 10


class CompleteRead(NamedTuple):
    """How a batch makes sure that its range of times can get no row any more."""

    timeout_ms: int
    """How long it waits; 0: it fails unless that is so."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "CompleteRead | None":
        """Read option `complete`, `given` by lower-case name; None without it.

        Raises:
            Misconfigured: it has another value.
        """
        timeout_ms = duration(given, _COMPLETE_TIMEOUT, "30s")
        if COMPLETE not in given:
            return None
        waits = one_of(given, COMPLETE, "wait", "wait", "require") == "wait"
        return cls(timeout_ms if waits else 0)


COMPLETE: Final = "complete"
_COMPLETE_TIMEOUT: Final = "completeTimeout"
_FETCHING_OPTIONS: Final = (
    ("max_wait_ms", "kafka.fetch.max.wait.ms", 0),
    ("min_bytes", "kafka.fetch.min.bytes", 0),
    ("poll_timeout_ms", "kafkaConsumer.pollTimeoutMs", 1),
    ("lookup_retries", "fetchOffset.numRetries", 0),
    ("lookup_retry_interval_ms", "fetchOffset.retryIntervalMs", 0),
)
LATEST_MEMORY: Final = 256 << 20
"""Bytes that the keys of a partition may take, by default."""
_OF_PIECES: Final = ("minPartitions", "maxRecordsPerPartition")
_OF_ROWS: Final = (row_times.FROM, row_times.TO, *row_times.APPEND_TIME_OPTIONS)
_THROUGH_LOSS: Final[Mapping[str, Any]] = {
    "fail_on_data_loss": False,
    "fail_on_damage": True,
    "loss_option": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a read. Either `brokers` or `paths` is set."""

    brokers: ClientConfig | None = None
    paths: tuple[LogPath, ...] = ()
    may_have_any_name: bool = False
    """True if a path may be a directory of any name, as partition 0 of a topic of that name."""
    subscription: Subscription | None = None
    starting: Limit | None = None
    ending: Limit = Everywhere.LATEST
    has_ending: bool = False
    no_match_is_latest: bool = False
    times: RowTimes = ANY_TIME
    fail_on_data_loss: bool = True
    loss_option: str | None = "failOnDataLoss"
    """Name of the option for lost data in messages; None if users cannot set it."""
    loss_advice: str | None = None
    """Advice to those users, for messages."""
    fail_on_damage: bool = False
    """True if damage fails a read that skips lost records."""
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    commits_to_group: str | None = None
    included: frozenset[str] = frozenset()
    """Options of `columns.INCLUDED_BY` that are true."""
    appended: TimeRange = EVER_APPENDED
    as_of: AsOf | None = None
    """The time, in milliseconds, or cut up to which the log is read."""
    complete: CompleteRead | None = None
    is_latest: bool = False
    """True if only the last record of each key is read."""
    latest_memory: int = LATEST_MEMORY
    columns: tuple[str, ...] | None = None
    read_committed: bool = False
    uncommitted: bool = False
    """True if files of a replica are read behind its high watermark, too."""
    check_crcs: bool = True
    fetching: Fetching = Fetching()
    store: StoreOptions = NO_OPTIONS

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        *,
        location: Location | None = None,
        times: RowTimes | None = None,
    ) -> "ReadOptions":
        """Read the options of one `load()`, apart from a `location` or `times` that are given.

        Raises:
            Misconfigured: an option, its value, or a combination that no read can have.
        """
        given = {name.lower(): value for name, value in options.items()}
        refuse_misspelt(given, OPTIONS, consumer_settings.OBEYED, cutoff=0.85)
        consumer_settings.check(given)
        security = security_of(given)
        security.check_sasl(has_token_callback=False)
        if location is None:
            paths = _paths(given)
            bootstrap = given.get("kafka.bootstrap.servers", "").strip() or None
        else:
            paths, bootstrap = location.paths, location.bootstrap_servers
        if paths and bootstrap:
            raise Misconfigured(
                "A read has either option 'kafka.bootstrap.servers' (a broker) or a path "
                "(segment files), not both"
            )
        subscription = subscription_of(given)
        if not paths:
            if bootstrap is None:
                raise Misconfigured(
                    "Option 'kafka.bootstrap.servers' must be specified (host:port of a broker), "
                    "or a path of segment files given to load()"
                )
            if subscription is None:
                raise Misconfigured(
                    "One of the following options must be specified: "
                    "subscribe, subscribePattern, topicsPattern, assign"
                )
        starting = limit_of(given, STARTING, "startingOffsetsByTimestamp", "startingOffsets")
        ending = limit_of(given, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
        is_latest = "latestasof" in given
        if is_latest:
            _check_latest(given)
        has_ending = ending is not None
        if ending is None or ending is Everywhere.LATEST_TIME:
            ending = Everywhere.LATEST
        check_order(starting, ending)
        most = positive(given, "maxOffsetsPerTrigger")
        least = positive(given, "minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise Misconfigured(
                f"minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})"
            )
        return cls(
            brokers=None if bootstrap is None else _brokers(given, bootstrap, security),
            paths=paths,
            subscription=subscription,
            starting=starting,
            ending=ending,
            has_ending=has_ending,
            no_match_is_latest=one_of(
                given, "startingOffsetsByTimestampStrategy", "error", "error", "latest"
            )
            == "latest",
            times=times or _row_times(given, has_starting=starting is not None),
            fail_on_data_loss=flag(given, "failOnDataLoss", default=True),
            min_partitions=positive(given, "minPartitions"),
            max_records_per_partition=positive(given, "maxRecordsPerPartition"),
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            commits_to_group=_group(given),
            max_trigger_delay_ms=duration(given, "maxTriggerDelay", "15m"),
            included=frozenset(name for name in INCLUDED_BY if flag(given, name, default=False)),
            appended=append_times_of(given),
            complete=CompleteRead.parse(given),
            as_of=_as_of(given, "latestAsOf" if is_latest else "asOf"),
            is_latest=is_latest,
            latest_memory=bytes_of(given.get("latestmemory", str(LATEST_MEMORY)), "latestMemory"),
            columns=_columns(given),
            read_committed=is_latest or _isolation(given) == "read_committed",
            uncommitted=flag(given, "uncommitted", default=False),
            check_crcs=flag(given, "kafka.check.crcs", default=True),
            fetching=_fetching(given),
            store=StoreOptions.parse(given),
        )

    @classmethod
    def of_client(
        cls,
        brokers: ClientConfig,
        *,
        max_bytes: int = 8 << 20,
        max_wait_ms: int = 500,
        **more: Any,
    ) -> "ReadOptions":
        """Return options of a read with a caller's client, which has its own time limit."""
        fetching = Fetching(
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            poll_timeout_ms=brokers.timeout_ms,
            lookup_retries=1,
        )
        return cls(brokers=brokers, fetching=fetching, **more)

    @classmethod
    def of_topic(cls, config: ClientConfig, topic: str, **more: Any) -> "ReadOptions":
        """Return options of a read of a whole topic that skips lost records, not damage."""
        chosen = TopicSelection((topic,))
        return cls.of_client(
            config, max_bytes=4 << 20, subscription=chosen, **_THROUGH_LOSS, **more
        )

    @classmethod
    def of_path(
        cls, path: str, settings: Mapping[str, str] | None = None, **more: Any
    ) -> "ReadOptions":
        """Return options of a read of a path that skips lost records, not damage."""
        given = {name.lower(): value for name, value in (settings or {}).items()}
        return cls(
            paths=(LogPath.parse(path),),
            may_have_any_name=True,
            store=StoreOptions.parse(given),
            **_THROUGH_LOSS,
            **more,
        )

    def batch_starting(self) -> Limit:
        """Return where a batch read starts: Kafka's source refuses "latest" there.

        Raises:
            Misconfigured: latest, for all partitions or for one.
        """
        self.times.check_batch()
        starting = Everywhere.EARLIEST if self.starting is None else self.starting
        if starting is Everywhere.LATEST:
            raise Misconfigured("startingOffsets can't be latest for batch queries")
        if isinstance(starting, ByPartition) and not starting.is_time:
            for partition, offset in starting.places.items():
                if offset == LATEST:
                    raise Misconfigured(
                        f"startingOffsets for {partition} can't be latest for batch queries"
                    )
        return starting

    def stream_starting(self) -> Limit:
        """Return where a stream starts: by default at the latest offsets, as in Kafka's source.

        Raises:
            Misconfigured: the options are those of a batch.
        """
        if self.is_latest:
            raise Misconfigured("latestAsOf is for batches; a stream starts at asOf")
        if self.paths and self.commits_to_group is not None:
            raise Misconfigured(
                "commitOffsetsToGroup is for streams from a broker; files have no consumer groups"
            )
        if self.complete is not None:
            raise Misconfigured(
                "complete is for batches, which end; a stream has includeCompleteUntil"
            )
        if self.has_ending:
            raise Misconfigured(
                "endingOffsets and endingTimestamp are for batches, not streams; a stream ends at "
                "stopAtTimestamp, and toTimestamp filters its rows"
            )
        if self.times.backfill is not None:
            return Everywhere.EARLIEST
        if self.starting is None or self.starting is Everywhere.LATEST_TIME:
            return Everywhere.LATEST
        return self.starting

    def of_tasks(self) -> "ReadOptions":
        """Return the options for tasks of a plan: without the partitions of a cut."""
        as_of = self.as_of.at_ms if isinstance(self.as_of, Cut) else self.as_of
        return replace(self, as_of=as_of)

    # Relative moments stay what they were when a query first started.

    def relative_ms(self) -> dict[str, int]:
        """Return the relative moments in milliseconds, by option."""
        found = self.times.relative_ms()
        if isinstance(self.starting, AtTime) and self.starting.is_relative:
            found[STARTING] = self.starting.timestamp_ms
        return found

    def pinned(self, relative_ms: Mapping[str, int]) -> "ReadOptions":
        """Return the options with the relative moments of a checkpoint in place of today's."""
        starting = self.starting
        if isinstance(starting, AtTime) and starting.is_relative and STARTING in relative_ms:
            starting = AtTime(relative_ms[STARTING], is_relative=True)
        return replace(self, times=self.times.pinned(relative_ms), starting=starting)


def _paths(given: Mapping[str, str]) -> tuple[LogPath, ...]:
    """Return the paths of `load(path)` or `load([a, b])`, a list that Spark passes as JSON."""
    paths = [given["path"]] if "path" in given else []
    if "paths" in given:
        listed = parsed(given["paths"], "paths", '["/logs/a","/logs/b"]')
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            raise Misconfigured(f'Option \'paths\': expected e.g. ["/a","/b"], got {listed!r}')
        paths += listed
    if any(not path.strip() for path in paths):
        raise Misconfigured("A path given to load() is empty")
    return tuple(dict.fromkeys(map(LogPath.parse, paths)))


def _brokers(given: Mapping[str, str], bootstrap: str, security: Security) -> ClientConfig:
    return ClientConfig(
        bootstrap_servers=bootstrap,
        client_id=given.get("kafka.client.id", "horolog-spark"),
        timeout_ms=integer(given, "kafka.request.timeout.ms", 30_000, least=1),
        security=security,
    )


def _row_times(given: Mapping[str, str], *, has_starting: bool) -> RowTimes:
    times = RowTimes.parse(given)
    if times.backfill is not None and has_starting:
        raise Misconfigured(
            f"{BACKFILL} says where a stream starts; startingOffsets and startingTimestamp "
            "cannot say it as well"
        )
    return times


def _isolation(given: Mapping[str, str]) -> str:
    uncommitted = "read_uncommitted"
    return one_of(given, "kafka.isolation.level", uncommitted, uncommitted, "read_committed")


def _check_latest(given: Mapping[str, str]) -> None:
    """Refuse options that a table of keys cannot have.

    Raises:
        Misconfigured: names the option, and what to do.
    """
    if "asof" in given:
        raise Misconfigured("Give either asOf or latestAsOf: both say as of when a read is")
    if "kafka.isolation.level" in given and _isolation(given) != "read_committed":
        raise Misconfigured(
            "latestAsOf reads committed records alone: leave out kafka.isolation.level"
        )
    for name in (*_OF_PIECES, *_OF_ROWS):
        if name.lower() in given:
            why = (
                "filter the frame instead" if name in _OF_ROWS else "a task reads whole partitions"
            )
            raise Misconfigured(f"latestAsOf cannot be with {name}: {why}")


def _as_of(given: Mapping[str, str], option: str) -> AsOf | None:
    if option.lower() not in given:
        return None
    limits = (
        "startingoffsets",
        "startingtimestamp",
        "endingoffsets",
        "endingtimestamp",
        "backfill",
    )
    for name in given:
        if name.startswith(limits) and name != "startingoffsetsbytimestampstrategy":
            raise Misconfigured(
                f"{option} is where a batch read ends and a stream starts: leave out {name}"
                if option == "asOf"
                else f"{option} reads whole partitions up to the time: leave out {name}"
            )
    return parse_as_of(given[option.lower()].strip(), lambda text: moment(given, option))


def _group(given: Mapping[str, str]) -> str | None:
    """Return the consumer group to which a stream's offsets are committed."""
    group = given.get("commitoffsetstogroup")
    if group is not None and not group.strip():
        raise Misconfigured("Option 'commitOffsetsToGroup' names no group")
    return group


def _columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    if "columns" not in given:
        return None
    names = tuple(name.strip() for name in given["columns"].split(",") if name.strip())
    if not names:
        raise Misconfigured("Option 'columns' names no column")
    return names


def _fetching(given: Mapping[str, str]) -> Fetching:
    default = Fetching()
    caps = [
        integer(given, f"kafka.{name}", default.max_bytes, least=1)
        for name in ("fetch.max.bytes", "max.partition.fetch.bytes")
    ]
    numbers = {
        field: integer(given, option, getattr(default, field), least=least)
        for field, option, least in _FETCHING_OPTIONS
    }
    return Fetching(max_bytes=min(*caps, default.max_bytes), **numbers)
