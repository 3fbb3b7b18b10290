"""Topics and groups as they were: logs that Kafka wrote, that are damaged, compacted, rewritten."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from batches import marker
from compacting import COMPACT, put
from examples import some_of
from storelogs import open_dir

from golden import GOLDEN, extract
from horolog.errors import RequestRefused
from horolog.groups import GroupChange, GroupRow, records_of
from horolog.history import (
    AskGroupHistory,
    AskTopicHistory,
    GroupAspect,
    GroupEvent,
    GroupHistory,
    TopicAspect,
)
from horolog.metadata import TOPIC, MetadataLog, read_group_history, read_topic_history
from horolog.record import Codec, LogRecord, build_batch, parse_header
from horolog.schemas import metadata as m
from horolog.schemas.group_records import (
    AssignedTopic,
    CurrentKey,
    CurrentValue,
    GroupEpochKey,
    GroupEpochValue,
    MemberKey,
    MemberMetadataValue,
    PartitionMetadataKey,
    PatternKey,
    PatternValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
)
from horolog.schemas.metadata import METADATA_VERSION
from horolog.schemas.offsets import (
    CommittedValue,
    MemberValue,
    OffsetKey,
    committed_bytes,
    key_bytes,
)
from horolog.storage import Files, Producers, RecordFile

NOW = 1_700_000_000_000
DAY = 86_400_000
A = UUID(int=4)


def setting(value: int) -> m.Config:
    return m.Config(TOPIC, "a", "retention.ms", str(value))


def metadata_log(path: Path, *, days: int) -> MetadataLog:
    """Topic a, whose retention.ms is each day's number."""
    log = MetadataLog.open(Files(), str(path), node_id=1)
    log.append([m.FeatureLevel(METADATA_VERSION, 30), m.TopicRecord("a", A)], NOW)
    for day in range(days):
        log.append([setting(day)], NOW + day * DAY)
    return log


def values_of(path: Path, at: int | None = None) -> list[str | None]:
    found = read_topic_history(path, AskTopicHistory("a", at))
    return [each.after for each in found.changes if each.name == "retention.ms"]


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract("metadata", tmp_path_factory.mktemp("metadata"))


@pytest.mark.parametrize("release", ["4.4", "4.3", "3.9"])
def test_a_log_that_kafka_wrote_tells_of_a_topic_that_was_made_again(
    kafkas: Path, release: str
) -> None:
    found = read_topic_history(kafkas / release, AskTopicHistory("goes"))
    told = [(each.aspect, each.name, each.after) for each in found.changes]
    assert told == [
        (TopicAspect.CREATED, None, None),
        (TopicAspect.PARTITIONS, None, "2"),
        (TopicAspect.SETTING, "retention.ms", "1"),
        (TopicAspect.DELETED, None, None),
        (TopicAspect.CREATED, None, None),
        (TopicAspect.PARTITIONS, None, "1"),
    ]
    ids = [each.topic_id for each in found.changes]
    assert ids == [ids[0]] * 4 + [ids[-1]] * 2
    assert ids[0] != ids[-1]
    times = [each.time for each in found.changes]
    assert times == sorted(times)
    assert times[2] < times[3]
    alive = read_topic_history(kafkas / release, AskTopicHistory("goes", at=times[3] - 1))
    assert list(alive.changes) == list(found.changes[:3])
    again = read_topic_history(kafkas / release, AskTopicHistory("goes", at=times[-1]))
    assert list(again.changes) == list(found.changes[4:])
    assert [(each.whole_from, each.damage) for each in found.logs] == [(None, ())]


