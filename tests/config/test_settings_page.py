from pathlib import Path

from tools.settings_page import settings_page

from horolog.config import broker_settings, group_settings, topic_settings

PAGE = Path(__file__).parent.parent.parent / "docs" / "settings.md"


def test_the_page_of_settings_is_fresh() -> None:
    assert PAGE.read_text() == settings_page(), (
        "run: python -m tools.settings_page > docs/settings.md"
    )


def test_the_page_has_a_row_for_every_setting() -> None:
    rows = [line for line in settings_page().splitlines() if line.startswith("| `")]
    assert len(rows) == sum(map(len, (topic_settings(), group_settings(), broker_settings())))
    assert all(row.count(" | ") == 6 for row in rows)
