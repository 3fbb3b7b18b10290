"""The job `replay`: records in the order of their times, sent on at their recorded pace.

    source     records of all partitions by time, from the place that was reached on
    sending    when each is due; sends it in batches, in transactions where progress is kept

It needs no Spark: one process orders all partitions, and waits until each record is due.
"""

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Final

from horolog.client import Client
from horolog.client.properties import require_effect
from horolog.client.topic_facts import partition_numbers, topic_ids
from horolog.clock import SystemClock
from horolog.errors import Misconfigured, RequestRefused
from horolog.jobs.parameters.function import without_spark
from horolog.jobs.parameters.replay import Replay
from horolog.jobs.parameters.shared import codec_of
from horolog.jobs.receiving import ReceivingTopic, require_transactions, retention_note
from horolog.jobs.replaying.sending import (
    Pace,
    ReplayProgress,
    ReplayTarget,
    Sending,
    progress_of,
)
from horolog.jobs.replaying.source import Due, ReplayPlan, ReplaySource
from horolog.jobs.selection import Selection, client_of
from horolog.jobs.state import DocumentsOnly, state_of, value_of
from horolog.record.timestamps import RecordClock, TimeRange
from horolog.sources.kafka_settings import PREFIX
from horolog.sources.location import Location
from horolog.sources.ordered import WithoutTime, checked_memory
from horolog.storage.directory.checkpoints import decode_uuid
from horolog.storage.names import TopicPartition
from horolog.times import bytes_of

__all__ = ["Replayed", "replay"]

_RANGE: Final = "range"
_TOPICS: Final = "topics"
_FETCH_BYTES: Final = 1 << 20
"""Size of a request to the source; the fetched records of each partition are in memory."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Outcome of all runs of a replay with one state, or of a dry run."""

    spans: Mapping[TopicPartition, tuple[int, int]]
    """First offset and end offset of each partition, of what this run had to look through."""
    topics: Mapping[str, str]
    """Topics of the target by those of the source."""
    progress: ReplayProgress
    latest_ms: int = 0
    """Largest delay of a record behind its schedule."""
    is_dry_run: bool = False


@without_spark(Replay)
def replay(job: Replay) -> Replayed:
    """Send the records of several partitions on in time order, at their recorded pace.

    The order is exact, late records inside partitions included. A run that continues another ends
    where that would have ended; the next one sends what was appended since. Records that the
    target's retention would delete soon are warned of. With a state records are sent in
    transactions, and a killed or interrupted run is run again: readers of committed records see
    each record once. A run is refused if a topic was created again since, at either side, because
    the offsets of the state then mean other records.

    Raises:
        Misconfigured: arguments are wrong, or the state is of another run or of topics that were
            created again.
        RequestRefused, NoAnswer: a broker refuses, or does not answer.
        KeyboardInterrupt: the replay was interrupted; its progress was recorded.
    """
    selection = Selection.asked(job, _settings_of(job))
    target = Location.parse(job.target, "target")
    if target.bootstrap_servers is None:
        raise Misconfigured(f"--target {job.target} is no HOST:PORT of a broker")
    of_target = _prefixed(job.target_settings)
    require_effect((name.removeprefix(PREFIX) for name in of_target), "--target-set")
    speed, codec, clock = _speed(job.speed), codec_of(job.compression), SystemClock()
    times = TimeRange.between(
        selection.from_ms, selection.to_ms, RecordClock(job.clock or RecordClock.CREATE)
    )
    with ExitStack() as stack:
        kept = stack.enter_context(state_of(job, "replay"))
        if kept is not None:
            times = _same_range(kept, times)
        source = stack.enter_context(_source(selection, times, job))
        client = stack.enter_context(client_of(target, of_target))
        if job.state is not None:
            require_transactions(client)
        progress = progress_of(kept)
        plan = source.plan_rest(progress.extent, progress.place)
        spans = plan.spans()
        partitions = spans.keys() | progress.offsets.keys()
        to_send = _target(client, partitions, job)._replace(codec=codec)
        if selection.source.bootstrap_servers == target.bootstrap_servers and any(
            topic == sent_to for topic, sent_to in to_send.topics.items()
        ):
            raise Misconfigured("source and target are the same topic: give --to-topic")
        if not job.shift_times:
            _warn_of_retention(source, spans, to_send, times, clock.now_ms())
        if kept is not None:
            _check_topics(kept, source, to_send)
            _check_bounds(source, progress)
        # A state that was begun may have a commit to look up, even where nothing is left to send.
        if job.dry_run or not (spans or progress.counts):
            return Replayed(
                spans=spans, topics=to_send.topics, progress=progress, is_dry_run=job.dry_run
            )
        total = progress.records + sum(end - start for start, end in spans.values())
        work = Sending(
            to_send,
            clock,
            time.sleep,
            Pace(clock, speed, job.max_gap_ms),
            shifts_times=job.shift_times,
            state=kept,
            on_sent=lambda progress: job.on_progress(progress, total),
        )
        job.on_progress(work.progress, total)
        work.begin(plan.extent)
        try:
            work.resume()
            work.run(_rest(source, plan, work.progress))
        finally:
            work.finish()
    return Replayed(
        spans=spans, topics=to_send.topics, progress=work.progress, latest_ms=work.latest_ms
    )


def _rest(source: ReplaySource, plan: ReplayPlan, progress: ReplayProgress) -> Iterator[Due]:
    """Return what is left of a plan; nothing if the last commit of all was found to be done."""
    return source.rest(plan, progress.place) if progress.ends else iter(())


