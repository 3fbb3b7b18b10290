"""JSON of files and peers: a document, or a sentence on why it is none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.json_text import from_json

DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
)


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
