"""Page with the findings: one HTML file, pictures included."""

import base64
import html
import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from typing import Any, TypeVar

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from horolog.clock import DAY_MS, HOUR_MS
from horolog.demo.questions import Disorder, Dot, Hour

Row = TypeVar("Row", Hour, Dot)

FEW_DOTS = 500
INK, ACCENTS = "#22313f", ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e")
DRAWABLE_MS = range(7_258_118_400_000)  # 1970 to 2200; wilder times are counted, not drawn

STYLE = """
body{font:16px/1.55 system-ui,sans-serif;color:#22313f;max-width:64rem;margin:2rem auto;
padding:0 1rem} h1{font-size:1.8rem;margin-bottom:.2rem} h2{margin-top:2.4rem;font-size:1.2rem}
.lead{color:#5c6b7a} table{border-collapse:collapse;width:100%}
th,td{padding:.35rem .6rem;border-bottom:1px solid #dde3e8;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums} img{width:100%;height:auto}
"""


@dataclass(frozen=True)
class ReportTable:
    """Table of the page with title, text and notes; numbers are right-aligned."""

    title: str
    text: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()


@dataclass
class Report:
    """Content of the page."""

    lead: str
    tables: list[ReportTable] = field(default_factory=list)
    hours: list[Hour] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)

    def page(self) -> str:
        """Return the HTML text of the page."""
        hours = "Counted by the time that the records carry, not by when they came."
        dots = (
            "One dot a record: its offset in its log, and its timestamp. "
            "A log in order is a rising line; every dot below the line came late."
        )
        body = "".join(_table(table) for table in self.tables[:1])
        body += _picture("Events over time", hours, _drawn(self.hours, _draw_hours))
        body += _picture("Time against offset", dots, _drawn(self.dots, _draw_dots))
        body += "".join(_table(table) for table in self.tables[1:])
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>horolog demo</title><style>{STYLE}</style></head><body>"
            f'<h1>The log that tells time</h1><p class="lead">{html.escape(self.lead)}</p>'
            f"{body}</body></html>\n"
        )


def _drawn(rows: Sequence[Row], draw: Callable[[Axes, list[Row], str], None]) -> bytes:
    """Return a PNG with a panel for each topic."""
    topics = sorted({row.topic for row in rows})
    figure = Figure(figsize=(10, 2.9 * max(1, len(topics))), layout="constrained")
    FigureCanvasAgg(figure)
    for number, (topic, color) in enumerate(zip(topics, cycle(ACCENTS), strict=False), 1):
        axes = figure.add_subplot(len(topics), 1, number)
        axes.set_title(topic, loc="left", color=INK, fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes, [row for row in rows if row.topic == topic], color)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _draw_hours(axes: Axes, hours: Sequence[Hour], color: str) -> None:
    shown = [hour for hour in hours if _drawable(hour.start_ms)]
    name, width_ms = _bar_width(shown)
    bars: Counter[int] = Counter()
    for hour in shown:
        bars[hour.start_ms // width_ms] += hour.events
    starts = [bar * width_ms / DAY_MS for bar in bars]
    axes.bar(starts, list(bars.values()), width_ms / DAY_MS, align="edge", color=color)
    axes.set_ylabel(f"events per {name}")
    _dates(axes.xaxis)


def _draw_dots(axes: Axes, dots: Sequence[Dot], color: str) -> None:
    shown = [dot for dot in dots if _drawable(dot.timestamp_ms)]
    axes.scatter(
        [dot.offset for dot in shown],
        [dot.timestamp_ms / DAY_MS for dot in shown],
        s=3 if len(shown) > FEW_DOTS else 16,
        color=color,
        alpha=0.5,
        linewidths=0,
    )
    axes.set_xlabel("offset")
    axes.set_ylabel("record time (UTC)")
    _dates(axes.yaxis)


def late_table(disorders: Iterable[Disorder]) -> ReportTable:
    """Return a table of how late and out of order the records of each topic came."""
    rows = [
        (
            disorder.topic,
            f"{disorder.records:,}",
            f"{disorder.out_of_order:,}",
            f"{disorder.over_an_hour:,}",
            span(disorder.median_late_ms),
            span(disorder.most_late_ms),
        )
        for disorder in disorders
    ]
    columns = ["topic", "records", "out of order", "over an hour late", "median", "most"]
    text = "A record is late by how far it is behind the latest time before it in its log."
    return ReportTable("How late records came", text, columns, rows)


def span(length_ms: int) -> str:
    """Format a length of time for people."""
    for unit, name in ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if length_ms >= unit:
            return f"{length_ms / unit:.1f} {name}"
    return f"{length_ms} ms"


def instant(at_ms: int) -> str:
    """Format a moment for people; a moment outside the drawable years is a number."""
    moment = datetime.fromtimestamp(at_ms / 1_000, UTC) if _drawable(at_ms) else None
    return f"{at_ms:,} ms" if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def _table(table: ReportTable) -> str:
    def cells(tag: str, values: Iterable[Any]) -> str:
        return "".join(f"<{tag}{_align(v)}>{html.escape(str(v))}</{tag}>" for v in values)

    first = table.rows[0] if table.rows else table.columns
    head = "".join(
        f"<th{_align(value)}>{html.escape(name)}</th>"
        for name, value in zip(table.columns, first, strict=True)
    )
    rows = "".join(f"<tr>{cells('td', row)}</tr>" for row in table.rows)
    heading = f"<h2>{html.escape(table.title)}</h2><p>{html.escape(table.text)}</p>"
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in table.notes)
    return f"{heading}<table><tr>{head}</tr>{rows}</table>{notes}"


def _align(value: Any) -> str:
    number = str(value).replace(",", "").isdigit()
    return ' class="n"' if number else ""


def _picture(title: str, text: str, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    image = f'<img alt="{html.escape(title)}" src="data:image/png;base64,{data}">'
    return f"<h2>{html.escape(title)}</h2><p>{html.escape(text)}</p>{image}"


def _bar_width(hours: Sequence[Hour]) -> tuple[str, int]:
    """Choose the name and the width in milliseconds of bars that are wide enough to see."""
    starts = [hour.start_ms for hour in hours]
    span_ms = max(starts, default=0) - min(starts, default=0)
    widths = (("hour", HOUR_MS), ("day", DAY_MS), ("week", 7 * DAY_MS), ("month", 30 * DAY_MS))
    return next((width for width in widths if span_ms <= 400 * width[1]), widths[-1])


def _dates(axis: Any) -> None:
    """Show the axis, in days since the epoch, as dates."""
    locator = AutoDateLocator()
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator))


def _drawable(at_ms: int) -> bool:
    return at_ms in DRAWABLE_MS