@pytest.mark.parametrize("release", ["4.4", "4.3", "3.9"])
def test_where_a_log_begins_with_kafkas_snapshot_that_is_said(
    kafkas: Path, tmp_path: Path, release: str
) -> None:
    whole = read_topic_history(kafkas / release, AskTopicHistory("settings"))
    shutil.copytree(kafkas / release, tmp_path / "d")
    directory = tmp_path / "d" / "__cluster_metadata-0"
    snapshot = max(directory.glob("*.checkpoint"))
    start = int(snapshot.name.partition("-")[0])
    segment = directory / f"{0:020}.log"
    kept = [
        bytes(batch)
        for batch in RecordFile(Files(read_only=True), str(segment)).read()
        if parse_header(batch).base_offset >= start
    ]
    for path in directory.glob(f"{0:020}.*"):
        path.unlink()
    (directory / f"{start:020}.log").write_bytes(b"".join(kept))
    found = read_topic_history(tmp_path / "d", AskTopicHistory("settings"))
    (log,) = found.logs
    assert log.damage == ()
    assert log.whole_from is not None
    by_snapshot = [each for each in found.changes if each.is_earlier]
    assert {each.time for each in by_snapshot} == {log.whole_from}
    before = read_topic_history(
        kafkas / release, AskTopicHistory("settings", at=log.whole_from)
    ).changes
    assert {(each.name, each.after) for each in by_snapshot} == {
        (each.name, each.after) for each in before
    }
    later = [each for each in whole.changes if each.time > log.whole_from]
    assert [each for each in found.changes if not each.is_earlier] == later


def test_what_a_year_has_removed_is_by_a_snapshot(tmp_path: Path) -> None:
    log = metadata_log(tmp_path, days=0)
    for number in range(100):
        log.append([setting(number)], NOW + 10 * number * DAY)
        log.snapshot(NOW + 10 * number * DAY)
    found = read_topic_history(tmp_path, AskTopicHistory("a"))
    assert [each.is_earlier for each in found.changes[:4]] == [True, True, True, False]
    assert found.logs[0].whole_from == found.changes[0].time
    assert values_of(tmp_path)[-1] == "99"
    assert values_of(tmp_path, at=found.changes[0].time - 1) == []


def test_damage_is_named_and_the_rest_is_told(tmp_path: Path) -> None:
    metadata_log(tmp_path, days=20).close()
    path = tmp_path / f"__cluster_metadata-0/{0:020}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    (log,) = read_topic_history(tmp_path, AskTopicHistory("a")).logs
    assert path.name in " ".join(log.damage)
    assert len(values_of(tmp_path)) == 19
    path.unlink()
    path.mkdir()
    (log,) = read_topic_history(tmp_path, AskTopicHistory("a")).logs
    assert log.damage


def test_kafkas_commits_are_told_with_their_times() -> None:
    found = read_group_history(GOLDEN / "clean", "golden", AskGroupHistory())
    assert len(found.events) == found.end == 60
    assert [(each.name, each.whole_from, each.damage) for each in found.logs] == [
        ("__consumer_offsets-0", None, ())
    ]
    ids = {each.topic_id for each in found.events}
    assert None not in ids
    assert len(ids) > 20
    first = found.events[0]
    only = AskGroupHistory(at=first.time, topic=first.topic)
    assert read_group_history(GOLDEN / "clean", "golden", only).events == (first,)
    assert read_group_history(GOLDEN / "clean", "gold", AskGroupHistory()).events == ()


def committed(number: int, time: int, partition: int = 0) -> LogRecord:
    key = key_bytes(OffsetKey("g", "t", partition))
    return LogRecord(time, key, committed_bytes(CommittedValue(number, commit_ms=time)))


def partition_of(path: Path, *batches: bytes) -> None:
    directory = path / "__consumer_offsets-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"".join(batches))


def offsets(found: GroupHistory) -> list[tuple[int, int | None, int | None]]:
    return [(each.time - NOW, each.partition, each.committed) for each in found.events]


def test_where_compaction_has_removed_commits_that_is_said(tmp_path: Path) -> None:
    partition_of(
        tmp_path,
        build_batch([committed(1, NOW)], base_offset=0),
        build_batch([committed(5, NOW + 10, 1)], base_offset=7),
        build_batch([committed(6, NOW + 20)], base_offset=8),
    )
    found = read_group_history(tmp_path, "g", AskGroupHistory())
    assert offsets(found) == [(0, 0, 1), (10, 1, 5), (20, 0, 6)]
    assert found.logs[0].whole_from == NOW + 10


