"""Count, before any record is sent, what a topic would do to the records of a table."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as fn

from horolog.jobs.loading.rows import PARTITION, is_no_time
from horolog.jobs.receiving import AFTER, BEFORE, STAMPS, ReceivingTopic
from horolog.record.timestamps import UNWRITABLE
from horolog.times import format_time

_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Counts of the records of a table; times in milliseconds."""

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
    def of(cls, records: DataFrame, topic: ReceivingTopic, now_ms: int) -> "Survey":
        """Count the records in one pass of Spark over the columns that are needed."""
        times = fn.col("timestamp_ms")
        first_ms, last_ms = topic.limits_ms(now_ms)
        early, late = times < fn.lit(first_ms), times > fn.lit(last_ms)
        has_time = ~is_no_time(times)
        kept_from_ms = topic.kept_from_ms(now_ms)
        expires = fn.lit(kept_from_ms is not None) & (times < fn.lit(kept_from_ms or 0))
        if not topic.deletes_before_1970:
            expires &= times >= 0
        counts: Row = records.select(
            fn.count("*").alias("records"),
            fn.min(times).alias("oldest_ms"),
            fn.max(times).alias("newest_ms"),
            fn.min(fn.when(expires, times)).alias("oldest_expired_ms"),
            *(
                fn.sum(fn.when(condition, 1).otherwise(0)).alias(name)
                for name, condition in {
                    "without_time": times.isNull(),
                    "minus_one": is_no_time(times),
                    "before_1970": times < -1,
                    "expired": expires,
                    "too_early": early & has_time,
                    "too_late": late,
                    "without_key": fn.col("key").isNull(),
                    "tombstones": fn.col("value").isNull(),
                    "without_partition": fn.col(PARTITION).isNull(),
                }.items()
            ),
        ).collect()[0]
        facts: dict[str, Any] = {
            name: value if name.endswith("_ms") else int(value or 0)
            for name, value in counts.asDict().items()
        }
        examples: tuple[int, ...] = ()
        if facts["too_early"] or facts["too_late"]:
            refused = records.where((early & has_time) | late).select(times).distinct()
            examples = tuple(
                int(row[0]) for row in refused.orderBy(times).limit(_EXAMPLES).collect()
            )
        return cls(**facts, examples=examples)

    def problems(
        self, topic: ReceivingTopic, *, replaces_create_times: bool, has_moments: bool = False
    ) -> list[str]:
        """Return the reasons why the table cannot be loaded, one sentence each.

        Args:
            topic: that it is loaded into.
            has_moments: whether a time of -1 ms is a moment; otherwise the row says itself that it
                has none.
        """
        problems = []
        if topic.stamps and not replaces_create_times:
            problems.append(
                f"{topic.name} has {STAMPS}=LogAppendTime, and would replace the times of the "
                "records by the time of loading: change that, or give --replace-create-times"
            )
        if self.without_time:
            problems.append(
                f"{self.without_time} rows have no time, or one that milliseconds cannot say: "
                "leave them out, or fill the column"
            )
        if self.minus_one and has_moments:
            problems.append(f"{self.minus_one} rows have a time that is none: {UNWRITABLE}")
        if self.too_early:
            problems.append(
                f"{self.too_early} records are older than {BEFORE}="
                f"{topic.settings[BEFORE]} allows, and would be refused ({self._shown()}): raise "
                "it for the topic"
            )
        if self.too_late:
            problems.append(
                f"{self.too_late} records are further in the future than {AFTER}="
                f"{topic.settings[AFTER]} allows, and would be refused ({self._shown()}); is the "
                "unit right?"
            )
        if topic.compacts and self.without_key:
            problems.append(
                f"{self.without_key} records have no key, and {topic.name} is compacted: name a key"
            )
        if self.without_partition:
            problems.append(
                f"{self.without_partition} rows name none of the {topic.partitions} partitions of "
                f"{topic.name}"
            )
        return problems

    def warnings(self, topic: ReceivingTopic, now_ms: int) -> list[str]:
        """Return unwanted effects that a load may have, one sentence each."""
        warnings = []
        if self.expired:
            oldest = format_time(self.oldest_expired_ms)
            warnings.append(
                f"{topic.deletes(f'{self.expired} of the {self.records} records')}, and the oldest "
                f"of them is of {oldest}. {topic.remedy}"
            )
        if self.minus_one:
            warnings.append(
                f"{self.minus_one} records are of -1 ms, which Kafka's formats take for no time"
            )
        if self.before_1970 and not topic.is_horolog:
            warnings.append(
                f"{self.before_1970} records are of before 1970: Apache Kafka refuses them where "
                "it compresses again, else stores them, and finds none of them by time"
            )
        return warnings

    def _shown(self) -> str:
        return "as " + ", ".join(format_time(example) for example in self.examples)
