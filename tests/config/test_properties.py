"""Java's properties, as java.util.Properties reads them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.config import parse_properties
from horolog.errors import Misconfigured


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t=\t 1", {"a": "1"}),
        ("  a = 1 2  ", {"a": "1 2  "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a==b", {"a": "=b"}),
        ("a : = b", {"a": "= b"}),
        ("# c\n  ! d\n\na=1", {"a": "1"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("a=1\\\n   ,2\\\n\t,3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        (r"a\ b\:c\=d = x\ty\nz\q", {"a b:c=d": "x\ty\nzq"}),
        (r"gr\u00fc\u00DFe=\u263a", {"grüße": "☺"}),
        ("naïve=é", {"naïve": "é"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("=x", {"": "x"}),
        ("", {}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


def test_a_broken_escape_is_refused_with_its_place() -> None:
    with pytest.raises(Misconfigured, match=r"server\.properties, line 2: \\u needs four"):
        parse_properties("a=1\nb=\\u12", "server.properties")


def escaped(text: str) -> str:
    special = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
    return "".join(special.get(c, "\\" + c if c in "\\ =:#!" else c) for c in text)


text_of_settings = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.dictionaries(text_of_settings, text_of_settings, max_size=5))
def test_whatever_is_escaped_comes_back(values: dict[str, str]) -> None:
    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in values.items())
    assert parse_properties(text) == values


@given(st.text(max_size=100))
def test_no_text_does_worse_than_a_refusal(text: str) -> None:
    with contextlib.suppress(Misconfigured):
        assert all(isinstance(key, str) for key in parse_properties(text))
