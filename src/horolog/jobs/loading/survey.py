"""What a target would make of the records of a table, before any is sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as fn

from horolog.client import Client, ResourceType
from horolog.errors import ErrorCode, Misconfigured
from horolog.jobs.loading.rows import PARTITION, is_no_time
from horolog.jobs.mirroring.topics import is_horolog
from horolog.times import format_time

_STAMPS = "message.timestamp.type"
_BEFORE, _AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
_BY, _OLD = "horolog.retention.by", "horolog.retention.before.1970"
_RETENTION_MS, _RETENTION_BYTES = "retention.ms", "retention.bytes"
_POLICY, _MAX_BYTES = "cleanup.policy", "max.message.bytes"
_UNLIMITED: Final = (1 << 63) - 1
_DEFAULTS: Final = {
    _POLICY: "delete",
    _RETENTION_MS: "604800000",
    _RETENTION_BYTES: "-1",
    _STAMPS: "CreateTime",
    _BEFORE: str(_UNLIMITED),
    _AFTER: "3600000",
    _MAX_BYTES: "1048588",
    _BY: "create-time",
    _OLD: "false",
}
_OF_BROKER = {
    _RETENTION_BYTES: "log.retention.bytes",
    _POLICY: "log.cleanup.policy",
    _STAMPS: "log.message.timestamp.type",
    _BEFORE: "log.message.timestamp.before.max.ms",
    _AFTER: "log.message.timestamp.after.max.ms",
    _MAX_BYTES: "message.max.bytes",
    _BY: _BY,
    _OLD: _OLD,
}
_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTopic:
    """The topic that is loaded, as it is or will be created."""

    name: str
    partitions: int
    exists: bool
    is_horolog: bool
    settings: Mapping[str, str]

    @classmethod
    def of(
        cls, client: Client, name: str, partitions: int | None, settings: Mapping[str, str]
    ) -> "LoadedTopic":
        """Ask the broker; a topic that is not there has these settings, and else the broker's.

        Raises:
            Misconfigured: there is no such topic, and no number of partitions to create it with.
            RequestRefused: the broker refuses.
            NoAnswer: it does not answer.
        """
        metadata = client.metadata([name])
        found = metadata.topics.get(name)
        ours = is_horolog(client)
        if found is not None and found.error == ErrorCode.none:
            described = client.describe_configs([(ResourceType.TOPIC, name)])
            entries = described[ResourceType.TOPIC, name].values()
            values = {entry.name: entry.value for entry in entries if entry.value is not None}
            if partitions is not None and partitions != len(found.partitions):
                raise Misconfigured(
                    f"{name} has {len(found.partitions)} partitions, and {partitions} are asked for"
                )
            return cls(
                name=name,
                partitions=len(found.partitions),
                exists=True,
                is_horolog=ours,
                settings={**_DEFAULTS, **values},
            )
        if partitions is None:
            raise Misconfigured(
                f"there is no topic {name}: give --partitions to create it with so many"
            )
        of_broker: dict[str, str] = {}
        for node in sorted(metadata.brokers)[:1]:
            resource = (ResourceType.BROKER, str(node))
            entries_of = client.describe_configs([resource])[resource]
            of_broker = {name: each.value for name, each in entries_of.items() if each.value}
        return cls(
            name=name,
            partitions=partitions,
            exists=False,
            is_horolog=ours,
            settings={**_DEFAULTS, **_of_broker(of_broker), **settings},
        )

    def create(self, client: Client, settings: Mapping[str, str], *, dry_run: bool) -> None:
        """Create it if it is not there.

        Raises:
            RequestRefused: the broker refuses that, or would.
        """
        if not self.exists:
            client.create_topics(
                {self.name: self.partitions}, configs=settings, validate_only=dry_run
            )

    @property
    def stamps(self) -> bool:
        """Whether it replaces create times by append times."""
        return self.settings[_STAMPS] == "LogAppendTime"

    @property
    def compacts(self) -> bool:
        """Whether a record needs a key."""
        return "compact" in self.settings[_POLICY]

    @property
    def max_message_bytes(self) -> int:
        """The largest batch that it takes."""
        return int(self.settings[_MAX_BYTES])

    @property
    def retention_bytes(self) -> int:
        """How large a partition may get; negative without a limit."""
        deletes = "delete" in self.settings[_POLICY]
        return int(self.settings[_RETENTION_BYTES]) if deletes else -1

    def limits_ms(self, now_ms: int) -> tuple[int, int]:
        """The first and the last create time that it takes now (KIP-937)."""
        if self.stamps:
            return -_UNLIMITED, _UNLIMITED
        before, after = int(self.settings[_BEFORE]), int(self.settings[_AFTER])
        return now_ms - before, min(_UNLIMITED, now_ms + after)

    def kept_from_ms(self, now_ms: int) -> int | None:
        """Records before this time are to be deleted; None if retention does not count from it."""
        retention_ms = int(self.settings[_RETENTION_MS])
        counts = self.settings[_BY] == "create-time" or not self.is_horolog
        if "delete" not in self.settings[_POLICY] or retention_ms < 0 or self.stamps or not counts:
            return None
        return now_ms - retention_ms

    @property
    def deletes_before_1970(self) -> bool:
        """Whether retention counts from times before 1970."""
        return self.is_horolog and self.settings[_OLD] == "true"


def _of_broker(settings: Mapping[str, str]) -> dict[str, str]:
    found = {ours: settings[theirs] for ours, theirs in _OF_BROKER.items() if theirs in settings}
    for name, factor in (
        ("log.retention.hours", 3_600_000),
        ("log.retention.minutes", 60_000),
        ("log.retention.ms", 1),
    ):
        if settings.get(name, "").lstrip("-").isdecimal():
            number = int(settings[name])
            found[_RETENTION_MS] = str(number * factor if number >= 0 else -1)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The records of a table, counted; times in milliseconds."""

    records: int
    oldest_ms: int | None
    newest_ms: int | None
    without_time: int
    """Rows whose time is null, or cannot be said in milliseconds."""
    minus_one: int
    """Rows whose time is -1 ms, which Kafka's formats take for no time."""
    before_1970: int
    expired: int
    """Records that retention would delete."""
    oldest_expired_ms: int | None
    too_early: int
    too_late: int
    """Records that the topic's bounds refuse."""
    without_key: int
    tombstones: int
    without_partition: int
    """Rows that name no partition of the topic."""
    examples: tuple[int, ...] = ()
    """Times that would be refused."""

    @classmethod
    def of(cls, records: DataFrame, topic: LoadedTopic, now_ms: int) -> "Survey":
        """Count them, in one pass of Spark over what the counts need."""
        times = fn.col("timestamp_ms")
        first_ms, last_ms = topic.limits_ms(now_ms)
        early, late = times < fn.lit(first_ms), times > fn.lit(last_ms)
        has_time = ~is_no_time(times)
        kept_from_ms = topic.kept_from_ms(now_ms)
        expires = fn.lit(kept_from_ms is not None) & (times < fn.lit(kept_from_ms or 0))
        if not topic.deletes_before_1970:
            expires &= times >= 0
        found: Row = records.select(
            fn.count("*").alias("records"),
            fn.min(times).alias("oldest_ms"),
            fn.max(times).alias("newest_ms"),
            _count(times.isNull()).alias("without_time"),
            _count(is_no_time(times)).alias("minus_one"),
            _count(times < -1).alias("before_1970"),
            _count(expires).alias("expired"),
            fn.min(fn.when(expires, times)).alias("oldest_expired_ms"),
            _count(early & has_time).alias("too_early"),
            _count(late).alias("too_late"),
            _count(fn.col("key").isNull()).alias("without_key"),
            _count(fn.col("value").isNull()).alias("tombstones"),
            _count(fn.col(PARTITION).isNull()).alias("without_partition"),
        ).collect()[0]
        facts: dict[str, Any] = {
            name: value if name.endswith("_ms") else int(value or 0)
            for name, value in found.asDict().items()
        }
        examples: tuple[int, ...] = ()
        if facts["too_early"] or facts["too_late"]:
            refused = records.where((early & has_time) | late).select(times).distinct()
            examples = tuple(
                int(row[0]) for row in refused.orderBy(times).limit(_EXAMPLES).collect()
            )
        return cls(**facts, examples=examples)

    def problems(self, topic: LoadedTopic, *, replaces_create_times: bool) -> list[str]:
        """What keeps the table from being loaded, one sentence each."""
        found = []
        if topic.stamps and not replaces_create_times:
            found.append(
                f"{topic.name} has {_STAMPS}=LogAppendTime, and would replace the times of the "
                "records by the time of loading: change that, or give --replace-create-times"
            )
        if self.without_time:
            found.append(
                f"{self.without_time} rows have no time, or one that milliseconds cannot say: "
                "leave them out, or fill the column"
            )
        if self.too_early:
            found.append(
                f"{self.too_early} records are older than {_BEFORE}="
                f"{topic.settings[_BEFORE]} allows, and would be refused ({self._shown()}): raise "
                "it for the topic"
            )
        if self.too_late:
            found.append(
                f"{self.too_late} records are further in the future than {_AFTER}="
                f"{topic.settings[_AFTER]} allows, and would be refused ({self._shown()}); is the "
                "unit right?"
            )
        if topic.compacts and self.without_key:
            found.append(
                f"{self.without_key} records have no key, and {topic.name} is compacted: name a key"
            )
        if self.without_partition:
            found.append(
                f"{self.without_partition} rows name none of the {topic.partitions} partitions of "
                f"{topic.name}"
            )
        return found

    def warnings(self, topic: LoadedTopic, now_ms: int) -> list[str]:
        """What will happen to the records, and may not be meant; one sentence each."""
        found = []
        if self.expired:
            by = f", and {_BY}={topic.settings[_BY]}" if topic.is_horolog else ""
            remedy = f", or {_BY}=append-time to count from the load" if topic.is_horolog else ""
            oldest = format_time(self.oldest_expired_ms)
            found.append(
                f"retention will delete {self.expired} of the {self.records} records: "
                f"{_RETENTION_MS}={topic.settings[_RETENTION_MS]}{by}, and the oldest of them is "
                f"of {oldest}. Set {_RETENTION_MS}=-1 for the topic{remedy}"
            )
        if self.minus_one:
            found.append(
                f"{self.minus_one} records are of -1 ms, which Kafka's formats take for no time"
            )
        if self.before_1970 and not topic.is_horolog:
            found.append(
                f"{self.before_1970} records are of before 1970: Apache Kafka stores them and "
                "finds none of them by time"
            )
        return found

    def _shown(self) -> str:
        return "as " + ", ".join(format_time(each) for each in self.examples)


def _count(condition: Any) -> Any:
    return fn.sum(fn.when(condition, 1).otherwise(0))
