"""A replica's Fetch request, encoded by hand and decoded without the careful reader."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.wire import NO_CLOCK, ApiKey, MalformedRequest, decode_request
from horolog.wire.careful_reader import Unreadable, read_carefully
from horolog.wire.codec import decode_response, encode_request
from horolog.wire.fetch import (
    DivergingEpoch,
    FetchedAbort,
    FetchedPartition,
    FetchedTopic,
    encode_fetch_response,
)
from horolog.wire.frame import LENGTH_BYTES, request_prefix
from horolog.wire.replica_fetch import (
    ReplicaFetch,
    encode_replica_fetch,
    read_later_answer,
    read_later_fetch,
)
from horolog.wire.schema import load

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
ids = st.sampled_from([None, UUID(int=1), UUID(int=(1 << 128) - 1)])
fetches = st.builds(
    ReplicaFetch, int32, int32, int32, st.integers(-128, 127), int32, int32, int32, int64
)
partitions = st.lists(st.tuples(int32, int32, int64, int32, int64, int32), max_size=200)
topics = st.lists(st.tuples(ids, partitions), max_size=3)
forgotten = st.lists(st.tuples(ids, st.sets(int32, max_size=200)), max_size=3)

PARTITION = [
    "partition",
    "current_leader_epoch",
    "fetch_offset",
    "last_fetched_epoch",
    "log_start_offset",
    "partition_max_bytes",
]


def fields_of(fetch: ReplicaFetch, asked: Any, gone: Any) -> dict[str, Any]:
    *fields, replica_id, replica_epoch = fetch
    return {
        **dict(zip(ReplicaFetch._fields, fields, strict=False)),
        "replica_state": {"replica_id": replica_id, "replica_epoch": replica_epoch},
        "rack_id": "",
        "topics": [
            {"topic_id": id_, "partitions": [dict(zip(PARTITION, it, strict=True)) for it in some]}
            for id_, some in asked
        ],
        "forgotten_topics_data": [
            {"topic_id": id_, "partitions": sorted(some)} for id_, some in gone
        ],
    }


@given(fetch=fetches, asked=topics, gone=forgotten, clock_ms=st.none() | int64)
def test_it_is_what_the_schema_writes(
    fetch: ReplicaFetch, asked: Any, gone: Any, clock_ms: int | None
) -> None:
    if clock_ms == NO_CLOCK:
        clock_ms = None
    encoded = encode_replica_fetch(fetch, asked, gone, append_clock_ms=clock_ms)
    for version in (17, 18):
        fields = fields_of(fetch, asked, gone)
        if clock_ms is not None:
            fields["append_clock_ms"] = clock_ms
        assert encoded == encode_request(ApiKey.FETCH, version, fields)


@pytest.mark.parametrize("version", [15, 16, 17, 18])
@given(
    more=st.fixed_dictionaries(
        {},
        optional={
            "cluster_id": st.sampled_from([None, "", "c" * 125, "c" * 140]),
            "append_clock_ms": st.integers(-5, 5),
        },
    ),
    has_state=st.booleans(),
    cut=st.sampled_from([0, 0, 0, 1, 2, 9, 12, 14, 15, 16]),
    change=st.none() | st.tuples(st.integers(1, 40), st.integers(1, 255)),
)
def test_tagged_fields_are_read_as_the_careful_reader_reads_them(
    version: int, more: Any, has_state: bool, cut: int, change: Any
) -> None:
    fields = fields_of(ReplicaFetch(500, 1, 9, 6, 3, 4, 2, 77), [], [])
    if not has_state:
        del fields["replica_state"]
    data = bytearray(encode_request(ApiKey.FETCH, version, fields | more))
    if change is not None:
        data[-min(change[0], len(data))] ^= change[1]
    body = bytes(data[: len(data) - cut])
    shape = load("request", ApiKey.FETCH, version)
    try:
        expected = read_carefully(shape, body, may_trail=True)
    except Unreadable:
        with pytest.raises(MalformedRequest):
            decode_request(ApiKey.FETCH, version, body)
    else:
        assert decode_request(ApiKey.FETCH, version, body) == expected


def frame_of(version: int, body: bytes, client_id: str = "broker-2-fetcher-0") -> bytes:
    prefix = request_prefix(ApiKey.FETCH, version, 77, client_id, len(body))
    return prefix[LENGTH_BYTES:] + body


@pytest.mark.parametrize("version", [17, 18])
@given(fetch=fetches, id_=ids, asked=partitions, clock_ms=st.none() | int64)
def test_a_later_fetch_is_read_as_the_schema_reads_it(
    version: int, fetch: ReplicaFetch, id_: Any, asked: Any, clock_ms: int | None
) -> None:
    topics = [(id_, asked[:2])] if asked else []
    body = encode_replica_fetch(fetch, topics, append_clock_ms=clock_ms)
    found = read_later_fetch(frame_of(version, body))
    if len(asked) > 1 or (asked and id_ is None):
        assert found is None
        return
    assert found is not None
    read = decode_request(ApiKey.FETCH, version, body)
    assert (found.version, found.correlation_id) == (version, 77)
    for name in ReplicaFetch._fields[:6]:
        assert getattr(found, name) == getattr(read, name)
    assert (found.replica_id, found.replica_epoch) == tuple(fetch[6:])
    assert found.append_clock_ms == read.append_clock_ms
    if asked:
        assert found.topic_id == read.topics[0].topic_id
        (partition,) = read.topics[0].partitions
        assert all(getattr(found, name) == getattr(partition, name) for name in PARTITION)
    else:
        assert found.topic_id is None


@pytest.mark.parametrize("version", [16, 17])
def test_other_forms_of_a_fetch_are_left_to_the_schema(version: int) -> None:
    fetch = ReplicaFetch(500, 1, 9, 6, 3, 4, 2, 77)
    one = [(UUID(int=1), [(0, 1, 2, 3, 4, 5)])]
    whole = frame_of(version, encode_replica_fetch(fetch, one, append_clock_ms=3))
    assert (read_later_fetch(whole) is None) == (version == 16)
    forgotten = encode_replica_fetch(fetch, one, [(UUID(int=1), [1])])
    assert read_later_fetch(frame_of(version, forgotten)) is None
    fields = fields_of(fetch, one, []) | {"rack_id": "r"}
    assert (
        read_later_fetch(frame_of(version, encode_request(ApiKey.FETCH, version, fields))) is None
    )
    fields = fields_of(fetch, one, []) | {"cluster_id": "c"}
    assert (
        read_later_fetch(frame_of(version, encode_request(ApiKey.FETCH, version, fields))) is None
    )
    for size in range(len(whole)):
        assert read_later_fetch(whole[:size]) is None
    assert read_later_fetch(whole + b"\0") is None


def answer_of(topics: list[FetchedTopic], **more: Any) -> bytes:
    return b"".join(encode_fetch_response(18, topics, session_id=9, **more))


@given(
    id_=ids,
    offsets=st.tuples(int32, int64, int64, int64),
    records=st.sampled_from([b"", b"r", bytes(126), bytes(127), bytes(20_000)]),
    aborted=st.none() | st.lists(st.builds(FetchedAbort, int64, int64), max_size=3),
    clock_ms=st.none() | int64,
    count=st.integers(0, 2),
    before=st.binary(max_size=3),
)
def test_a_later_answer_is_read_as_the_schema_reads_it(
    id_: Any,
    offsets: Any,
    records: bytes,
    aborted: Any,
    clock_ms: int | None,
    count: int,
    before: bytes,
) -> None:
    index, *three = offsets
    partition = FetchedPartition(index, 0, *three, records, aborted)
    topics = [FetchedTopic("", id_, [partition] * count)] if count else []
    body = answer_of(topics, append_clock_ms=clock_ms)
    found = read_later_answer(before + body, len(before))
    if count == 2 or (count and id_ is None):
        assert found is None
        return
    assert found is not None
    read = decode_response(ApiKey.FETCH, 18, body)
    assert (found.error_code, found.session_id) == (read.error_code, read.session_id) == (0, 9)
    assert found.append_clock_ms == read.append_clock_ms
    if not count:
        assert found.topic_id is None
        return
    (topic,) = read.responses
    (it,) = topic.partitions
    assert (found.topic_id, found.partition) == (topic.topic_id, it.partition_index)
    for name in ("high_watermark", "last_stable_offset", "log_start_offset"):
        assert getattr(found, name) == getattr(it, name)
    assert bytes(found.records) == bytes(it.records)
    listed = [(one.producer_id, one.first_offset) for one in it.aborted_transactions or ()]
    assert found.aborted_transactions == listed


def test_other_forms_of_an_answer_are_left_to_the_schema() -> None:
    good = FetchedPartition(0, 0, 3, 3, 0, b"records", [FetchedAbort(0, -1)])
    whole = answer_of([FetchedTopic("", UUID(int=1), [good])], append_clock_ms=5)
    assert read_later_answer(whole, 0) is not None
    for other in (good._replace(error_code=6), good._replace(diverging=DivergingEpoch(1, 2))):
        assert read_later_answer(answer_of([FetchedTopic("", UUID(int=1), [other])]), 0) is None
    for size in range(len(whole)):
        assert read_later_answer(whole[:size], 0) is None
    assert read_later_answer(whole + b"\0", 0) is None
    for place in range(len(whole)):
        for flipped in (1, 128, 255):
            changed = bytearray(whole)
            changed[place] ^= flipped
            read_later_answer(bytes(changed), 0)
