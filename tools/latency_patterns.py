"""Write docs/latency-patterns.md: KIP-32's comparison of create time and append time, measured.

python -m tools.latency_patterns > docs/latency-patterns.md
"""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from horolog.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from horolog.config import Settings
from horolog.storage.offline.simulation import Arrival, Simulation, SimulationOutcome

SEED: Final = 32
START_MS: Final = 1_700_000_000_000
DAYS: Final = 28
EVERY_MS: Final = 6 * HOUR_MS
LATE_MS: Final = 2 * DAY_MS
AHEAD_MS: Final = 3650 * DAY_MS
RETENTION_MS: Final = 3 * DAY_MS
CHECK_MS: Final = 3 * HOUR_MS
REST_MS: Final = 10 * DAY_MS
VALUE_BYTES: Final = 100
BATCH_BYTES: Final = 176

Coming = Iterator[tuple[int, list[int], int]]
"""Append time, create times of a batch of one record, and the bytes of its value."""


def _records(latency_ms: Callable[[random.Random, int], int], shift_ms: int = 0) -> Coming:
    rng = random.Random(SEED)
    for number in range(DAYS * DAY_MS // EVERY_MS):
        created_ms = START_MS + number * EVERY_MS
        latency = latency_ms(rng, number)
        yield created_ms + shift_ms + max(0, latency), [created_ms - min(0, latency)], VALUE_BYTES


def small_latency() -> Coming:
    """Pattern 1: each record arrives within half a second."""
    return _records(lambda rng, _: rng.randrange(10, 500))


def large_latency() -> Coming:
    """Pattern 2: each record arrives two days late, give or take a minute."""
    return _records(lambda rng, _: LATE_MS + rng.randrange(MINUTE_MS))


def different_latencies() -> Coming:
    """Pattern 3: each record has a latency of its own, between a second and five days."""
    rng = random.Random(SEED)
    for number in range(DAYS * DAY_MS // EVERY_MS):
        now_ms = START_MS + number * EVERY_MS
        latency_ms = rng.choice((SECOND_MS, HOUR_MS, DAY_MS)) * rng.randrange(1, 6)
        yield now_ms, [now_ms - latency_ms], VALUE_BYTES


def lying_clock() -> Coming:
    """Robustness: as pattern 1, and one record a week is stamped ten years ahead."""
    week = 7 * DAY_MS // EVERY_MS
    for number, (append_ms, (created_ms,), size) in enumerate(small_latency()):
        yield append_ms, [created_ms + (AHEAD_MS if number % week == week // 2 else 0)], size


PATTERNS: Final[Mapping[str, Callable[[], Coming]]] = {
    "pattern 1": small_latency,
    "pattern 2": large_latency,
    "pattern 3": different_latencies,
    "robustness": lying_clock,
}
CLOCKS: Final = {
    "create time": {"horolog.retention.by": "create-time", "horolog.roll.by": "first-time"},
    "append time": {"horolog.retention.by": "append-time", "horolog.roll.by": "append-time"},
}


def settings(clock: str) -> dict[str, str]:
    """Of a topic that rolls and retains by a clock."""
    return {"retention.ms": str(RETENTION_MS), "segment.ms": str(DAY_MS), **CLOCKS[clock]}


class Measured(NamedTuple):
    """What a pattern does to a log that goes by one clock."""

    outcome: SimulationOutcome
    single: int
    """Segments of one record."""

    @property
    def create_age_days(self) -> tuple[float, float] | None:
        """Of the youngest and the oldest record when it was deleted."""
        found = self.outcome.deletions
        ages = [(each.create_age_min_ms or 0, each.create_age_max_ms or 0) for each in found]
        return _days(min(one for one, _ in ages), max(two for _, two in ages)) if ages else None

    @property
    def append_age_days(self) -> tuple[float, float] | None:
        """The same by arrival."""
        found = self.outcome.deletions
        if not found:
            return None
        least = min(each.append_age_min_ms for each in found)
        return _days(least, max(each.append_age_max_ms for each in found))


def _days(least_ms: int, most_ms: int) -> tuple[float, float]:
    return least_ms / DAY_MS, most_ms / DAY_MS


def measure(pattern: str, clock: str) -> Measured:
    """What the rules of the broker do with a pattern, ten days after its last record."""
    simulation = Simulation(Settings({}).topic_config(settings(clock)), CHECK_MS)
    append_ms = START_MS
    for offset, (append_ms, (created_ms,), _) in enumerate(PATTERNS[pattern]()):
        simulation.arrive(
            Arrival(offset, offset, BATCH_BYTES, 1, created_ms, created_ms, append_ms)
        )
    simulation.run_until(append_ms + REST_MS)
    outcome = simulation.outcome()
    return Measured(outcome, sum(each.records == 1 for each in outcome.deletions))


def preferences(found: Mapping[tuple[str, str], Measured]) -> dict[str, dict[str, str]]:
    """By which clock each pattern is served better, by the document's own criteria."""
    by_create = {name: found[name, "create time"] for name in PATTERNS}
    by_append = {name: found[name, "append time"] for name in PATTERNS}

    def retention(name: str) -> str:
        one, two = by_create[name], by_append[name]
        if one.outcome.held_segments != two.outcome.held_segments:
            return "CT" if one.outcome.held_segments < two.outcome.held_segments else "LAT"
        spreads = [_spread(each.append_age_days) for each in (one, two)]
        if abs(spreads[0] - spreads[1]) > 0.5:  # records are not kept alike
            return "CT" if spreads[0] < spreads[1] else "LAT"
        ends = [(each.create_age_days or (0.0, 0.0))[1] for each in (one, two)]
        if abs(ends[0] - ends[1]) > 0.5:  # in this cluster they go later than where they came from
            return "CT" if ends[0] < ends[1] else "LAT"
        return "CT or LAT"

    def rolling(name: str) -> str:
        one, two = (each[name].outcome.segments for each in (by_create, by_append))
        longest = [_longest(each[name].outcome) for each in (by_create, by_append)]
        if abs(one - two) > 2 or abs(longest[0] - longest[1]) > 0.5:
            worse = abs(one - DAYS), abs(two - DAYS)
            return "LAT" if worse[1] < worse[0] or longest[1] < longest[0] else "CT"
        return "CT or LAT"

    return {
        "retention": {name: retention(name) for name in PATTERNS},
        "rolling": {name: rolling(name) for name in PATTERNS},
    }


def _spread(days: tuple[float, float] | None) -> float:
    return 0.0 if days is None else days[1] - days[0]


def _longest(outcome: SimulationOutcome) -> float:
    """How many days the longest segment took records."""
    spans = [each.append_age_max_ms - each.append_age_min_ms for each in outcome.deletions]
    return max(spans, default=0) / DAY_MS


def page() -> str:
    """The text of the page."""
    found = {(name, clock): measure(name, clock) for name in PATTERNS for clock in CLOCKS}
    chosen = preferences(found)
    lines = [OPENING]
    for name, make in PATTERNS.items():
        lines.append(
            f"- **{name[0].upper()}{name[1:]}**: {(make.__doc__ or '').partition(': ')[2]}"
        )
    lines += ["", "## What happens", "", "| | clock | " + " | ".join(_COLUMNS) + " |"]
    lines.append("|---" * (2 + len(_COLUMNS)) + "|")
    for (name, clock), each in found.items():
        lines.append("| " + " | ".join((name, clock, *_row(each))) + " |")
    lines += ["", MIDDLE, "", "| | " + " | ".join(PATTERNS) + " |", "|---" * 5 + "|"]
    for what, by in chosen.items():
        lines.append(f"| {what} | " + " | ".join(by.values()) + " |")
    return "\n".join([*lines, "", CLOSING])


_COLUMNS: Final = (
    "segments",
    "of one record",
    "longest, days",
    "age when deleted, days since creation",
    "since arrival",
    "left ten days after the end",
)


def _row(measured: Measured) -> tuple[str, ...]:
    outcome = measured.outcome
    return (
        str(outcome.segments),
        str(measured.single),
        f"{_longest(outcome):.1f}",
        _range(measured.create_age_days),
        _range(measured.append_age_days),
        f"{outcome.held_segments} segments" if outcome.held_segments else "nothing",
    )


def _range(days: tuple[float, float] | None) -> str:
    return "-" if days is None else f"{days[0]:.1f} to {days[1]:.1f}"


OPENING: Final = f"""\
<!-- Made by `python -m tools.latency_patterns`; do not edit. -->
# Create time or append time, measured

KIP-32 compares the two clocks for retention and rolling by three patterns of latency and one
producer with a wrong clock. `horolog retention simulate` measures them here: {DAYS} days of a
record every {EVERY_MS // HOUR_MS} hours, as on low-volume topics. `retention.ms` is
{RETENTION_MS // DAY_MS} days, `segment.ms` a day. A broker with a turned clock deletes the same.
"Create time" is Kafka's rule and the default (`horolog.retention.by=create-time`,
`horolog.roll.by=first-time`), "append time" is `append-time` for both.
"""
MIDDLE: Final = """\
## Which clock is preferable

KIP-32's criteria, create time (CT) or append time (LAT). Retention: nothing is left that should be
gone; then records are kept alike, whenever they come; then they go when they do where they came
from. Rolling: about a segment a day, and none much longer."""
CLOSING: Final = """\
KIP-32 says: retention CT or LAT, CT, LAT, LAT; rolling CT or LAT, LAT, LAT, LAT. Rolling of
pattern 2 differs because of KIP-33: it compares a record's create time with that of the segment's
first one, so a latency that is the same for all does no harm. A topic of many records a day has no
differences in pattern 3: some record is always recent."""

if __name__ == "__main__":
    print(page())
