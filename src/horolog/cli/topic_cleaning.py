"""Progress of compaction, for `horolog topics describe`."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo

from horolog.client import Client, PartitionCleaning
from horolog.clock import format_duration
from horolog.results import Shown, Table
from horolog.times import format_time
from horolog.wire.questions import CLEANING, AskPartition


def cleaning_of(
    client: Client, topic: str, partitions: Sequence[int]
) -> dict[int, PartitionCleaning]:
    """Ask for the progress of compaction by partition; Apache Kafka gives none."""
    asks = {(topic, number): AskPartition(number) for number in partitions}
    answers = client.ask.many(CLEANING, asks)
    return {
        number: cleaning
        for (_, number), cleaning in answers.items()
        if cleaning is not None and cleaning.is_compacted
    }


def cleaning_lines(cleanings: Mapping[int, PartitionCleaning], zone: tzinfo) -> Iterator[Shown]:
    """Yield a table of compacted partitions, and why some are not cleaned."""
    if not cleanings:
        return
    yield ""
    yield "compaction:"
    yield Table.of(
        ("partition", "clean to", "dirty", "last run", "took", "records", "bytes"),
        [_row(number, cleaning, zone) for number, cleaning in cleanings.items()],
    )
    for number, cleaning in cleanings.items():
        if cleaning.uncleanable is not None:
            yield f"partition {number} is left out: {cleaning.uncleanable}"


def _row(number: int, state: PartitionCleaning, zone: tzinfo) -> tuple[object, ...]:
    total = state.clean_bytes + state.dirty_bytes
    dirty = f"{100 * state.dirty_bytes / total:.0f} %" if total else "0 %"
    run = state.last_run
    if run is None:
        return number, state.first_dirty, dirty, None, None, None, None
    took = "under way" if run.ended_ms is None else format_duration(run.ended_ms - run.started_ms)
    if run.ended_ms is not None and not run.is_whole:
        took = "stopped"
    return (
        *(number, state.first_dirty, dirty, format_time(run.started_ms, zone), took),
        f"{run.records_after} of {run.records_before}",
        f"{run.bytes_after} of {run.bytes_before}",
    )
