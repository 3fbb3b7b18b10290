"""Patterns of names."""

import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import Misconfigured
from horolog.patterns import LONGEST_NAME, LONGEST_PATTERN, NamePattern, given_pattern

PARTS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "[a-c.]", r"\w", r"\d", r"\.", "(a|b)", "(ab|c)*", "a?", "b+",
     "(a*)*", "a{{1,3}}", "^", "$", "|", "(?:a|)", "(?i:B)", "(?P<x{}>a)", "a*?"]
)  # fmt: skip


@given(st.lists(PARTS, max_size=6), st.lists(st.text("abcB1.-_", max_size=8), min_size=1))
def test_a_pattern_matches_whole_names_as_pythons_does(parts: list[str], names: list[str]) -> None:
    pattern = "".join(part.format(number) for number, part in enumerate(parts))
    matches = NamePattern(pattern).matches
    assert [matches(name) for name in names] == [
        re.fullmatch(pattern, name, re.ASCII) is not None for name in names
    ]


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("(a+)+", "a" * 32_000 + "!"),
        ("(a|a)*b", "a" * 32_000),
        ("(.*)*(.*)*(.*)*x", "ab" * 16_000),
        ("(?:(?:a*){30}){20}b", "a" * 2_000),
        ("[ab]*a[ab]{300}", "ab" * 2_000 + "!"),
    ],
)
def test_a_pattern_takes_linear_time(pattern: str, name: str) -> None:
    compiled = NamePattern(pattern)
    begun_s = time.thread_time()
    assert not compiled.matches(name)
    assert time.thread_time() - begun_s < 5


REFUSED = [
    ("(?=a)a", "no look-around"),
    ("(?!_).*", "no look-around"),
    ("(?<=a)b", "no look-around"),
    (r"(a)\1", "no references to groups"),
    (r"(?P<x>a)(?P=x)", "no references to groups"),
    ("a++", "no possessive repetition"),
    ("(", r"missing \)"),
    ("*a", "no argument"),
    ("[", "missing ]"),
    ("a{1001}", "repetition size"),
    (r"(?:\pL.{30}){30}", "too large"),
    ("((((((a{9}){9}){9}){9}){9}){9})", "repetition"),
    ("a" * (LONGEST_PATTERN + 1), "more than 1000 characters"),
    ("\ud800", "surrogate"),
    ("(" * LONGEST_PATTERN, "missing|nest"),
    ("", "empty"),
]


@pytest.mark.parametrize(("pattern", "said"), REFUSED)
def test_what_is_no_pattern_is_refused_in_a_sentence(
    pattern: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Misconfigured, match=f"--topics-pattern=.*is no pattern: .*{said}"):
        given_pattern(pattern, "--topics-pattern")
    assert capfd.readouterr() == ("", ""), "the library prints nothing"


def test_names_are_text_and_may_be_anything() -> None:
    assert NamePattern("é.").matches("éü")
    assert NamePattern("a.*").matches("a\ud800"), "as JSON may have it"
    assert NamePattern("a\x00.*").matches("a\x00b")
    assert NamePattern("a*").matches("a" * LONGEST_NAME)
    assert not NamePattern("a*").matches("a" * (LONGEST_NAME + 1))
    assert not NamePattern("").matches("a")


def test_groups_have_what_they_took_by_number_and_by_name() -> None:
    pattern = NamePattern(r"(?P<team>\w+)\.(é)?(.*)", captures=True)
    assert pattern.groups("web.clicks") == {
        0: "web.clicks",
        1: "web",
        2: "",
        3: "clicks",
        "team": "web",
    }
    assert pattern.groups("web") is None
    assert pattern.group_names == {0, 1, 2, 3, "team"}


def test_a_pattern_is_slow_where_its_size_and_that_of_the_names_are() -> None:
    names = ["n" * 249] * 10_000
    assert not NamePattern("n.*-[0-9]{1,3}|orders").is_slow_for(names)
    assert NamePattern("(?:(?:a*){30}){20}").is_slow_for(names)
    assert not NamePattern("(?:(?:a*){30}){20}").is_slow_for(names[:500])


def test_the_library_is_loaded_with_the_first_pattern() -> None:
    code = (
        "import sys, horolog.broker.service, horolog.cli\n"
        "assert 're2' not in sys.modules\n"
        "from horolog.patterns import name_pattern\n"
        "assert name_pattern('a').matches('a') and 're2' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
