"""`horolog replay`: merged by time, at the recorded pace; resumed, and nothing doubled."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_runner import run_command
from examples import examples
from faulty_calls import failing, late_markers
from hypothesis import given
from hypothesis import strategies as st
from mirror_lab import rows_of
from mirror_lab import values as values_of
from overrides import override
from partition_files import PartitionFiles
from patience import PATIENCE_S, eventually
from running_broker import MakeBroker, RunningBroker, a_broker
from storelogs import records_in

from horolog import jobs
from horolog.client import Appends, Client, Topics
from horolog.client.transactions import Transactions
from horolog.clock import ManualClock
from horolog.errors import ErrorCode, Misconfigured, RequestRefused, StorageFailed
from horolog.jobs.replaying.sending import MAX_RECORDS, TICK_MS, Pace, ReplayTarget, Sending
from horolog.jobs.replaying.source import Due, Extent
from horolog.jobs.state import JobState
from horolog.record import Codec, LogRecord, build_batch, partition_of_key
from horolog.sources import ReadRecord
from horolog.storage import TopicPartition
from horolog.wire import ApiKey

T0 = 1_700_000_000_000
Rows = dict[TopicPartition, list[int | None]]


def in_order(rows: Rows, *, last: bool = True) -> list[Due]:
    """All records by time, partition and offset; those without a time last, or first."""
    dues = [
        Due(
            ms,
            partition,
            ReadRecord(
                partition.partition,
                place,
                "CreateTime",
                LogRecord(-1 if ms is None else ms, None, value_of(partition, place), (), place),
            ),
        )
        for partition, times in rows.items()
        for place, ms in enumerate(times)
    ]
    return sorted(dues, key=lambda due: ((due.ms is None) == last, due.ms or 0, due.place[1:]))


def value_of(partition: TopicPartition, place: int) -> bytes:
    return b"%d-%d" % (partition.partition, place)


class Interrupted(BaseException):
    """The process is gone."""


class Run:
    """A replay of rows to one topic, on a clock that only sleeping moves."""

    def __init__(
        self,
        broker: RunningBroker,
        rows: Rows,
        clock: ManualClock,
        *,
        speed: float | None = 1,
        state: JobState | None = None,
        stop_at: int | None = None,
        partitions: int = 1,
        **more: Any,
    ) -> None:
        self.slept: list[tuple[int, float]] = []
        self.sent: list[tuple[int, int]] = []
        gap = more.pop("max_gap_ms", None)

        def sleep(seconds: float) -> None:
            if stop_at is not None and len(self.slept) >= stop_at:
                raise KeyboardInterrupt
            self.slept.append((clock.monotonic_ms(), seconds))
            clock.advance(round(seconds * 1_000))

        self.client = Client(broker.address)
        target = ReplayTarget(self.client, {"out": partitions}, {"t": "out"}, True, Codec.NONE)
        self.replay = Sending(
            target,
            clock,
            sleep,
            Pace(clock, speed, gap),
            state=state,
            on_sent=lambda progress: self.sent.append((clock.monotonic_ms(), progress.records)),
            **more,
        )
        self.rows = rows

    def dues(self) -> Any:
        progress, dues = self.replay.progress, in_order(self.rows)
        if not progress.ends:
            return iter(())
        reached = progress.place
        places = [due.place for due in dues]
        return iter(dues if reached is None else dues[places.index(reached) + 1 :])

    def run(self) -> None:
        """All of it; an interrupt is one of Ctrl-C, and `Interrupted` a kill."""
        with closing(self.client):
            try:
                self.replay.begin(Extent({}, {it: len(times) for it, times in self.rows.items()}))
                self.replay.resume()
                self.replay.run(self.dues())
            except Interrupted:
                raise
            except BaseException:
                self.replay.finish()
                raise
            self.replay.finish()


broker = a_broker(now_ms=None)


@pytest.fixture
def out(broker: RunningBroker) -> RunningBroker:
    broker.create_topic("out", retention_ms="-1")
    return broker


def test_records_are_sent_when_they_are_due_and_never_before(out: RunningBroker) -> None:
    rows: Rows = {
        TopicPartition("t", 0): [T0, T0 + 4_000, T0 + 3_000, T0 + 60_000],
        TopicPartition("t", 1): [T0 + 2_000, None, T0 + 4_003],
    }
    clock = ManualClock(T0 + 1_000_000)
    start = clock.monotonic_ms()
    run = Run(out, rows, clock, speed=2)
    run.run()
    values = [record.value for record in records_in(out.log("out"))]
    assert values == [b"0-0", b"1-0", b"0-2", b"0-1", b"1-2", b"0-3", b"1-1"]
    # A record after each wait; those that are due within a tick go together.
    assert [(at - start, count) for at, count in run.sent] == [
        (0, 1),
        (1_000, 2),
        (1_500, 3),
        (2_000, 4),
        (2_000 + TICK_MS, 5),
        (30_000, 7),
    ]
    times = [record.timestamp for record in records_in(out.log("out"))]
    assert times == [T0, T0 + 2_000, T0 + 3_000, T0 + 4_000, T0 + 4_003, T0 + 60_000, -1]


def test_shifted_times_are_those_at_which_records_are_due(out: RunningBroker) -> None:
    rows: Rows = {TopicPartition("t", 0): [-5_000, None, -3_000, 1_000]}
    clock = ManualClock(T0)
    Run(out, rows, clock, speed=2, shifts_times=True).run()
    assert [record.timestamp - T0 for record in records_in(out.log("out"))] == [
        0,
        1_000,
        3_000,
        3_000,
    ]


def test_the_fastest_replay_waits_for_nothing_and_keeps_times(out: RunningBroker) -> None:
    rows: Rows = {
        TopicPartition("t", number): [T0 + 7 * place + number for place in range(4_000)]
        for number in range(3)
    }
    run = Run(out, rows, ManualClock(T0), speed=None)
    run.run()
    assert run.slept == []
    times = [record.timestamp for record in records_in(out.log("out"))]
    assert times == sorted(times)
    assert len(times) == 12_000
    assert len(run.sent) == -(-12_000 // MAX_RECORDS)


def test_long_intervals_are_cut(out: RunningBroker) -> None:
    rows: Rows = {TopicPartition("t", 0): [T0, T0 + 10, T0 + 9_000_000, T0 + 9_000_500]}
    clock = ManualClock(T0)
    run = Run(out, rows, clock, max_gap_ms=1_000)
    start = clock.monotonic_ms()
    run.run()
    assert [at - start for at, _ in run.sent] == [0, 10, 1_010, 1_510]


def test_a_replay_that_was_interrupted_goes_on_where_it_was(
    out: RunningBroker, tmp_path: Path
) -> None:
    rng = random.Random(3)
    rows: Rows = {
        TopicPartition("t", number): [T0 + 250 * place + rng.randrange(600) for place in range(40)]
        for number in range(3)
    }
    for stop_at in (5, 0, 13, None):
        with JobState(tmp_path / "state", "replay", {}) as state:
            run = Run(out, rows, ManualClock(T0), state=state, stop_at=stop_at)
            if stop_at is None:
                run.run()
                continue
            with pytest.raises(KeyboardInterrupt):
                run.run()
    values = values_of(out.address, "out")
    assert len(values) == len(set(values)) == 120
    assert values == [due.read.record.value for due in in_order(rows)]


KILLED = ("append", "commit_offsets", "end")


def killed_at(monkeypatch: pytest.MonkeyPatch, call: int, method: str, *, is_done: bool) -> None:
    """Kill the process at a call of the client, before it is sent or after it is answered."""
    calls, is_dead = 0, False

    def dying(original: Any, name: str) -> Any:
        def call_or_die(self: Any, *arguments: Any, **named: Any) -> None:
            nonlocal calls, is_dead
            if not is_dead:
                calls += name == method
                is_dead = name == method and calls == call
                if not is_dead or is_done:
                    original(self, *arguments, **named)
            if is_dead:
                raise Interrupted

        return call_or_die

    for name in KILLED:
        part = Appends if name == "append" else Transactions
        monkeypatch.setattr(part, name, dying(getattr(part, name), name))


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize(
    ("method", "call"),
    [("append", 1), ("append", 17), ("commit_offsets", 1), ("commit_offsets", 2), ("end", 2)],
)
def test_what_was_being_sent_at_a_kill_is_there_once(
    out: RunningBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    call: int,
    is_done: bool,
) -> None:
    rows: Rows = {TopicPartition("t", 0): [T0 + 100 * place for place in range(40)]}
    for _ in range(2):
        with (
            monkeypatch.context() as patched,
            JobState(tmp_path / "state", "replay", {}) as state,
        ):
            killed_at(patched, call, method, is_done=is_done)
            with pytest.raises(Interrupted):
                Run(out, rows, ManualClock(T0), state=state).run()
    with JobState(tmp_path / "state", "replay", {}) as state:
        run = Run(out, rows, ManualClock(T0), state=state)
        run.run()
    assert values_of(out.address, "out") == [b"0-%d" % place for place in range(40)]
    assert run.replay.progress.records == 40


def test_a_stop_amid_a_request_aborts_what_was_sent(
    out: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: Rows = {TopicPartition("t", 0): [T0 + 100 * place for place in range(15)]}
    append, calls = Appends.append, 0

    def stopped(self: Appends, *arguments: Any, **named: Any) -> None:
        nonlocal calls
        calls += 1
        append(self, *arguments, **named)
        if calls == 13:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, JobState(tmp_path / "s", "replay", {}) as state:
        patched.setattr(Appends, "append", stopped)
        run = Run(out, rows, ManualClock(T0), state=state)
        with pytest.raises(KeyboardInterrupt):
            run.run()
    there = values_of(out.address, "out")
    assert len(there) == run.replay.progress.records == run.sent[-1][1] == 10
    with JobState(tmp_path / "s", "replay", {}) as state:
        Run(out, rows, ManualClock(T0), state=state).run()
    assert values_of(out.address, "out") == [b"0-%d" % place for place in range(15)]


def test_a_commit_that_the_target_forgot_is_not_guessed(
    out: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: Rows = {TopicPartition("t", 0): [T0 + 100 * place for place in range(15)]}
    with monkeypatch.context() as patched, JobState(tmp_path / "s", "replay", {}) as state:
        killed_at(patched, 1, "end", is_done=True)
        with pytest.raises(Interrupted):
            Run(out, rows, ManualClock(T0), state=state).run()
    (listed,) = out.client.groups.list()
    out.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[listed.group])
    for _ in range(2):
        with JobState(tmp_path / "s", "replay", {}) as state, pytest.raises(StorageFailed) as lost:
            Run(out, rows, ManualClock(T0), state=state).run()
        assert "the target has forgotten the last commit" in str(lost.value)


def test_records_go_where_they_went_where_partitions_are_added_amid_a_replay(
    out: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: Rows = {TopicPartition("t", number): [T0 + 100 * number] * 4 for number in range(5)}
    with monkeypatch.context() as patched, JobState(tmp_path / "s", "replay", {}) as state:
        killed_at(patched, 1, "append", is_done=True)
        with pytest.raises(Interrupted):
            Run(out, rows, ManualClock(T0), state=state).run()
        state.write("progress", {**state.read("progress"), "prepared": None})
    with Client(out.address) as client:
        client.create_partitions({"out": 4})
    with JobState(tmp_path / "s", "replay", {}) as state:
        Run(out, rows, ManualClock(T0), state=state, partitions=4).run()
    counts = [len(values_of(out.address, "out", number)) for number in range(4)]
    assert counts == [20, 0, 0, 0]
    assert len(set(values_of(out.address, "out"))) == 20
    with JobState(tmp_path / "s", "replay", {}) as state:
        kept = state.read("progress")
        committed = {**kept["committed"], "counts": {"out": 5}}
        state.write("progress", {**kept, "committed": committed})
        with pytest.raises(Misconfigured, match="has 4 partitions, and had 5"):
            Run(out, rows, ManualClock(T0), state=state, partitions=4)


# A log of files, through the function.


@pytest.fixture(scope="module")
def small_steps() -> Iterator[None]:
    """Requests of a few records, a commit after each, and blocks of a few batches."""
    with pytest.MonkeyPatch.context() as patch:
        override(patch, "horolog.jobs.replaying", MAX_RECORDS=3, COMMIT_MS=0)
        override(patch, "horolog.storage", BLOCK_BYTES=300)
        override(patch, "horolog.sources.ordered", GROUP_BYTES=400, RELEASE_BYTES=500)
        yield


target = a_broker(now_ms=None, scope="module")
_numbers = itertools.count()


@given(
    batches=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.lists(st.none() | st.integers(-5, 30).filter(lambda ms: ms != -1), min_size=1),
        ),
        min_size=1,
        max_size=15,
    ),
    without_time=st.sampled_from(["first", "last"]),
    kills=st.lists(st.tuples(st.integers(1, 9), st.sampled_from(KILLED), st.booleans())),
    grows=st.booleans(),
)
@examples(3)
def test_a_replay_that_is_killed_anywhere_is_a_sort_of_everything(
    target: RunningBroker,
    small_steps: None,
    batches: list[tuple[int, list[int | None]]],
    without_time: str,
    kills: list[tuple[int, str, bool]],
    grows: bool,
) -> None:
    name, rows = f"out{next(_numbers)}", Rows()
    target.create_topic(name, retention_ms="-1")
    with tempfile.TemporaryDirectory() as where:
        asked: dict[str, Any] = {"source": f"{where}/log", "target": target.address}
        asked |= {"topics": "t", "to_topic": name, "by_key": True, "speed": "max"}
        asked |= {"state": f"{where}/state", "without_time": without_time}

        def append(times_ms: list[int | None], number: int) -> None:
            partition = TopicPartition("t", number)
            times = rows.setdefault(partition, [])
            records = [
                LogRecord(-1 if ms is None else ms, None, value_of(partition, place))
                for place, ms in enumerate(times_ms, len(times))
            ]
            path = Path(where, "log", str(partition), f"{0:020}.log")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as log:
                log.write(build_batch(records, base_offset=len(times)))
            times += times_ms

        for number, times_ms in batches:
            append(times_ms, number)
        for call, method, is_done in kills:
            with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Interrupted):
                killed_at(patch, call, method, is_done=is_done)
                jobs.replay(**asked)
        expected = [due.read.record.value for due in in_order(rows, last=without_time == "last")]
        before = jobs.replay(**asked).progress
        if grows:
            append([3, None, -2], 1)
        done = jobs.replay(**asked)
        values = values_of(target.address, name)
        assert values[: len(expected)] == expected
        assert before.records == len(expected)
        assert done.progress.records == len(values) == len(expected) + 3 * grows


@pytest.mark.parametrize("is_broker", [False, True])
@pytest.mark.parametrize("base_ms", [T0, -5])  # with times before 1970, and none of -1
def test_a_run_that_continues_ends_where_the_first_would_have(
    broker: RunningBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_broker: bool,
    base_ms: int,
) -> None:
    override(monkeypatch, "horolog.jobs.replaying", MAX_RECORDS=3, COMMIT_MS=0)
    for name in ("t", "out"):
        broker.create_topic(name, retention_ms="-1")
    files = PartitionFiles(tmp_path / "log", "t", 0, base_offset=0)

    def append(*times: int) -> None:
        records = [LogRecord(base_ms + each, None, b"") for each in times]
        if is_broker:
            broker.append("t", build_batch(records))
        else:
            files.add_records(records)

    append(5, 1, 9, 3, 7, 2)
    source = broker.address if is_broker else tmp_path / "log"
    asked: dict[str, Any] = {"source": source, "target": broker.address, "topics": "t"}
    asked |= {"to_topic": "out", "speed": "max", "state": tmp_path / "s"}
    with monkeypatch.context() as patch:
        killed_at(patch, 2, "append", is_done=True)
        with pytest.raises(Interrupted):
            jobs.replay(**asked)
    append(0, 8)  # earlier than what was sent
    for total in (6, 8):
        assert jobs.replay(**asked).progress.records == total
    times = [each.timestamp - base_ms for each in rows_of(broker.address, "out")]
    assert times == [1, 2, 3, 5, 7, 9, 0, 8]


def test_a_replay_by_append_time_is_in_the_order_of_arrival(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    clock = ManualClock(T0)
    source = make_broker(clock=clock)
    source.create_topic("t", 2)
    for place in range(6):
        source.append("t", build_batch([LogRecord(T0 - place, None, b"%d" % place)]), place % 2)
        clock.advance("1s")
    source.create_topic("out", retention_ms="-1")
    asked: dict[str, Any] = {"source": source.address, "target": source.address, "topics": "t"}
    asked |= {"to_topic": "out", "by_key": True, "speed": "max", "clock": "append"}
    jobs.replay(**asked, state=tmp_path / "s")
    assert values_of(source.address, "out") == [b"%d" % place for place in range(6)]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"without_time": "refuse"}, r"t-0 has a record without a time \(offset 1\)"),
        ({"order_memory": "16MiB"}, "--order-memory allows 16.8 MB"),
        ({"order_memory": 1000}, "--order-memory"),
        ({"order_memory": "much"}, "--order-memory much"),
        ({"without_time": "never"}, "never"),
    ],
)
def test_what_has_no_order_is_refused_before_a_record_is_sent(
    broker: RunningBroker, tmp_path: Path, how: dict[str, Any], said: str
) -> None:
    broker.create_topic("t", retention_ms="-1")
    files = PartitionFiles(tmp_path / "log", "t", 0, base_offset=0)
    files.add([T0, -1])
    files.add([T0], value_bytes=20 << 20)
    asked: dict[str, Any] = {"source": tmp_path / "log", "target": broker.address, "speed": "max"}
    with pytest.raises(Misconfigured, match=said):
        jobs.replay(**asked, **how)
    assert rows_of(broker.address, "t") == []


# The command.


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    for number in range(2):
        files = PartitionFiles(tmp_path / "log", "clicks", number, base_offset=0)
        for place in range(6):
            files.add([T0 + 1_000 * place + 100 * number + each for each in range(4)])
        files.write_indexes()
    return tmp_path / "log"


def test_files_are_replayed_to_a_broker_by_key_and_within_a_range(
    broker: RunningBroker, log_dir: Path
) -> None:
    broker.create_topic("clicks", 3, retention_ms="-1")
    ran = run_command(
        *("replay", "--source", log_dir, "--target", broker.address, "--speed", "max"),
        *("--from", f"{T0 + 1_000}ms", "--to", f"{T0 + 3_000}ms", "--by-key", "--json"),
    )
    assert ran.code == 0, ran
    assert ran.json["records"] == 16
    records = [
        (number, each) for number in range(3) for each in records_in(broker.log("clicks", number))
    ]
    assert len(records) == 16
    assert all(T0 + 1_000 <= each.timestamp < T0 + 3_000 for _, each in records)
    assert all(partition_of_key(each.key or b"", 3) == number for number, each in records)
    for number in range(3):
        times = [each.timestamp for each in records_in(broker.log("clicks", number))]
        assert times == sorted(times)


def test_topics_of_a_broker_are_replayed_without_what_was_aborted(
    make_broker: MakeBroker, log_dir: Path, tmp_path: Path
) -> None:
    files = PartitionFiles(tmp_path / "log", "paid", 0, base_offset=0)
    files.add([T0 + 50], producer_id=5)
    files.end_transaction(5, commit=False)
    files.add([T0 + 60], producer_id=5)
    files.end_transaction(5, commit=True)
    files.write_indexes()
    broker = make_broker(log_dir=log_dir)
    broker.create_topic("out", retention_ms="-1")
    command = [
        *("replay", "--source", broker.address, "--target", broker.address, "--speed", "max"),
        *("--topics", "clicks,paid"),
    ]
    assert "the same topic" in run_command(*command).err
    assert "no place in out" in run_command(*command, "--to-topic", "out").err
    ran = run_command(*command, "--to-topic", "out", "--by-key", "--dry-run")
    assert "clicks-1: offsets 0 to 24 would be sent to out" in ran.out
    assert records_in(broker.log("out")) == []
    state = ("--state", tmp_path / "state")
    ran = run_command(*command, "--to-topic", "out", "--by-key", *state)
    assert ran.code == 0, ran
    assert "records sent up to 2023-11-14T22:13:25.103Z" in ran.out
    times = [each.timestamp for each in rows_of(broker.address, "out")]
    assert times == sorted(times)
    assert T0 + 60 in times
    assert len(times) == 48 + (T0 + 50 in times) + 1
    ran = run_command(*command, "--to-topic", "out", "--by-key", *state)
    assert ran.code == 0
    assert len(rows_of(broker.address, "out")) == len(times)


def test_of_files_what_was_aborted_is_not_sent(broker: RunningBroker, tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log", "paid", 0, base_offset=0)
    files.add([T0 + 50], producer_id=5)
    files.end_transaction(5, commit=False)
    files.add([T0 + 60], producer_id=5)
    files.end_transaction(5, commit=True)
    files.write_indexes()
    broker.create_topic("paid", retention_ms="-1")
    to = ("--target", broker.address, "--speed", "max")
    assert run_command("replay", "--source", tmp_path / "log", *to).code == 0
    assert [each.timestamp for each in records_in(broker.log("paid"))] == [T0 + 60]


def test_what_the_target_would_delete_soon_is_warned_of_and_sent(
    broker: RunningBroker, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("clicks", 2)
    command = ("replay", "--source", log_dir, "--target", broker.address, "--speed", "max")
    warning = "retention will delete 48 of the 48 offsets of clicks at the source: retention.ms="
    assert warning in run_command(*command, "--dry-run").err
    broker.create_topic("kept", 2, retention_ms="-1")
    ran = run_command(*command, "--to-topic", "kept")
    assert (ran.code, ran.err) == (0, "")
    ran = run_command(*command, "--shift-times")
    assert (ran.code, ran.err) == (0, "")
    ran = run_command(*command)
    assert ran.code == 0
    assert warning in ran.err
    assert "48 records sent" in ran.out

    denied = RequestRefused(ErrorCode.topic_authorization_failed, "not yours to ask")
    failing(monkeypatch, Topics, "describe_configs", denied)
    ran = run_command(*command)
    assert (ran.code, ran.err) == (0, "")


def test_a_replay_is_a_function_too(broker: RunningBroker, log_dir: Path, tmp_path: Path) -> None:
    broker.create_topic("clicks", 2, retention_ms="-1")
    asked: dict[str, Any] = {"source": log_dir, "target": broker.address, "state": tmp_path / "s"}
    assert len(jobs.replay(**asked, dry_run=True).spans) == 2
    seen: list[tuple[int, int]] = []
    done = jobs.replay(
        **asked, speed="max", on_progress=lambda now, total: seen.append((now.records, total))
    )
    assert done.progress.records == 48
    assert (seen[0], seen[-1]) == ((0, 48), (48, 48))
    with pytest.raises(Misconfigured, match="another by_key"):
        jobs.replay(**asked, by_key=True)


def test_a_replay_ends_once_readers_of_committed_records_see_all(
    broker: RunningBroker, log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("clicks", 1, retention_ms="-1")
    late_markers(monkeypatch)
    asked: dict[str, Any] = {"source": log_dir, "target": broker.address, "state": tmp_path / "s"}
    assert jobs.replay(**asked, by_key=True, speed="max").progress.records == 48
    assert len(values_of(broker.address, "clicks")) == 48


def test_a_replay_may_begin_before_there_are_records(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    source, target = make_broker(), make_broker()
    for each in (source, target):
        each.create_topic("clicks", retention_ms="-1")
    command = ("replay", "--source", source.address, "--topics", "clicks", "--speed", "max")
    to = ("--target", target.address, "--state", tmp_path / "state")
    ran = run_command(*command, *to)
    assert (ran.code, ran.out, ran.err) == (0, "0 records sent\n", "")
    with Client(source.address) as client:
        client.produce("clicks", 0, build_batch([LogRecord(T0, None, b"first")]))
    for _ in range(2):
        assert run_command(*command, *to).out.startswith("1 records sent")
    assert [each.timestamp for each in rows_of(target.address, "clicks")] == [T0]


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("records", [1, 9])
def test_a_replay_is_refused_where_a_topic_was_created_again(
    make_broker: MakeBroker, tmp_path: Path, side: str, records: int
) -> None:
    brokers = {"source": make_broker(), "target": make_broker()}
    for broker in brokers.values():
        broker.create_topic("t", retention_ms="-1")
    asked: dict[str, Any] = {name: broker.address for name, broker in brokers.items()}
    asked |= {"topics": "t", "speed": "max", "state": tmp_path / "s"}
    brokers["source"].produce(
        "t", build_batch([LogRecord(T0, None, b"%d" % each) for each in range(4)])
    )
    assert jobs.replay(**asked).progress.records == 4
    assert not jobs.replay(**asked, dry_run=True).spans
    brokers[side].client.delete_topics(["t"])
    brokers[side].create_topic("t", retention_ms="-1")
    brokers["source"].produce("t", build_batch([LogRecord(T0, None, b"new")] * records))
    for dry_run in (True, False):
        with pytest.raises(Misconfigured, match=f"t of the {side} was deleted and created again"):
            jobs.replay(**asked, dry_run=dry_run)
    assert len(rows_of(brokers["target"].address, "t")) == (4 if side == "source" else 0)


def test_a_replay_of_files_that_were_cut_is_refused_and_deleted_ones_are_warned_of(
    broker: RunningBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("clicks", retention_ms="-1")

    def files_at(base_offset: int, count: int) -> None:
        shutil.rmtree(tmp_path / "log", ignore_errors=True)
        files = PartitionFiles(tmp_path / "log", "clicks", 0, base_offset=base_offset)
        files.add([T0 + each for each in range(count)])
        files.write_indexes()

    asked: dict[str, Any] = {"source": tmp_path / "log", "target": broker.address, "speed": "max"}
    asked |= {"state": tmp_path / "s"}
    files_at(0, 4)
    assert jobs.replay(**asked).progress.records == 4
    files_at(0, 3)
    with pytest.raises(Misconfigured, match="sent up to offset 4 and ends at 3 now"):
        jobs.replay(**asked)
    files_at(6, 3)
    assert jobs.replay(**asked).progress.records == 7
    assert "Offsets 4 to 5 of clicks-0 were deleted before they were sent" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--speed", "0"], "a factor above 0"),
        (["--speed", "fast"], "a factor above 0"),
        (["--compression", "rar"], "compression is rar: there are none, gzip"),
        (["--topics", "others"], "There is no topic others"),
        (["--target", "./here"], "is no HOST:PORT"),
        (
            ["--target-set", "kafka.sekurity.protocol=SSL"],
            "--target-set sekurity.protocol has no effect on this client; did you mean security.p",
        ),
        (["--target-set", "kafka.default.api.timeout.ms=x"], "=x: write milliseconds"),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    broker: RunningBroker, log_dir: Path, arguments: list[str], sentence: str
) -> None:
    given = ["replay", "--source", log_dir]
    if "--target" not in arguments:
        given += ["--target", broker.address]
    ran = run_command(*given, *arguments)
    assert ran.code == 2
    assert sentence in ran.err


def test_a_stop_says_where_it_was_and_a_kill_loses_and_doubles_nothing(
    broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("clicks", 2, retention_ms="-1")
    for number in range(2):
        files = PartitionFiles(tmp_path / "log", "clicks", number, base_offset=0)
        for place in range(300):
            files.add([T0 + 20 * place + 10 * number - 700 * (place % 5 == 4)])
        files.write_indexes()
    state = tmp_path / "state"
    command = [
        *(sys.executable, "-m", "horolog", "replay", "--source", str(tmp_path / "log")),
        *("--target", broker.address, "--state", str(state), "--speed"),
    ]

    def sent() -> int:
        return sum(len(values_of(broker.address, "clicks", number)) for number in range(2))

    for kind in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        enough = sent() + 20
        with subprocess.Popen([*command, "1"], stderr=subprocess.PIPE, text=True) as process:
            while not eventually(lambda enough=enough: sent() >= enough, 1):  # type: ignore[misc]
                assert process.poll() is None
            process.send_signal(kind)
            _, err = process.communicate(timeout=PATIENCE_S)
        if kind == signal.SIGINT:
            assert process.returncode == 130
            assert "stopped at 2023-11-14T22:13:2" in err
            assert "clicks-0 at offset" in err
    done = subprocess.run([*command, "max"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "600 records sent" in done.stdout
    for number in range(2):
        times = [record.timestamp for record in rows_of(broker.address, "clicks", number)]
        assert times == sorted(
            T0 + 20 * place + 10 * number - 700 * (place % 5 == 4) for place in range(300)
        )
