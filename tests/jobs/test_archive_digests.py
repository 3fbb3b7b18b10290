"""Checksums of records do not depend on how the records are cut."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from horolog.jobs.archives.digests import BatchDigest, RecordDigest, joined
from horolog.jobs.archives.facts import NUMBERS, Facts
from horolog.jobs.archives.reading import SCHEMA

BINARY = st.none() | st.binary(max_size=9)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
ROW = st.fixed_dictionaries(
    {
        "key": BINARY,
        "value": BINARY,
        "headers": st.lists(
            st.fixed_dictionaries({"key": st.text(max_size=3), "value": BINARY}), max_size=3
        ),
        "offset": INT64,
        "timestamp_ms": INT64,
        "timestamp_type": st.integers(0, 1),
        "create_ms": INT64,
        "append_ms": st.none() | INT64,
        "seen_ms": st.none() | INT64,
    }
)


def digest_of(*tables: list[dict[str, object]]) -> str:
    digest = RecordDigest()
    for rows in tables:
        digest.add(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    return digest.text()


@given(st.lists(ROW, max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_a_digest_is_of_the_rows_and_not_of_their_tables(
    rows: list[dict[str, object]], one: int, two: int
) -> None:
    first, second = sorted((one, two))
    whole = digest_of(rows)
    assert digest_of(rows[:first], rows[first:second], rows[second:]) == whole
    parts = (rows[:first], rows[first:second], rows[second:])
    a, b, c = map(digest_of, parts)
    assert joined(joined(a, b), c) == joined(a, joined(b, c)) == whole
    sliced = pa.RecordBatch.from_pylist([*rows, *rows], schema=SCHEMA).slice(len(rows))
    digest = RecordDigest()
    digest.add(sliced)
    assert digest.text() == whole


@given(st.lists(ROW, min_size=1, max_size=5), st.data())
def test_any_change_of_a_row_is_another_digest(
    rows: list[dict[str, object]], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(rows) - 1))
    changed = data.draw(ROW.filter(lambda row: row != rows[place]))
    assert digest_of([*rows[:place], changed, *rows[place + 1 :]]) != digest_of(rows)


@given(st.lists(st.lists(INT64, min_size=len(NUMBERS), max_size=len(NUMBERS)), max_size=6))
def test_digests_of_batches_join_too(rows: list[list[int]]) -> None:
    payloads = np.array([b"one", None, b"two", None, b"three", b"four"][: len(rows)], object)
    is_control = np.array([payload is not None for payload in payloads], np.bool_)
    facts = Facts(np.array(rows, np.int64).reshape(-1, len(NUMBERS)), payloads, is_control)
    whole, first, second = BatchDigest(), BatchDigest(), BatchDigest()
    whole.add(facts)
    first.add(facts.taken(slice(2)))
    second.add(facts.taken(slice(2, None)))
    assert joined(first.text(), second.text()) == whole.text()
    assert joined("", whole.text()) == joined(whole.text(), "") == whole.text()


def test_digests_are_those_of_archives_that_exist_already() -> None:
    """Of records in format v0, too: archives once gave them type 0, as restored logs still do."""
    row: dict[str, object] = {"key": b"k", "value": None, "offset": 7, "timestamp_ms": -1}
    row |= {
        "headers": [{"key": "h", "value": b"1"}],
        "create_ms": -1,
        "append_ms": None,
        "seen_ms": None,
    }
    known = (
        "7671b78e:8 48674bc7:8 48674bc7:4 48674bc7:8 0ede89f2:8 "
        "9522e17f:4 aa326b08:1 ffffffff:4 00000000:0 9522e17f:4 "
        "9522e17f:4 b96298fc:1 9522e17f:4 90f599e3:1"
    )
    assert [digest_of([row | {"timestamp_type": kind}]) for kind in (0, -1)] == [known, known]
    assert digest_of([row | {"timestamp_type": 1}]) != known
    assert digest_of([row | {"timestamp_type": 0, "seen_ms": -1}]) != known
    appended, seen = ({"timestamp_type": 0, name: 5} for name in ("append_ms", "seen_ms"))
    assert digest_of([row | appended]) != digest_of([row | seen])