def test_commits_of_a_transaction_come_with_its_end(tmp_path: Path) -> None:
    def transactional(number: int, base_offset: int, producer: int) -> bytes:
        return build_batch(
            [committed(number, NOW)],
            base_offset=base_offset,
            is_transactional=True,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
        )

    partition_of(
        tmp_path,
        transactional(1, 0, 10),
        transactional(2, 1, 11),
        marker(2, 11, kind=0, ms=NOW + 2),
        marker(3, 10, kind=1, ms=NOW + 3),
        transactional(4, 4, 12),
    )
    assert offsets(read_group_history(tmp_path, "g", AskGroupHistory())) == [(3, 0, 1)]
    assert offsets(read_group_history(tmp_path, "g", AskGroupHistory(at=NOW + 2))) == []


def test_generations_and_their_members_are_shown_as_they_were(tmp_path: Path) -> None:
    batches: list[bytes] = []
    members = [MemberValue(name, None, "c", "/h", 1, 1, b"", b"") for name in ("a", "b")]
    for generation, count in ((1, 1), (2, 2), (3, 0)):
        now_ms = NOW + generation
        row = GroupRow("g", "consumer", None if count else now_ms, generation)
        if count:
            row = row._replace(protocol="range", leader="a", members=tuple(members[:count]))
        records = records_of(GroupChange(groups=[row]), now_ms)
        batches.append(build_batch(records, base_offset=len(batches)))
    partition_of(tmp_path, *batches)
    found = read_group_history(tmp_path, "g", AskGroupHistory()).events
    assert [(each.time - NOW, each.generation, each.members) for each in found] == [
        (1, 1, 1),
        (2, 2, 2),
        (3, 3, 0),
    ]
    (then,) = read_group_history(tmp_path, "g", AskGroupHistory(at=NOW + 2)).events
    assert (then.generation, then.members) == (2, 2)


T, GONE = UUID(int=21), UUID(int=22)


def member(*topics: str, regex: str = "", **more: str) -> MemberMetadataValue:
    value = MemberMetadataValue(None, None, "c", "/h", topics, regex, 300, None, None)
    return value._replace(**more)  # type: ignore[arg-type]


def had(epoch: int, state: int, *assigned: tuple[UUID, int], pending: int = 0) -> CurrentValue:
    """Assignment with the first partitions of topics, and the following ones of t pending."""
    topics = tuple(AssignedTopic(topic_id, tuple(range(count))) for topic_id, count in assigned)
    gives = (AssignedTopic(T, tuple(range(100, 100 + pending))),) if pending else ()
    return CurrentValue(epoch, epoch - 1, state, topics, gives)


def consumer_log(path: Path, *changes: GroupChange) -> None:
    """A log of groups with a change a millisecond, and the metadata of topic t."""
    log = MetadataLog.open(Files(), str(path), node_id=1)
    log.append([m.FeatureLevel(METADATA_VERSION, 30), m.TopicRecord("t", T)], NOW)
    log.close()
    batches: list[bytes] = []
    offset = 0
    for number, change in enumerate(changes):
        records = records_of(change, NOW + number)
        batches.append(build_batch(records, base_offset=offset))
        offset += len(records)
    partition_of(path, *batches)


def story() -> list[GroupChange]:
    """Member a joins, then b, a gives up, b leaves; the group becomes a classic one."""
    a, b = CurrentKey("g", "a"), CurrentKey("g", "b")
    other = GroupChange(records=[(CurrentKey("other", "a"), had(9, 0, (T, 4)))])
    return [
        GroupChange(
            records=[
                (MemberKey("g", "a"), member("u", "t", instance_id="i")),
                (GroupEpochKey("g"), GroupEpochValue(2)),
                (TargetKey("g", "a"), TargetValue()),
                (TargetEpochKey("g"), TargetEpochValue(2)),
                (a, had(2, 0, (T, 4), (GONE, 1))),
            ]
        ),
        GroupChange(
            records=[
                (MemberKey("g", "b"), member(regex="^t")),
                (PatternKey("g", "^t"), PatternValue(("t",), 1, 1)),
                (GroupEpochKey("g"), GroupEpochValue(3)),
                (b, had(3, 2)),
            ]
        ),
        GroupChange(records=[(a, had(2, 1, (T, 2), pending=2))]),
        other,
        GroupChange(records=[(a, had(-2, 0, (T, 2)))]),
        GroupChange(
            records=[(b, None), (TargetKey("g", "b"), None), (MemberKey("g", "b"), None)],
        ),
        GroupChange(
            [GroupRow("g", "consumer", NOW, 4)],
            records=[
                (a, None),
                (TargetEpochKey("g"), None),
                (MemberKey("g", "a"), None),
                (PartitionMetadataKey("g"), None),
                (GroupEpochKey("g"), None),
            ],
        ),
    ]


