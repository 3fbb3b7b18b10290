"""ListOffsets requests for one partition, with and without being decoded by their schema."""

import dataclasses
import itertools
import random
import struct
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from dispatched_client import DispatchedClient, without_decoding
from examples import examples
from faulty_calls import failing
from hypothesis import given
from hypothesis import strategies as st
from raw_connection import encoded, produce_fields
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.network import Hangup, Peer
from horolog.record import Codec, LogRecord, build_batch
from horolog.storage import WouldBlock
from horolog.wire import BY_APPEND_TIME, BY_CREATE_TIME, SUPPORTED, ApiKey, request_prefix

TIMES = [NOW_MS + 10 * number for number in range(60)]
EDGES = [0, NOW_MS - 1, TIMES[-1], TIMES[-1] + 1, 2**63 - 1, -(2**63)]
VERSIONS = range(SUPPORTED[ApiKey.LIST_OFFSETS].min, SUPPORTED[ApiKey.LIST_OFFSETS].max + 1)
TOPICS = ("plain", "unstamped", "brief")


class Asked(NamedTuple):
    """One request, and what is done to its bytes."""

    topic: str
    version: int
    partition: int = 0
    epoch: int = -1
    timestamp: int = NOW_MS
    isolation: int = 0
    timeout_ms: int = 0
    tag: int | None = None
    """How many bytes before the end a tagged field is put; the zero there becomes its count."""
    trailing: bytes = b""
    at: int | None = None
    """Where a byte is changed."""

    def frame(self, correlation_id: int = 1) -> bytes:
        """The request without its length."""
        partition = {
            "partition_index": self.partition,
            "current_leader_epoch": self.epoch,
            "timestamp": self.timestamp,
        }
        fields = {
            "isolation_level": self.isolation,
            "topics": [{"name": self.topic, "partitions": [partition]}],
            "timeout_ms": self.timeout_ms,
        }
        body = encoded(ApiKey.LIST_OFFSETS, self.version, fields) + self.trailing
        head = request_prefix(ApiKey.LIST_OFFSETS, self.version, correlation_id, "me", len(body))
        frame = bytearray(head[4:] + body)
        if self.tag is not None and self.version >= 6:
            at = len(frame) - self.tag
            frame[at : at + 1] = b"\x01\x63\x02hi"
        if self.at is not None:
            frame[self.at % len(frame)] ^= 0x55
        return bytes(frame)


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    return Asked(
        draw(st.sampled_from(["plain", "plain", *TOPICS, "missing"])),
        draw(st.sampled_from([1, 1, 5, 7, 11, *VERSIONS])),
        draw(st.sampled_from([0, 0, 0, 1, 2, -1, 2**31 - 1])),
        draw(st.sampled_from([-1, -1, 0, 1, 7, -2])),
        draw(st.sampled_from([*TIMES[::7], *EDGES, *range(-8, 0)])),
        draw(st.sampled_from([0, 0, 0, 1, 2, -1, BY_APPEND_TIME, BY_CREATE_TIME + 1, 127])),
        draw(st.sampled_from([0, 0, 30_000])),
        draw(st.sampled_from([None, None, None, 1, 2, 3, 6, 7])),
        draw(st.sampled_from([b"", b"", b"", b"\0", b"\0\0\0\0"])),
        draw(st.none() | st.none() | st.integers(0, 250)),
    )


changes = st.sampled_from(["delete", "append", "append", "cut"])


def fill(broker: RunningBroker) -> None:
    broker.create_topic("plain", partitions=2, segment_bytes="1000", index_interval_bytes="1")
    for topic in TOPICS[1:]:
        broker.create_topic(topic, partitions=2)
    append(broker, "plain", TIMES)
    append(broker, "brief", TIMES[:3])
    partition = broker.broker.led("unstamped", 0)
    config = dataclasses.replace(partition.log.config, message_format_version=0)
    broker.call(lambda: partition.obey(config, retention_exempt=False))


broker = a_broker(scope="module", prepare=fill)


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[DispatchedClient]:
    client = DispatchedClient(broker)
    yield client
    client.close()


