"""The page of `horolog report` in a real browser: Chromium, driven by its own driver."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_runner import run_command
from patience import PATIENCE_S
from running_broker import ANY_TIME, RunningBroker, a_broker

from horolog.client import CommittedOffset
from horolog.clock import DAY_MS, ManualClock
from horolog.record import LogRecord, build_batch

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs Debian's chromium and chromium-driver"
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # how WebDriver names one
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
NAME = "</script><b>group</b>"
broker = a_broker("t", partitions=2, of_topics={**ANY_TIME, "segment_bytes": "200000"})


class Browser:
    """A session of WebDriver."""

    def __init__(self, url: str, profile: Path) -> None:
        self._url = url
        options = {"binary": CHROMIUM, "args": [*QUIET, f"--user-data-dir={profile}"]}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options}
        capabilities["goog:loggingPrefs"] = {"browser": "ALL"}
        found = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._url += f"/session/{found['sessionId']}"

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)["value"]

    def open(self, page: Path, width: int, height: int) -> None:
        self._ask("POST", "/window/rect", {"width": width, "height": height})
        self._ask("POST", "/url", {"url": page.as_uri()})

    def run(self, script: str, *args: Any) -> Any:
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(args)})

    def click(self, selector: str, dx: int = 0, dy: int = 0) -> None:
        """Click a place of an element, counted from its middle."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        moves = [
            {"type": "pointerMove", "origin": {ELEMENT: found[ELEMENT]}, "x": dx, "y": dy},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self._ask(
            "POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": moves}]}
        )

    def complaints(self) -> list[Any]:
        return list(self._ask("POST", "/se/log", {"type": "browser"}))

    def dark(self) -> None:
        media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        command = {"cmd": "Emulation.setEmulatedMedia", "params": media}
        self._ask("POST", "/goog/cdp/execute", command)

    def close(self) -> None:
        self._ask("DELETE", "")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    assert DRIVER is not None
    with subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True) as driver:
        try:
            assert driver.stdout is not None
            for line in driver.stdout:
                if found := re.search(r"started successfully on port (\d+)", line):
                    break
            else:
                pytest.fail("chromedriver did not start")
            session = Browser(f"http://127.0.0.1:{found[1]}", tmp_path / "profile")
            yield session
            session.close()
        finally:
            driver.terminate()


def filled(broker: RunningBroker, clock: ManualClock) -> None:
    for number in range(200):
        now_ms = clock.now_ms()
        times = [now_ms - 1000 * (each % 7) for each in range(50)]
        if number == 150:
            times[7] = now_ms + 3650 * DAY_MS
        broker.append("t", build_batch([LogRecord(each, None, b"v") for each in times]))
        clock.advance("1m")
    broker.client.offset_commit(NAME, {("t", 0): CommittedOffset(9)})


@pytest.mark.parametrize(("width", "height"), [(1200, 900), (390, 800)])
def test_the_page_answers_a_click_on_screens_and_phones(
    broker: RunningBroker,
    clock: ManualClock,
    browser: Browser,
    tmp_path: Path,
    width: int,
    height: int,
) -> None:
    filled(broker, clock)
    page = tmp_path / "report.html"
    done = run_command("report", "t", "-o", page, HOROLOG_BOOTSTRAP=broker.address)
    assert done.code == 0, done.err
    browser.open(page, width, height)
    text = browser.run("return document.body.innerText")
    assert "Records that stand out" in text
    assert NAME in text, "as text, not as an element"
    assert browser.run("return document.querySelectorAll('b').length") == 6
    assert "Click the picture" in text
    browser.click("canvas")
    picked = browser.run("return document.querySelector('.picked').textContent")
    assert "records appended from 2023-11-1" in picked
    browser.click("canvas", dy=-120)
    away = browser.run("return document.querySelector('.picked').textContent")
    assert away != picked
    browser.run(
        "const all = document.querySelector('select'); all.value = 1;"
        "all.dispatchEvent(new Event('change'));"
    )
    assert "t-1:" in browser.run("return document.body.innerText")
    over = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.run(over) <= 0, "nothing sticks out"
    light = browser.run("return getComputedStyle(document.body).backgroundColor")
    browser.dark()
    assert browser.run("return getComputedStyle(document.body).backgroundColor") != light
    assert browser.complaints() == []


def test_a_million_records_do_not_freeze_it(
    broker: RunningBroker, clock: ManualClock, browser: Browser, tmp_path: Path
) -> None:
    now_ms = clock.now_ms()
    for number in range(100):
        records = [LogRecord(now_ms - (each * 7919) % DAY_MS, None, b"") for each in range(10_000)]
        broker.append("t", build_batch(records), number % 2)
        now_ms = clock.advance("10m")
    page = tmp_path / "report.html"
    run_command("report", "t", "-o", page, HOROLOG_BOOTSTRAP=broker.address)
    assert page.stat().st_size < 2 << 20
    start = time.monotonic()
    browser.open(page, 1200, 900)
    browser.click("canvas")
    assert "records appended" in browser.run("return document.querySelector('.picked').textContent")
    assert time.monotonic() - start < 10
    redraw = (
        "const start = performance.now(); window.dispatchEvent(new Event('resize'));"
        "return performance.now() - start"
    )
    assert browser.run(redraw) < 500
    assert browser.complaints() == []
