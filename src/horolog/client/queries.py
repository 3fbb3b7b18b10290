"""Batches of queries that write exactly once: begun, joined, committed, forgotten.

For brokers that announce `horolog.exactly.once`; docs/exactly-once.md says what holds.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from horolog.client.configs import alter, describe
from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.offset_lookups import TopicPartition
from horolog.client.retrying import RetriedCalls
from horolog.errors import ErrorCode, RequestRefused
from horolog.json_text import from_json
from horolog.record.attempts import AttemptId, batch_digest
from horolog.wire.config_resources import ResourceType
from horolog.wire.malformed import MalformedResponse
from horolog.wire.questions import EXACTLY_ONCE

__all__ = ["QueryBatch", "QueryCalls", "TaskRows"]

LAYOUT: Final = 1
"""How this version's writers form record batches of rows; attempts at a batch must agree."""

_ALL_BROKERS: Final = (ResourceType.BROKER, "")


class QueryBatch(NamedTuple):
    """The batch that a query writes, as its first attempt began it."""

    query: str
    slot: int
    """The number of the query."""
    batch: int
    tasks: int | None
    """How many tasks it has, None if that is not known before it is committed."""
    started_ms: int
    """When it was first begun, on the broker's clock: the time of rows without one."""
    is_committed: bool
    layout: int
    batch_bytes: int
    """The uncompressed size that record batches are filled to."""
    is_open: bool
    """Whether rows may be appended: not so while a run repeats what earlier ones have written."""
    partitions: Mapping[str, int]
    """How many partitions each topic has for this batch, whatever was added since; in a list of all
    queries nothing."""

    def producer_of(self, task: int) -> tuple[int, int]:
        """The producer id and epoch of a task's record batches."""
        return AttemptId(self.slot, self.batch, task).producer


@dataclass(slots=True)
class TaskRows:
    """How many rows an attempt of a task has sent to each partition of each topic."""

    task: int
    rows: dict[str, dict[int, int]] = field(default_factory=dict)


