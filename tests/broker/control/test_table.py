"""The table of questions and actions, and the page that describes it."""

import ast
import re
from pathlib import Path

import pytest

from horolog.broker import ACTION_ROWS, QUESTION_ROWS
from horolog.wire import ACTIONS, FEATURES, QUESTIONS, Action, Question, questions

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


def test_the_page_has_every_question_and_what_it_takes() -> None:
    described = {
        question.name: [question.about.name, question.needs.name, members(question.takes)]
        for question in QUESTIONS
    }
    listed = table("## Questions")
    assert {name: cells[:3] for name, cells in listed.items()} == described
    assert all(cells[3] for cells in listed.values())


def test_the_page_has_every_action_and_feature() -> None:
    assert table("## Actions") == {
        each.name: [each.about.name, each.needs.name] for each in ACTIONS
    }
    others, questions = table("# What horolog adds"), table("## Questions")
    assert not others.keys() & questions.keys()
    assert {**others, **questions}.keys() == FEATURES.keys()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.name)
def test_a_section_of_the_page_says_what_each_member_is(question: Question) -> None:
    section = PAGE[PAGE.index(f"\n## {question.name}\n") :]
    section = section[: section.index("\n## ", 1)]
    explained = {"partition", "next"} | ({"start"} if question.paged is not None else set())
    for name in {*question.takes._fields, *question.gives._fields} - explained:
        assert f"`{name}`" in section, name
    optional = {*question.gives._field_defaults} - explained
    assert {*re.findall(r"\[`(\w+)`\]", section)} == optional


def test_every_question_and_action_has_a_row_at_the_broker() -> None:
    assert sorted(row.question.name for row in QUESTION_ROWS) == sorted(
        question.name for question in QUESTIONS
    )
    answered: list[Action] = [action for row in ACTION_ROWS for action in row.actions]
    assert sorted(answered, key=lambda each: each.name) == sorted(
        ACTIONS, key=lambda each: each.name
    )


def asked_in(tree: ast.AST) -> set[ast.AST]:
    """The first arguments of calls of `ask` and its methods."""
    return {
        call.args[0]
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and call.args
        and re.search(r"\b_?ask\b", ast.unparse(call.func))
    }


def test_a_question_takes_two_files_beside_those_that_ask_it() -> None:
    source = Path(questions.__file__).parents[1]
    texts = {path: path.read_text() for path in source.rglob("*.py")}
    trees = {
        path: ast.parse(text)
        for path, text in texts.items()
        if "horolog.wire.questions import" in text or path.samefile(questions.__file__)
    }
    asked = {path: asked_in(tree) for path, tree in trees.items()}
    for name, question in vars(questions).items():
        if isinstance(question, Question):
            files = {
                path.relative_to(source)
                for path, tree in trees.items()
                for node in ast.walk(tree)
                if isinstance(node, ast.Name) and node.id == name and node not in asked[path]
            }
            assert {str(path.parent) for path in files} == {"wire", "broker/control"}, name
            assert len(files) == 2, name


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.name)
def test_a_question_in_pages_has_what_leads_from_one_to_the_next(question: Question) -> None:
    assert (question.paged is not None) == ("next" in question.gives._fields)
    if question.paged is not None:
        assert "start" in question.takes._fields
        assert {question.paged, *question.repeated} <= {*question.gives._fields}
        assert {*question.repeated} <= {*question.takes._fields}
