"""Batches of queries, begun, committed and forgotten by an action whose value is a JSON object.

DescribeConfigs has, if requested by name, an entry `NAME/query` for each query, without its topics;
if one of those is requested, that query with its topics (docs/wire.md).
"""

import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from horolog.broker.broker import Broker
from horolog.broker.control.rows import Perform, read_only
from horolog.broker.queries import Queries
from horolog.config import DescribedSetting
from horolog.errors import ErrorCode, RequestRefused
from horolog.json_text import from_json, read_as
from horolog.metadata.rows import QueryRow, pinned_topics
from horolog.wire.questions import EXACTLY_ONCE

_OF_ONE: Final = f"{EXACTLY_ONCE.name}/"


class _Begin(NamedTuple):
    query: str
    batch: int
    topics: tuple[str, ...]
    layout: int
    batch_bytes: int
    tasks: int | None = None
    run: str | None = None


class _Commit(NamedTuple):
    query: str
    batch: int
    tasks: int
    rows: int
    digest: int


class _Forget(NamedTuple):
    query: str


_CALLS: Final[Mapping[str, tuple[type[NamedTuple], Callable[..., Awaitable[None]]]]] = {
    "begin": (_Begin, Queries.begin),
    "commit": (_Commit, Queries.commit),
    "forget": (_Forget, Queries.forget),
}


def prepare_call(broker: Broker, name: str, values: Mapping[str, str]) -> Perform:
    """Call the registry of queries.

    Raises:
        RequestRefused: the value is no call of it (42); or, when it is performed, as `Queries`
            says.
        StorageFailed: as `Queries` says.
    """
    try:
        document = from_json(values[EXACTLY_ONCE.name])
        action = document.pop("action", None) if isinstance(document, dict) else None
        if not isinstance(action, str) or action not in _CALLS:
            raise ValueError(f"it has no action that there is, but {action!r:.60}")
        kind, call = _CALLS[action]
        members = read_as(kind, document, may_have_more=True)
    except ValueError as error:
        raise RequestRefused(
            ErrorCode.invalid_request, f"{EXACTLY_ONCE.name}: no call of a query: {error}"
        ) from None
    return partial(call, broker.queries, **members._asdict())


def show_queries(
    broker: Broker, name: str, keys: Collection[str] | None
) -> Iterator[DescribedSetting]:
    """Every query without its topics, or those that are asked for by name, with them."""
    if keys and EXACTLY_ONCE.name in keys:
        for row in broker.queries.known():
            yield _described(row, _shown(row))
    for key in sorted(key for key in keys or () if key.startswith(_OF_ONE)):
        found = broker.queries.find(key.removeprefix(_OF_ONE))
        if found is not None:
            topics = pinned_topics(found.topics)
            its = {topic: partitions for topic, (_, partitions) in topics.items()}
            yield _described(found, {**_shown(found), "topics": its})


def _described(row: QueryRow, members: Mapping[str, Any]) -> DescribedSetting:
    documentation = "A query that writes exactly once, and its last batch."
    return read_only(f"{_OF_ONE}{row.query}", json.dumps(members), documentation)


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
