"""`horolog replay`: partitions merged in time order and sent on at their recorded pace."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.cli.screen import saying_warnings
from horolog.cli.working import working
from horolog.jobs import replaying
from horolog.jobs.parameters.replay import Replay
from horolog.jobs.replaying import Replayed
from horolog.jobs.replaying.sending import ReplayProgress
from horolog.results import Answer
from horolog.times import format_time

app = typer.Typer()


@job_command(app, Replay, on_spark=False)
def replay(job: Replay, call: Call) -> None:
    """Replay the records until the end or an interruption, and show how many were sent."""
    reached = ReplayProgress()
    resumable = None if job.state is None or job.dry_run else f"--state {job.state}"
    started_s = time.monotonic()
    with (
        saying_warnings(),
        working(
            "replay", "records", resumable=resumable, where=lambda: _stopped_at(reached)
        ) as work,
    ):

        def follow(progress: ReplayProgress, total: int) -> None:
            nonlocal reached
            reached = progress
            work(progress.records, total, _moment(progress))

        done = replaying.replay.run(replace(job, on_progress=follow))
    seconds = round(time.monotonic() - started_s, 3)
    call.show(Answer(_plain(done, seconds), _lines(done)))


def _moment(progress: ReplayProgress) -> str:
    return "" if progress.last_ms is None else format_time(progress.last_ms)


def _stopped_at(progress: ReplayProgress) -> str:
    where = ", ".join(
        f"{partition} at offset {offset}" for partition, offset in sorted(progress.offsets.items())
    )
    moment = f"{_moment(progress) or 'the beginning'} after {progress.records} records"
    return f"{moment}: {where}" if where else moment


def _plain(done: Replayed, seconds: float) -> dict[str, Any]:
    if done.is_dry_run:
        return {
            "dry_run": True,
            "partitions": {
                str(partition): {"start": start, "end": end, "to": done.topics[partition.topic]}
                for partition, (start, end) in sorted(done.spans.items())
            },
        }
    progress = done.progress
    return {
        "records": progress.records,
        "last_ms": progress.last_ms,
        "offsets": {str(partition): offset for partition, offset in progress.offsets.items()},
        "latest_ms": done.latest_ms,
        "seconds": seconds,
    }


def _lines(done: Replayed) -> Iterator[str]:
    if done.is_dry_run:
        for partition, (start, end) in sorted(done.spans.items()):
            to = done.topics[partition.topic]
            yield f"{partition}: offsets {start} to {end} would be sent to {to}"
        return
    progress = done.progress
    until = f" up to {_moment(progress)}" if progress.last_ms is not None else ""
    late = f", at most {done.latest_ms} ms late" if done.latest_ms else ""
    yield f"{progress.records} records sent{until}{late}"
