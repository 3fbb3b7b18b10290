"""No answer differs without a word where a file beside a log is lost, damaged or another's."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from batches import batch
from compacting import clean
from examples import some_of
from raw_connection import RawConnection, fetch_fields
from running_broker import RunningBroker
from transactional import end, init, write

from horolog.client import CommittedOffset
from horolog.clock import ManualClock
from horolog.errors import ErrorCode, HorologError
from horolog.record import AppendTimeStretch, LogRecord, build_batch, iter_headers, read_records
from horolog.storage import LogDir
from horolog.wire import ApiKey

NOW = 1_796_000_000_000
LATER = NOW + 4000
TOPICS = ("transactional", "cut", "emptied", "compacted", "stamped")
SETTINGS = {
    "log.retention.ms": "-1",
    "log.cleaner.enable": "false",
    "log.index.size.max.bytes": "4096",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def numbered(sequence: int) -> bytes:
    """A batch of an idempotent producer."""
    records = [LogRecord(NOW + sequence + at, b"p", b"%d" % (sequence + at)) for at in range(2)]
    return build_batch(records, producer_id=77, producer_epoch=0, base_sequence=sequence)


def fill(broker: RunningBroker, clock: ManualClock, before_end: Callable[[], object]) -> None:
    """Three rounds of transactions, deletions and compaction over several segments."""
    for topic in TOPICS:
        broker.create_topic(topic, segment_bytes="400", index_interval_bytes="0")
    broker.alter("compacted", cleanup_policy="compact")
    broker.alter("stamped", message_timestamp_type="LogAppendTime")
    sequence, producer = 0, init(broker)
    for turn in range(3):
        clock.advance(1000)
        for commit in (True, False):
            for at in (0, 2):
                assert not write(
                    broker, producer, sequence=at, version=12, topic="transactional", count=2
                )
            broker.append("transactional", numbered(sequence))
            sequence += 2
            assert end(broker, producer, commit=commit) == 0
            producer = init(broker)
        for number in range(6):
            clock.advance(7)
            for topic in ("cut", "emptied"):
                broker.append(topic, batch(*(NOW + number * 3 + at for at in range(4))))
            pair = [LogRecord(NOW + number, key % (number % 3 + 3 * turn), b"x") for key in KEYS]
            broker.append("compacted", build_batch(pair))
            broker.append("stamped", batch(5, 5))
        broker.delete_records("cut", 6 + 8 * turn)  # within a batch
        broker.roll("compacted")
        clean(broker.log("compacted"), clock.now_ms())
        committed = {("cut", 0): CommittedOffset(10 + turn, "note")}
        broker.client.offset_commit("group", committed)
        if turn == 1:
            broker.delete_records("emptied", broker.log("emptied").log_end_offset)
        broker.run(broker.service.background_tasks.checkpoint())
        broker.run(broker.broker.partitions.run(LogDir.checkpoint_cleaner))
        if turn == 1:
            before_end()
    assert not write(broker, producer, version=12, topic="transactional", count=2)  # stays open


KEYS = (b"k%d", b"same%d")
APPENDED = ("append times", "appended")
"""Answers about append times, which only companion files have."""


class Templates(NamedTuple):
    """Log directories: as a stop or a kill left them, and of an earlier moment."""

    whole: Mapping[bool, Path]
    older: Mapping[bool, Path]
    answers: Mapping[bool, Mapping[Any, Any]]


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    whole, older, answers = {}, {}, {}
    for is_clean in (True, False):
        base = tmp_path_factory.mktemp("side")
        clock = ManualClock(NOW)
        broker = RunningBroker(base / "log", SETTINGS, clock)
        fill(broker, clock, partial(shutil.copytree, base / "log", base / "older"))
        if is_clean:
            broker.stop()
        else:
            broker.kill()
        whole[is_clean], older[is_clean] = base / "log", base / "older"
        shutil.copytree(base / "log", base / "asked")
        with RunningBroker(base / "asked", SETTINGS, ManualClock(LATER)) as broker:
            answers[is_clean] = answers_of(broker)
    return Templates(whole, older, answers)


def answers_of(broker: RunningBroker) -> dict[Any, Any]:
    """What clients can ask, by topic and question; of a partition that is offline little."""
    found: dict[Any, Any] = {}
    for topic in broker.ask(ApiKey.METADATA, 12, topics=None).topics:
        if topic.name in TOPICS:
            (partition,) = topic.partitions
            found[topic.name, "id"] = topic.topic_id
            found[topic.name, "code"] = partition.error_code
    with RawConnection(broker.address) as connection:
        for topic, isolation in product(TOPICS, (0, 1)):
            if found.get((topic, "code")) == 0:
                its = read(connection, topic, isolation)
                found |= {(topic, isolation, what): each for what, each in its.items()}
    for topic in TOPICS:
        if found.get((topic, "code")) == 0:
            log = broker.log(topic)
            start, end_offset = log.log_start_offset, log.log_end_offset
            stretches = [*log.append_times(start, end_offset), AppendTimeStretch(end_offset, None)]
            found[topic, "append times"] = {
                offset: stretch.ms
                for stretch, after in pairwise(stretches)
                for offset in range(stretch.offset, after.offset)
            }
            found[topic, "appended"] = [log.find_by_append_time(NOW + at) for at in ASKED_MS]
            found[topic, "epochs"] = [log.epochs.epoch_at(at) for at in range(start, end_offset)]
    committed = broker.client.offset_fetch("group")
    for (topic, _), offset in committed.items():
        found[topic, "committed"] = offset and (offset.offset, offset.metadata)
    again = broker.produce("transactional", numbered(10))
    gap = broker.produce("transactional", numbered(30))
    found["transactional", "sequences"] = again.error_code, again.base_offset, gap.error_code
    for topic, settings in broker.client.topics.settings(TOPICS).items():
        found[topic, "settings"] = settings
    return found


ASKED_MS = (0, 1, 5, 9, 12, 40, 1000, 1010, 2000, 3100, 99_999)


def read(connection: RawConnection, topic: str, isolation: int) -> dict[str, Any]:
    """Records, aborted transactions, ends and lookups by time of a partition."""

    def look(timestamp: int) -> tuple[int, int, int]:
        asked = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
        topics = [{"name": topic, "partitions": [asked]}]
        answer = connection.ask(ApiKey.LIST_OFFSETS, 7, isolation_level=isolation, topics=topics)
        its = answer.topics[0].partitions[0]
        return its.error_code, its.timestamp, its.offset

    times = [look(at) for at in (-2, -1, -3, *(NOW + at for at in ASKED_MS))]
    rows, aborted = [], set()
    offset, end_offset = times[0][2], times[1][2]
    while offset < end_offset:
        fields = fetch_fields(topic, {0: offset}, isolation_level=isolation)
        its = connection.ask(ApiKey.FETCH, 12, **fields).responses[0].partitions[0]
        assert its.error_code == 0, its
        aborted |= {
            (each.producer_id, each.first_offset) for each in its.aborted_transactions or ()
        }
        before, data = offset, bytes(its.records)
        for position, header in iter_headers(data):
            if not header.is_control:
                some = read_records(data[position : position + header.size])
                rows += [(each.offset, each.timestamp, each.key) for each in some]
            offset = header.next_offset
        assert offset > before
    return {"times": times, "rows": rows, "aborted": aborted}


# --- files and what becomes of them -------------------------------------------------------


def started(log_dir: Path, now_ms: int, name: str) -> RunningBroker | None:
    """A broker; None if it refuses to start in a sentence with the name of the file."""
    try:
        return RunningBroker(log_dir, SETTINGS, ManualClock(now_ms))
    except HorologError as error:
        refusal = str(error)
    assert name in refusal
    return None


FILES = [
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "horolog-checkpoint-ids",
    "__cluster_metadata-0/leader-epoch-checkpoint",
    "__consumer_offsets-0/leader-epoch-checkpoint",
    *(
        f"{topic}-0/{name}"
        for topic in ("transactional", "cut", "emptied")
        for name in ("partition.metadata", "leader-epoch-checkpoint", "append-time-checkpoint")
    ),
    "transactional-0/*.snapshot",
    "transactional-0/*.batches",
    "transactional-0/*.txnindex",
    "transactional-0/*.companion",
    "compacted-0/*.companion",
    "stamped-0/*.companion",
]


def from_another(path: Path, _: Path, log_dir: Path) -> None:
    """The file of another partition that is like it most."""
    if path.parent == log_dir:
        path.write_bytes(b"0\n1\nother 0 3\n")
        return
    alike = [
        *(each for each in log_dir.glob(f"*-0/{path.name}")),
        *(each for each in log_dir.glob(f"*-0/*{path.suffix or path.name}")),
    ]
    source = next((each for each in alike if each.parent != path.parent), None)
    path.unlink()
    if source is not None:
        shutil.copy(source, path)


def older(path: Path, earlier: Path, log_dir: Path) -> None:
    before = earlier / path.relative_to(log_dir)
    if before.exists():
        shutil.copy(before, path)
    else:
        path.unlink()


def cut(path: Path, *_: object) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


HARMS: dict[str, Callable[[Path, Path, Path], object]] = {
    "missing": lambda path, *_: path.unlink(),
    "empty": lambda path, *_: path.write_bytes(b""),
    "zeroed": lambda path, *_: path.write_bytes(bytes(path.stat().st_size)),
    "cut": cut,
    "another's": from_another,
    "older": older,
}
CASES = [*product(FILES, HARMS, (True, False))]


@pytest.mark.parametrize("case", some_of(CASES, 23))
def test_all_answers_are_equal_or_a_partition_is_offline_and_named(
    templates: Templates,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    case: tuple[str, str, bool],
) -> None:
    name, harm, is_clean = case
    log_dir = tmp_path / "log"
    shutil.copytree(templates.whole[is_clean], log_dir)
    for path in sorted(log_dir.glob(name)):
        HARMS[harm](path, templates.older[is_clean], log_dir)
    expected = templates.answers[is_clean]
    for turn in range(2):
        broker = started(log_dir, LATER + turn, name)
        if broker is None:
            return
        with broker:
            found = answers_of(broker)
            offline = {topic for topic in TOPICS if found[topic, "code"]}
            for topic in offline:
                assert broker.produce(topic, batch(NOW)).error_code == STORAGE_ERROR
        assert all(f"{topic}-0" in caplog.text for topic in offline)
        for key, answer in expected.items():
            if key[0] in offline or (key[-1] in APPENDED and name.endswith("companion")):
                continue
            assert found.get(key) == answer, (key, caplog.messages)
        for topic in TOPICS:  # unknown, but not wrong
            for offset, ms in found.get((topic, "append times"), {}).items():
                assert ms in (None, expected[topic, "append times"][offset])
    assert not [record for record in caplog.records if record.exc_info]


STORAGE_ERROR = ErrorCode.kafka_storage_error
