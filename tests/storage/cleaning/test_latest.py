"""A log read for the latest value of each key adds up to what all of it does."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

import pytest
from batches import marker
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from horolog.buffers import Buffer
from horolog.errors import StorageFailed
from horolog.groups import GroupReplay
from horolog.record import (
    HEADER_SIZE,
    Codec,
    LogRecord,
    build_batch,
    cleaning,
    parse_header,
    with_records,
)
from horolog.schemas.group_records import (
    CurrentKey,
    MemberKey,
    TargetKey,
    TargetValue,
    value_bytes,
)
from horolog.schemas.offsets import (
    CommittedValue,
    GroupKey,
    GroupValue,
    OffsetKey,
    committed_bytes,
    group_bytes,
    key_bytes,
)
from horolog.storage import Files, SegmentReader, names, replay_latest, replay_segments

NOW = 1_000
TOPIC_ID = UUID(int=5)
KEYS = 5
ANY_MAP = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    cleaning.load_kernels()


class Log:
    """Segments that are written a batch at a time."""

    def __init__(self, directory: Path, base_offset: int = 100) -> None:
        self.directory = directory
        self.next_offset = base_offset
        self.paths: list[Path] = []
        self.roll()

    def roll(self) -> None:
        self.paths.append(self.directory / names.segment_file(self.next_offset, names.LOG))
        self.paths[-1].write_bytes(b"")

    def add(self, batch: bytes) -> None:
        with self.paths[-1].open("ab") as log:
            log.write(batch)
        self.next_offset = parse_header(batch).next_offset

    def put(self, *records: LogRecord, **fields: object) -> None:
        self.add(build_batch(records, base_offset=self.next_offset, **fields))  # type: ignore[arg-type]

    def segments(self) -> list[SegmentReader]:
        files = Files(read_only=True)
        return [SegmentReader.at(files, str(path), int(path.stem)) for path in self.paths]

    def latest(self, first_offset: int = 0, most_map_bytes: int = ANY_MAP) -> list[bytes]:
        """The batches that are given."""
        found: list[bytes] = []
        said = replay_latest(
            self.segments(),
            first_offset,
            lambda batch: found.append(bytes(batch)),
            most_map_bytes=most_map_bytes,
        )
        assert not list(said)
        return found


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def commit(number: int, offset: int) -> LogRecord:
    value = committed_bytes(CommittedValue(offset, commit_ms=NOW, topic_id=TOPIC_ID))
    return LogRecord(NOW, key_bytes(OffsetKey("g", "t", number)), value)


def removal(number: int) -> LogRecord:
    return LogRecord(NOW, key_bytes(OffsetKey("g", "t", number)), None)


def state(replay: GroupReplay) -> tuple[object, ...]:
    groups, offsets, _, *consumer = replay.stored(lambda _: TOPIC_ID)
    records = [(each.key, each.value, each.timestamp) for each in replay.records()]
    pending = replay.pending(lambda _: TOPIC_ID)
    said = replay.unreadable, replay.reason
    return sorted(groups), sorted(offsets), pending, consumer, records, said


def states(log: Log, first_offset: int, most_map_bytes: int) -> list[tuple[object, ...]]:
    """What the whole log adds up to, and what the latest values do."""
    found = []
    for is_latest in (False, True):
        replay, segments = GroupReplay(), log.segments()
        if is_latest:
            said = replay_latest(segments, first_offset, replay.take, most_map_bytes=most_map_bytes)
        else:
            said = replay_segments(segments, first_offset, replay.take)
        found.append((list(said), *state(replay)))
    return found


def some_record(chance: random.Random, at: int) -> LogRecord:
    number = chance.randrange(KEYS)
    match chance.choices(range(8), (60, 12, 12, 12, 4, 4, 4, 4))[0]:
        case 0:
            return commit(number, at)
        case 1:
            return removal(number)
        case 2:
            key = key_bytes(GroupKey(f"g{number % 2}"))
            return LogRecord(
                NOW, key, chance.choice([None, group_bytes(GroupValue("consumer", at))])
            )
        case 3:
            member = chance.choice([MemberKey, TargetKey, CurrentKey])(f"g{number % 2}", "m")
            values = [None, value_bytes(TargetKey("g", "m"), TargetValue())]
            return LogRecord(NOW, key_bytes(member), chance.choice(values))
        case 4:
            return LogRecord(NOW, None, b"no key")
        case 5:
            return LogRecord(NOW, key_bytes(OffsetKey("g", "t", number)), b"no value of Kafka's")
        case 6:
            return LogRecord(NOW, b"\0\x63", b"of an unknown type")
        case _:
            return commit(number, at)._replace(headers=(("header", b"value"),))


def write(log: Log, chance: random.Random) -> None:
    """A random history."""
    for _ in range(chance.randrange(1, 60)):
        kind = chance.random()
        producer_id = chance.randrange(3)
        count = chance.choice([1, 1, 1, 2, 5, 20, 60])
        records = [some_record(chance, log.next_offset) for _ in range(count)]
        if kind < 0.6:
            log.put(*records)
        elif kind < 0.7:
            log.put(*records, codec=chance.choice(list(Codec)))
        elif kind < 0.85:
            log.put(*records, producer_id=producer_id, is_transactional=True)
        elif kind < 0.93:
            log.add(marker(log.next_offset, producer_id, kind=chance.randrange(2), epoch=-1))
        elif kind < 0.96:
            log.roll()
        else:
            log.next_offset += chance.randrange(1, 4)  # what compaction took away
    if chance.random() < 0.2:
        spoil(chance.choice(log.paths), chance)


def spoil(path: Path, chance: random.Random) -> None:
    """Damage a segment: any byte, one under a checksum that is right, or its end."""
    data = bytearray(path.read_bytes())
    if not data:
        return
    kind = chance.randrange(3)
    at = chance.randrange(len(data))
    if kind == 0:
        data[at] = chance.randrange(256)
    elif kind == 1:
        header = parse_header(data)
        at = chance.randrange(HEADER_SIZE, header.size) if header.size > HEADER_SIZE else 0
        data[at] ^= 1 << chance.randrange(8)
        records = bytes(data[HEADER_SIZE : header.size])
        data[: header.size] = with_records(header, records)
    else:
        del data[at:]
    path.write_bytes(data)


@examples(1)
@given(st.randoms(use_true_random=False), st.integers(0, 40), st.booleans())
def test_the_latest_values_add_up_to_what_the_whole_log_does(
    tmp_path_factory: pytest.TempPathFactory,
    chance: random.Random,
    behind: int,
    has_little_room: bool,
) -> None:
    log = Log(tmp_path_factory.mktemp("log"))
    write(log, chance)
    first = chance.choice([0, 100 + behind, log.next_offset])
    whole, latest = states(log, first, cleaning.SLOT_BYTES * 3 if has_little_room else ANY_MAP)
    assert latest == whole


def offsets_of(batches: Sequence[Buffer]) -> list[int]:
    return [parse_header(batch).base_offset for batch in batches]


def test_superseded_values_are_passed(log: Log) -> None:
    for at in range(1_000):
        log.put(commit(at % 3, at))
    assert offsets_of(log.latest()) == [1097, 1098, 1099]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_large_batches_are_passed_where_all_of_their_records_are_superseded(
    log: Log, codec: Codec
) -> None:
    many = [commit(number, 1) for number in range(100)]
    log.put(*many, codec=codec)
    log.put(*many, codec=codec)
    log.put(*many[:99], codec=codec)
    log.put(*many[:98], codec=codec)
    assert offsets_of(log.latest()) == [200, 300, 399]


def test_what_follows_the_record_that_has_no_room_is_given_whole(log: Log) -> None:
    for number in (0, 0, 1, 1, 2, 2, 0, 0):
        log.put(commit(number, 1))
    # The record at 106 is behind what is in the map: it supersedes nothing.
    assert offsets_of(log.latest(most_map_bytes=3 * cleaning.SLOT_BYTES)) == [101, *range(103, 108)]


def test_tombstones_are_given_and_supersede(log: Log) -> None:
    log.put(commit(0, 1))
    log.put(removal(0))
    log.put(removal(0))
    log.put(commit(0, 2))
    assert offsets_of(log.latest()) == [101, 102, 103]


@pytest.mark.parametrize("count", [1, 50])
def test_a_batch_that_cannot_be_decoded_supersedes_none_and_is_given(log: Log, count: int) -> None:
    """Its checksum is right, and so are its keys, but not its headers."""
    log.put(commit(0, 1))
    last = commit(0, 2)._replace(headers=(("name", None),))
    good = build_batch([*(count - 1) * [commit(0, 1)], last], base_offset=log.next_offset)
    header, records = parse_header(good), bytearray(good[HEADER_SIZE:])
    at = records.rindex(b"name") - 1
    records[at] = 1  # the name is -1 bytes long
    log.add(with_records(header, records))
    log.put(commit(1, 1))
    log.put(commit(0, 3), commit(1, 2))
    assert offsets_of(log.latest()) == [101, 102 + count]
    log.put(commit(1, 3))
    whole, latest = states(log, 0, ANY_MAP)
    assert latest == whole
    log.add(with_records(header._replace(base_offset=log.next_offset), records))
    whole, latest = states(log, 0, ANY_MAP)
    assert latest == whole


@pytest.mark.parametrize("count", [1, 50])
@pytest.mark.parametrize("kind", [0, 1, None])
def test_a_record_of_a_transaction_supersedes_none_and_is_given(
    log: Log, kind: int | None, count: int
) -> None:
    log.put(commit(0, 1))
    log.put(*count * [commit(0, 2)], producer_id=7, is_transactional=True)
    if kind is not None:
        log.add(marker(101 + count, 7, kind=kind, epoch=-1))
    assert offsets_of(log.latest()) == [100, 101, 101 + count][: 2 if kind is None else 3]


def test_batches_that_end_before_the_log_start_are_left_out(log: Log) -> None:
    for _ in range(3):
        log.put(commit(0, 1), removal(1))
    assert offsets_of(log.latest(103)) == [102, 104]


def test_a_segment_that_changes_while_it_is_read_fails_the_whole(log: Log) -> None:
    log.put(commit(0, 1))
    log.roll()
    log.put(commit(1, 1))

    def take(batch: Buffer) -> None:
        data = bytearray(log.paths[1].read_bytes())
        data[-1] ^= 1
        log.paths[1].write_bytes(data)

    def replay() -> Iterator[str]:
        return replay_latest(log.segments(), 0, take)

    with pytest.raises(StorageFailed, match="has changed"):
        list(replay())
