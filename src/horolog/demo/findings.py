"""Findings of the demo, as tables for the page and lines for the terminal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table as Grid

from horolog.demo.producing import DemoEvent, SendCounts
from horolog.demo.questions import Digest
from horolog.demo.report import Report, ReportTable, instant


@dataclass(frozen=True)
class RangeRead:
    """One range of time of one topic, read three ways; times in milliseconds."""

    topic: str
    from_ms: int
    to_ms: int
    broker: Digest
    files: Digest
    by_offsets: Digest

    @property
    def agree(self) -> bool:
        """True if the broker and the files gave the same rows."""
        return self.broker == self.files

    @property
    def lost_by_offsets(self) -> int:
        """Records of the range outside the offsets found for its two ends."""
        return self.broker.rows - self.by_offsets.rows

    def lead(self) -> str:
        """Return the sentence that sums up the comparison."""
        same = "the same answer" if self.agree else "DIFFERENT answers"
        return (
            f"{self.broker.rows:,} records of {self.topic} from {instant(self.from_ms)} to "
            f"{instant(self.to_ms)} UTC, read from the broker and from the segment files: {same}. "
            f"A range of offsets, as Kafka's own lookup gives it, would have lost "
            f"{self.lost_by_offsets:,} of them that came late."
        )

    def table(self) -> ReportTable:
        """Return a table of the three readings."""
        rows = [
            (how, f"{digest.rows:,}", f"{digest.fingerprint % (1 << 64):016x}")
            for how, digest in (
                ("from the broker, by time", self.broker),
                ("from the files, by time", self.files),
                ("offsets at both ends (startingTimestamp, endingTimestamp)", self.by_offsets),
            )
        ]
        text = f"{self.topic}, {instant(self.from_ms)} to {instant(self.to_ms)} UTC."
        return ReportTable(
            "One range of time, read three ways", text, ["how", "rows", "hash"], rows
        )


def produced_table(outcome: SendCounts) -> ReportTable:
    """Return the accepted records, topic by topic."""
    rejected = Counter(event.topic for event in outcome.rejected)
    topics = sorted(outcome.accepted | rejected)
    rows = [
        (
            topic,
            f"{outcome.accepted[topic]:,}",
            f"{rejected[topic]:,}",
            f"{outcome.neighbours[topic]:,}",
        )
        for topic in topics
    ]
    text = (
        "Sent by librdkafka. One bad record has its whole batch refused (KIP-937), so the good "
        "others of its batch were sent again, each alone."
    )
    columns = ["topic", "accepted", "rejected", "accepted only when sent again"]
    return ReportTable("What was produced", text, columns, rows)


def rejected_table(rejected: Sequence[DemoEvent], reasons: Mapping[DemoEvent, str]) -> ReportTable:
    """Return the rejected records with reasons, one example for each kind of fault."""
    examples: dict[str, DemoEvent] = {}
    counts: Counter[str] = Counter()
    for event in rejected:
        kind = _kind(reasons[event])
        counts[kind] += 1
        examples.setdefault(kind, event)
    rows = [
        (kind, f"{counts[kind]:,}", f"{event.timestamp_ms:,}") for kind, event in examples.items()
    ]
    notes = [f"The broker said: {reasons[event]}" for event in examples.values()]
    columns = ["fault", "records", "an example's time (ms)"]
    text = "Error 32, INVALID_TIMESTAMP."
    return ReportTable("What was rejected, and why", text, columns, rows, notes)


def summarise(console: Console, report: Report, seconds: float) -> None:
    """Print the tables of a report."""
    console.print(f"\n[bold]{report.lead}[/bold]", highlight=False)
    for table in report.tables:
        grid = Grid(title=table.title, title_justify="left", title_style="bold")
        for number, name in enumerate(table.columns):
            numeric = all(str(row[number]).replace(",", "").isdigit() for row in table.rows)
            grid.add_column(name, justify="right" if numeric else "left", overflow="fold")
        for row in table.rows:
            grid.add_row(*map(str, row))
        console.print()
        console.print(grid)
        for note in table.notes:
            console.print(note, highlight=False, soft_wrap=True)
    console.print(f"\nDone in {seconds:.0f} seconds.")


def _kind(reason: str) -> str:
    for unit in ("nanoseconds", "microseconds", "seconds"):
        if unit in reason:
            return f"{unit} sent as milliseconds"
    return "too far in the future or the past"
