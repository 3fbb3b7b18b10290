"""Windows of `horolog spark audit --follow`, printed as they end."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from horolog.cli.screen import say, show
from horolog.errors import printable
from horolog.times import format_time

if TYPE_CHECKING:
    from horolog.jobs.questions.following import AuditWindow

WRONG: Final = ("future", "past", "in_seconds", "in_microseconds", "in_nanoseconds")
"""Counts of an audit that decide its exit code."""
_SAID: Final = {
    "future": "in the future",
    "past": "in the past",
    "in_seconds": "in seconds",
    "in_microseconds": "in microseconds",
    "in_nanoseconds": "in nanoseconds",
    "untimed": "without a time",
    "before_1970": "before 1970",
    "out_of_order": "out of order",
}


def wrong_in(rows: Iterable[Mapping[str, Any]]) -> int:
    """Return how many times in these rows are future, past, or in another unit."""
    return sum(int(row[name]) for row in rows for name in WRONG)


def show_windows(windows: "Iterable[AuditWindow]", *, as_json: bool) -> int:
    """Print each window, then the sums of all; return how many times are wrong."""
    from horolog.jobs.questions.audit import totals

    sums: dict[tuple[str, str], dict[str, Any]] = {}
    count = 0
    for window in windows:
        count += 1
        by_topic = totals(window.rows, "topic", "compared_with").orderBy("topic", "compared_with")
        rows = [_counts(row.asDict()) for row in by_topic.collect()]
        for row in rows:
            _add(sums, row)
        result = {
            "from_ms": window.from_ms,
            "to_ms": window.to_ms,
            "topics": rows,
            "deleted": {str(partition): offsets for partition, offsets in window.deleted.items()},
        }
        sentences = [*map(_sentence, rows)] or ["no records"]
        at = format_time(window.to_ms)
        show(result, [f"{at}  {sentence}" for sentence in sentences], as_json=as_json)
        for partition, offsets in window.deleted.items():
            say(f"{partition}: {offsets:,} offsets were deleted before they could be read")
    all_ = [sums[key] for key in sorted(sums)]
    counted = f"{count:,} window{'' if count == 1 else 's'}"
    lines = [f"{counted}, in all" if all_ else f"{counted}, no records", *map(_sentence, all_)]
    show({"windows": count, "topics": all_}, lines, as_json=as_json)
    return wrong_in(all_)


def _counts(row: dict[str, Any]) -> dict[str, Any]:
    names = ("topic", "compared_with", "records", *_SAID)
    return {**{name: row[name] for name in names}, "late_max_ms": row["late_max_ms"] or 0}


def _add(sums: dict[tuple[str, str], dict[str, Any]], row: dict[str, Any]) -> None:
    key = row["topic"], row["compared_with"]
    total = sums.get(key)
    if total is None:
        sums[key] = dict(row)
        return
    for name in ("records", *_SAID):
        total[name] += row[name]
    total["late_max_ms"] = max(total["late_max_ms"], row["late_max_ms"])


def _sentence(row: Mapping[str, Any]) -> str:
    counts = [f"{row[name]:,} {said}" for name, said in _SAID.items() if row[name]]
    if row["out_of_order"]:
        counts[-1] += f" (by up to {row['late_max_ms']:,} ms)"
    clock = "" if row["compared_with"] == "append time" else ", compared with now"
    return f"{printable(row['topic'])}: {row['records']:,} records{clock}: " + (
        ", ".join(counts) or "no wrong time"
    )
