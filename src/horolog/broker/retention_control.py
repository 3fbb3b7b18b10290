"""Answers DescribeConfigs of a topic with what retention does about its segments, and when.

    horolog.retention.explain/{"partition": 0, "from": 0, "now": null, "set": {}}

asked for by name is described with a JSON object; docs/wire.md says what is in it. The broker
advertises it as a feature. No setting is stored under that name, and none that is tried.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from horolog.broker.answers import as_many_as_fit
from horolog.broker.broker import Broker
from horolog.config import TopicConfig
from horolog.errors import ErrorCode, RequestRefused
from horolog.network.peer import Peer
from horolog.storage.removal.retention_report import settings_of
from horolog.wire.features import RETENTION

_LONGEST_NAME: Final = 8_192
_INT64 = range(-(1 << 63), 1 << 63)


async def explain_retention(broker: Broker, peer: Peer, topic: str, name: str) -> dict[str, Any]:
    """The answer to a question of that form.

    Raises:
        RequestRefused: it is not of that form, a setting is unknown or invalid, or there is
            no such partition.
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where it has to be read.
    """
    partition, first_offset, now_ms, tried = _question(name)
    log = broker.partition(topic, partition).log
    config = _config(broker, topic, tried) if tried else None
    at_ms = broker.clock.now_ms() if now_ms is None else now_ms

    def page() -> tuple[list[Any], int | None]:
        found = log.retention_report(at_ms, config, first_offset=first_offset)
        return as_many_as_fit((each.base_offset, each.as_json()) for each in found)

    segments, following = await broker.searchers.run(peer, page)
    return {
        "now": at_ms,
        "settings": settings_of(log.config if config is None else config),
        "is_exempt": log.retention_exempt and config is None,
        "segments": segments,
        "next": following,
    }


def _is_int64(value: object) -> TypeGuard[int]:
    return type(value) is int and value in _INT64  # a boolean is not meant


def _question(name: str) -> tuple[int, int, int | None, Mapping[str, str]]:
    """Partition, first offset, time and tried settings."""
    asked = None
    if len(name) <= _LONGEST_NAME:
        try:
            asked = json.loads(name.removeprefix(f"{RETENTION}/"))
        except (ValueError, RecursionError):
            asked = None
    if isinstance(asked, dict) and asked.keys() <= {"partition", "from", "now", "set"}:
        partition, first = asked.get("partition"), asked.get("from", 0)
        now_ms, tried = asked.get("now"), asked.get("set", {})
        if (
            _is_int64(partition)
            and _is_int64(first)
            and (now_ms is None or _is_int64(now_ms))
            and isinstance(tried, dict)
            and all(isinstance(text, str) for text in tried.values())
        ):
            return partition, first, now_ms, tried
    raise RequestRefused(
        ErrorCode.invalid_request,
        f'{name:.200} is not {RETENTION}/{{"partition":N,"from":OFFSET,"now":MS,"set":{{...}}}}',
    )


def _config(broker: Broker, topic: str, tried: Mapping[str, str]) -> TopicConfig:
    overrides = {**broker.topics.named(topic).overrides, **tried}
    try:
        return broker.settings.topic_config(overrides)
    except ValueError as error:
        raise RequestRefused(ErrorCode.invalid_config, str(error)) from None
