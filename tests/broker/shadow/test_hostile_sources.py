"""A source that answers nonsense: one partition is refused with a reason, the others continue."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from following import status_of
from overrides import override
from patience import eventually
from running_broker import NOW_MS, MakeBroker, RunningBroker
from scripted_source import Answer, ScriptedSource, Tamper

from horolog.clock import ManualClock
from horolog.record import LogRecord, build_batch, parse_header
from horolog.wire import FOLLOWING, ApiKey, Versions

EPOCH = 3


def batch(base_offset: int, count: int = 3, epoch: int = EPOCH) -> bytes:
    records = [LogRecord(NOW_MS + each, None, bytes(40)) for each in range(count)]
    return build_batch(records, base_offset=base_offset, leader_epoch=epoch)


@pytest.fixture
def source() -> Iterator[ScriptedSource]:
    source = ScriptedSource("bad", "good")
    for topic in source.topics.values():
        topic.batches = [batch(0), batch(3)]
    with source:
        yield source


@pytest.fixture
def follow(source: ScriptedSource, make_broker: MakeBroker) -> Callable[[], RunningBroker]:
    return lambda: make_broker(
        clock=ManualClock(NOW_MS), horolog_follow=source.address, log_retention_ms="-1"
    )


def end_of(shadow: RunningBroker, topic: str) -> int:
    found = shadow.broker.partitions.find(topic, 0)
    return -1 if found is None else int(found.log.high_watermark)


def why(shadow: RunningBroker, topic: str = "bad") -> str:
    status = status_of(shadow, topic)
    return "" if status is None or status.why is None else status.why


def of_bad(change: Callable[[Answer], Answer]) -> Tamper:
    """Tamper with what is said of one topic."""
    return lambda topic, answer: change(answer) if topic == "bad" else answer


def with_records(change: Callable[[bytes], bytes]) -> Callable[[Answer], Answer]:
    return lambda answer: answer | {"records": change(answer["records"])}


def flipped(data: bytes, position: int = 80) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :] if data else data


NONSENSE: dict[str, tuple[Callable[[bytes], bytes], str, int]] = {
    "crc": (flipped, "crc", 0),
    "second_crc": (lambda d: d and batch(0) + flipped(batch(3)), "crc", 3),
    "no_batch": (lambda d: d and b"\x00" * 100, "size", 0),
    "text": (lambda d: d and b"HTTP/1.1 400 Bad Request\r\n" * 9, "magic", 0),
    "negative_size": (lambda d: d and d[:8] + b"\xff\xff\xff\xff" + d[12:], "size", 0),
    "later_epoch": (lambda d: d and batch(0, epoch=EPOCH + 1), "leader epoch", 0),
    "absurd_epoch": (lambda d: d and batch(0, epoch=(1 << 31) - 1), "leader epoch", 0),
    "epochs_fall": (lambda d: d and batch(0) + batch(3, epoch=1), "leader epoch 1", 0),
    "offsets_go_back": (lambda d: d and batch(0) + batch(2), "offsets", 3),
    "same_again": (lambda d: d and batch(0) + batch(0), "offsets", 3),
    "negative_offset": (lambda d: d and batch(-5), "offset", 0),
    "only_a_part": (lambda d: d[:70], "no whole batch", 0),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_records_that_do_not_belong_are_refused(
    source: ScriptedSource, follow: Callable[[], RunningBroker], case: str
) -> None:
    change, reason, kept = NONSENSE[case]
    source.tamper[ApiKey.FETCH] = of_bad(with_records(change))
    shadow = follow()
    assert eventually(lambda: end_of(shadow, "good") == 6)
    assert eventually(lambda: reason in why(shadow).lower()), why(shadow)
    assert end_of(shadow, "bad") <= kept
    source.topics["good"].batches.append(batch(6))
    assert eventually(lambda: end_of(shadow, "good") == 9), "the other one continues"
    source.tamper.clear()
    assert eventually(lambda: end_of(shadow, "bad") == 6), why(shadow)
    assert eventually(lambda: why(shadow) == "")
    assert len(shadow.headers("bad")) == 2


def test_what_is_refused_is_asked_for_ever_more_slowly(
    source: ScriptedSource, follow: Callable[[], RunningBroker]
) -> None:
    source.tamper[ApiKey.FETCH] = of_bad(with_records(flipped))
    shadow = follow()
    assert eventually(lambda: "crc" in why(shadow).lower())
    assert eventually(lambda: end_of(shadow, "good") == 6)

    def asked() -> int:
        ids = [t.topic_id for r in source.asked(ApiKey.FETCH) for t in r.topics]
        return ids.count(source.topics["bad"].topic_id)

    assert asked() < 5


def test_a_batch_that_is_cut_short_at_the_end_is_normal(
    source: ScriptedSource, follow: Callable[[], RunningBroker]
) -> None:
    source.tamper[ApiKey.FETCH] = of_bad(with_records(lambda d: d + d[:50]))
    shadow = follow()
    assert eventually(lambda: end_of(shadow, "bad") == 6)
    assert eventually(lambda: why(shadow) == "")


def test_partitions_that_were_not_asked_for_do_no_harm(
    source: ScriptedSource, follow: Callable[[], RunningBroker]
) -> None:
    lie: dict[str, Any] = {
        "error_code": 0,
        "high_watermark": 99,
        "last_stable_offset": 99,
        "log_start_offset": 0,
        "records": batch(0),
    }
    source.extra = [
        {"topic": "x", "topic_id": UUID(int=99), "partitions": [lie | {"partition_index": 0}]},
        {
            "topic": "good",
            "topic_id": source.topics["good"].topic_id,
            "partitions": [lie | {"partition_index": index} for index in (-1, 0, 7)],
        },
    ]
    shadow = follow()
    assert eventually(lambda: end_of(shadow, "good") == end_of(shadow, "bad") == 6)
    assert shadow.headers("good") == [parse_header(batch(0)), parse_header(batch(3))]


@pytest.mark.parametrize("high_watermark", [-1, -(1 << 63), (1 << 63) - 1])
def test_high_watermarks_that_cannot_be_do_no_harm(
    source: ScriptedSource, follow: Callable[[], RunningBroker], high_watermark: int
) -> None:
    source.tamper[ApiKey.FETCH] = lambda topic, answer: answer | {"high_watermark": high_watermark}
    shadow = follow()
    assert eventually(
        lambda: len(shadow.headers("good")) == 2 if end_of(shadow, "good") >= 0 else False
    )
    assert end_of(shadow, "good") == (6 if high_watermark > 0 else 0)
    source.tamper.clear()
    source.topics["good"].batches.append(batch(6))
    assert eventually(lambda: end_of(shadow, "good") == 9)


@pytest.mark.parametrize("epoch", [-1, -7, (1 << 31) - 1])
def test_leader_epochs_that_cannot_be_are_refused(
    source: ScriptedSource, follow: Callable[[], RunningBroker], epoch: int
) -> None:
    def change(answer: Answer) -> Answer:
        (partition,) = answer["partitions"]
        return answer | {"partitions": [partition | {"leader_epoch": epoch}]}

    source.tamper[ApiKey.METADATA] = of_bad(change)
    shadow = follow()
    assert eventually(lambda: end_of(shadow, "good") == 6)
    assert eventually(lambda: "epoch" in why(shadow))
    assert end_of(shadow, "bad") == 0
    source.tamper.clear()
    assert eventually(lambda: end_of(shadow, "bad") == 6)


@pytest.mark.parametrize("code", [-1, 2, 3, 6, 29, 56, 75, 76, 100, 32_000])
def test_errors_of_one_partition_leave_the_others(
    source: ScriptedSource, follow: Callable[[], RunningBroker], code: int
) -> None:
    source.tamper[ApiKey.FETCH] = of_bad(
        lambda answer: answer | {"error_code": code, "records": b""}
    )
    shadow = follow()
    assert eventually(lambda: end_of(shadow, "good") == 6)
    assert eventually(lambda: "fetch of bad-0" in why(shadow))
    source.tamper.clear()
    assert eventually(lambda: end_of(shadow, "bad") == 6)


@pytest.mark.parametrize("bounds", [(-1, -1), (9, 4), (-3, 100)])
def test_bounds_that_cannot_be_change_nothing(
    source: ScriptedSource, follow: Callable[[], RunningBroker], bounds: tuple[int, int]
) -> None:
    shadow = follow()
    assert eventually(lambda: end_of(shadow, "bad") == 6)
    out_of_range = {"error_code": 1, "high_watermark": -1, "records": b""}
    source.tamper[ApiKey.FETCH] = of_bad(lambda answer: answer | out_of_range)
    source.tamper[ApiKey.LIST_OFFSETS] = of_bad(
        lambda answer: answer | {"offset": bounds[0] if answer["target"] == -2 else bounds[1]}
    )
    assert eventually(lambda: "cannot be" in why(shadow)), why(shadow)
    assert end_of(shadow, "bad") == 6


@pytest.mark.parametrize("answer", [(9, 0), (EPOCH + 1, 0), ((1 << 31) - 1, -1)])
def test_epochs_that_were_not_asked_for_change_nothing(
    source: ScriptedSource, follow: Callable[[], RunningBroker], answer: tuple[int, int]
) -> None:
    shadow = follow()
    assert eventually(lambda: end_of(shadow, "bad") == 6)
    source.topics["bad"].epoch_ends[EPOCH] = answer
    source.topics["bad"].epoch += 1
    assert eventually(lambda: "asked for the end of 3" in why(shadow))
    assert end_of(shadow, "bad") == 6
    source.topics["bad"].epoch_ends.clear()
    source.topics["bad"].batches.append(batch(6, epoch=EPOCH + 1))
    assert eventually(lambda: end_of(shadow, "bad") == 9)


def test_a_source_whose_epochs_fall_is_refused(
    source: ScriptedSource,
    follow: Callable[[], RunningBroker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that was restored from an old copy; names and ids are the same."""
    override(monkeypatch, "horolog.replication", FALLEN_MS=100)
    shadow = follow()
    assert eventually(lambda: end_of(shadow, "bad") == 6)
    source.topics["bad"].epoch = 1
    source.topics["bad"].batches = [batch(0, epoch=1)]
    assert eventually(lambda: "in epoch 1, and was followed up to epoch 3" in why(shadow))
    assert end_of(shadow, "bad") == 6
    status = status_of(shadow, "bad")
    assert status is not None
    assert status.state == "refused"


