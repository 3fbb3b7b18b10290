from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horolog.jobs.questions.groups import GroupTable, Pending

ROW = st.tuples(st.integers(0, 3), st.integers(-2, 2), st.integers(0, 9), st.booleans())
TABLES = st.lists(st.lists(ROW, max_size=12), max_size=12)


def groups(rows: list[tuple[int, int, int, bool]]) -> GroupTable:
    hours, producers, values, flags = (
        [np.array(column, np.int64) for column in zip(*rows, strict=True)]
        if rows
        else [np.empty(0, np.int64)] * 4
    )
    return GroupTable(
        {"hour": hours, "producer": producers},
        {"records": np.ones(len(rows), np.bool_), "flagged": flags.astype(np.bool_)},
        {"least": values},
        {"most": values},
    )


def as_rows(found: GroupTable) -> list[dict[str, Any]]:
    columns = {name: each.tolist() for name, each in found.columns.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@given(TABLES, st.integers(1, 30))
def test_sums_are_those_of_all_tables_however_often_they_are_handed_on(
    tables: list[list[tuple[int, int, int, bool]]], most_rows: int
) -> None:
    pending, handed_on = Pending(most_rows), []
    for rows in tables:
        now = pending.add(groups(rows))
        if now is not None:
            handed_on += as_rows(now)
        assert pending.rows <= most_rows
    last = pending.take()
    handed_on += [] if last is None else as_rows(last)
    assert pending.take() is None
    every = [row for rows in tables for row in rows]
    records, flagged = Counter[Any](), Counter[Any]()
    for row in handed_on:
        records[row["hour"], row["producer"]] += row["records"]
        flagged[row["hour"], row["producer"]] += row["flagged"]
    assert records == Counter((hour, producer) for hour, producer, _, _ in every)
    assert +flagged == Counter((hour, producer) for hour, producer, _, flag in every if flag)
    for row in handed_on:
        of_key = [v for h, p, v, _ in every if (h, p) == (row["hour"], row["producer"])]
        assert min(of_key) <= row["least"] <= row["most"] <= max(of_key)
    assert min((row["least"] for row in handed_on), default=0) == min(
        (value for _, _, value, _ in every), default=0
    )


@given(st.lists(ROW, min_size=1, max_size=40))
def test_each_key_is_there_once(rows: list[tuple[int, int, int, bool]]) -> None:
    found = as_rows(groups(rows).added_up())
    keys = [(row["hour"], row["producer"]) for row in found]
    assert len(keys) == len(set(keys)) == len({row[:2] for row in rows})
