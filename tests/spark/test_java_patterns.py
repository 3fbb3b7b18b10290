"""Java's regular expressions on topics' names: as Java takes them, or refused."""

import random
import sys
from typing import Any

import pytest
from overrides import override
from py4j.protocol import Py4JJavaError

from horolog.errors import Misconfigured
from horolog.sources import UnlikeJavaError, java_matcher, subscription_of

NAMES = [
    "orders", "Orders", "ORDERS", "orders-2", "orders.eu", "orders_eu", "a", "b", "ab", "aab",
    "abc", "z9", "9", "-", ".", "_", "x-y.z_0", "oorrddeerrss", "aa-aa",
]  # fmt: skip

PATTERNS = [
    "orders", "ord.*", "orders|a", "(?i)orders", "o(?i)RDERS|a", "((?i)o)rders", "(?i:ORD)ers",
    "(?-i)orders", "(?s)orders", "[a-z&&[^b]]+", "[a-z&&[def]|o]", "[a-c[x-z]]+", "[^a-z]+",
    "[^a[b]]+", "[^a-z&&[^x]]", r"\p{Lower}+", r"\p{Alpha}+", r"\P{Upper}+", r"\p{Lu}+", r"\pL+",
    r"\p{IsLatin}+", r"\p{Punct}+", r"\p{Alnum}+[-.]\w+", r"\Qorders.\Eeu",
    r"\Qorders.eu", r"\Qor\E+ders", "a++", "a*+ab", "a{1,}b", "a{2}b", "(a|b)+", r"(a+)-\1",
    "(?>a+)b", "(?=o).*", "(?!o).+", ".*(?<=s)", ".*(?<!s)", r"orders\.eu",
    r"orders\x2eeu", r"orders.eu", r"\x61", r"\h*a",
    r"\ba\b", r"\Aorders\z", r"\Aorders\Z", "^orders$", "[.]", "[-a]", "[a-]", r"[\w-]+",
    r"[\Qa-\E]",
    "[]a]+", "[a&]", "a|", "|a", "", "[a-zA-Z0-9._-]+", "(?i)[a-c]+", "(?i)[^o]rders", "[é-ü]+",
    "}", "]", "a]", r"\R|a", "orders(?:-2|[.]eu)?", "(?m)^a$", r"[\d&&[^9]]", r"[a\]]",
]  # fmt: skip

REFUSED = [
    ("a(", "missing"),
    ("a)", "unbalanced"),
    ("[a", "Java"),
    ("a{x}", "Java"),
    ("a{,3}", "Java"),
    ("(?:ab){e<=1}", "Java"),
    ("{2}", "nothing to repeat"),
    ("*a", "nothing to repeat"),
    ("a**", "multiple repeat"),
    ("a{2}{3}", "multiple repeat"),
    ("a(?i){2}", "Java"),
    ("(?x)a b", "Java"),
    ("(?d)a", "Java"),
    ("(?P<x>a)", "Java"),
    ("(?#c)a", "Java"),
    ("(?|a|b)", "Java"),
    ("a(*FAIL)", "Java"),
    (r"\y", r"\\y"),
    (r"\Ga", r"\\G"),
    (r"\X", r"\\X"),
    (r"a\Kb", r"\\K"),
    (r"\v", r"\\v"),
    (r"\0141", "Java"),
    (r"\x{2e}", "Java"),
    (r"\b{g}a", "Java"),
    (r"(?<x>a+)-\k<x>", "Java"),
    (r"\p{javaLowerCase}", "unknown property"),
    ("[z-a]", "range"),
    ("[a-[b]]", "Java"),
    ("[a--b]", "Java"),
    ("[a||b]", "Java"),
    ("[a~~b]", "Java"),
    ("[[:alpha:]]", "Java"),
    ("[a&&]", "set"),
    (r"[a\1]", "Java"),
    (r"(a)\12", "Java"),
]


@pytest.mark.parametrize(("pattern", "said"), REFUSED)
def test_what_java_reads_otherwise_is_refused_with_its_reason(pattern: str, said: str) -> None:
    with pytest.raises(Misconfigured, match="cannot be obeyed as Java would") as raised:
        subscription_of({"subscribepattern": pattern})
    assert raised.match(said)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("[a-z&&[^b]]+", {"orders", "a", "oorrddeerrss"}),
        (r"\p{Upper}\p{Alpha}+", {"Orders", "ORDERS"}),
        ("a|(?i)ORDERS", {"a", "orders", "Orders", "ORDERS"}),
        (r"(a+)-\1", {"aa-aa"}),
        (r"\Qorders.\E.+", {"orders.eu"}),
    ],
)  # fmt: skip
def test_constructs_of_java_find_the_topics_that_they_name(pattern: str, names: set[str]) -> None:
    assert set(filter(java_matcher(pattern), NAMES)) == names


def test_a_match_that_takes_too_long_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    override(monkeypatch, "horolog.sources", LONGEST_S=0.05)
    with pytest.raises(Misconfigured, match="takes longer than"):
        java_matcher("(a|aa)+_")("a" * 200 + "-")


def test_patterns_without_the_library_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "regex", None)
    with pytest.raises(Misconfigured, match=r"subscribePattern needs regex: pip install .*spark"):
        subscription_of({"subscribepattern": "a"})


PIECES = [
    "a", "b", "o", "rd", "-", ".", "_", "[a-c]", "[^a]", "[a-z&&[^b]]", "[a-z&&b-y]",
    "[[ab]&&[bc]]",
    "[a-c&&[b]x]", r"\w", r"\W", r"\p{Alpha}", r"\P{Digit}", "(?i)", "(?-i)", "(?i:A)", "(a|b)",
    "(",
    ")", "|", "*", "+", "?", "{2}", "{1,2}", "++", "*?", r"\Qa.\E", r"[\d_]", "[a", "]", "&&", "^",
    "$",
    r"\1", "[^[a]b]", "[-a]", "(?=a)", "(?!b)", "{", "}", r"\x61", "[B-b]",
]  # fmt: skip


@pytest.mark.spark
def test_patterns_match_as_javas_own_do(spark: Any) -> None:
    java = spark._jvm.java.util.regex.Pattern
    names = spark._jvm.java.util.ArrayList()
    for name in NAMES:
        names.add(name)
    rng = random.Random(7)
    made = ["".join(rng.choices(PIECES, k=rng.randint(1, 5))) for _ in range(400)]
    agreed = 0
    for pattern in [*PATTERNS, *made]:
        try:
            ours = java_matcher(pattern)
        except UnlikeJavaError:
            assert pattern not in PATTERNS, pattern
            continue
        try:
            matches = java.compile(pattern).asMatchPredicate()
        except Py4JJavaError:  # what Java refuses need not be refused here
            assert pattern not in PATTERNS, pattern
            continue
        found = names.stream().filter(matches).toList().toString()
        assert found == f"[{', '.join(filter(ours, NAMES))}]", pattern
        agreed += 1
    assert agreed > len(PATTERNS) + 100
