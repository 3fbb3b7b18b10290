"""JSON of files and peers: a document, or a sentence on why it is none."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from horolog.json_text import Natural, from_json, read_as

DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
)


@examples(1)
@given(DOCUMENTS)
def test_what_json_can_say_is_read(document: Any) -> None:
    text = json.dumps(document)
    assert from_json(text) == from_json(text.encode()) == document


@pytest.mark.parametrize(
    "text",
    [
        "Infinity",
        "-Infinity",
        "NaN",
        "1e400",
        "-1e400",
        "9" * 101,
        "-" + "9" * 100_000,
        "9" * 100_000 + ".5",
        "[" * 1_000_000,
        '{"a":' * 1_000_000,
        "",
        "{",
        b"\xff",
        b"\0" * 100,
    ],
    ids=lambda text: f"{text:.12}" if isinstance(text, str) else repr(text[:2]),
)
@pytest.mark.parametrize("within", [False, True])
def test_what_it_cannot_say_or_nobody_could_hold_is_a_short_sentence(
    text: str | bytes, within: bool
) -> None:
    if within:
        text = f'{{"a": [{text}]}}' if isinstance(text, str) else b'{"a": [' + text + b"]}"
    if within and text == '{"a": []}':
        return
    with pytest.raises(ValueError, match=r"\w") as refused:
        from_json(text)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"b": {"": 1, "": 2}}]'])
def test_an_object_may_have_to_have_distinct_members(text: str) -> None:
    assert from_json(text) == json.loads(text)
    with pytest.raises(ValueError, match="a member twice"):
        from_json(text, distinct=True)
    assert from_json('{"a": {"a": 1}}', distinct=True) == {"a": {"a": 1}}


class Kind(StrEnum):
    ONE = "one"


class Inner(NamedTuple):
    start: int
    end: int = 9


class Outer(NamedTuple):
    number: int
    kind: Kind
    found: Inner | None
    several: tuple[Inner, ...]
    pair: tuple[str, int] | tuple[str, str]
    named: Mapping[str, str | int | bool]
    anything: Any = None


WHOLE: dict[str, Any] = {
    "number": -5,
    "kind": "one",
    "found": {"start": 1, "end": 2},
    "several": [[1, 2], {"start": 3}, [4]],
    "pair": ["a", "b"],
    "named": {"x": 1, "y": True, "z": "w"},
}


def test_a_document_is_read_as_a_named_tuple() -> None:
    found = read_as(Outer, from_json(json.dumps(WHOLE)))
    assert found == Outer(
        *(-5, Kind.ONE, Inner(1, 2), (Inner(1, 2), Inner(3, 9), Inner(4, 9)), ("a", "b")),
        named={"x": 1, "y": True, "z": "w"},
    )
    assert type(found.named["y"]) is bool
    assert read_as(Outer, {**WHOLE, "found": None, "later": 1}, may_have_more=True).found is None


@pytest.mark.parametrize(
    "change",
    [
        {"number": True},
        {"number": 1.0},
        {"number": 1 << 63},
        {"number": None},
        {"kind": "two"},
        {"kind": 1},
        {"found": []},
        {"found": {"start": 1, "more": 1}},
        {"found": {}},
        {"found": "start"},
        {"several": {}},
        {"several": [[1, 2, 3]]},
        {"several": [["1"]]},
        {"pair": ["a"]},
        {"pair": ["a", "b", "c"]},
        {"pair": [1, "b"]},
        {"named": {"x": None}},
        {"named": []},
        {"more": 1},
    ],
)
def test_a_document_of_another_form_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"it |valid"):
        read_as(Outer, WHOLE | change)


def test_a_document_that_lacks_a_member_is_refused() -> None:
    for name in WHOLE:
        with pytest.raises(ValueError, match=f"has no {name}"):
            read_as(Outer, {each: value for each, value in WHOLE.items() if each != name})


@dataclass
class Place:
    offset: Natural
    ms: int | None = None


@dataclass(frozen=True)
class Kept:
    id: str
    places: Mapping[int, Place]
    named: dict[str, list[Place]] = field(default_factory=dict)
    share: Annotated[int, range(101)] = 100
    last: tuple[Inner, ...] = ()


KEPT = Kept("a", {0: Place(5, -3), -7: Place(0)}, {"x": [Place(1), Place(2)]}, 7, (Inner(1, 2),))


@pytest.mark.parametrize("kept", [KEPT, Kept("", {})])
def test_a_dataclass_is_read_from_what_it_is_written_as(kept: Kept) -> None:
    assert read_as(Kept, from_json(json.dumps(asdict(kept)))) == kept


@pytest.mark.parametrize(
    "change",
    [
        {"places": {"x": {"offset": 1}}},
        {"places": {"01": {"offset": 1}}},
        {"places": {"+1": {"offset": 1}}},
        {"places": {" 1": {"offset": 1}}},
        {"places": {"\u0661": {"offset": 1}}},
        {"places": {str(1 << 63): {"offset": 1}}},
        {"places": {"9" * 5000: {"offset": 1}}},
        {"places": {"1": {"offset": -1}}},
        {"places": {"1": {"offset": 1 << 63}}},
        {"places": {"1": {"offset": True}}},
        {"places": {"1": {}}},
        {"places": {"1": {"offset": 1, "more": 1}}},
        {"named": {"x": {"offset": 1}}},
        {"named": {"x": [5]}},
        {"share": 101},
        {"share": 1.0},
        {"last": [{"start": 1, "more": 2}]},
        {"id": None},
    ],
)
def test_a_dataclass_takes_no_other_form(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"it "):
        read_as(Kept, from_json(json.dumps({**asdict(KEPT), **change})))
