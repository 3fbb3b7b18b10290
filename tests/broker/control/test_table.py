"""The table of questions and actions, and the page that describes it."""

import re
from pathlib import Path

import pytest

from horolog.broker.control.table import ACTION_ROWS, QUESTION_ROWS
from horolog.wire.features import FEATURES
from horolog.wire.questions import ACTIONS, QUESTIONS, Action, Question

PAGE = (Path(__file__).parents[3] / "docs" / "wire.md").read_text()


def table(title: str) -> dict[str, list[str]]:
    """The rows of a section's first table by their first cell."""
    section = PAGE[PAGE.index(title) :]
    rows = [line.strip("|").split("|") for line in re.findall(r"^\|.*\|$", section, re.MULTILINE)]
    width = len(rows[0])
    found = {}
    for row in rows[2:]:
        if len(row) != width or not row[0].strip().startswith("`"):
            break
        found[row[0].strip(" `")] = [cell.strip() for cell in row[1:]]
    return found


def members(of: type) -> str:
    defaults = of._field_defaults
    return ", ".join(f"[`{name}`]" if name in defaults else f"`{name}`" for name in of._fields)


def test_the_page_has_every_question_and_what_it_takes_and_gives() -> None:
    described = {
        each.name: [each.about.name, each.needs.name, members(each.takes), members(each.gives)]
        for each in QUESTIONS
    }
    assert table("## Questions") == described


def test_the_page_has_every_action_and_feature() -> None:
    assert table("## Actions") == {
        each.name: [each.about.name, each.needs.name] for each in ACTIONS
    }
    assert table("# What horolog adds").keys() == FEATURES.keys()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.name)
def test_a_section_of_the_page_says_what_each_member_is(question: Question) -> None:
    section = PAGE[PAGE.index(f"\n## {question.name}\n") :]
    section = section[: section.index("\n## ", 1)]
    for name in {*question.takes._fields, *question.gives._fields} - {"partition", "next"}:
        assert f"`{name}`" in section, name


def test_every_question_and_action_has_a_row_at_the_broker() -> None:
    assert [row.question for row in QUESTION_ROWS] == list(QUESTIONS)
    answered: list[Action] = [action for row in ACTION_ROWS for action in row.actions]
    assert sorted(answered, key=lambda each: each.name) == sorted(
        ACTIONS, key=lambda each: each.name
    )


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.name)
def test_a_question_in_pages_has_what_leads_from_one_to_the_next(question: Question) -> None:
    assert (question.paged is not None) == ("next" in question.gives._fields)
    if question.paged is not None:
        assert "start" in question.takes._fields
        assert {question.paged, *question.repeated} <= {*question.gives._fields}
        assert {*question.repeated} <= {*question.takes._fields}
