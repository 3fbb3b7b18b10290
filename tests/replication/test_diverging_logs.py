"""Replicas that diverge by elections, kills and truncations, and agree again by leader epochs."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp

import pytest
from examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from storelogs import NOW, TOPIC_ID, append, open_dir, records_in

from horolog.config import TopicConfig
from horolog.record import iter_headers
from horolog.replication.truncation import Agree, AskAgain, TruncateTo, truncation
from horolog.storage import EpochStart, Log, Origin, SourceBatches, TopicPartition

PARTITION = TopicPartition("events", 3)
SMALL = TopicConfig(segment_bytes=400, index_interval_bytes=0, retention_ms=-1)


class Replica:
    """One broker with one log, which leads or follows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log_dir = open_dir(path, SMALL)
        self.log_dir.create(*PARTITION, TOPIC_ID, SMALL, NOW)
        self.log.begin_following(0)

    @property
    def log(self) -> Log:
        return self.log_dir.logs[PARTITION]

    def restart(self, *, clean: bool) -> None:
        self.log_dir.close(clean=clean)
        self.log_dir = open_dir(self.path, SMALL, follows=True)

    def lead(self, epoch: int) -> None:
        if not self.log.is_following:
            self.log.begin_following(self.log.high_watermark)
        self.log.lead(epoch, 0)

    def step_down(self) -> None:
        if not self.log.is_following:
            self.log.begin_following(self.log.log_end_offset)

    def write(self, *values: bytes, ms: int = NOW, producer: int = -1) -> None:
        """Append a batch of each of these values."""
        for value in values:
            more = {}
            if producer >= 0:
                state = dict(self.log.producers).get(producer)
                done = state.batches[-1].last_sequence + 1 if state and state.batches else 0
                more = {"producer_id": producer, "producer_epoch": 0, "base_sequence": done}
            append(self.log, ms, now=ms, value=value, **more)

    def agree_with(self, leader: Replica) -> int:
        """Truncate as after an election; how often the leader was asked."""
        log, epochs = self.log, self.log.epochs.entries
        if not epochs:
            return 0
        asked, times = epochs[-1].epoch, 1
        while True:
            answer = leader.log.end_of_epoch(asked) or EpochStart(-1, -1)
            if answer.epoch < 0:  # as Kafka, where the leader knows nothing
                log.truncate_to(log.high_watermark, NOW)
                return times
            match truncation(log.epochs.entries, log.log_end_offset, *answer):
                case AskAgain(epoch):
                    asked, times = epoch, times + 1
                case TruncateTo(offset):
                    log.truncate_to(offset, NOW)
                    return times
                case Agree():
                    return times

    def fetch_from(self, leader: Replica, max_bytes: int = 1 << 20) -> bool:
        """Take what comes next of the leader's log; whether there was anything."""
        log, source = self.log, leader.log
        if log.log_end_offset >= source.log_end_offset:
            return False
        found = source.read(log.log_end_offset, max_bytes)
        data = bytes(found.read())
        data = b"".join(data[at : at + header.size] for at, header in iter_headers(data))
        times = source.look().append_times_within(log.log_end_offset, len(data))
        log.append(SourceBatches(data, times), NOW, Origin.FOLLOWER)
        log.move_high_watermark(source.high_watermark)
        return True

    def catch_up(self, leader: Replica) -> None:
        self.step_down()
        self.agree_with(leader)
        while self.fetch_from(leader):
            pass

    @property
    def stored(self) -> bytes:
        found = [each for each in self.log.segments if each.size]
        return b"".join(Path(each.log.path).read_bytes()[: each.size] for each in found)

    @property
    def values(self) -> list[bytes | None]:
        self.log.move_high_watermark(1 << 60) if self.log.is_following else None
        return [record.value for record in records_in(self.log)]


# Apache Kafka's cases.


@pytest.fixture
def replicas(tmp_path: Path) -> list[Replica]:
    return [Replica(tmp_path / name) for name in "abc"]