def append(broker: RunningBroker, topic: str, times: list[int]) -> None:
    chance = random.Random(3)
    with broker.connect() as connection:
        while times:
            now, times = times[:4], times[4:]
            codec = chance.choice([Codec.NONE, Codec.LZ4, Codec.ZSTD])
            batch = build_batch([LogRecord(time, None, b"value") for time in now], codec=codec)
            connection.ask(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: batch}))


def cut(broker: RunningBroker, topic: str) -> None:
    """Delete the records of a topic's first partition."""
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": -1}]}]
    broker.ask(ApiKey.DELETE_RECORDS, 2, topics=topics)


def change(broker: RunningBroker, what: str, topic: str) -> None:
    known = broker.broker.topics.find(topic)
    if known is None:
        broker.create_topic(topic)
    elif what == "delete":
        broker.run(broker.broker.controller.delete_topic(known))
    elif what == "append":
        append(broker, topic, TIMES[:3])
    else:
        cut(broker, topic)


_NUMBERS = itertools.count()


@examples(1)
@given(steps=st.lists(st.one_of(requests(), requests(), requests(), changes), max_size=40))
def test_a_client_with_the_shortcut_gets_the_same_answers(
    broker: RunningBroker, steps: list[Asked | str]
) -> None:
    sides = [DispatchedClient(broker), DispatchedClient(broker, shortcut=False)]
    changing = f"changing-{next(_NUMBERS)}"
    ids = itertools.count(-5)
    for step in steps * 2:
        if isinstance(step, str):
            change(broker, step, changing)
            continue
        for asked in (step, step._replace(topic=changing), step._replace(timestamp=TIMES[5])):
            frame = asked.frame(next(ids))
            first, second = (side.give(frame) for side in sides)
            assert first == second, asked
    for side in sides:
        side.close()


@pytest.mark.parametrize("version", [version for version in VERSIONS if version])
def test_a_lookup_is_not_decoded_and_answered_as_if_it_were(
    broker: RunningBroker,
    client: DispatchedClient,
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = [
        Asked("plain", version, timestamp=TIMES[9]),
        Asked("plain", version, timestamp=-1),
        Asked("plain", version, partition=5),
    ]
    whole = DispatchedClient(broker, shortcut=False)
    expected = [whole.give(each.frame(77)) for each in others]
    whole.close()
    without_decoding(monkeypatch)
    assert [client.give(each.frame(77)) for each in others] == expected


def test_what_is_not_in_the_page_cache_is_found_in_a_thread_without_decoding(
    broker: RunningBroker, client: DispatchedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [client.give(Asked("plain", 11, timestamp=time).frame()) for time in TIMES]
    failing(monkeypatch, broker.broker.partitions, "without_blocking", WouldBlock())
    without_decoding(monkeypatch)
    assert [client.give(Asked("plain", 11, timestamp=time).frame()) for time in TIMES] == expected


def test_a_tagged_field_that_looks_like_a_partition_is_not_taken_for_one(
    broker: RunningBroker, client: DispatchedClient
) -> None:
    plain = Asked("plain", 7).frame()
    whole = DispatchedClient(broker, shortcut=False)
    for time in TIMES[:2]:
        looks_like_it = struct.pack(">iiq", 0, -1, time) + b"\0\0\0"
        frame = plain[:-1] + b"\x01\x63" + bytes([len(looks_like_it)]) + looks_like_it
        assert client.give(frame) == whole.give(frame)
    whole.close()


def test_it_is_authorised_as_any_other(broker: RunningBroker) -> None:
    allowed = [True]

    def authorise(peer: Peer, key: ApiKey) -> None:
        if not allowed[0]:
            raise Hangup("You may no longer")

    client = DispatchedClient(broker, authorise=authorise)
    for _ in range(2):
        assert isinstance(client.give(Asked("plain", 11).frame()), bytes)
    allowed[0] = False
    assert client.give(Asked("plain", 11).frame()) == "Hangup: You may no longer"
    client.close()


def test_an_unauthenticated_client_is_refused(broker: RunningBroker) -> None:
    client = DispatchedClient(broker)
    client.peer = Peer(broker.bound[0], "1.2.3.4")
    for _ in range(2):
        assert "before authentication" in str(client.give(Asked("plain", 11).frame()))
    client.close()
