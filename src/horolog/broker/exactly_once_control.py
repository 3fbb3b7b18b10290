"""Begins, commits and forgets batches of queries through IncrementalAlterConfigs (docs/wire.md).

The name `horolog.exactly.once` is no setting: its value is a JSON object that says what to do.
DescribeConfigs has, if requested by name, an entry `NAME/query` for each query, without its topics;
if one of those is requested, that query with its topics.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from horolog.broker.broker import Broker
from horolog.config import Change, DescribedSetting, Kind, Operation, Source
from horolog.errors import ErrorCode, RequestRefused
from horolog.metadata.rows import QueryRow, pinned_topics
from horolog.wire.features import EXACTLY_ONCE

_OF_ONE: Final = f"{EXACTLY_ONCE}/"


@dataclass(frozen=True, slots=True)
class Call:
    """What one request asks of the registry of queries."""

    members: Mapping[str, Any]

    async def perform(self, broker: Broker) -> None:
        """Do it.

        Raises:
            RequestRefused: the object is no such call (42), or as `Queries` says.
            StorageFailed: as `Queries` says.
        """
        action = self.members.get("action")
        query = self._member("query", str)
        match action:
            case "begin":
                await broker.queries.begin(
                    query,
                    self._member("batch", int),
                    self._member("tasks", int, optional=True),
                    self._names("topics"),
                    self._member("layout", int),
                    self._member("batch_bytes", int),
                    self._member("run", str, optional=True),
                )
            case "commit":
                await broker.queries.commit(
                    query,
                    self._member("batch", int),
                    self._member("tasks", int),
                    self._member("rows", int),
                    self._member("digest", int),
                )
            case "forget":
                await broker.queries.forget(query)
            case _:
                raise _refusal(f"there is no action {action!r:.60}")

    def _member(self, name: str, kind: type, *, optional: bool = False) -> Any:
        value = self.members.get(name)
        if value is None and optional:
            return None
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _refusal(f"{name} is {value!r:.60}, and not of type {kind.__name__}")
        return value

    def _names(self, name: str) -> list[str]:
        found: list[Any] = self._member(name, list)
        if not all(isinstance(each, str) for each in found):
            raise _refusal(f"{name} has a member that is no name")
        return found


def split_queries(changes: Sequence[Change]) -> tuple[Call | None, Sequence[Change]]:
    """The call of the registry that a request holds, if any, or its changes of settings.

    Raises:
        RequestRefused: the request has both, or the value is no JSON object.
    """
    wanted = [change for change in changes if change.name == EXACTLY_ONCE]
    if not wanted:
        return None, changes
    value = wanted[0].value
    if len(changes) > 1 or wanted[0].operation is not Operation.SET or not value:
        raise _refusal("it can be set, once in a request, and with nothing else")
    try:
        members = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _refusal(f"the value is no JSON: {error}") from None
    if not isinstance(members, dict):
        raise _refusal("the value is no JSON object")
    return Call(members), ()


def describe_all_queries(broker: Broker) -> Iterator[DescribedSetting]:
    """Every query that the registry knows, without its topics."""
    return (_described(row, _shown(row)) for row in broker.queries.known())


def describe_queries(broker: Broker, names: Iterable[str]) -> Iterator[DescribedSetting]:
    """The queries that are requested by name, with their topics."""
    for name in names:
        if name.startswith(_OF_ONE):
            row = broker.queries.find(name.removeprefix(_OF_ONE))
            if row is not None:
                topics = pinned_topics(row.topics)
                its = {topic: partitions for topic, (_, partitions) in topics.items()}
                yield _described(row, {**_shown(row), "topics": its})


def _described(row: QueryRow, members: Mapping[str, Any]) -> DescribedSetting:
    return DescribedSetting(
        f"{_OF_ONE}{row.query}",
        json.dumps(members),
        Source.DEFAULT,
        read_only=True,
        sensitive=False,
        synonyms=(),
        kind=Kind.STRING,
        documentation="A query that writes exactly once, and its last batch.",
    )


def _shown(row: QueryRow) -> dict[str, Any]:
    return {
        "query": row.query,
        "slot": row.slot,
        "batch": row.batch,
        "tasks": None if row.tasks < 0 else row.tasks,
        "started_ms": row.started_ms,
        "committed": row.is_committed,
        "layout": row.layout,
        "batch_bytes": row.batch_bytes,
        "open": bool(row.is_open),
    }


def _refusal(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.invalid_request, f"{EXACTLY_ONCE}: {message}")