def test_kip_101_high_watermark_truncation_followed_by_immediate_leader_election(
    replicas: list[Replica],
) -> None:
    """The follower has a record of which it does not know yet that it is committed."""
    a, b, _ = replicas
    b.lead(0)
    b.write(b"m1")
    a.catch_up(b)
    b.write(b"m2")
    a.fetch_from(b)
    a.log_dir.checkpoint()
    a.restart(clean=False)  # with any high watermark, it keeps what the leader has
    assert a.agree_with(b) == 1
    a.lead(1)
    b.restart(clean=False)
    b.catch_up(a)
    assert a.values == b.values == [b"m1", b"m2"]


def test_kip_101_replica_divergence_on_restart_after_multiple_hard_failures(
    replicas: list[Replica],
) -> None:
    a, b, _ = replicas
    a.lead(0)
    a.write(b"m1")
    b.catch_up(a)
    a.write(b"m2")
    a.restart(clean=False)
    b.restart(clean=False)
    b.lead(1)
    b.write(b"m3")
    a.catch_up(b)
    assert a.values == b.values == [b"m1", b"m3"]
    assert a.log.epochs.entries == b.log.epochs.entries == (EpochStart(0, 0), EpochStart(1, 1))


def test_kip_279_fast_leader_fail_over(replicas: list[Replica]) -> None:
    """The follower's last epoch is one that the leader never had: it is asked again."""
    a, b, _ = replicas
    a.lead(0)
    a.write(b"m0")
    b.catch_up(a)
    b.lead(1)
    b.write(b"only b")
    a.step_down()
    a.lead(2)
    a.write(b"m1", b"m2")
    b.step_down()
    assert b.agree_with(a) == 1
    assert b.log.log_end_offset == 1
    b.catch_up(a)
    assert a.values == b.values == [b"m0", b"m1", b"m2"]


def test_kip_279_a_leader_that_knows_an_epoch_in_between_is_asked_again(
    replicas: list[Replica],
) -> None:
    a, b, c = replicas
    a.lead(1)
    a.write(b"m0")
    for each in (b, c):
        each.catch_up(a)
    b.lead(2)
    b.write(b"b2")
    b.step_down()
    c.lead(3)
    c.write(b"c3", b"c3")
    a.catch_up(c)
    b.lead(4)
    b.write(b"b4", b"b4", b"b4")
    b.step_down()
    a.lead(5)
    a.write(b"a5")
    assert b.agree_with(a) == 2, "asked for 4 it says 3, which is unknown, then for 2"
    assert b.log.log_end_offset == 1
    b.catch_up(a)
    assert b.values == a.values == [b"m0", b"c3", b"c3", b"a5"]


def test_a_leader_without_records_of_its_epoch_is_followed(replicas: list[Replica]) -> None:
    a, b, _ = replicas
    a.lead(1)
    a.write(b"m0")
    b.catch_up(a)
    a.write(b"lost")
    a.step_down()
    b.lead(7)
    a.catch_up(b)
    assert a.values == b.values == [b"m0"]
    b.step_down()
    a.lead(8)
    b.catch_up(a)
    assert b.values == [b"m0"]


@pytest.mark.parametrize("end", ["demoted", "closed", "killed"])
def test_an_epoch_in_which_nothing_was_written_is_not_that_of_later_records(
    replicas: list[Replica], end: str
) -> None:
    a, b, _ = replicas
    a.lead(1)
    a.write(b"m0")
    b.lead(2)
    if end != "demoted":
        b.restart(clean=end == "closed")
    a.step_down()
    a.lead(3)
    b.catch_up(a)
    assert b.log.epochs.entries == (EpochStart(1, 0),)


# Any history.