def told(events: Iterable[GroupEvent]) -> list[tuple[object, ...]]:
    return [
        (
            event.time - NOW,
            event.aspect.value,
            *(event.member, event.generation, event.state, event.topic, event.partitions),
            event.metadata,
        )
        for event in events
    ]


FIRST = [
    (0, "member", "a", None, None, None, None, "t, u; instance i"),
    (0, "group", None, 2, None, None, None, None),
    (0, "assigned", "a", 2, "stable", None, None, None),
    (0, "assigned", "a", 2, None, "t", "0-3", None),
    (0, "assigned", "a", 2, None, None, "0", None),
]
SECOND = [
    (1, "member", "b", None, None, None, None, "pattern ^t"),
    (1, "group", None, 3, None, None, None, None),
    (1, "assigned", "b", 3, "unreleased partitions", None, None, None),
]
GIVING = [
    (2, "assigned", "a", 2, "unrevoked partitions", None, None, None),
    (2, "assigned", "a", 2, None, "t", "0-1", None),
    (2, "assigned", "a", 2, "pending revocation", "t", "100-101", None),
]


def test_members_of_a_consumer_group_and_their_partitions_are_shown(tmp_path: Path) -> None:
    consumer_log(tmp_path, *story())
    found = read_group_history(tmp_path, "g", AskGroupHistory())
    away = "left, its partitions wait for it"
    assert told(found.events) == [
        *FIRST,
        *SECOND,
        *GIVING,
        (4, "assigned", "a", -2, away, None, None, None),
        (4, "assigned", "a", -2, None, "t", "0-1", None),
        (5, "member-removed", "b", None, None, None, None, None),
        (6, "member-removed", "a", None, None, None, None, None),
        (6, "group-removed", None, None, None, None, None, None),
        (6, "group", None, 4, None, None, None, None),
    ]
    assert found.events[4].topic_id == "AAAAAAAAAAAAAAAAAAAAFg", "of a topic that is not there"
    assert found.events[-1].members == 0
    assert not found.logs[0].damage
    assert read_group_history(tmp_path, "g", AskGroupHistory(topic="t")).events == ()
    last = read_group_history(tmp_path, "g", AskGroupHistory(most=4))
    assert told(last.events) == told(found.events[-4:])


def test_a_consumer_group_is_as_it_was_at_a_time(tmp_path: Path) -> None:
    consumer_log(tmp_path, *story())

    def at(number: int) -> list[tuple[object, ...]]:
        return told(read_group_history(tmp_path, "g", AskGroupHistory(NOW + number)).events)

    assert at(0) == [FIRST[1], FIRST[0], *FIRST[2:]]
    assert at(1) == [SECOND[1], FIRST[0], *FIRST[2:], SECOND[0], SECOND[2]]
    assert at(2) == at(3) == [SECOND[1], FIRST[0], *GIVING, SECOND[0], SECOND[2]]
    assert [(each[0], each[1]) for each in at(5)] == [
        (1, "group"),
        (0, "member"),
        (4, "assigned"),
        (4, "assigned"),
    ]
    assert at(6) == [(6, "group", None, 4, None, None, None, None)]


def test_a_record_of_a_consumer_group_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    bad = LogRecord(NOW, key_bytes(CurrentKey("g", "a")), b"\0\0nonsense")
    good = records_of(GroupChange(records=[(GroupEpochKey("g"), GroupEpochValue(3))]), NOW)
    partition_of(tmp_path, build_batch([bad, *good]))
    found = read_group_history(tmp_path, "g", AskGroupHistory())
    assert [event.generation for event in found.events] == [3]
    assert "offset 0 cannot be read" in found.logs[0].damage[0]