def test_a_topic_that_is_made_again_where_there_are_no_ids_is_refused(
    make_broker: MakeBroker,
) -> None:
    source = ScriptedSource("t", versions=OLD)
    topic = source.topics["t"]
    topic.topic_id, topic.epoch = None, 0
    topic.batches = [batch(0, epoch=0), batch(3, epoch=0)]
    with source:
        shadow = make_broker(clock=ManualClock(NOW_MS), horolog_follow=source.address)
        assert eventually(lambda: end_of(shadow, "t") == 6)
        topic.batches = [batch(0, 1, epoch=0)]
        assert eventually(lambda: "another topic of the same name" in why(shadow, "t"))
        assert end_of(shadow, "t") == 6


OLD = {
    ApiKey.METADATA: Versions(0, 7),
    ApiKey.FETCH: Versions(0, 10),
    ApiKey.LIST_OFFSETS: Versions(0, 4),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(0, 2),
    ApiKey.DESCRIBE_CONFIGS: Versions(0, 2),
}


def test_a_source_of_2_1_is_followed_by_name(make_broker: MakeBroker) -> None:
    source = ScriptedSource("t", versions=OLD)
    topic = source.topics["t"]
    topic.topic_id = None
    topic.batches = [batch(0), batch(3)]
    with source:
        shadow = make_broker(clock=ManualClock(NOW_MS), horolog_follow=source.address)
        assert eventually(lambda: end_of(shadow, "t") == 6)
        topic.batches = [batch(0), batch(3, 5, EPOCH + 1)]
        topic.epoch_ends[EPOCH] = (EPOCH, 3)
        topic.epoch += 1
        assert eventually(lambda: end_of(shadow, "t") == 8), why(shadow, "t")
        assert [h.leader_epoch for h in shadow.headers("t")] == [EPOCH, EPOCH + 1]


def test_a_source_before_2_1_is_refused(make_broker: MakeBroker) -> None:
    source = ScriptedSource("t", versions=OLD | {ApiKey.METADATA: Versions(0, 6)})
    source.topics["t"].topic_id = None
    with source:
        shadow = make_broker(clock=ManualClock(NOW_MS), horolog_follow=source.address)
        assert eventually(lambda: "2.1 or later" in why(shadow, "t"))


@pytest.mark.parametrize("cluster_id", ["c" * 32_000, "c\n\x1b[31m", ""])
def test_a_source_without_a_proper_cluster_id_is_not_followed(
    source: ScriptedSource, follow: Callable[[], RunningBroker], cluster_id: str
) -> None:
    source.cluster_id = cluster_id
    shadow = follow()

    def error() -> str:
        return shadow.client.ask(FOLLOWING).error or ""

    assert eventually(lambda: "id of its cluster" in error()), error()
    assert len(error()) < 1_000
    assert not shadow.client.ask(FOLLOWING).entries