class QueryCalls(RetriedCalls):
    """Calls about queries that write exactly once."""

    def keeps_batches(self) -> bool:
        """Whether the broker keeps batches of queries apart; Apache Kafka does not.

        Raises:
            NoAnswer: no broker answers.
        """
        return self._persist(
            lambda deadline: EXACTLY_ONCE.name in self.brokers.any(deadline).features
        )

    def begin_batch(
        self,
        query: str,
        batch: int,
        *,
        tasks: int | None = None,
        topics: Sequence[str] = (),
        batch_bytes: int = 1_000_000,
        run: str | None = None,
    ) -> QueryBatch:
        """Begin a batch, or join it: every attempt of every task does.

        The first attempt decides about `batch_bytes`, and how many partitions each of `topics` has
        for this batch; later ones get its values. All attempts of one run of the batch give the
        same `run`, 1 to 64 characters that no other run has: if an earlier run has written rows,
        this one appends none before its tasks have repeated them all. Without `run` an attempt is
        compared only with earlier ones at its own task.

        Raises:
            RequestRefused: the broker cannot do this (Apache Kafka); the query has gone on to a
                later batch; the batch has another number of `tasks`; there is no such topic.
            NoAnswer: no broker answers.
        """
        members = {
            "action": "begin",
            "query": query,
            "batch": batch,
            "tasks": tasks,
            "topics": list(topics),
            "layout": LAYOUT,
            "batch_bytes": batch_bytes,
            "run": run,
        }

        def attempt(deadline: Deadline) -> QueryBatch:
            link = self._with_exactly_once(deadline)
            self._tell(link, members, deadline)
            found = self._described(link, query, deadline)
            if found is None or found.batch != batch:
                raise RequestRefused(
                    ErrorCode.invalid_producer_epoch,
                    f"query {query} went on to another batch while batch {batch} was begun",
                )
            return found

        return self._persist(attempt)

    def commit_batch(self, query: str, batch: int, tasks: int, written: Iterable[TaskRows]) -> None:
        """End a batch: check that the broker has the rows that its tasks have sent, and no others.

        `written` has one successful attempt of each task. May be called again.

        Raises:
            RequestRefused: the broker has other rows: an attempt differed from one before it.
            NoAnswer: no broker answers.
        """
        by_partition: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
        for task in written:
            for topic, partitions in task.rows.items():
                for partition, rows in partitions.items():
                    by_partition[topic, partition][task.task] = rows
        members = {
            "action": "commit",
            "query": query,
            "batch": batch,
            "tasks": tasks,
            "rows": sum(sum(each.values()) for each in by_partition.values()),
            "digest": batch_digest(by_partition),
        }
        self._persist(
            lambda deadline: self._tell(self._with_exactly_once(deadline), members, deadline)
        )

    def queries(self) -> list[QueryBatch]:
        """All queries that write exactly once to this broker, by name.

        Raises:
            RequestRefused: the broker cannot do this (Apache Kafka).
            NoAnswer: no broker answers.
        """

        def attempt(deadline: Deadline) -> list[QueryBatch]:
            link = self._with_exactly_once(deadline)
            return [_batch_of(each) for each in self._values(link, EXACTLY_ONCE.name, deadline)]

        return self._persist(attempt)

    def forget_query(self, query: str) -> None:
        """Forget a query that has ended: the next one of its name begins with nothing behind it.

        Raises:
            RequestRefused: the broker does not know it, or cannot do this (Apache Kafka).
            NoAnswer: no broker answers.
        """
        members = {"action": "forget", "query": query}
        self._persist(
            lambda deadline: self._tell(self._with_exactly_once(deadline), members, deadline)
        )

    def _with_exactly_once(self, deadline: Deadline) -> Link:
        link = self.brokers.any(deadline)
        if EXACTLY_ONCE.name not in link.features:
            raise RequestRefused(
                ErrorCode.unsupported_version,
                f"the broker at {link.connection.address} does not announce {EXACTLY_ONCE.name}: "
                "only horolog's brokers keep batches of queries apart. Spark's sink writes exactly "
                "once to Apache Kafka by transactions (docs/exactly-once.md)",
            )
        return link

    def _tell(self, link: Link, members: Mapping[str, Any], deadline: Deadline) -> None:
        value = json.dumps(members, separators=(",", ":"))
        title = f"query {members['query']}"
        alter(link, _ALL_BROKERS, {EXACTLY_ONCE.name: value}, deadline, title=title)

    def _described(self, link: Link, query: str, deadline: Deadline) -> QueryBatch | None:
        found = self._values(link, f"{EXACTLY_ONCE.name}/{query}", deadline)
        return _batch_of(found[0]) if found else None

    def _values(self, link: Link, key: str, deadline: Deadline) -> list[Any]:
        entries = describe(link, _ALL_BROKERS, [key], deadline)
        try:
            return [
                from_json(entry.value)
                for entry in entries
                if entry.name.startswith(f"{EXACTLY_ONCE.name}/")
            ]
        except (ValueError, TypeError) as error:
            raise _malformed(key) from error


def _batch_of(found: Any) -> QueryBatch:
    try:
        return QueryBatch(
            query=str(found["query"]),
            slot=int(found["slot"]),
            batch=int(found["batch"]),
            tasks=None if found["tasks"] is None else int(found["tasks"]),
            started_ms=int(found["started_ms"]),
            is_committed=bool(found["committed"]),
            layout=int(found["layout"]),
            batch_bytes=int(found["batch_bytes"]),
            is_open=bool(found["open"]),
            partitions={str(name): int(count) for name, count in found.get("topics", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _malformed(EXACTLY_ONCE.name) from error


def _malformed(key: str) -> MalformedResponse:
    return MalformedResponse(f"{key} was described in another way than docs/wire.md says")