def test_long_names_and_many_partitions_are_cut(tmp_path: Path) -> None:
    odd = AssignedTopic(T, tuple(range(1, 4001, 2)))
    change = GroupChange(
        records=[
            (MemberKey("g", "m" * 9_000), member(*(f"topic-{number}" for number in range(999)))),
            (CurrentKey("g", "m" * 9_000), CurrentValue(2, 1, 0, (odd,))),
        ]
    )
    consumer_log(tmp_path, change)
    for event in read_group_history(tmp_path, "g", AskGroupHistory()).events:
        assert {
            len(event.member or ""),
            len(event.metadata or ""),
            len(event.partitions or ""),
        } <= {
            0,
            300,
        }


def test_a_commit_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    bad = LogRecord(NOW, key_bytes(OffsetKey("g", "t", 0)), b"\0\x7fnonsense")
    partition_of(tmp_path, build_batch([bad, committed(3, NOW + 1)]))
    found = read_group_history(tmp_path, "g", AskGroupHistory())
    assert offsets(found) == [(1, 0, 3)]
    assert "offset 0 cannot be read" in found.logs[0].damage[0]
    (tmp_path / "__consumer_offsets-1").write_text("")
    assert len(read_group_history(tmp_path, "g", AskGroupHistory()).logs) == 2


def test_an_id_that_no_group_can_have_is_refused(tmp_path: Path) -> None:
    for group in ("g" * 40_000, "\ud800"):
        with pytest.raises(RequestRefused):
            read_group_history(tmp_path, group, AskGroupHistory())


def in_segments(
    path: Path, rng: Random, batches: int, ahead: Callable[[], int] = lambda: 0
) -> None:
    """Commits of groups g and h, some in transactions or compressed, in segments with snapshots."""
    directory, files = path / "__consumer_offsets-0", Files()
    directory.mkdir(exist_ok=True)
    producers, base, offset, data = Producers(), 0, 0, b""
    for number in range(batches):
        topic = rng.choice(["t", "t", "u"])
        key = key_bytes(OffsetKey(rng.choice(["g", "h"]), topic, rng.randrange(3)))
        noted = key[2:-4].decode() if rng.random() < 0.1 else ""  # seems to be in a key
        value = committed_bytes(CommittedValue(number, metadata=noted, commit_ms=NOW))
        record = LogRecord(NOW + number + ahead(), key, value if rng.random() < 0.9 else None)
        open_now = [id_ for id_, _ in producers.unended()]
        if open_now and rng.random() < 0.3:
            made = marker(offset, rng.choice(open_now), kind=rng.randrange(2), ms=NOW + number)
        elif rng.random() < 0.2:
            made = build_batch(
                [record],
                base_offset=offset,
                is_transactional=True,
                producer_id=rng.randrange(2),
                producer_epoch=0,
                base_sequence=0,
            )
        else:
            codec = Codec.GZIP if rng.random() < 0.1 else Codec.NONE
            made = build_batch([record], base_offset=offset, codec=codec)
        producers.replay(parse_header(made), lambda made=made: made, NOW)  # type: ignore[misc]
        data, offset = data + made, offset + 1 + (rng.random() < 0.03)
        if rng.random() < 0.2 or number == batches - 1:
            (directory / f"{base:020}.log").write_bytes(data)
            base, data = offset, b""
            if rng.random() < 0.8:
                producers.write(files, str(directory), base)


@pytest.mark.parametrize("seed", some_of(range(12), 4))
def test_the_last_entries_are_the_same_from_a_segment_on_as_from_the_first(
    tmp_path: Path, seed: int
) -> None:
    """Transactions that were open where a segment begins, and names in other texts, included."""
    in_segments(tmp_path, Random(seed), 150)
    cut = 0
    for topic in (None, "t"):
        whole = read_group_history(tmp_path, "g", AskGroupHistory(topic=topic))
        assert whole.since is None
        assert whole.end == len(whole.events)
        for most in (1, 2, 5, 20, 60, 400):
            found = read_group_history(tmp_path, "g", AskGroupHistory(topic=topic, most=most))
            assert found.events == whole.events[-most:]
            cut += found.since is not None
            if found.since is None:
                assert found._replace(events=()) == whole._replace(events=())
                continue
            first = found.end - len(found.events)
            for start in range(first, found.end, 3):
                following = AskGroupHistory(None, topic, most, start, found.end, found.since)
                page = read_group_history(tmp_path, "g", following)
                assert page == found._replace(events=found.events[start - first :])
            assert found.logs[0].whole_from in (None, whole.logs[0].whole_from)
    assert cut >= 4


