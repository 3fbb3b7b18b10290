"""Take the pictures of the pages: `horolog lag --watch`, and the page of `horolog report`.

    python -m tools.site.pictures

Runs a broker with a clock of its own, and the commands against it. Debian's Chromium takes the
picture of the page. Writes into `docs/pictures`.
"""

import shutil
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from PIL import Image
from rich.console import Console
from rich.text import Text
from tools.site.diagrams import PICTURES

from horolog.client import Client, CommittedOffset
from horolog.clock import HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock, SystemClock
from horolog.record import LogRecord, build_batch
from horolog.testing import Broker

HOROLOG: Final = (sys.executable, "-m", "horolog")
CHROMIUM: Final = shutil.which("chromium")
_QUIET: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_WIDTH, _HEIGHT = 900, 940
_COLORS: Final = 160
_SAMPLES_S: Final = 34  # a broker samples the offsets of groups every 30 seconds
_ROWS: Final = 4  # of one measurement: a title, a rule, and two partitions

# As rich's own, but for its fonts, which it loads from another host.
_SCREEN: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>horolog lag --watch</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
<rect width="{width}" height="{height}" rx="8" fill="#292929" />
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def lag_screen() -> str:
    """Return what `horolog lag --watch` prints of a group that catches up in one partition."""
    clock = ManualClock("2026-11-20T08:00Z")
    with Broker(clock=clock) as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("clicks", partitions=2)

        def step(number: int) -> None:
            now_ms = clock.advance("10s")
            records = [LogRecord(now_ms - SECOND_MS * each, None, b"v") for each in range(10)]
            for partition in (0, 1):
                client.produce("clicks", partition, build_batch(records))
            reads = (("clicks", 0), max(0, number * 12 - 150)), (("clicks", 1), number * 7)
            client.offset_commit("billing", {at: CommittedOffset(offset) for at, offset in reads})

        print(f"lag: {_SAMPLES_S} s until the broker knows the pace of a group", file=sys.stderr)
        for number in range(1, _SAMPLES_S + 1):
            step(number)
            time.sleep(1)
        command = [*HOROLOG, "lag", "billing", "--watch", "-b", broker.bootstrap_servers]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            rows = [watching.stdout.readline() for _ in range(_ROWS)]
            for number in range(_SAMPLES_S + 1, _SAMPLES_S + 7):
                step(number)
            rows += [watching.stdout.readline() for _ in range(1 + _ROWS)]
            watching.send_signal(signal.SIGINT)
    return "$ horolog lag billing --watch\n" + "".join(rows)


def as_svg(screen: str) -> str:
    """Return a screen as a picture."""
    text = Text(screen.rstrip("\n"))
    width = max(len(line) for line in screen.splitlines())
    console = Console(record=True, width=width, file=StringIO())
    console.print(text)
    return console.export_svg(code_format=_SCREEN, unique_id="screen")


def report_page(folder: Path) -> Path:
    """Return the page of `horolog report` on a topic with late records and a clock ahead."""
    clock = ManualClock(SystemClock().now_ms() - 8 * HOUR_MS)
    settings = {"segment.bytes": 40_000, "retention.ms": 12 * HOUR_MS}
    with Broker(clock=clock) as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("clicks", partitions=1, settings=settings)
        for number in range(240):
            now_ms = clock.advance("2m")
            times = [now_ms - SECOND_MS * each for each in range(20, 0, -1)]
            if 90 <= number < 130:  # a phone that was without a network
                times[:6] = [ms - (number - 80) * 2 * MINUTE_MS for ms in times[:6]]
            if number % 5 == 0:
                times[0] -= number * number % 97 * MINUTE_MS
            if 150 <= number < 160:  # a clock ahead
                times[-1] = now_ms + 50 * MINUTE_MS
            client.produce("clicks", 0, build_batch([LogRecord(t, None, b"v" * 9) for t in times]))
        client.offset_commit("billing", {("clicks", 0): CommittedOffset(3_900)})
        page = folder / "report.html"
        command = [*HOROLOG, "report", "clicks", "-o", str(page), "-b", broker.bootstrap_servers]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return page


def photograph(page: Path, picture: Path) -> None:
    """Write a picture of a page, with few colours, because it is kept in the repository."""
    assert CHROMIUM is not None
    whole = page.with_suffix(".png")
    places = (f"--user-data-dir={page.parent / 'profile'}", f"--screenshot={whole}")
    size = f"--window-size={_WIDTH},{_HEIGHT}"
    options = (*_QUIET, "--hide-scrollbars", "--virtual-time-budget=5000", size, *places)
    subprocess.run([CHROMIUM, *options, page.as_uri()], check=True, capture_output=True)
    with Image.open(whole) as image:
        image.convert("RGB").quantize(_COLORS).save(picture, optimize=True)


def main() -> int:
    """Write both pictures; return an exit code."""
    if CHROMIUM is None:
        print("no picture: it needs Chromium. Debian: apt-get install chromium", file=sys.stderr)
        return 1
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        photograph(report_page(Path(folder)), PICTURES / "report.png")
    (PICTURES / "lag.svg").write_text(as_svg(lag_screen()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