def _settings_of(job: Replay) -> dict[str, str]:
    """Return the settings of the source, with the prefix `kafka.` where it is a broker."""
    is_broker = Location.parse(job.source).is_broker
    return _prefixed(job.settings) if is_broker else dict(job.settings or {})


def _prefixed(settings: Mapping[str, str] | None) -> dict[str, str]:
    given = (settings or {}).items()
    return {name if name.startswith(PREFIX) else PREFIX + name: value for name, value in given}


def _source(selection: Selection, times: TimeRange, job: Replay) -> ReplaySource:
    """Open the committed records of the source; deleted records are only warned of."""
    whole = replace(selection, from_ms=None, to_ms=None)
    options = whole.read_options(
        **{"kafka.isolation.level": "read_committed", "failOnDataLoss": "false"}
    )
    fetching = replace(options.fetching, max_bytes=_FETCH_BYTES)
    exact = replace(options, fail_on_damage=True, loss_option=None, fetching=fetching)
    memory = job.order_memory
    if isinstance(memory, str):
        memory = bytes_of(memory, "--order-memory")
    return ReplaySource(
        exact,
        times,
        memory=checked_memory(memory),
        without_time=WithoutTime.of(job.without_time),
    )


def _target(client: Client, partitions: Collection[TopicPartition], job: Replay) -> ReplayTarget:
    topics = {partition.topic: job.to_topic or partition.topic for partition in partitions}
    counts = {name: len(partition_numbers(client, name)) for name in set(topics.values())}
    for partition in partitions:
        count = counts[topics[partition.topic]]
        if not job.by_key and partition.partition >= count:
            raise Misconfigured(
                f"{partition} has no place in {topics[partition.topic]} of the target, which has "
                f"{count} partitions: give --by-key, or add partitions"
            )
    return ReplayTarget(client, counts, topics, job.by_key)


def _warn_of_retention(
    source: ReplaySource,
    spans: Mapping[TopicPartition, tuple[int, int]],
    target: ReplayTarget,
    times: TimeRange,
    now_ms: int,
) -> None:
    from_ms = times.from_ms if times.clock is RecordClock.CREATE else None
    for name, sent_to in target.topics.items():
        try:
            receiving = ReceivingTopic.described(target.client, sent_to, target.counts[sent_to])
        except RequestRefused:  # a client that may write need not be one that may ask
            continue
        bounds = {partition: span for partition, span in spans.items() if partition.topic == name}
        note = retention_note(receiving, source.log, name, bounds, from_ms, now_ms)
        if note is not None:
            _logger.warning("%s", note)


def _same_range(kept: DocumentsOnly, times: TimeRange) -> TimeRange:
    """Return the time range of the first run, since relative times count from then."""
    known = kept.read(_RANGE)
    if known is None:
        known = {"from": times.from_ms, "to": times.to_ms}
        kept.write(_RANGE, known)
    return TimeRange.between(known["from"], known["to"], times.clock)


@dataclass(frozen=True, slots=True)
class _TopicIds:
    """Topic ids of a replay's source and target, by name; topics without an id are left out."""

    source: Mapping[str, str]
    target: Mapping[str, str]


def _check_topics(kept: DocumentsOnly, source: ReplaySource, target: ReplayTarget) -> None:
    """Refuse topics that were created again since the first run, and record new ones.

    Raises:
        Misconfigured: a topic was created again.
        CorruptFile: the state is damaged.
    """
    document = kept.read(_TOPICS)
    known = _TopicIds({}, {}) if document is None else value_of(_TopicIds, document, _TOPICS)
    ids = topic_ids(target.client, target.counts)
    present = _TopicIds(
        {name: str(decode_uuid(topic_id)) for name, topic_id in source.log.topic_ids.items()},
        {name: topic_id for name, topic_id in ids.items() if topic_id is not None},
    )
    for side, before, now, why in (
        ("source", known.source, present.source, "its offsets mean other records now"),
        ("target", known.target, present.target, "what was sent before is not there"),
    ):
        for name in sorted(before.keys() & now.keys()):
            if before[name] != now[name]:
                raise Misconfigured(
                    f"{name} of the {side} was deleted and created again since the replay began: "
                    f"{why}. Begin with another --state"
                )
    every = _TopicIds({**present.source, **known.source}, {**present.target, **known.target})
    if every != known:
        kept.write(_TOPICS, asdict(every))


def _check_bounds(source: ReplaySource, progress: ReplayProgress) -> None:
    """Refuse a log that ends before its sent records; warn of unsent records that were deleted.

    Raises:
        Misconfigured: a log ends before its sent records.
    """
    partitions = progress.starts.keys() & set(source.partitions)
    earliest, latest = source.log.earliest(partitions), source.log.latest(partitions)
    for partition in sorted(partitions):
        start, first = progress.starts[partition], earliest[partition]
        sent = max(start, progress.offsets.get(partition, 0))
        if sent > latest[partition]:
            raise Misconfigured(
                f"{partition} was sent up to offset {sent} and ends at {latest[partition]} now: "
                "its log was cut, or the topic created again. Begin with another --state"
            )
        if start < first:
            _logger.warning(
                "Offsets %d to %d of %s were deleted before %s sent",
                start,
                first - 1,
                partition,
                "they were" if sent == start else "all of them were",
            )


def _speed(given: str | float) -> float | None:
    if given == "max":
        return None
    try:
        factor = float(given)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise Misconfigured(f"--speed {given}: write a factor above 0, as 2 or 0.5, or max")
    return factor
