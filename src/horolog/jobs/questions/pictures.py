"""Pictures of latencies; need matplotlib."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from horolog.errors import Misconfigured

_LINES = {"p50_ms": "#0b7285", "p90_ms": "#e8590c", "p99_ms": "#5f3dc4", "max_ms": "#adb5bd"}


def require_matplotlib() -> None:
    """Refuse to draw without matplotlib, before anything is read.

    Raises:
        Misconfigured: it is not installed.
    """
    try:
        import matplotlib  # noqa: F401, PLC0415 - only pictures need it
    except ImportError:
        raise Misconfigured(
            "--pictures needs matplotlib: pip install 'horolog[demo]', or leave it out"
        ) from None


def draw(rows: Sequence[Mapping[str, Any]], directory: Path) -> list[Path]:
    """Draw the percentiles of each topic's hours: `latency-TOPIC.png`.

    Args:
        rows: of `latency`; totals and hours without measurements are left out.
        directory: made if there is none.

    Returns:
        The files.

    Raises:
        OSError: one cannot be written.
    """
    by_topic: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if not row["is_total"] and row["measured"] and row["hour"] is not None:
            by_topic.setdefault(row["topic"], []).append(row)
    directory.mkdir(parents=True, exist_ok=True)
    return [_draw(topic, its, directory) for topic, its in sorted(by_topic.items())]


def _draw(topic: str, rows: list[Mapping[str, Any]], directory: Path) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    rows = sorted(rows, key=lambda row: _moment(row["hour"]))
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    hours = [date2num(_moment(row["hour"])) for row in rows]
    for name, color in _LINES.items():
        spans = [row[name] for row in rows]
        axes.plot(hours, spans, color=color, marker=".", label=name.removesuffix("_ms"))
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylabel("milliseconds")
    axes.set_title(f"{topic}: {rows[0]['measure']}", parse_math=False)
    axes.legend(loc="upper right")
    axes.grid(visible=True, alpha=0.3)
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    path = directory / f"latency-{quote(topic, safe='')}.png"
    figure.savefig(path, dpi=110)
    return path


def _moment(hour: str) -> datetime:
    return datetime.fromisoformat(hour)
