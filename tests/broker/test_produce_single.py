"""Produce requests for one partition, with and without being decoded by their schema."""

import dataclasses
import itertools
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from dispatched_client import DispatchedClient, without_decoding
from hypothesis import given
from hypothesis import strategies as st
from overrides import override
from raw_connection import encoded, produce_fields
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.broker import write_queue
from horolog.clock import DAY_MS, ManualClock
from horolog.errors import ErrorCode
from horolog.network import Hangup, Peer
from horolog.record import Codec, LogRecord, build_batch
from horolog.record.scan import load_kernels
from horolog.wire import ApiKey, request_prefix

TOPICS = {
    "plain": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "keyed": {},
    "timely": {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"},
    "replicated": {"min.insync.replicas": "2"},
    "packed": {"compression.type": "gzip"},
    "small": {"max.message.bytes": "200"},
    "rolling": {"segment.bytes": "400"},
    "synced": {"flush.messages": "3"},
}


class Asked(NamedTuple):
    """One request, and where a byte of it is changed."""

    topic: str
    version: int
    acks: int
    partition: int
    records: bytes
    trailing: bytes
    at: int | None
    waited_ms: int


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    ages = st.sampled_from([0, 0, 0, 1, -1, 900, -900, 5000, -5000, 10 * DAY_MS, NOW_MS + 1])
    times = [NOW_MS - age for age in draw(st.lists(ages, min_size=1, max_size=4))]
    key = draw(st.sampled_from([b"k", b"k", None]))
    more: dict[str, Any] = {}
    if draw(st.booleans()):
        ids = st.sampled_from([7, 7, (1 << 63) - 1])
        more = {"producer_id": draw(ids), "producer_epoch": 0}
        more["base_sequence"] = draw(st.sampled_from([0, 0, 1, 2, -1]))
    codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP]))
    batch = build_batch([LogRecord(time, key, b"value") for time in times], codec=codec, **more)
    return batch * draw(st.sampled_from([1, 1, 1, 1, 2, 0]))


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    return Asked(
        draw(st.sampled_from(["plain", "plain", *TOPICS, "missing"])),
        draw(st.sampled_from([3, 5, 7, 8, 9, 12, 13])),
        draw(st.sampled_from([1, 1, 1, -1, 0, 2])),
        draw(st.sampled_from([0, 0, 0, 1, 2])),
        draw(batches()),
        draw(st.sampled_from([b"", b"", b"", b"\0"])),
        draw(st.none() | st.none() | st.integers(0, 250)),
        draw(st.sampled_from([0, 0, 1, 50])),
    )


class Client(DispatchedClient):
    """A client that sends Produce requests."""

    _count = 0

    def ask(self, asked: Asked, topic: str | None = None) -> bytes | str | None:
        """The answer in bytes without the topic, or why the connection would be closed."""
        name = asked.topic if topic is None else topic
        found = self.broker.broker.topics.find(name)
        topic_id = b"no topic's id" if found is None else found.topic_id.bytes
        fields = produce_fields(name, {asked.partition: asked.records}, acks=asked.acks)
        if found is not None and asked.version >= 13:
            fields["topic_data"][0]["topic_id"] = found.topic_id
        body = encoded(ApiKey.PRODUCE, asked.version, fields) + asked.trailing
        self._count += 1
        prefix = request_prefix(ApiKey.PRODUCE, asked.version, self._count, "me", len(body))
        frame = bytearray(prefix[4:] + body)
        if asked.at is not None and asked.at < len(frame):
            frame[asked.at] ^= 0x55
            if name.encode() not in frame and topic_id not in frame:
                frame[asked.at] ^= 0x55  # the topics of both sides differ
        answered = self.give(bytes(frame))
        if isinstance(answered, str):
            return answered.replace(name, "T")
        return answered and answered.replace(name.encode(), b"T").replace(topic_id, b"I")


def code_of(answer: bytes | str | None) -> tuple[int, int]:
    """The error code and the base offset of an answer of version 9, whose topic's name is T."""
    assert isinstance(answer, bytes)
    topics, _, name, partitions, _, code, base_offset = struct.unpack_from(">bbcbihq", answer, 9)
    assert (topics, name, partitions) == (2, b"T", 2)
    return code, base_offset


PLAIN = Asked("t", 9, 1, 0, build_batch([LogRecord(NOW_MS, b"k", b"v")]), b"", None, 0)


broker = a_broker("t", partitions=2, scope="module", prepare=lambda _: load_kernels())


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    client = Client(broker)
    yield client
    client.close()


def logs_of(broker: RunningBroker, topic: str, count: int = 2) -> list[Any]:
    """The bytes of all partitions' logs, segment by segment, and their append times."""
    found: list[Any] = []
    for index in range(count):
        log = broker.log(topic, index)
        found += [broker.log_dir.joinpath(each.log.path).read_bytes() for each in log.segments]
        found.append(log.look().append_times_within(0, 1 << 20))
    return found


