"""Java's regular expressions on topics' names: as Java takes them, or refused."""

import random
from typing import Any

import pytest

from horolog.errors import Misconfigured
from horolog.sources.java_patterns import UntranslatableError, compiled
from horolog.sources.limits import subscription_of

NAMES = [
    "orders", "Orders", "ORDERS", "orders-2", "orders.eu", "orders_eu", "a", "b", "ab", "aab",
    "abc", "z9", "9", "-", ".", "_", "x-y.z_0", "oorrddeerrss", "aa-aa",
]  # fmt: skip

PATTERNS = [
    "orders", "ord.*", "orders|a", "(?i)orders", "o(?i)RDERS|a", "((?i)o)rders", "(?i:ORD)ers",
    "(?-i)orders", "(?s)orders", "[a-z&&[^b]]+", "[a-z&&[def]|o]", "[a-c[x-z]]+", "[^a-z]+",
    "[^a[b]]+", "[^a-z&&[^x]]", r"\p{Lower}+", r"\p{Alpha}+", r"\P{Upper}+", r"\p{Lu}+", r"\pL+",
    r"\p{IsLatin}+", r"\p{javaLowerCase}+", r"\p{Punct}+", r"\p{Alnum}+[-.]\w+", r"\Qorders.\Eeu",
    r"\Qorders.eu", r"\Qor\E+ders", "a++", "a*+ab", "a{1,}b", "a{2}b", "(a|b)+", r"(a+)-\1",
    r"(?<x>a+)-\k<x>", "(?>a+)b", "(?=o).*", "(?!o).+", ".*(?<=s)", ".*(?<!s)", r"orders\.eu",
    r"orders\x2eeu", r"orders\x{2e}eu", r"orders.eu", r"\0141", r"\x61", r"\h*a", r"\V+",
    r"\ba\b", r"\Aorders\z", r"\Aorders\Z", "^orders$", "[.]", "[-a]", "[a-]", r"[\w-]+",
    r"[\Qa-\E]",
    "[]a]+", "[a&]", "a|", "|a", "", "[a-zA-Z0-9._-]+", "(?i)[a-c]+", "(?i)[^o]rders", "[é-ü]+",
    "}", "]", "a]", r"\R|a", "orders(?:-2|[.]eu)?", "(?d)a", "(?m)^a$", r"[\d&&[^9]]", r"[a\]]",
]  # fmt: skip

REFUSED = [
    ("a(", "not closed"),
    ("a)", "closes nothing"),
    ("[a", "not closed"),
    ("a{x}", "brace"),
    ("{2}", "brace"),
    ("*a", "quantifier of nothing"),
    ("a**", "quantifier of a quantifier"),
    ("a{2}{3}", "quantifier of a quantifier"),
    (r"\p{Greek}", "property 'Greek'"),
    (r"(?i)\p{Lower}", "where case is ignored"),
    ("(?x)a b", "group that starts with"),
    ("(?P<x>a)", "group that starts with"),
    ("(?#c)a", "group that starts with"),
    (r"\y", r"\\y"),
    (r"\Ga", r"\\G"),
    (r"\X", r"\\X"),
    (r"\b{g}a", "boundary"),
    ("[z-a]", "range from"),
    ("[a-[b]]", "range that ends in a class"),
    ("[a&&]", "holds nothing"),
    (r"[a\1]", r"\\1"),
    (r"(?<=a+)b", "Java would take it otherwise"),
    (r"(a)\12", "more than one digit"),
]


@pytest.mark.parametrize(("pattern", "said"), REFUSED)
def test_what_cannot_be_translated_is_refused_with_its_reason(pattern: str, said: str) -> None:
    with pytest.raises(Misconfigured, match="cannot be obeyed as Java would") as raised:
        subscription_of({"subscribepattern": pattern})
    assert raised.match(said)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("[a-z&&[^b]]+", {"orders", "a", "oorrddeerrss"}),
        (r"\p{Upper}\p{Alpha}+", {"Orders", "ORDERS"}),
        ("a|(?i)ORDERS", {"a", "orders", "Orders", "ORDERS"}),
        (r"(?<x>a+)-\k<x>", {"aa-aa"}),
    ],
)  # fmt: skip
def test_constructs_of_java_find_the_topics_that_they_name(pattern: str, names: set[str]) -> None:
    assert {name for name in NAMES if compiled(pattern).fullmatch(name)} == names


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
            ours = compiled(pattern)
        except UntranslatableError:
            assert pattern not in PATTERNS, pattern
            continue
        matches = java.compile(pattern).asMatchPredicate()
        found = names.stream().filter(matches).toList().toString()
        assert found == f"[{', '.join(filter(ours.fullmatch, NAMES))}]", pattern
        agreed += 1
    assert agreed > len(PATTERNS) + 100
