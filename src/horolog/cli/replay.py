"""`horolog replay`: partitions merged in time order and sent on at their recorded pace."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from horolog.cli.connecting import connect
from horolog.cli.options import ByClock, Json, pairs
from horolog.cli.replaying import (
    Pace,
    Replay,
    ReplayProgress,
    ReplaySource,
    ReplayTarget,
)
from horolog.cli.screen import say, saying_warnings, show_json
from horolog.cli.topic_facts import partition_numbers
from horolog.cli.working import working
from horolog.client import Client
from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.jobs.state import JobState
from horolog.record.compression import Codec
from horolog.record.timestamps import RecordClock, TimeRange
from horolog.sources.limits import Topics
from horolog.sources.location import Location
from horolog.sources.object_stores import PREFIXES, StoreOptions
from horolog.sources.options import ReadOptions
from horolog.sources.uris import absolute
from horolog.times import format_time, parse_duration, parse_time

app = typer.Typer(no_args_is_help=True)

_RANGE = "range"


@app.command(no_args_is_help=True)
def replay(
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="HOST:PORT|PATH",
            show_default=False,
            help="Read from this broker (horolog or Apache Kafka), or from these segment files.",
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target", metavar="HOST:PORT", show_default=False, help="Send to this broker."
        ),
    ],
    topics: Annotated[
        str | None,
        typer.Option(
            "--topics",
            metavar="NAME,NAME",
            show_default=False,
            help="The topics to replay; of files all, by default.",
        ),
    ] = None,
    to_topic: Annotated[
        str | None,
        typer.Option(
            "--to-topic",
            metavar="TOPIC",
            show_default=False,
            help="Send all to this topic; by default to topics of the same names.",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", show_default=False, help="Records at or after it."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", show_default=False, help="Records before it."),
    ] = None,
    speed: Annotated[
        str,
        typer.Option(
            "--speed", metavar="FACTOR|max", help="Times the recorded pace; max does not wait."
        ),
    ] = "1",
    max_gap: Annotated[
        str | None,
        typer.Option(
            "--max-gap",
            metavar="DURATION",
            show_default=False,
            help="Cut longer intervals without any record to this, as recorded: 1m.",
        ),
    ] = None,
    clock: ByClock = None,
    shift_times: Annotated[
        bool,
        typer.Option(
            "--shift-times",
            help="Give each record the time at which it is sent; by default it keeps its own.",
        ),
    ] = False,
    by_key: Annotated[
        bool,
        typer.Option(
            "--by-key",
            help="Partitions by the keys (murmur2), as for a target that has another number of "
            "them; by default each record keeps its partition.",
        ),
    ] = False,
    compression: Annotated[
        str, typer.Option("--compression", metavar="CODEC", help="none, gzip, snappy, lz4, zstd.")
    ] = "none",
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="DIR",
            show_default=False,
            help="Keep here how far the replay is; the same command goes on there.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Send nothing; say what would be sent.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            show_default=False,
            help="A client property of the source, as kafka.security.protocol=SSL; repeatable.",
        ),
    ] = None,
    target_settings: Annotated[
        list[str] | None,
        typer.Option(
            "--target-set",
            metavar="NAME=VALUE",
            show_default=False,
            help="A client property of the target; repeatable.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Send the records of several partitions on in time order, at their recorded pace.

    The partitions are merged by their records' times (--clock append: by when they were appended,
    which horolog keeps). The order within a partition stays: a late record follows the one before
    it at once. It ends where the logs ended at the start. Of transactions the committed records are
    sent; from files all but their markers.

    After Ctrl-C or a kill the same command with the same --state goes on, and doubles nothing as
    long as the target remembers the producer (a day; Apache Kafka counts it from the records'
    times). Otherwise the records of one request, at most 10 ms of the replay, may be there twice.

    horolog replay --source ./log --topics clicks --target 127.0.0.1:9092 --speed 60 --shift-times
    """
    now_ms = SystemClock().now_ms()
    from_ms, to_ms = (
        None if text is None else parse_time(text, now_ms=now_ms, rounds_up=True)
        for text in (from_, to)
    )
    which = clock or RecordClock.CREATE
    times = TimeRange.between(from_ms, to_ms, which)
    factor = _speed(speed)
    if compression.upper() not in Codec.__members__:
        raise Misconfigured(f"--compression {compression}: there is no such codec")
    at = Location.parse(source)
    to_at = Location.parse(target, "target")
    if to_at.bootstrap_servers is None:
        raise Misconfigured(f"--target {target} is no HOST:PORT of a broker")
    names = [name.strip() for name in (topics or "").split(",") if name.strip()]
    with ExitStack() as stack:
        kept = None
        if state is not None and not dry_run:
            arguments = {
                "source": at.normalised,
                "target": to_at.normalised,
                "topics": names,
                "to_topic": to_topic,
                "from": from_,
                "to": to,
                "clock": which.value,
                "by_key": by_key,
            }
            kept = stack.enter_context(JobState(state, "replay", arguments))
            times = _same_range(kept, times)
        stack.enter_context(saying_warnings())
        opened = stack.enter_context(ReplaySource(_read_options(at, names, settings), times))
        client = stack.enter_context(
            closing(connect(to_at.bootstrap_servers, None, _client_properties(target_settings)))
        )
        to_send = _target(client, opened, to_topic, by_key=by_key, codec=compression)
        if at.bootstrap_servers == to_at.bootstrap_servers and any(
            topic == sent_to for topic, sent_to in to_send.topics.items()
        ):
            raise Misconfigured("source and target are the same topic: give --to-topic")
        if dry_run:
            _show_dry(opened, to_send, as_json=as_json)
            return
        pace = Pace(SystemClock(), factor, None if max_gap is None else parse_duration(max_gap))
        bar = stack.enter_context(working("replay", "records"))
        total = sum(end - start for start, end in opened.spans().values())

        def on_sent(progress: ReplayProgress) -> None:
            bar(progress.records, total, _moment(progress))

        work = Replay(
            to_send,
            SystemClock(),
            time.sleep,
            pace,
            shifts_times=shift_times,
            state=kept,
            on_sent=on_sent,
        )
        started_s = time.monotonic()
        try:
            with _terminable():
                work.repeat(lambda places: opened.dues(places, work.progress.reached))
                work.run(opened.rest(work.progress))
        except KeyboardInterrupt:
            work.save()
            _show_stopped(work.progress, state)
            raise typer.Exit(130) from None
        work.save()
    _show(work, time.monotonic() - started_s, as_json=as_json)