def change(broker: RunningBroker, topic: str, **settings: Any) -> None:
    """Change the settings of partition 0 of a topic, also to what only adopted ones have."""
    partition = broker.broker.led(topic, 0)
    config = dataclasses.replace(partition.log.config, **settings)
    broker.call(lambda: partition.obey(config, retention_exempt=False))


_NUMBERS = itertools.count()


@given(asked=st.lists(requests(), min_size=4, max_size=40))
def test_a_client_with_the_shortcut_gets_the_same_answers_and_leaves_the_same_logs(
    broker: RunningBroker, clock: ManualClock, asked: list[Asked]
) -> None:
    number = next(_NUMBERS)
    sides = {True: Client(broker), False: Client(broker, shortcut=False)}
    names: dict[tuple[str, bool], str] = {}
    for side, letter in ((True, "x"), (False, "y")):
        for topic in {each.topic for each in asked}:
            names[topic, side] = name = f"{topic}-{letter}-{number}"
            if topic in TOPICS:
                broker.create_topic(name, partitions=2, **TOPICS[topic])
            if topic == "keyed":
                change(broker, name, cleanup_policy="compact")
    clock.set(NOW_MS)
    broker.run(broker.broker.partitions.keep_stamp_clock())  # not between two requests
    for each in asked * 2:  # the second time much is refused, or a duplicate
        clock.advance(each.waited_ms)
        answers = {
            side: client.ask(each, names[each.topic, side]) for side, client in sides.items()
        }
        assert answers[True] == answers[False], each
    for topic in {each.topic for each in asked} & set(TOPICS):
        assert logs_of(broker, names[topic, True]) == logs_of(broker, names[topic, False])
    for client in sides.values():
        client.close()


def test_an_append_at_once_is_not_decoded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    code, offset = code_of(client.ask(PLAIN))
    assert code == 0
    client.ask(PLAIN._replace(partition=1))  # the first append of a partition opens files
    without_decoding(monkeypatch)
    assert code_of(client.ask(PLAIN)) == (0, offset + 1)
    assert code_of(client.ask(PLAIN._replace(partition=1)))[0] == 0


def test_a_tagged_field_that_looks_like_a_partition_is_not_appended(
    broker: RunningBroker, client: Client
) -> None:
    broker.create_topic("tagged")
    real = build_batch([LogRecord(NOW_MS, b"k", b"real")])
    body = encoded(ApiKey.PRODUCE, 9, produce_fields("tagged", {0: real}))
    for value in (b"real", b"fake"):
        batch = build_batch([LogRecord(NOW_MS, b"k", value)])
        looks_like_it = struct.pack(">iB", 0, len(batch) + 1) + batch + b"\0\0\0"
        tagged = body[:-1] + b"\x01\x63" + bytes([len(looks_like_it)]) + looks_like_it
        prefix = request_prefix(ApiKey.PRODUCE, 9, 1, "me", len(tagged))
        assert isinstance(client.give(prefix[4:] + tagged), bytes)
    log = b"".join(each for each in logs_of(broker, "tagged", count=1) if isinstance(each, bytes))
    assert (log.count(b"real"), log.count(b"fake")) == (2, 0)


def test_a_refused_batch_is_checked_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = PLAIN._replace(records=PLAIN.records[:-1] + b"?")
    client.ask(PLAIN)
    prepared: list[Any] = []
    prepare = write_queue.prepare
    override(
        monkeypatch,
        "horolog.broker",
        prepare=lambda *a, **k: prepared.append(a) or prepare(*a, **k),
    )
    assert [code_of(client.ask(damaged))[0] for _ in range(10)] == [ErrorCode.corrupt_message] * 10
    assert len(prepared) == 10


def test_it_is_authorised_as_any_other(broker: RunningBroker) -> None:
    allowed = [True]

    def authorise(peer: Peer, key: ApiKey) -> None:
        if not allowed[0]:
            raise Hangup("You may no longer")

    client = Client(broker, authorise=authorise)
    for _ in range(2):
        assert code_of(client.ask(PLAIN))[0] == 0
    allowed[0] = False
    assert client.ask(PLAIN) == "Hangup: You may no longer"
    client.close()


def test_a_topic_that_is_deleted_or_created_anew_is_found_as_it_is(
    broker: RunningBroker, client: Client
) -> None:
    asked = PLAIN._replace(topic="again")
    broker.create_topic("again")
    assert [code_of(client.ask(asked)) for _ in range(2)] == [(0, 0), (0, 1)]
    controller, topics = broker.broker.controller, broker.broker.topics
    broker.run(controller.delete_topic(topics.find("again")))
    unknown = ErrorCode.unknown_topic_or_partition
    assert code_of(client.ask(asked))[0] == unknown
    broker.create_topic("again")
    assert code_of(client.ask(asked)) == (0, 0)


def test_settings_that_change_apply_to_the_next_request(
    broker: RunningBroker, client: Client
) -> None:
    asked = PLAIN._replace(topic="changing")
    broker.create_topic("changing")
    for _ in range(2):
        assert code_of(client.ask(asked))[0] == 0
    change(broker, "changing", max_message_bytes=10)
    assert code_of(client.ask(asked))[0] == ErrorCode.message_too_large
