"""The clock of append times that all logs of a directory share, over stops and kills."""

from pathlib import Path
from uuid import UUID

import pytest
from faulty_calls import full_disk
from hypothesis import given
from hypothesis import strategies as st
from storelogs import APPEND_TIME, DAY, NOW, batch, snapshot_of

from horolog.config import BrokerConfig
from horolog.storage import AheadSpan, LogDir, TopicPartition, prepare

NAMES = ("a", "b", "c")
CLOCK = "append-time-clock"


def opened(
    path: Path, *, now: int = NOW, known: bool = True, follows: tuple[str, ...] = ()
) -> LogDir:
    log_dir = LogDir.open(
        path,
        broker_config=BrokerConfig(),
        topic_config=lambda topic: APPEND_TIME,
        follows=follows.__contains__,
        is_known=lambda topic: known,
        now_ms=now,
    )
    for number, name in enumerate(NAMES):
        if TopicPartition(name, 0) not in log_dir.logs:
            log_dir.create(name, 0, UUID(int=number + 1), APPEND_TIME, now)
    return log_dir


def stamp(log_dir: LogDir, name: str, now: int) -> int:
    log = log_dir.logs[TopicPartition(name, 0)]
    prepared = prepare(batch(0), log.config, now, partition=name)
    return log.append(prepared, now).log_append_time_ms


def test_no_log_stamps_below_the_last_stamp_of_any(tmp_path: Path) -> None:
    log_dir = opened(tmp_path)
    assert stamp(log_dir, "a", NOW + 5) == NOW + 5
    assert stamp(log_dir, "b", NOW) == NOW + 5
    assert stamp(log_dir, "b", NOW + 7) == NOW + 7
    assert stamp(log_dir, "a", NOW - DAY) == NOW + 7
    log_dir.create("new", 0, UUID(int=9), APPEND_TIME, NOW)
    assert stamp(log_dir, "new", NOW) == NOW + 7
    log_dir.close()


@pytest.mark.parametrize("stop", ["clean", "kill", "kill after a checkpoint"])
def test_the_clock_continues_after_any_stop(tmp_path: Path, stop: str) -> None:
    log_dir = opened(tmp_path / "log")
    stamp(log_dir, "a", NOW + DAY)
    if stop == "kill after a checkpoint":
        log_dir.save_stamps()
    if stop == "clean":
        log_dir.close()
    snapshot_of(tmp_path / "log", tmp_path / "next")
    if stop != "clean":
        log_dir.close(clean=False)
    log_dir = opened(tmp_path / "next")
    assert log_dir.stamps.last_ms == NOW + DAY
    assert stamp(log_dir, "b", NOW) == NOW + DAY
    log_dir.close()


def test_a_deleted_log_leaves_its_last_stamp(tmp_path: Path) -> None:
    log_dir = opened(tmp_path / "log")
    stamp(log_dir, "a", NOW + DAY)
    log_dir.delete([TopicPartition("a", 0)], 0)
    snapshot_of(tmp_path / "log", tmp_path / "killed")
    log_dir.close(clean=False)
    log_dir = opened(tmp_path / "killed")
    assert stamp(log_dir, "b", NOW) == NOW + DAY
    log_dir.close()


@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize("why", ["new", "follows", "ahead before"])
def test_a_floor_ahead_of_the_clock_pulls_no_other_log(tmp_path: Path, why: str, stop: str) -> None:
    path = tmp_path / "log"
    log_dir = opened(path)
    stamp(log_dir, "a", NOW + DAY)
    if why == "ahead before":
        log_dir.lower_stamps(NOW)  # as an operator sets it back
        log_dir.save_stamps()
    log_dir.close()
    if why != "ahead before":
        (path / CLOCK).write_text(f"0\n{NOW} {NOW}\n0\n")
    if stop == "kill":
        (path / ".kafka_cleanshutdown").unlink()
    for _ in range(2):  # what was found is written down at once
        log_dir = opened(path, known=why != "new", follows=("a",) if why == "follows" else ())
        assert log_dir.stamps.last_ms == NOW
        assert log_dir.ahead_span(TopicPartition("a", 0)) == AheadSpan(NOW, NOW + DAY)
        assert stamp(log_dir, "b", NOW) == NOW
        if why != "follows":
            assert stamp(log_dir, "a", NOW) == NOW + DAY
        assert log_dir.stamps.last_ms == NOW
        log_dir.close(clean=stop == "clean")
        why = "ahead before" if why == "new" else why


@pytest.mark.parametrize(
    "content",
    [
        "",
        "0\n",
        "0\nx 5\n0\n",
        "9\n5 5\n0\n",
        "0\n5 5\n1\n",
        "0\n5 5\n0",
        "0\n5 5\n1\na 0\n",
        "0\n5 5\n1\na 0 7\n",
        "0\n5\n0\n",
        "0\n5 6\n0\n",
        "0\n5 5\n0\nfollows a\n",
        "0\n5 5\n0\nfollows a -1\n",
        "\xff",
        None,
    ],
)
def test_a_damaged_clock_begins_with_the_machines(tmp_path: Path, content: str | None) -> None:
    log_dir = opened(tmp_path)
    stamp(log_dir, "a", NOW + DAY)
    log_dir.close()
    (tmp_path / CLOCK).unlink()
    if content is not None:
        (tmp_path / CLOCK).write_text(content)
    log_dir = opened(tmp_path, now=NOW + 1)
    assert log_dir.stamps.last_ms == NOW + 1
    assert stamp(log_dir, "a", NOW) == NOW + DAY
    log_dir.close()


