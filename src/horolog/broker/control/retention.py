"""What retention does about the segments of a partition, and when."""

from collections.abc import Mapping
from typing import Any

from horolog.broker.broker import Broker
from horolog.broker.control.rows import as_many_as_fit
from horolog.config import TopicConfig
from horolog.errors import ErrorCode, RequestRefused
from horolog.network.peer import Peer
from horolog.offsets import HeldUp
from horolog.storage.removal.retention_report import settings_of
from horolog.wire.questions import AskRetention, RetentionReport


async def explain_retention(
    broker: Broker, peer: Peer, topic: str, ask: AskRetention
) -> RetentionReport:
    """The report of some segments; nothing is stored or deleted.

    Raises:
        RequestRefused: a setting is unknown or invalid, or there is no such partition.
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where it has to be read.
    """
    partition = broker.partition(topic, ask.partition)
    view, opened = partition.log.look(), broker.open_transactions.first_of(partition)
    config = tried_config(broker, topic, ask.settings) if ask.settings else None
    now_ms = broker.clock.now_ms() if ask.now is None else ask.now

    def page() -> tuple[tuple[dict[str, Any], ...], int | None, HeldUp | None]:
        first = None if opened is None else opened.held_up()
        found = view.retention_report(now_ms, config, first_offset=ask.start, names_markers=True)
        segments = ((each.base_offset, each.as_json()) for each in found)
        return *as_many_as_fit(segments, first), first

    segments, following, first = await broker.searchers.run(peer, page)
    return RetentionReport(
        now_ms,
        settings_of(view.config if config is None else config),
        view.retention_exempt and config is None,
        segments,
        following,
        first,
    )


def tried_config(broker: Broker, topic: str, tried: Mapping[str, str]) -> TopicConfig:
    """The settings of a topic with others in their place.

    Raises:
        RequestRefused: a setting is unknown or invalid, or there is no such topic.
    """
    try:
        return broker.settings.topic_config({**broker.topics.named(topic).overrides, **tried})
    except ValueError as error:
        raise RequestRefused(ErrorCode.invalid_config, str(error)) from None