@pytest.mark.parametrize("seed", range(8))
def test_what_was_in_force_is_the_same_though_later_segments_are_not_read(
    tmp_path: Path, seed: int
) -> None:
    """Also where a clock was ahead for a while, so that older commits follow."""
    chance = Random(seed)
    in_segments(tmp_path, chance, 120, ahead=lambda: 40 * (chance.random() < 0.1))
    whole = read_group_history(tmp_path, "g", AskGroupHistory()).events
    for at in range(NOW - 1, NOW + 170, 7):
        found = read_group_history(tmp_path, "g", AskGroupHistory(at))
        expected = {}
        for each in whole:
            if each.time <= at and each.aspect in (GroupAspect.COMMITTED, GroupAspect.REMOVED):
                expected[each.topic, each.partition] = each
        kept = {key: each for key, each in expected.items() if each.committed is not None}
        assert {(each.topic, each.partition): each for each in found.events} == kept


def test_segments_that_are_later_by_their_maps_are_not_read(tmp_path: Path) -> None:
    with closing(open_dir(tmp_path, COMPACT)) as log_dir:
        log = log_dir.create("__consumer_offsets", 0, UUID(int=7), COMPACT, NOW)
        for number in range(30):
            value = committed_bytes(CommittedValue(number, commit_ms=NOW))
            put(log, key_bytes(OffsetKey("g", "t", 0)), at=NOW + number, value=value)
        second, later = log.segments[1], log.segments[5]
        path = Path(later.log.path)
        path.write_bytes(path.read_bytes()[: later.size - 1] + b"?")
        at = NOW + second.base_offset
        found = read_group_history(tmp_path, "g", AskGroupHistory(at))
        assert [each.committed for each in found.events] == [second.base_offset]
        assert not found.logs[0].damage, "one may be at work there"
        assert read_group_history(tmp_path, "g", AskGroupHistory(NOW + 29)).logs[0].damage


def test_what_compaction_has_removed_before_segments_that_are_not_read_is_said(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"")
    key, value = key_bytes(OffsetKey("g", "t", 0)), CommittedValue(7, commit_ms=NOW)
    later = LogRecord(NOW + 100, key, committed_bytes(value))
    (directory / f"{5:020}.log").write_bytes(build_batch([later], base_offset=5))
    found = read_group_history(tmp_path, "g", AskGroupHistory(NOW + 50))
    assert (found.events, found.logs[0].whole_from) == ((), NOW + 100)


def test_segments_before_those_of_the_last_entries_are_not_read(tmp_path: Path) -> None:
    in_segments(tmp_path, Random(3), 150)
    found = read_group_history(tmp_path, "g", AskGroupHistory(most=5))
    assert found.since is not None
    for log in (tmp_path / "__consumer_offsets-0").glob("*.log"):
        if int(log.stem) < found.since:
            log.write_bytes(b"damaged" * 20)
    assert read_group_history(tmp_path, "g", AskGroupHistory(most=5)) == found
    assert read_group_history(tmp_path, "g", AskGroupHistory(most=5, since=0)).logs[0].damage
    assert read_group_history(tmp_path, "g", AskGroupHistory()).logs[0].damage


def test_entries_of_a_directory_with_two_logs_are_all_read(tmp_path: Path) -> None:
    log_dir = tmp_path / "log"
    log_dir.mkdir()
    in_segments(log_dir, Random(3), 150)
    (tmp_path / "log.horolog").mkdir()
    partition_of(tmp_path / "log.horolog", build_batch([committed(1000, NOW + 1000)]))
    found = read_group_history(log_dir, "g", AskGroupHistory(most=5))
    assert found.since is None
    assert found.events[-1].log == "log.horolog/__consumer_offsets-0"
    assert len(found.logs) == 2