class Elections(RuleBasedStateMachine):
    """Three replicas of which any is elected, also one that lacks records (unclean)."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(mkdtemp())
        self.leader: Replica | None = None
        self.epoch = 0
        self.clock = NOW
        self.number = 0
        self.agreed: set[int] = set()  # that were compared with the leader of this epoch

    @initialize()
    def begin(self) -> None:
        self.replicas = [Replica(self.path / name) for name in "abc"]

    def teardown(self) -> None:
        for each in self.replicas:
            each.log_dir.close(clean=False)
        shutil.rmtree(self.path)

    which = st.integers(0, 2)

    @rule(at=which, skip=st.integers(1, 3))
    def elect(self, at: int, skip: int) -> None:
        if self.leader is not None:
            self.leader.step_down()
        self.epoch += skip
        self.leader, self.agreed = self.replicas[at], {at}
        self.leader.lead(self.epoch)

    @rule(count=st.integers(1, 6), producer=st.integers(-1, 1), step=st.integers(-40, 40))
    def write(self, count: int, producer: int, step: int) -> None:
        if self.leader is None:
            return
        for _ in range(count):
            self.clock += step
            self.number += 1
            self.leader.write(b"%d" % self.number, ms=self.clock, producer=producer)

    @rule(at=which, times=st.integers(0, 4), max_bytes=st.sampled_from([1, 150, 1 << 20]))
    def replicate(self, at: int, times: int, max_bytes: int) -> None:
        replica = self.replicas[at]
        if self.leader is None or replica is self.leader:
            return
        if at not in self.agreed:
            replica.agree_with(self.leader)
            self.agreed.add(at)
        assert self.leader.stored.startswith(replica.stored), "a prefix of the leader's, always"
        for _ in range(times):
            replica.fetch_from(self.leader, max_bytes)
        assert self.leader.stored.startswith(replica.stored)

    @rule(at=which, clean=st.booleans(), checkpoint=st.booleans())
    def restart(self, at: int, clean: bool, checkpoint: bool) -> None:
        replica = self.replicas[at]
        before = replica.stored
        if checkpoint:
            replica.log_dir.checkpoint()
        replica.restart(clean=clean)
        assert replica.stored == before
        self.agreed.discard(at)
        if replica is self.leader:
            self.leader = None

    @rule(at=which)
    def compare(self, at: int) -> None:
        """Once a replica has caught up, every answer of it is the leader's."""
        replica = self.replicas[at]
        if self.leader is None or replica is self.leader:
            return
        self.replicate(at, 0, 1)
        while replica.fetch_from(self.leader):
            pass
        ours, theirs = replica.log, self.leader.log
        ours.move_high_watermark(theirs.high_watermark)
        assert replica.stored == self.leader.stored
        starts = [each for each in theirs.epochs.entries if each[1] < theirs.log_end_offset]
        assert [e for e in ours.epochs.entries if e.start_offset < ours.log_end_offset] == starts
        assert _written(ours) == _written(theirs)
        end = theirs.log_end_offset
        known = zip(_append_times(ours, end), _append_times(theirs, end), strict=True)
        assert all(mine in (None, said) for mine, said in known)
        for ms in range(self.clock - 60, self.clock + 60, 7):
            assert ours.find_by_timestamp(ms) == theirs.find_by_timestamp(ms)
        assert ours.find_max_timestamp() == theirs.find_max_timestamp()

    @invariant()
    def epochs_and_segments_are_in_order(self) -> None:
        for each in getattr(self, "replicas", ()):
            log: Log = each.log
            for before, after in pairwise(log.epochs.entries):
                assert before.epoch < after.epoch
                assert before.start_offset < after.start_offset
            assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
            assert log.recovery_point <= log.log_end_offset
            bases = [segment.base_offset for segment in log.segments]
            assert bases == sorted(set(bases))


def _written(log: Log) -> dict[int, tuple[int, int]]:
    """By producer its epoch and last sequence."""
    return {
        each: (state.epoch, state.batches[-1].last_sequence)
        for each, state in log.producers
        if state.batches
    }


def _append_times(log: Log, end: int) -> list[int | None]:
    found: list[int | None] = [None] * end
    for stretch in log.append_times(0, end):
        found[stretch.offset :] = [stretch.ms] * (end - stretch.offset)
    return found


TestElections = Elections.TestCase
TestElections.settings = settings(examples(0.15), stateful_step_count=25)
