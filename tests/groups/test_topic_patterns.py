"""Patterns of topics to which members of consumer groups are subscribed."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from overrides import override

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups import check_pattern, resolve

NAMES = ["orders", "orders.eu", "payments", "__consumer_offsets"]
SLOW = "(?:(?:a*){30}){20}"
MANY_NAMES = ["n" * 249] * 10_000


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("t[", "missing ]: [."),
        ("*", "no argument for repetition operator: *."),
        ("(?!x)", "no look-around"),
        ("a" * 1001, "it has more than 1000 characters."),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        check_pattern(pattern, NAMES)
    assert refusal.value.code == ErrorCode.invalid_regular_expression
    said = str(refusal.value)
    assert said.startswith(
        f"SubscribedTopicRegex `{pattern:.80}` is not a valid regular expression: "
    )
    assert reason in said


def test_half_of_a_pair_is_refused_in_words_that_can_be_sent() -> None:
    with pytest.raises(RequestRefused, match="half of a surrogate pair") as refusal:
        check_pattern("a\ud800", NAMES)
    assert str(refusal.value).encode()


def test_a_pattern_is_refused_that_takes_too_long_for_the_topics_that_there_are() -> None:
    check_pattern(SLOW, NAMES)
    with pytest.raises(RequestRefused, match="it takes too long to match all topics"):
        check_pattern(SLOW, MANY_NAMES)


def test_a_pattern_finds_whole_names_internal_topics_too_and_minds_case() -> None:
    patterns = ["orders", "orders.*", "order", "(?i)ORDERS", "ORDERS", "__.*", ""]
    assert resolve(patterns, NAMES) == {
        "orders": {"orders"},
        "orders.*": {"orders", "orders.eu"},
        "order": frozenset(),
        "(?i)ORDERS": {"orders"},
        "ORDERS": frozenset(),
        "__.*": {"__consumer_offsets"},
        "": frozenset(),
    }


@given(st.lists(st.sampled_from(["a.*", "b.*", ".*b", "[", SLOW, "a|b"]), unique=True))
def test_a_pattern_that_cannot_be_resolved_disturbs_no_other(patterns: list[str]) -> None:
    names = ["a", "b", "ab", "ba"]
    found = resolve(patterns, names)
    assert found.keys() == set(patterns) - {"["}
    assert all(found[pattern] == resolve([pattern], names)[pattern] for pattern in found)


def test_what_takes_too_long_keeps_its_topics_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "horolog.groups"):
        assert resolve([SLOW, "n*"], MANY_NAMES) == {"n*": {"n" * 249}}
    (message,) = caplog.messages
    assert message.startswith(
        f"topics of the pattern {SLOW!r} stay as they were: it takes too long"
    )


def test_a_group_of_many_patterns_is_resolved_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seconds: Iterator[float] = iter([0.0, 1.0, 4.9, 5.0, 6.0])
    override(monkeypatch, "horolog.groups", monotonic=lambda: next(seconds))
    found = resolve(["o.*", "p.*", "q.*", "r.*"], NAMES)
    assert found == {"o.*": {"orders", "orders.eu"}, "p.*": {"payments"}}
    assert [message[:40] for message in caplog.messages] == [
        "topics of the pattern 'q.*' stay as they",
        "topics of the pattern 'r.*' stay as they",
    ]


def test_a_group_whose_patterns_find_too_many_topics_keeps_what_it_had(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    override(monkeypatch, "horolog.groups", MOST_RESOLVED=5)
    found = resolve([".*", "o.*", ".*s.*", "p.*"], NAMES)
    assert found.keys() == {".*", ".*s.*", "p.*"}
    assert found[".*"] is found[".*s.*"], "equal sets count once"
    assert ["more than 5 topics" in message for message in caplog.messages] == [True]