def _read_options(at: Location, topics: list[str], settings: list[str] | None) -> ReadOptions:
    """Committed records alone, as the log has them."""
    subscription = Topics(tuple(topics)) if topics else None
    if at.bootstrap_servers is None:
        given = pairs(settings, "--set").items()
        store = StoreOptions.parse(
            {name.lower(): value for name, value in given if name.lower().startswith(PREFIXES)}
        )
        return ReadOptions(
            paths=(absolute(str(at.path)),),
            subscription=subscription,
            read_committed=True,
            fail_on_data_loss=False,
            fail_on_damage=True,
            loss_option=None,
            store=store,
        )
    if not topics:
        raise Misconfigured("give the topics of the broker: --topics A,B")
    config = connect(at.bootstrap_servers, None, _client_properties(settings)).config
    return ReadOptions.of_client(
        config,
        max_bytes=1 << 20,
        subscription=subscription,
        read_committed=True,
        fail_on_data_loss=False,
        fail_on_damage=True,
        loss_option=None,
    )


def _target(
    client: Client, source: ReplaySource, to_topic: str | None, *, by_key: bool, codec: str
) -> ReplayTarget:
    partitions = source.spans().keys()
    topics = {each.topic: to_topic or each.topic for each in partitions}
    counts = {name: len(partition_numbers(client, name, None)) for name in set(topics.values())}
    for each in partitions:
        count = counts[topics[each.topic]]
        if not by_key and each.partition >= count:
            raise Misconfigured(
                f"{each} has no place in {topics[each.topic]} of the target, which has {count} "
                "partitions: give --by-key, or add partitions"
            )
    return ReplayTarget(client, counts, topics, by_key, Codec[codec.upper()])


def _client_properties(settings: list[str] | None) -> list[str]:
    """`kafka.*`, as the jobs on Spark take them, as properties of the client."""
    return [
        f"{name.removeprefix('kafka.')}={value}" for name, value in pairs(settings, "--set").items()
    ]


def _same_range(kept: JobState, times: TimeRange) -> TimeRange:
    """The range of the first run: relative times count from then."""
    known = kept.read(_RANGE)
    if known is None:
        kept.write(_RANGE, known := {"from": times.from_ms, "to": times.to_ms})
    return TimeRange.between(known["from"], known["to"], times.clock)


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise Misconfigured(f"--speed {text}: write a factor above 0, as 2 or 0.5, or max")
    return factor


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end it as Ctrl-C does."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _moment(progress: ReplayProgress) -> str:
    return "" if progress.last_ms is None else format_time(progress.last_ms)


def _show_dry(source: ReplaySource, target: ReplayTarget, *, as_json: bool) -> None:
    spans = source.spans()
    if as_json:
        show_json(
            {
                "dry_run": True,
                "partitions": {
                    str(each): {"start": start, "end": end, "to": target.topics[each.topic]}
                    for each, (start, end) in sorted(spans.items())
                },
            }
        )
        return
    for each, (start, end) in sorted(spans.items()):
        typer.echo(f"{each}: offsets {start} to {end} would be sent to {target.topics[each.topic]}")


def _show_stopped(progress: ReplayProgress, state: Path | None) -> None:
    where = ", ".join(
        f"{each} at offset {offset}" for each, offset in sorted(progress.offsets.items())
    )
    say(
        f"stopped at {_moment(progress) or 'the beginning'} after {progress.records} records"
        + (f": {where}" if where else "")
        + ("" if state is None else f". The same command with --state {state} goes on there")
    )


def _show(work: Replay, seconds: float, *, as_json: bool) -> None:
    progress = work.progress
    if as_json:
        show_json(
            {
                "records": progress.records,
                "last_ms": progress.last_ms,
                "offsets": {str(each): offset for each, offset in progress.offsets.items()},
                "latest_ms": work.latest_ms,
                "seconds": round(seconds, 3),
            }
        )
        return
    until = f" up to {_moment(progress)}" if progress.last_ms is not None else ""
    late = f", at most {work.latest_ms} ms late" if work.latest_ms else ""
    typer.echo(f"{progress.records} records sent{until}{late}")
