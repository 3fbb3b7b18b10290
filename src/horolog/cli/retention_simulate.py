"""`horolog retention simulate`: the deletions that other settings would have caused."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Annotated, Any, Final

import typer

from horolog.broker.settings import OfflineSettings
from horolog.cli.connecting import KafkaBrokers
from horolog.cli.offline import say_offline
from horolog.cli.options import (
    Partitions,
    PathOrTopic,
    Zone,
    pairs,
    path_of,
    with_options,
)
from horolog.cli.retention_screen import CLOCKS
from horolog.cli.working import working
from horolog.client import ResourceType
from horolog.client.topic_facts import served_partitions
from horolog.clock import SystemClock, format_duration
from horolog.config import Settings, TopicConfig
from horolog.errors import Misconfigured
from horolog.report.retention import moment_text
from horolog.results import Answer, Shown, Table, size
from horolog.sources.arrivals import ArrivalLog
from horolog.sources.options import ReadOptions
from horolog.storage.names import TopicPartition
from horolog.storage.offline.simulation import Deletion, Simulation, SimulationOutcome
from horolog.storage.verify import find_target
from horolog.times import format_time, parse_time

CHECK: Final = "log.retention.check.interval.ms"
_CHECK_MS: Final = 300_000
_SHOWN: Final = 20  # deletions of a partition on the screen
_STEP: Final = 1000  # batches between two words on how far it is


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """Options that choose partitions, settings and the time."""

    tried: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of the topic to try, as retention.ms, segment.bytes or "
            "horolog.retention.by; repeat for several. Also "
            f"{CHECK}, which is 5 minutes by default.",
        ),
    ] = None
    at: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Let time pass until then (default: now, by the broker's clock).",
        ),
    ] = None
    partitions: Partitions = None
    zone: Zone = None


@with_options
def simulate(
    context: typer.Context,
    what: PathOrTopic,
    brokers: KafkaBrokers,
    options: SimulateOptions,
) -> Answer:
    """Replay when the records of a log arrived, and show what other settings would have deleted.

    Batches arrive at their append times, in an empty log with the topic's settings and those given
    with --set. The broker's own rules roll and delete segments. The output shows when each segment
    would have been deleted, how old its records were by both clocks, and the disk use. Records that
    were deleted before now are not part of the simulation. All records' times are read; nothing is
    written or deleted.
    """
    shown_zone = options.zone or UTC
    given = pairs(options.tried, "--set")
    check_ms = _positive(given.pop(CHECK, str(_CHECK_MS)))
    now_ms = SystemClock().now_ms()
    path = path_of(context, what)
    if path is None:
        with brokers.connect() as client:
            served = served_partitions(client, what, options.partitions)
            say_offline(served)
            resource = (ResourceType.TOPIC, what)
            entries = client.describe_configs([resource])[resource]
            config = _config({name: entry.value for name, entry in entries.items()} | given)
            log = ArrivalLog(ReadOptions.of_topic(client.config, what), served.leaders)
            now_ms = client.topics.cluster_time_ms() or now_ms
        configs = dict.fromkeys({partition.topic for partition in log.partitions}, config)
    else:
        stored = OfflineSettings(find_target(path).log_dir, given)
        log = ArrivalLog(ReadOptions.of_path(str(path)), options.partitions)
        configs = {
            partition.topic: stored.of(partition.topic).config for partition in log.partitions
        }
    until_ms = (
        now_ms if options.at is None else parse_time(options.at, now_ms=now_ms, zone=options.zone)
    )
    outcomes = _run(log, configs, check_ms, until_ms, what)
    return Answer(_plain(outcomes), _lines(outcomes, shown_zone))


def _positive(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 62:
        raise Misconfigured(f"{CHECK} is {text!r:.60}: it takes milliseconds, from 1 on")
    return int(text)


def _config(values: Mapping[str, str | None]) -> TopicConfig:
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return Settings({}).topic_config(given)
    except ValueError as error:
        raise Misconfigured(str(error)) from None


def _run(
    log: ArrivalLog, configs: Mapping[str, TopicConfig], check_ms: int, until_ms: int, what: str
) -> dict[TopicPartition, SimulationOutcome]:
    outcomes, done = {}, 0
    with working(f"simulate {what}", "offsets") as work:
        for partition in log.partitions:
            simulation = Simulation(configs[partition.topic], check_ms)
            start: int | None = None
            for number, arrival in enumerate(log.of(partition)):
                start = arrival.base_offset if start is None else start
                simulation.arrive(arrival)
                if number % _STEP == 0:
                    work(done + arrival.base_offset - start, log.offsets)
            simulation.run_until(until_ms)
            outcomes[partition] = outcome = simulation.outcome()
            done += outcome.records
        work(log.offsets, log.offsets)
    return outcomes


_SUMS: Final = ("records", "deleted_records", "deleted_within_hour", "segments", "held_bytes")
_OF_PARTITION: Final = (
    *("records", "deleted_records", "deleted_within_hour", "segments", "segments_a_day"),
    *("held_segments", "held_bytes", "most_held_bytes"),
)


def _plain(outcomes: Mapping[TopicPartition, SimulationOutcome]) -> dict[str, Any]:
    """Return the sums of all partitions, those of each one, and the deletions by time."""
    deletions = [
        {"partition": str(partition), **deletion._asdict()}
        for partition, outcome in outcomes.items()
        for deletion in outcome.deletions
    ]
    return {
        **{name: sum(getattr(outcome, name) for outcome in outcomes.values()) for name in _SUMS},
        "deletions": sorted(deletions, key=lambda deletion: deletion["at_ms"]),
        "partitions": [
            {
                "partition": str(partition),
                **{name: getattr(outcome, name) for name in _OF_PARTITION},
                "from_ms": outcome.first_ms,
                "until_ms": outcome.until_ms,
            }
            for partition, outcome in outcomes.items()
        ],
    }


def _lines(outcomes: Mapping[TopicPartition, SimulationOutcome], zone: tzinfo) -> Iterator[Shown]:
    def a_day(row: dict[str, Any]) -> str | None:
        return None if row["segments_a_day"] is None else f"{row['segments_a_day']:.1f}"

    yield Table(
        _plain(outcomes)["partitions"],
        "partition",
        "records",
        ("deleted", "deleted_records"),
        ("within an hour", "deleted_within_hour"),
        "segments",
        ("a day", a_day),
        ("held", lambda row: size(row["held_bytes"])),
        ("at most", lambda row: size(row["most_held_bytes"])),
    )
    for partition, outcome in outcomes.items():
        if outcome.deletions:
            yield from _deletions(str(partition), outcome.deletions, zone)
    if not any(outcome.deletions for outcome in outcomes.values()):
        yield ""
        yield "nothing would have been deleted"


def _deletions(partition: str, deletions: Sequence[Deletion], zone: tzinfo) -> Iterator[Shown]:
    yield ""
    yield partition
    yield Table(
        deletions[:_SHOWN],
        ("deleted at", lambda deletion: format_time(deletion.at_ms, zone)),
        ("offsets", lambda deletion: f"{deletion.base_offset}-{deletion.end_offset - 1}"),
        "records",
        (
            "appended before",
            lambda deletion: _ages(deletion.append_age_min_ms, deletion.append_age_max_ms),
        ),
        (
            "created before",
            lambda deletion: _ages(deletion.create_age_min_ms, deletion.create_age_max_ms),
        ),
        ("why", lambda deletion: _why(deletion, zone)),
    )
    if len(deletions) > _SHOWN:
        yield f"... and {len(deletions) - _SHOWN} more; --json has all"


def _why(deletion: Deletion, zone: tzinfo) -> str:
    if deletion.counts_ms is None or deletion.counts_by is None:
        return deletion.reason
    age = format_duration(max(0, deletion.at_ms - deletion.counts_ms))
    return f"{CLOCKS[deletion.counts_by]} is {moment_text(deletion.counts_ms, zone)}, {age} before"


def _ages(least_ms: int | None, most_ms: int | None) -> str | None:
    if least_ms is None or most_ms is None:
        return None
    least, most = (
        f"-{format_duration(-ms)}" if ms < 0 else format_duration(ms) for ms in (least_ms, most_ms)
    )
    return least if least == most else f"{least} to {most}"
