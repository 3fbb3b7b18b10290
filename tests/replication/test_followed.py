"""What is asked next about a followed partition: by case, and against a cluster at random."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replica_model import Model

from horolog.errors import ErrorCode
from horolog.replication.asked import Asks, Gap, LocalLog, StartAt
from horolog.replication.followed import FALLEN_MS, MAX_EPOCH, MOST_GAPS, FollowedPartition
from horolog.replication.truncation import TruncateTo
from horolog.storage import EpochStart

NOW_MS = 5_000
BACKOFF_MS = 1_000
EMPTY = LocalLog(0, 0, 0, ())
LOG = LocalLog(10, 100, 100, (EpochStart(2, 10), EpochStart(5, 60)))
OLD_FORMAT = LocalLog(10, 100, 100, ())


@pytest.fixture
def partition() -> FollowedPartition:
    return FollowedPartition(BACKOFF_MS, 8 * BACKOFF_MS)


@pytest.fixture
def led(partition: FollowedPartition) -> FollowedPartition:
    """Whose log was found to agree."""
    partition.lead(1, 5, LOG, NOW_MS)
    assert partition.on_epoch_end(5, 120, LOG, NOW_MS) is None
    assert partition.asks is Asks.RECORDS
    return partition


def test_nothing_is_asked_before_there_is_a_leader(partition: FollowedPartition) -> None:
    assert partition.asks is Asks.NOTHING
    partition.lead(None, 5, LOG, NOW_MS)
    assert partition.asks is Asks.NOTHING
    assert "no leader" in str(partition.why)


@pytest.mark.parametrize(
    ("log", "asks"), [(EMPTY, Asks.RECORDS), (LOG, Asks.EPOCH_END), (OLD_FORMAT, Asks.RECORDS)]
)
def test_a_log_with_epochs_is_compared_before_records_are_asked_for(
    partition: FollowedPartition, log: LocalLog, asks: Asks
) -> None:
    partition.lead(1, 7, log, NOW_MS)
    assert partition.asks is asks
    assert partition.asked_epoch == log.latest_epoch


def test_every_change_of_epoch_compares_the_logs_again(led: FollowedPartition) -> None:
    turn = led.turn
    led.lead(1, 5, LOG, NOW_MS)
    assert (led.asks, led.turn) == (Asks.RECORDS, turn)
    led.lead(1, 6, LOG, NOW_MS)
    assert (led.asks, led.turn) == (Asks.EPOCH_END, turn + 1)
    led.on_epoch_end(5, 100, LOG, NOW_MS)
    led.lead(2, 7, LOG, NOW_MS)
    assert (led.asks, led.leader, led.turn) == (Asks.EPOCH_END, 2, turn + 2)


@pytest.mark.parametrize(("log", "asks"), [(LOG, Asks.EPOCH_END), (OLD_FORMAT, Asks.BOUNDS)])
def test_nothing_is_appended_before_what_parts_is_cut_off(
    partition: FollowedPartition, log: LocalLog, asks: Asks
) -> None:
    partition.lead(1, 7, log, NOW_MS)
    if log is LOG:
        assert partition.on_epoch_end(2, 50, log, NOW_MS) == TruncateTo(50)
    else:
        out_of_range(partition)
        assert partition.on_bounds(0, 50, log, NOW_MS) == TruncateTo(50)
    partition.on_failure("the disk is full", NOW_MS)
    partition.on_undone(log)
    assert partition.asks is asks


def test_an_earlier_epoch_is_asked_for_where_the_answered_one_is_not_known(
    partition: FollowedPartition,
) -> None:
    partition.lead(1, 7, LOG, NOW_MS)
    assert partition.on_epoch_end(4, 80, LOG, NOW_MS) is None
    assert (partition.asks, partition.asked_epoch) == (Asks.EPOCH_END, 2)
    assert partition.on_epoch_end(2, 50, LOG, NOW_MS) == TruncateTo(50)
    assert partition.asks is Asks.RECORDS


@pytest.mark.parametrize("answer", [(-1, -1), (-1, 50), (5, -1)])
def test_a_leader_that_knows_no_epochs_cuts_to_the_high_watermark(
    partition: FollowedPartition, answer: tuple[int, int]
) -> None:
    partition.lead(1, 7, LOG, NOW_MS)
    assert partition.on_epoch_end(*answer, LOG, NOW_MS) is None
    assert partition.asks is Asks.RECORDS
    partition.lead(1, 8, LOG, NOW_MS)
    behind = LOG._replace(high_watermark=90)
    assert partition.on_epoch_end(*answer, behind, NOW_MS) == TruncateTo(90)


def test_an_answer_with_a_later_epoch_than_was_asked_for_is_not_used(
    partition: FollowedPartition,
) -> None:
    partition.lead(1, 7, LOG, NOW_MS)
    assert partition.on_epoch_end(6, 20, LOG, NOW_MS) is None
    assert partition.asks is Asks.EPOCH_END
    assert "asked for the end of 5" in str(partition.why)
    assert partition.not_before_ms == NOW_MS + BACKOFF_MS


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.offset_not_available,
    ],
)
def test_right_after_an_election_it_waits_and_asks_the_same_again(
    led: FollowedPartition, code: ErrorCode
) -> None:
    pauses = []
    for _ in range(8):
        assert led.on_error(code, "fetch", NOW_MS), "the source is to be looked at"
        assert led.asks is Asks.RECORDS
        pauses.append(led.not_before_ms - NOW_MS)
    assert pauses[:3] == [50, 100, 200]
    assert pauses[-1] == BACKOFF_MS
    led.on_records(120, LOG, NOW_MS)
    assert (led.failures, led.why) == (0, None)


def test_other_errors_back_off_longer_each_time(led: FollowedPartition) -> None:
    pauses = []
    for _ in range(40):
        assert not led.on_error(ErrorCode.kafka_storage_error, "fetch", NOW_MS)
        pauses.append(led.not_before_ms - NOW_MS)
    assert pauses[:4] == [1_000, 2_000, 4_000, 8_000]
    assert set(pauses[4:]) == {8_000}
    assert led.why == "fetch: KAFKA_STORAGE_ERROR"


def out_of_range(partition: FollowedPartition) -> None:
    partition.on_error(ErrorCode.offset_out_of_range, "fetch", NOW_MS)
    assert partition.asks is Asks.BOUNDS


def test_behind_the_start_a_gap_is_named_and_passed(led: FollowedPartition) -> None:
    out_of_range(led)
    assert led.on_bounds(150, 200, LOG, NOW_MS) is None
    assert led.asks is Asks.RECORDS
    assert led.position(LOG) == 150
    assert led.gaps == [Gap(100, 150)]
    out_of_range(led)
    assert led.on_bounds(170, 200, LOG, NOW_MS) is None
    assert led.gaps == [Gap(100, 170)], "one gap, which has grown"
    grown = LOG._replace(end=180)
    led.on_records(200, grown, NOW_MS)
    assert (led.position(grown), led.offsets_behind) == (180, 20)


def test_a_log_without_records_starts_where_the_source_does(partition: FollowedPartition) -> None:
    partition.lead(1, 5, EMPTY, NOW_MS)
    out_of_range(partition)
    assert partition.on_bounds(150, 200, EMPTY, NOW_MS) == StartAt(150)
    assert partition.gaps == []


def test_an_empty_log_starts_earlier_when_another_leader_does(
    partition: FollowedPartition,
) -> None:
    """After an unclean election the leader may have less, and have begun anew from there."""
    partition.lead(1, 5, EMPTY, NOW_MS)
    out_of_range(partition)
    assert partition.on_bounds(150, 150, EMPTY, NOW_MS) == StartAt(150)
    started = LocalLog(150, 150, 150, ())
    partition.lead(2, 6, started, NOW_MS)
    assert partition.asks is Asks.BOUNDS
    assert partition.on_bounds(100, 170, started, NOW_MS) == StartAt(100)
    assert (partition.asks, partition.failures) == (Asks.RECORDS, 0)
    assert partition.position(LocalLog(100, 100, 100, ())) == 100


def test_a_log_that_was_emptied_here_is_not_filled_again(partition: FollowedPartition) -> None:
    partition.lead(1, 5, EMPTY, NOW_MS)
    out_of_range(partition)
    assert partition.on_bounds(150, 200, EMPTY, NOW_MS) == StartAt(150)
    emptied = LocalLog(180, 180, 180, ())
    partition.lead(2, 6, emptied, NOW_MS)
    assert partition.asks is Asks.RECORDS
    assert partition.position(emptied) == 180


def test_offsets_of_a_gap_that_another_leader_has_are_followed(led: FollowedPartition) -> None:
    out_of_range(led)
    assert led.on_bounds(150, 200, LOG, NOW_MS) is None
    led.lead(2, 6, LOG, NOW_MS)
    assert led.on_epoch_end(5, 120, LOG, NOW_MS) is None
    assert (led.position(LOG), led.gaps) == (100, [])
    out_of_range(led)
    assert led.on_bounds(150, 200, LOG, NOW_MS) is None
    assert led.gaps == [Gap(100, 150)]


def test_beyond_the_end_the_epochs_decide(led: FollowedPartition) -> None:
    out_of_range(led)
    assert led.on_bounds(0, 70, LOG, NOW_MS) is None
    assert (led.asks, led.asked_epoch) == (Asks.EPOCH_END, 5)
    assert led.on_epoch_end(2, 40, LOG, NOW_MS) == TruncateTo(40)


def test_a_leader_that_has_less_than_it_gave_in_its_epoch_is_not_believed(
    led: FollowedPartition,
) -> None:
    """A leader does not truncate: it is another topic, as before topic ids nothing else shows."""
    out_of_range(led)
    assert led.on_bounds(0, 70, LOG, NOW_MS) is None
    assert led.on_epoch_end(5, 70, LOG, NOW_MS) is None
    assert "another topic of the same name" in str(led.why)
    assert led.asks is Asks.EPOCH_END
    led.lead(2, 6, LOG, NOW_MS)
    assert led.on_epoch_end(5, 70, LOG, NOW_MS) == TruncateTo(70)


def test_beyond_the_end_of_a_log_that_has_it_all_it_asks_again(led: FollowedPartition) -> None:
    """The source contradicts itself: nothing is cut."""
    out_of_range(led)
    assert led.on_bounds(0, 70, LOG, NOW_MS) is None
    assert led.on_epoch_end(5, 100, LOG, NOW_MS) is None
    assert led.asks is Asks.RECORDS
    assert "ends at offset 70" in str(led.why)
    assert led.not_before_ms > NOW_MS


def test_beyond_the_end_without_epochs_it_is_cut_there(partition: FollowedPartition) -> None:
    partition.lead(1, 5, OLD_FORMAT, NOW_MS)
    out_of_range(partition)
    assert partition.on_bounds(0, 70, OLD_FORMAT, NOW_MS) == TruncateTo(70)


def test_behind_a_gap_that_is_no_more_it_goes_on_from_the_log_end(led: FollowedPartition) -> None:
    out_of_range(led)
    led.on_bounds(150, 200, LOG, NOW_MS)
    out_of_range(led)
    assert led.on_bounds(0, 110, LOG, NOW_MS) is None
    assert led.position(LOG) == 100


@pytest.mark.parametrize("bounds", [(-1, 5), (7, 5), (-3, -2)])
def test_bounds_that_cannot_be_are_not_used(
    led: FollowedPartition, bounds: tuple[int, int]
) -> None:
    out_of_range(led)
    assert led.on_bounds(*bounds, LOG, NOW_MS) is None
    assert "cannot be" in str(led.why)
    assert led.asks is Asks.BOUNDS


def test_out_of_range_again_and_again_is_asked_ever_more_slowly(led: FollowedPartition) -> None:
    now_ms, asked = NOW_MS, 0
    while now_ms < NOW_MS + 60_000:
        asked += 1
        out_of_range(led)
        led.on_bounds(0, 100, LOG, now_ms)
        now_ms = max(now_ms + 1, led.not_before_ms)
    assert asked < 20


def test_epochs_that_fall_are_refused_once_that_lasts(led: FollowedPartition) -> None:
    led.lead(1, 4, LOG, NOW_MS)
    assert led.asks is Asks.RECORDS, "one broker lags"
    led.lead(1, 5, LOG, NOW_MS)
    led.lead(1, 4, LOG, NOW_MS + FALLEN_MS)
    assert not led.is_refused
    led.lead(1, 4, LOG, NOW_MS + 2 * FALLEN_MS)
    assert led.is_refused
    assert led.asks is Asks.NOTHING
    assert "in epoch 4, and was followed up to epoch 5" in str(led.why)
    led.lead(1, 5, LOG, NOW_MS + 2 * FALLEN_MS)
    assert not led.is_refused
    assert led.asks is Asks.EPOCH_END


def test_a_source_below_the_epochs_of_the_log_is_not_asked(partition: FollowedPartition) -> None:
    """As after a restart here, when only the log knows them."""
    partition.lead(1, 4, LOG, NOW_MS)
    assert partition.asks is Asks.NOTHING
    partition.lead(1, 4, LOG, NOW_MS + FALLEN_MS)
    assert partition.is_refused


@pytest.mark.parametrize("epoch", [-2, -1, MAX_EPOCH + 1])
def test_epochs_that_cannot_be_are_refused(led: FollowedPartition, epoch: int) -> None:
    led.lead(1, epoch, LOG, NOW_MS)
    assert led.is_refused
    assert led.asks is Asks.NOTHING


def test_a_source_without_epochs_is_refused(partition: FollowedPartition) -> None:
    partition.lead(1, None, EMPTY, NOW_MS)
    assert partition.is_refused
    assert "2.1" in str(partition.why)


def test_an_answer_that_was_asked_for_before_is_told_by_its_turn(led: FollowedPartition) -> None:
    turns = [led.turn]
    led.lead(None, 6, LOG, NOW_MS)
    turns.append(led.turn)
    led.lead(1, 6, LOG, NOW_MS)
    turns.append(led.turn)
    led.release()
    turns.append(led.turn)
    assert turns == sorted(set(turns))


def test_a_fetch_that_names_a_diverging_epoch_compares_the_logs(led: FollowedPartition) -> None:
    led.on_diverging(EpochStart(3, 80), LOG, NOW_MS)
    assert (led.asks, led.asked_epoch) == (Asks.EPOCH_END, 5)


def test_only_the_last_gaps_are_kept(led: FollowedPartition) -> None:
    log = LOG
    for start in range(1_000, 1_000 + 10 * (MOST_GAPS + 5), 10):
        out_of_range(led)
        led.on_bounds(start, 10_000, log, NOW_MS)
        log = log._replace(end=start + 1)
    assert len(led.gaps) == MOST_GAPS
    assert led.gaps[-1].end == start


# --- a cluster at random ------------------------------------------------------------------


class Source:
    """Replicas of one partition, of which one leads; elections may be unclean."""

    def __init__(self) -> None:
        self.replicas = [Model() for _ in range(3)]
        self.start = 0
        self.leader, self.epoch = 0, 0

    @property
    def log(self) -> Model:
        return self.replicas[self.leader]

    def elect(self, leader: int) -> None:
        self.leader, self.epoch = leader, self.epoch + 1
        self.start = min(self.start, len(self.log.records))

    def append(self, count: int) -> None:
        self.log.append(self.epoch, f"{self.leader} in {self.epoch}", count)

    def copy(self, number: int, keep: int) -> None:
        """Let a replica have what the leader has, up to an offset."""
        self.replicas[number].records = self.log.records[:keep]


class Follower:
    """A log of offsets with records, driven as the broker does."""

    def __init__(self) -> None:
        self.state = FollowedPartition(1, 1)
        self.records: dict[int, tuple[int, str]] = {}
        self.start = self.end = 0

    @property
    def local(self) -> LocalLog:
        starts: dict[int, int] = {}
        for offset in sorted(self.records):
            starts.setdefault(self.records[offset][0], offset)
        epochs = [EpochStart(*each) for each in starts.items()]
        return LocalLog(self.start, self.end, self.end, epochs)

    def look(self, source: Source, now_ms: int) -> None:
        self.state.lead(source.leader, source.epoch, self.local, now_ms)

    def step(self, source: Source, now_ms: int, most: int) -> None:
        state = self.state
        is_current = (state.leader, state.epoch) == (source.leader, source.epoch)
        if state.asks is Asks.NOTHING or now_ms < state.not_before_ms:
            return
        if not is_current:
            code = ErrorCode.not_leader_or_follower
            state.on_error(code, "fetch", now_ms)
            return
        end = len(source.log.records)
        effect: TruncateTo | StartAt | None = None
        if state.asks is Asks.EPOCH_END:
            answer = source.log.end_of(state.asked_epoch, source.epoch)
            effect = state.on_epoch_end(*answer, self.local, now_ms)
        elif state.asks is Asks.BOUNDS:
            effect = state.on_bounds(source.start, end, self.local, now_ms)
        else:
            position = state.position(self.local)
            if not source.start <= position <= end:
                state.on_error(ErrorCode.offset_out_of_range, "fetch", now_ms)
                return
            for offset in range(position, min(end, position + most)):
                self.records[offset] = source.log.records[offset]
                self.end = offset + 1
            state.on_records(end, self.local, now_ms)
        if isinstance(effect, TruncateTo):
            self.records = {o: r for o, r in self.records.items() if o < effect.offset}
            self.end = effect.offset
            self.start = min(self.start, self.end)
        elif effect is not None:
            assert not self.records
            self.start = self.end = effect.offset


STEPS = st.sampled_from(["append", "elect", "copy", "delete", "look", "step"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 2), st.integers(0, 9)), max_size=60))
def test_whatever_the_source_does_the_follower_has_its_records_in_the_end(
    steps: Sequence[tuple[str, int, int]],
) -> None:
    source, follower, now_ms = Source(), Follower(), 0
    for what, number, count in steps:
        now_ms += 1
        end = len(source.log.records)
        match what:
            case "append":
                source.append(count)
            case "elect" if number != source.leader:
                source.elect(number)
            case "copy" if number != source.leader:
                source.copy(number, max(0, end - count))
            case "delete":
                source.start = min(end, source.start + count)
            case "look":
                follower.look(source, now_ms)
            case "step":
                follower.step(source, now_ms, count)
    for _ in range(200):
        now_ms += 10
        follower.look(source, now_ms)
        follower.step(source, now_ms, 9)
    leader = source.log.records
    assert follower.state.offsets_behind == 0, follower.state.why
    assert follower.state.position(follower.local) == len(leader)
    for offset, record in follower.records.items():
        assert leader[offset] == record
    missing = set(range(source.start, len(leader))) - set(follower.records)
    assert not missing


def test_a_partition_is_denied_until_records_come(led: FollowedPartition) -> None:
    assert not led.is_denied
    led.on_error(ErrorCode.topic_authorization_failed, "fetch", NOW_MS)
    assert led.is_denied
    led.on_error(ErrorCode.not_leader_or_follower, "fetch", NOW_MS)
    assert led.is_denied, "its leader has moved, and may not be read either"
    led.on_records(120, LOG, NOW_MS)
    assert not led.is_denied