def test_a_first_record_above_the_floor_of_an_empty_log_is_no_reset(tmp_path: Path) -> None:
    log_dir = opened(tmp_path)
    stamp(log_dir, "a", NOW)
    log = log_dir.logs[TopicPartition("a", 0)]
    stamp(log_dir, "b", NOW + 9)
    log.delete_records(-1)
    assert stamp(log_dir, "a", NOW - DAY) == NOW + 9
    assert log.floor.resets == ()
    log_dir.close()


def test_a_log_whose_floor_was_ahead_proves_what_the_clock_gave_it_since(tmp_path: Path) -> None:
    log_dir = opened(tmp_path / "log")
    stamp(log_dir, "a", NOW + 50)
    log_dir.lower_stamps(NOW)  # as an operator sets it back
    log_dir.save_stamps()
    assert stamp(log_dir, "a", NOW + 100) == NOW + 100
    snapshot_of(tmp_path / "log", tmp_path / "killed")
    log_dir.close(clean=False)
    log_dir = opened(tmp_path / "killed")
    assert stamp(log_dir, "b", NOW) == NOW + 100
    log_dir.close()


def test_a_full_disk_prevents_no_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = opened(tmp_path)
    stamp(log_dir, "a", NOW)
    with monkeypatch.context() as patch:
        full_disk(patch)
        log_dir.delete([TopicPartition("a", 0)], 0)
        assert log_dir.remove_deleted(DAY) == 1
    log_dir.close()


def test_a_full_disk_prevents_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = opened(tmp_path)
    stamp(log_dir, "a", NOW + DAY)
    log_dir.close()
    with monkeypatch.context() as patch:
        full_disk(patch)
        log_dir = opened(tmp_path)
    assert stamp(log_dir, "b", NOW) == NOW + DAY
    log_dir.close()


Step = tuple[str, int]


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(NAMES), st.integers(-50, 50)),
            st.tuples(st.just("tick"), st.integers(-50, 50)),
            st.tuples(st.sampled_from(["stop", "kill"]), st.integers(-50, 50)),
            st.tuples(st.just("delete"), st.integers(0, 2)),
        ),
        max_size=30,
    )
)
def test_stamps_never_go_back_whatever_the_clock_does(
    steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("clock")
    log_dir, generation, last, highest = opened(path), 0, 0, NOW
    for step, number in steps:
        now = NOW + number
        if step in NAMES:
            stamped = stamp(log_dir, step, now)
            highest = max(highest, now)
            assert last <= stamped <= highest
            last = stamped
        elif step == "tick":
            highest = max(highest, now)
            log_dir.stamps.rise(now)
            log_dir.save_stamps()
        elif step == "delete":
            log_dir.delete([TopicPartition(NAMES[number], 0)], 0)
            log_dir.create(NAMES[number], 0, UUID(int=100 + generation), APPEND_TIME, NOW)
        else:
            generation += 1
            if step == "stop":
                log_dir.close()
            following = path.with_name(f"{path.name}-{generation}")
            snapshot_of(path, following)
            if step == "kill":
                log_dir.close(clean=False)
            highest = max(highest, now)
            path, log_dir = following, opened(following, now=now)
            assert last <= log_dir.stamps.last_ms <= highest
    log_dir.close(clean=False)


def test_the_times_stamped_ahead_of_the_clock_are_kept_after_it_has_caught_up(
    tmp_path: Path,
) -> None:
    log_dir = opened(tmp_path)
    stamp(log_dir, "a", NOW + DAY)
    log_dir.lower_stamps(NOW)  # as an operator sets it back
    log_dir.save_stamps()
    for now in (NOW + DAY // 2, NOW + 2 * DAY):
        log_dir.stamps.rise(now)
        log_dir.save_stamps()
        assert log_dir.ahead_span(TopicPartition("a", 0)) == AheadSpan(NOW, NOW + DAY)
    log_dir.close()
    log_dir = opened(tmp_path)
    assert log_dir.ahead_span(TopicPartition("a", 0)) == AheadSpan(NOW, NOW + DAY)
    assert log_dir.ahead_span(TopicPartition("b", 0)) is None
    log_dir.close()


@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_a_topic_made_again_has_not_stamped_what_the_deleted_one_had(
    tmp_path: Path, stop: str
) -> None:
    log_dir = opened(tmp_path)
    stamp(log_dir, "a", NOW + DAY)
    log_dir.lower_stamps(NOW)
    log_dir.save_stamps()
    log_dir.delete([TopicPartition("a", 0)], 0)
    log_dir.create("a", 0, UUID(int=9), APPEND_TIME, NOW)
    stamp(log_dir, "a", NOW)
    assert log_dir.ahead_span(TopicPartition("a", 0)) is None
    log_dir.close(clean=stop == "clean")
    log_dir = opened(tmp_path)
    assert log_dir.ahead_span(TopicPartition("a", 0)) is None
    log_dir.close()
