"""Committed offsets in memory, some of which are made when they are asked for."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.groups import CommittedOffsets, OffsetRow, PendingRow

KEYS = [(topic, partition) for topic in ("t", "u") for partition in (0, 1)]
GROUPS = ("g", "h")


def rows_of(group: str, keys: frozenset[tuple[str, int]], offset: int) -> list[OffsetRow]:
    return [OffsetRow(group, *key, offset, -1, "", 5) for key in sorted(keys)]


groups = st.sampled_from(GROUPS)
some_keys = st.frozensets(st.sampled_from(KEYS), min_size=1)
steps = st.one_of(
    st.tuples(st.just("commit"), groups, some_keys),
    st.tuples(st.just("commit"), groups, some_keys),
    st.tuples(st.just("pend"), groups, some_keys),
    st.tuples(st.just("end"), groups, st.booleans()),
    st.tuples(st.just("drop"), groups, some_keys),
    st.tuples(st.just("drop group"), groups, st.none()),
    st.tuples(st.just("drop topic"), groups, st.sampled_from("tu")),
    st.tuples(st.just("ask"), groups, st.sampled_from(KEYS)),
)


def take(offsets: CommittedOffsets, step: tuple[str, str, Any], number: int, *, later: bool) -> Any:
    what, group, about = step
    match what:
        case "commit" if later:
            name = repr(sorted(about)).encode()
            offsets.put_unread(group, name, partial(rows_of, group, about, number))
        case "commit":
            offsets.put_all(group, rows_of(group, about, number))
        case "pend":
            for row in rows_of(group, about, number):
                offsets.pending.put(PendingRow(1, row))
        case "end":
            list(offsets.end_transaction(1, group.__eq__, commit=about))
        case "drop":
            offsets.drop(group, about)
        case "drop group":
            offsets.drop_group(group)
        case "drop topic":
            offsets.drop_topic(group, about)
        case _:
            return offsets.get(group, *about), offsets.has(group, about), offsets.count(group)
    return None


def all_of(offsets: CommittedOffsets) -> Any:
    expired = [
        sorted(offsets.expired(group, 10, 5, None, lambda: lambda topic: False)) for group in GROUPS
    ]
    everything = [offsets.of_group(group) for group in GROUPS]
    empty = [offsets.is_empty(group) for group in GROUPS]
    keys = [sorted(offsets.keys(group)) for group in GROUPS]
    return expired, everything, empty, keys, sorted(offsets.group_ids())


@given(st.lists(st.tuples(steps, st.booleans()), max_size=30), st.integers(0, 4))
def test_offsets_that_are_made_later_are_those_that_are_put(
    history: list[tuple[tuple[str, str, Any], bool]], first: int
) -> None:
    """Also where some commits are of the one kind and some of the other."""
    at_once, later = CommittedOffsets(), CommittedOffsets()
    for number, (step, is_later) in enumerate(history):
        asked = take(at_once, step, number, later=False)
        assert take(later, step, number, later=is_later) == asked
    # Whatever is asked first has them made.
    assert _first(later, first) == _first(at_once, first)
    assert all_of(later) == all_of(at_once)


def _first(offsets: CommittedOffsets, which: int) -> Any:
    return (
        lambda: offsets.keys("g"),
        lambda: offsets.is_empty("g"),
        lambda: sorted(offsets.group_ids()),
        lambda: offsets.count("g"),
        lambda: offsets.of_group("g"),
    )[which]()


def test_only_the_last_of_like_commits_is_made() -> None:
    offsets, made = CommittedOffsets(), []

    def rows(number: int) -> list[OffsetRow]:
        made.append(number)
        return rows_of("g", frozenset(KEYS), number)

    for number in range(1000):
        offsets.put_unread("g", b"all", partial(rows, number))
    assert offsets.get("g", "t", 0) == rows_of("g", frozenset(KEYS), 999)[0]
    assert made == [999]


def test_what_is_not_asked_for_is_bounded() -> None:
    offsets, made = CommittedOffsets(), []

    def rows(number: int) -> list[OffsetRow]:
        made.append(number)
        return [OffsetRow("g", "t", number, 1, -1, "", 5)]

    for number in range(1000):
        offsets.put_unread("g", b"%d" % number, partial(rows, number))
    assert len(made) > 960
    assert offsets.count("g") == 1000


def test_groups_are_named_without_what_was_not_asked_for() -> None:
    """One turn of the event loop would make the rows of all groups."""
    offsets = CommittedOffsets()
    offsets.put_unread("g", b"all", lambda: pytest.fail("it was asked for"))
    assert list(offsets.group_ids()) == ["g"]


def test_groups_that_commit_are_noted_however_they_do() -> None:
    offsets = CommittedOffsets(rows_of("before", frozenset(KEYS), 1))
    with offsets.noting_commits() as noted:
        assert not noted
        offsets.put(rows_of("g", frozenset(KEYS[:1]), 2)[0])
        offsets.put_unread("h", b"", partial(rows_of, "h", frozenset(KEYS[:1]), 3))
        for row in rows_of("i", frozenset(KEYS[:1]), 4):
            offsets.pending.put(PendingRow(1, row))
        assert noted == {"g", "h"}
        list(offsets.end_transaction(1, "i".__eq__, commit=True))
        offsets.drop_group("before")
        assert noted == {"g", "h", "i"}
    offsets.put(rows_of("j", frozenset(KEYS[:1]), 5)[0])
    assert "j" not in noted
