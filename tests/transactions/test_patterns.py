"""Patterns of transactional ids."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, RequestRefused
from horolog.transactions.patterns import id_pattern

PARTS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "(a|b)", "(ab|c)*", "a?", "b+", "(a*)*", "a{1,3}"]
)


@given(st.lists(PARTS, max_size=6).map("".join), st.text("abc1", max_size=10))
def test_patterns_match_whole_ids(pattern: str, text: str) -> None:
    assert id_pattern(pattern)(text) == (re.fullmatch(pattern, text) is not None)


def test_pattern_that_backtracks_without_end_takes_no_time() -> None:
    assert not id_pattern("(a+)+b")("a" * 10_000 + "c")


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)", "(?i)a", "(a{100}){100}", "a" * 1001])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        id_pattern(pattern)
    assert refused.value.code is ErrorCode.invalid_regular_expression
