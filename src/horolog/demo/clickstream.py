"""Generated clickstream with typical faults: late times, future times, times in wrong units.

Every draw comes from a fixed seed, so that two runs at the same moment produce the same records.
"""

import json
import random
from collections.abc import Iterator

from horolog.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from horolog.demo.producing import DemoEvent

TOPIC = "clicks"
PAGES = ("/", "/search", "/product", "/cart", "/checkout", "/help", "/account")
SPAN_MS = 3 * DAY_MS
LATE_SHARE = 0.03  # phones that were offline: minutes to two days late
CROWD = (0.2, 0.15, 0.1, 0.1, 0.1, 0.15, 0.3, 0.5, 0.8, 1.0, 1.1, 1.2)
HOURLY = CROWD + CROWD[::-1]  # how busy each hour of a day is, UTC


def healthy(count: int, now_ms: int) -> Iterator[DemoEvent]:
    """Yield `count` events of the last three days in the order of their arrival.

    Most arrive within seconds, a few per cent up to two days late: those are the
    records that a range of offsets would lose.
    """
    draw = random.Random(937)  # noqa: S311 - a demonstration, no secret
    start_ms = now_ms - SPAN_MS
    arrivals = sorted(_arrival(draw, start_ms) for _ in range(count))
    for arrival_ms in arrivals:
        late = draw.random() < LATE_SHARE
        delay_ms = _long_delay(draw) if late else int(draw.expovariate(1 / (2 * SECOND_MS)))
        yield _click(draw, max(start_ms, arrival_ms - delay_ms), offline=late)


def from_the_future(count: int, now_ms: int) -> Iterator[DemoEvent]:
    """Yield events of a device whose clock is two hours to ten years ahead."""
    draw = random.Random(938)  # noqa: S311 - no secret
    for _ in range(count):
        yield _click(draw, now_ms + draw.choice((2 * HOUR_MS, 30 * DAY_MS, 3650 * DAY_MS)))


def in_nanoseconds(count: int, now_ms: int) -> Iterator[DemoEvent]:
    """Yield events of a program that sends nanoseconds where Kafka expects milliseconds."""
    draw = random.Random(939)  # noqa: S311 - no secret
    for _ in range(count):
        yield _click(draw, (now_ms - draw.randrange(HOUR_MS)) * 1_000_000)


def _arrival(draw: random.Random, start_ms: int) -> int:
    day = draw.randrange(SPAN_MS // DAY_MS)
    hour = draw.choices(range(24), HOURLY)[0]
    return start_ms + day * DAY_MS + hour * HOUR_MS + draw.randrange(HOUR_MS)


def _long_delay(draw: random.Random) -> int:
    return int(min(2 * DAY_MS, 5 * MINUTE_MS * draw.paretovariate(0.6)))


def _click(draw: random.Random, timestamp_ms: int, *, offline: bool = False) -> DemoEvent:
    body = {
        "page": draw.choice(PAGES),
        "ms_on_page": draw.randrange(60_000),
        "offline": offline,
    }
    user = b"user-%05d" % draw.randrange(20_000)
    return DemoEvent(TOPIC, user, json.dumps(body).encode(), timestamp_ms)
