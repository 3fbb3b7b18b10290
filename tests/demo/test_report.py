from importlib import import_module
from typing import Any

import pytest

from horolog.demo.questions import Disorder, Dot, Hour

NOW_MS = 1_763_700_000_000


@pytest.fixture(scope="module")
def demo() -> Any:
    """matplotlib takes half a second, in each process that would import it for these tests."""
    return import_module("horolog.demo.report")


def test_the_page_escapes_record_values_and_has_both_pictures(demo: Any) -> None:
    report = demo.Report("<lead>", [demo.ReportTable("t", "text", ["a"], [["<script>"]])])
    report.hours = [Hour("clicks", NOW_MS, 3), Hour("clicks", NOW_MS + 3_600_000, 5)]
    report.dots = [Dot("clicks", 0, offset, NOW_MS + offset) for offset in range(10)]
    page = report.page()
    assert "<script>" not in page
    assert "&lt;lead&gt;" in page
    assert page.count("data:image/png;base64,") == 2


def test_a_page_without_any_record_still_forms(demo: Any) -> None:
    assert "data:image/png" in demo.Report("nothing").page()


def test_wild_times_are_left_out_of_pictures(demo: Any) -> None:
    report = demo.Report("wild")
    report.hours = [Hour("t", 9_000_000_000_000_000, 1), Hour("t", -(2**62), 1)]
    report.dots = [Dot("t", 0, 1, 2**63 - 1), Dot("t", 0, 2, -(2**63))]
    assert "data:image/png" in report.page()


def test_lateness_is_reported_in_units_a_person_uses(demo: Any) -> None:
    table = demo.late_table([Disorder("clicks", 1_000, 10, 2, 1_500, 90_000_000)])
    assert list(table.rows) == [("clicks", "1,000", "10", "2", "1.5 s", "1.0 days")]
    assert [demo.span(0), demo.span(61_000), demo.span(7_200_000)] == ["0 ms", "1.0 min", "2.0 h"]


def test_a_moment_no_calendar_shows_is_reported_as_a_number(demo: Any) -> None:
    assert demo.instant(0) == "1970-01-01 00:00"
    assert demo.instant(1_763_700_000_000_000_000) == "1,763,700,000,000,000,000 ms"
