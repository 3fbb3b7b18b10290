"""What a replica asks its leader, and what it cuts: by case, and in a cluster at random."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replica_model import Model

from horolog.errors import ErrorCode
from horolog.replication.asked import Asks, LocalLog, StartAt
from horolog.replication.replica import REFUSALS, ReplicaPartition
from horolog.replication.truncation import TruncateTo
from horolog.storage import EpochStart

NOW_MS = 5_000
BACKOFF_MS = 1_000
EMPTY = LocalLog(0, 0, 0, ())
LOG = LocalLog(10, 100, 90, (EpochStart(2, 10), EpochStart(5, 60)))
OLD_FORMAT = LocalLog(10, 100, 90, ())


@pytest.fixture
def replica() -> ReplicaPartition:
    led = ReplicaPartition(BACKOFF_MS)
    led.lead(1, 7)
    return led


def test_nothing_is_asked_before_there_is_a_leader_nor_after_it_is_released() -> None:
    replica = ReplicaPartition()
    assert replica.asks is Asks.NOTHING
    replica.lead(1, 7)
    assert replica.asks is Asks.RECORDS
    turn = replica.turn
    replica.release()
    assert (replica.asks, replica.turn > turn) == (Asks.NOTHING, True)


@pytest.mark.parametrize(
    ("leader", "epoch", "is_new"), [(1, 7, 0), (2, 6, 0), (2, 8, 1), (1, 8, 1)]
)
def test_an_earlier_epoch_is_ignored(
    leader: int, epoch: int, is_new: int, replica: ReplicaPartition
) -> None:
    turn = replica.turn
    replica.on_failure("it was tried", NOW_MS)
    replica.lead(leader, epoch)
    assert replica.turn == turn + is_new
    assert replica.epoch == max(epoch, 7)
    assert (replica.why is None) is bool(is_new)


def test_only_a_log_without_epochs_is_cut_before_it_is_compared(replica: ReplicaPartition) -> None:
    assert replica.before_reading(LOG) is None
    assert replica.before_reading(EMPTY) is None
    assert replica.before_reading(OLD_FORMAT) == TruncateTo(90)
    assert replica.before_reading(OLD_FORMAT._replace(high_watermark=100)) is None


@pytest.mark.parametrize(
    ("diverging", "offset"),
    [
        ((5, 80), 80),  # its end of the epoch
        ((3, 70), 60),  # ours of the epochs up to that one
        ((2, 40), 40),
        ((4, 20), 20),
        ((0, 10), 10),  # nothing is in common
        ((1, 5), 5),
    ],
)
def test_a_log_is_cut_at_the_earlier_end_of_the_epoch(
    diverging: tuple[int, int], offset: int, replica: ReplicaPartition
) -> None:
    effect = replica.on_diverging(EpochStart(*diverging), LOG, NOW_MS)
    assert effect == TruncateTo(offset)
    assert replica.asks is Asks.RECORDS


@pytest.mark.parametrize("diverging", [(5, 100), (5, 120), (6, 80), (-1, 80), (3, -1), (9, -1)])
def test_an_epoch_that_does_not_diverge_cuts_nothing(
    diverging: tuple[int, int], replica: ReplicaPartition
) -> None:
    """KAFKA-10706: it must not be asked again for ever without a pause."""
    assert replica.on_diverging(EpochStart(*diverging), LOG, NOW_MS) is None
    assert replica.not_before_ms == NOW_MS + BACKOFF_MS
    assert "parts from the one here" in str(replica.why)


def test_an_empty_log_is_never_cut(replica: ReplicaPartition) -> None:
    for diverging in [(5, 0), (0, 0), (7, 3)]:
        assert replica.on_diverging(EpochStart(*diverging), EMPTY, NOW_MS) is None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.inconsistent_topic_id,
    ],
)
def test_errors_of_an_election_are_waited_for_without_a_cut(
    code: ErrorCode, replica: ReplicaPartition
) -> None:
    pauses = []
    for _ in range(8):
        replica.on_error(code, "fetch", NOW_MS)
        pauses.append(replica.not_before_ms - NOW_MS)
        assert replica.asks is Asks.RECORDS
    assert pauses == [50, 100, 200, 400, 800, 1_000, 1_000, 1_000]
    assert code.name.upper() in str(replica.why)
    replica.on_records(100, LOG, NOW_MS)
    assert replica.why is None
    assert replica.caught_up_ms == NOW_MS


def test_other_errors_are_waited_for_as_long_as_the_setting_says(replica: ReplicaPartition) -> None:
    for code in (ErrorCode.kafka_storage_error, ErrorCode.corrupt_message):
        replica.on_error(code, "fetch", NOW_MS)
        assert replica.not_before_ms == NOW_MS + BACKOFF_MS


def refused(replica: ReplicaPartition) -> None:
    replica.on_error(ErrorCode.offset_out_of_range, "fetch", NOW_MS)
    assert replica.asks is Asks.BOUNDS


@pytest.mark.parametrize(
    ("bounds", "effect"),
    [
        ((200, 300), StartAt(200)),  # it has deleted what follows here
        ((101, 101), StartAt(101)),
        ((0, 50), TruncateTo(50)),  # an unclean election
        ((0, 11), TruncateTo(11)),
        ((0, 10), StartAt(0)),  # nothing of it is left
        ((3, 7), StartAt(3)),
        ((0, 0), StartAt(0)),
        ((100, 100), None),  # it fits: the leader's log has changed meanwhile
        ((0, 1_000), None),
    ],
)
def test_out_of_range_the_leaders_log_decides(
    bounds: tuple[int, int], effect: object, replica: ReplicaPartition
) -> None:
    """KAFKA-7414: also where an unclean leader has less than was committed, or has grown again."""
    refused(replica)
    assert replica.on_bounds(*bounds, LOG, NOW_MS) == effect
    assert replica.asks is Asks.RECORDS
    assert (replica.not_before_ms > NOW_MS) is (effect is None)


@pytest.mark.parametrize("bounds", [(5, 4), (-1, 5), (-1, -1), (1 << 62, 0)])
def test_bounds_that_cannot_be_cut_nothing(
    bounds: tuple[int, int], replica: ReplicaPartition
) -> None:
    for _ in range(2 * REFUSALS):
        refused(replica)
        assert replica.on_bounds(*bounds, LOG, NOW_MS) is None


def test_an_empty_log_starts_where_the_leaders_does(replica: ReplicaPartition) -> None:
    refused(replica)
    at_fifty = LocalLog(50, 50, 50, ())
    assert replica.on_bounds(0, 30, at_fifty, NOW_MS) == StartAt(0)
    assert replica.on_bounds(60, 90, at_fifty, NOW_MS) == StartAt(60)


def test_a_leader_that_knows_none_of_the_epochs_is_copied_anew(replica: ReplicaPartition) -> None:
    effects = []
    for _ in range(REFUSALS):
        refused(replica)
        effects.append(replica.on_bounds(20, 300, LOG, NOW_MS))
    assert effects == [None] * (REFUSALS - 1) + [StartAt(20)]
    begun = LocalLog(20, 20, 20, ())
    refused(replica)
    assert replica.on_bounds(20, 300, begun, NOW_MS) is None, "it cannot begin anew again"
    assert replica.not_before_ms > NOW_MS


def test_records_end_a_row_of_refusals(replica: ReplicaPartition) -> None:
    for _ in range(3 * REFUSALS):
        refused(replica)
        assert replica.on_bounds(0, 300, LOG, NOW_MS) is None
        replica.on_records(300, LOG, NOW_MS)


def test_a_cut_that_the_disk_refuses_is_asked_for_again(replica: ReplicaPartition) -> None:
    refused(replica)
    assert replica.on_bounds(200, 300, LOG, NOW_MS) == StartAt(200)
    replica.on_failure("the disk is full", NOW_MS)
    replica.on_undone(LOG)
    assert replica.asks is Asks.RECORDS
    assert replica.not_before_ms == NOW_MS + BACKOFF_MS


# --- a cluster at random ------------------------------------------------------------------


class Broker:
    """One log, with what the broker knows of it."""

    def __init__(self) -> None:
        self.log = Model()
        self.start = 0
        self.high_watermark = 0
        self.state = ReplicaPartition(1, 1)

    @property
    def end(self) -> int:
        return len(self.log.records)

    @property
    def local(self) -> LocalLog:
        starts: dict[int, int] = {}
        for offset, (epoch, _) in enumerate(self.log.records):
            if offset >= self.start:
                starts.setdefault(epoch, offset)
        epochs = [EpochStart(*each) for each in starts.items()]
        return LocalLog(self.start, self.end, self.high_watermark, epochs)

    def cut(self, effect: TruncateTo | StartAt) -> None:
        offset = effect.offset
        if isinstance(effect, StartAt):
            self.start = self.high_watermark = offset
            self.log.records = [(-1, "gone")] * offset
        else:
            assert offset <= self.end
            del self.log.records[offset:]
            self.start = min(self.start, offset)
            self.high_watermark = min(self.high_watermark, offset)


class Cluster:
    """Replicas that follow the elected one; elections may be unclean, and logs lost."""

    def __init__(self) -> None:
        self.brokers = [Broker() for _ in range(3)]
        self.leader, self.epoch = 0, 0
        self.now_ms = 0

    def elect(self, number: int) -> None:
        self.leader, self.epoch = number, self.epoch + 1
        self.brokers[number].state.release()

    def look(self, number: int) -> None:
        """Let a broker hear of the leader."""
        if number != self.leader:
            self.brokers[number].state.lead(self.leader, self.epoch)

    def fetch(self, number: int, most: int) -> None:
        broker, leader = self.brokers[number], self.brokers[self.leader]
        state, local = broker.state, broker.local
        if state.asks is Asks.NOTHING or self.now_ms < state.not_before_ms:
            return
        if (state.leader, state.epoch) != (self.leader, self.epoch):
            state.on_error(ErrorCode.not_leader_or_follower, "fetch", self.now_ms)
            return
        if state.asks is Asks.BOUNDS:
            effect = state.on_bounds(leader.start, leader.end, local, self.now_ms)
            if effect is not None:
                broker.cut(effect)
            return
        offset, latest = local.end, local.latest_epoch
        epoch, end = leader.log.end_of(latest, self.epoch) if latest >= 0 else (-1, offset)
        if offset < leader.start or (latest >= 0 and latest > self.epoch):
            state.on_error(ErrorCode.offset_out_of_range, "fetch", self.now_ms)
        elif latest >= 0 and (epoch < latest or end < offset):
            common = self._common(broker, leader)
            effect = state.on_diverging(EpochStart(epoch, end), local, self.now_ms)
            assert effect is not None
            assert effect.offset >= common, "what the leader has, too, is cut"
            broker.cut(effect)
        elif offset > leader.end:
            state.on_error(ErrorCode.offset_out_of_range, "fetch", self.now_ms)
        else:
            broker.log.records += leader.log.records[offset : offset + most]
            broker.high_watermark = max(
                broker.high_watermark, min(leader.high_watermark, broker.end)
            )
            if leader.start > broker.start:
                broker.start = min(leader.start, broker.end)
                broker.high_watermark = max(broker.high_watermark, broker.start)
            state.on_records(leader.high_watermark, broker.local, self.now_ms)

    @staticmethod
    def _common(one: Broker, other: Broker) -> int:
        """The first offset that differs, among those that both have."""
        first, end = max(one.start, other.start), min(one.end, other.end)
        for offset in range(first, end):
            if one.log.records[offset] != other.log.records[offset]:
                return offset if offset > first else 0
        return end if first < end else 0


STEPS = st.sampled_from(["append", "elect", "lose", "delete", "commit", "look", "fetch", "fetch"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 2), st.integers(0, 9)), max_size=80))
def test_in_the_end_every_replica_is_what_its_leader_is(
    steps: Sequence[tuple[str, int, int]],
) -> None:
    cluster = Cluster()
    for what, number, count in steps:
        cluster.now_ms += 1
        leader = cluster.brokers[cluster.leader]
        match what:
            case "append":
                leader.log.append(cluster.epoch, f"{cluster.leader} in {cluster.epoch}", count)
            case "elect":
                cluster.elect(number)
            case "lose" if number != cluster.leader:  # the tail, or all: its directory is new
                broker = cluster.brokers[number]
                keep = max(broker.start, broker.end - count) if count < 9 else 0
                if count == 9:
                    broker.start = 0
                broker.cut(TruncateTo(keep))
            case "delete":
                leader.start = min(leader.high_watermark, leader.start + count)
            case "commit":
                leader.high_watermark = max(leader.high_watermark, leader.end - count)
            case "look":
                cluster.look(number)
            case "fetch":
                cluster.fetch(number, count)
        for broker in cluster.brokers:
            assert 0 <= broker.start <= broker.high_watermark <= broker.end
    for _ in range(200):
        cluster.now_ms += 10
        for number in range(3):
            cluster.look(number)
            cluster.fetch(number, 9)
    leader = cluster.brokers[cluster.leader]
    for broker in cluster.brokers:
        assert broker.end == leader.end, broker.state.why
        first = max(broker.start, leader.start)
        assert broker.log.records[first:] == leader.log.records[first:]
        if broker is not leader:
            assert broker.state.offsets_behind == 0
