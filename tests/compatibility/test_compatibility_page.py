"""docs/compatibility.md against the broker, against what was recorded, and against the tests."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from tools.compatibility import PAGE, RUNS
from tools.compatibility_matrix import CLIENTS, FEATURES, NOT_SERVED, TOOLS
from tools.compatibility_page import cell, function_of, kafka_range, page, range_text

from horolog.broker import served
from horolog.wire import OLDER, SUPPORTED, ApiKey, Versions

ROOT = Path(__file__).parent.parent.parent
ROWS = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line[:1] == "|"]


@pytest.fixture(scope="module")
def runs() -> dict:
    found: dict = json.loads(RUNS.read_text())
    return found


def test_the_page_is_fresh(runs: dict) -> None:
    assert PAGE.read_text() == page(runs), "run: python tools/compatibility.py --page"


def test_the_table_of_apis_is_what_the_broker_answers() -> None:
    told = {int(row[0]): row[1:3] for row in ROWS if row[0].isdigit()}
    assert told == {
        int(key): [key.title, range_text(versions)] for key, versions in served().items()
    }
    assert set(served()) == SUPPORTED.keys()
    assert all(served()[key] == SUPPORTED[key] for key in served())


def test_no_version_is_advertised_that_kafka_does_not_know_or_knows_and_we_do_not(
    runs: dict,
) -> None:
    """Where that changes, the page says so; clients infer a release from ranges (facts 7.5)."""
    theirs = {key: kafka_range(runs["kafka_apis"][str(int(key))]) for key in served()}
    for key, ours in served().items():
        older = OLDER.get(("request", key), ())  # which Kafka 3.9 has
        assert Versions(max(len(older), ours.min), ours.max) == theirs[key] or (
            key is ApiKey.PRODUCE and ours == theirs[key]
        )


def test_every_api_that_kafka_answers_and_we_do_not_has_one_reason(runs: dict) -> None:
    ours = {str(int(key)) for key in served()}
    missing = {told.split()[0] for key, told in runs["kafka_apis"].items() if key not in ours}
    named = Counter(name for names in NOT_SERVED.values() for name in names)
    assert set(named) == missing
    assert set(named.values()) == {1}


def test_every_feature_is_tried_with_every_client_or_has_a_reason() -> None:
    for feature in FEATURES:
        assert set(feature.shown) == {client.title for client in CLIENTS}
        assert all(feature.shown.values()), feature.title


def named_tests() -> list[str]:
    of_clients = {
        test
        for feature in FEATURES
        for shown in feature.shown.values()
        if not isinstance(shown, str)
        for test in shown
    }
    return sorted(of_clients | {test for tools in TOOLS.values() for test in tools.values()})


def test_what_the_page_relies_on_exists_and_was_run(runs: dict) -> None:
    was_run = {*runs["outcomes"], *map(function_of, runs["outcomes"])}
    for test in named_tests():
        path, _, name = function_of(test).partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), test
        assert test in was_run, f"{test}: run: python tools/compatibility.py"


def test_nothing_that_was_run_failed(runs: dict) -> None:
    assert {test for test, seen in runs["outcomes"].items() if seen == "failed"} == set()
    text = PAGE.read_text()
    assert "**fails**" not in text
    assert "not run |" not in text


def test_every_release_is_named(runs: dict) -> None:
    others = {"kcat", "Flink", "JVM", "Go", "Node", "Python"}
    assert {client.title for client in CLIENTS} | others == set(runs["versions"])
    assert all(re.search(r"\d+\.\d+", version) for version in runs["versions"].values())


def test_a_cell_shows_the_worst_result() -> None:
    outcomes = {"a": "passed", "b": "failed", "c": "skipped"}
    assert cell(("a",), outcomes) == "yes"
    assert cell(("a", "b"), outcomes) == "**fails**"
    assert cell(("a", "c"), outcomes) == "not run"
    assert cell(("a", "unknown"), outcomes) == "not run"
    assert cell("it cannot ask", outcomes) == "no way to ask"
