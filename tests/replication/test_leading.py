"""A leader's replicas: who is in sync, what is committed, and what the controllers are asked."""

from dataclasses import dataclass, field
from uuid import UUID

import pytest

from horolog.errors import ErrorCode, RequestRefused
from horolog.replication.leading import RETRY_MS, UNDECIDED_MS, BrokerView, Leading
from horolog.replication.proposals import IsrAnswer, IsrProposal
from horolog.schemas.metadata import PartitionRecord

LAG_MS = 30_000


def record(
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    leader_epoch: int = 5,
    partition_epoch: int = 10,
    recovery_state: int = 0,
) -> PartitionRecord:
    return PartitionRecord(
        0,
        UUID(int=7),
        replicas,
        isr,
        (),
        (),
        1,
        recovery_state,
        leader_epoch,
        partition_epoch,
    )


@dataclass
class Lab:
    """A leader with the id 1, whose log has 100 records, of which 80 are committed."""

    partition: PartitionRecord = field(default_factory=record)
    min_isr: int = 1
    epoch_start: int = 100
    now: int = 1_000

    def __post_init__(self) -> None:
        self.brokers = {id_: BrokerView(id_ * 100) for id_ in (1, 2, 3, 4)}
        self.leading = Leading(
            1,
            self.partition,
            self.brokers.get,
            log_end=100,
            epoch_start=self.epoch_start,
            high_watermark=80,
            min_isr=self.min_isr,
            lag_max_ms=LAG_MS,
            now_ms=self.now,
        )

    def fetch(
        self, replica: int, offset: int, *, after: int = 1, epoch: int | None = None, start: int = 0
    ) -> int | None:
        self.now += after
        epoch = replica * 100 if epoch is None else epoch
        end = self.leading.log_end
        return self.leading.on_fetch(replica, epoch, offset, start, end, self.now).high_watermark

    def propose(self, *, after: int = 0) -> IsrProposal | None:
        self.now += after
        return self.leading.proposal(self.now)

    def proposed(self, *, after: int = 0) -> IsrProposal:
        proposal = self.propose(after=after)
        assert proposal is not None
        return proposal

    def answer(self, proposal: IsrProposal, error: int = 0) -> int | None:
        answer = IsrAnswer(error)
        if not error:
            answer = IsrAnswer(
                0, 1, proposal.leader_epoch, proposal.isr, 0, proposal.partition_epoch + 1
            )
        return self.leading.on_answer(proposal, answer, self.now)


def test_the_high_watermark_is_what_all_members_have() -> None:
    lab = Lab()
    assert lab.fetch(2, 100) is None
    assert lab.fetch(3, 90) == 90
    assert lab.fetch(3, 100) == 100
    assert lab.leading.on_append(110) is None
    assert lab.fetch(2, 110) is None
    assert lab.fetch(3, 105) == 105


def test_the_high_watermark_never_falls() -> None:
    lab = Lab()
    lab.fetch(2, 100)
    lab.fetch(3, 100)
    assert lab.fetch(2, 20) is None  # it has lost its tail
    assert lab.leading.high_watermark == 100


def test_an_append_is_committed_at_once_where_the_leader_is_the_only_member() -> None:
    lab = Lab(record(isr=(1,)))
    assert lab.leading.high_watermark == 100
    assert lab.leading.on_append(101) == 101


def test_a_late_notice_of_an_append_does_not_lower_the_end() -> None:
    lab = Lab(record(isr=(1,)))
    lab.leading.on_append(120)
    assert lab.leading.on_append(110) is None
    assert lab.leading.log_end == 120


def test_a_replica_may_read_an_append_before_its_notice_comes() -> None:
    lab = Lab(record(isr=(1, 2)))
    progress = lab.leading.on_fetch(2, 200, 104, 0, 110, lab.now)
    assert (progress.high_watermark, lab.leading.log_end) == (104, 110)


def test_the_high_watermark_does_not_move_below_the_minimum_of_replicas() -> None:
    lab = Lab(record(isr=(1, 2)), min_isr=3)
    assert lab.leading.refuses_append
    assert not lab.leading.is_enough
    assert lab.fetch(2, 100) is None
    assert lab.leading.on_min_isr(2) == 100
    assert not lab.leading.refuses_append
    assert lab.leading.is_enough


def test_the_minimum_is_at_most_the_number_of_replicas() -> None:
    lab = Lab(record(isr=(1, 2), replicas=(1, 2)), min_isr=5)
    assert lab.leading.effective_min_isr == 2
    assert not lab.leading.refuses_append
    assert lab.fetch(2, 100) == 100


def test_members_of_a_proposal_count_before_it_is_decided() -> None:
    lab = Lab(record(isr=(1,)), min_isr=2)
    lab.fetch(2, 100)
    proposal = lab.proposed()
    assert lab.leading.refuses_append  # an append counts the committed ISR
    assert lab.leading.is_enough  # an answer the maximal one
    assert lab.leading.high_watermark == 80
    assert lab.answer(proposal) == 100
    assert not lab.leading.refuses_append


def test_a_replica_that_is_taken_out_counts_until_that_is_decided() -> None:
    lab = Lab(record(isr=(1, 2)))
    lab.now += LAG_MS + 1
    assert lab.leading.tick(lab.now) is None
    proposal = lab.proposed()
    assert proposal.isr == (1,)
    assert lab.leading.on_append(120) is None
    assert lab.answer(proposal) == 120


# --- who is caught up ---------------------------------------------------------------------


def test_a_replica_that_keeps_up_with_a_busy_leader_stays() -> None:
    lab = Lab(record(isr=(1, 2)))
    for _ in range(100):  # each fetch has what there was at the fetch before
        lab.fetch(2, lab.leading.log_end - 10, after=LAG_MS // 2)
        lab.leading.on_append(lab.leading.log_end + 10)
    assert lab.propose() is None


def test_a_replica_that_falls_behind_leaves() -> None:
    lab = Lab(record(isr=(1, 2)))
    lab.fetch(2, 100)
    for _ in range(4):  # it fetches, and the leader grows faster
        lab.leading.on_append(lab.leading.log_end + 100)
        lab.fetch(2, lab.leading.replicas[2].end + 10, after=LAG_MS // 3)
    assert lab.proposed().isr == (1,)


def test_a_silent_member_leaves_an_idle_partition_only_if_it_lacks_records() -> None:
    lab = Lab()
    lab.fetch(2, 100)
    lab.now += LAG_MS + 1
    assert lab.proposed().isr == (1, 2)


def test_members_of_a_new_leader_begin_as_caught_up_and_others_do_not() -> None:
    lab = Lab(record(isr=(1, 2)))
    assert lab.propose() is None
    assert lab.leading.is_caught_up(2)
    assert not lab.leading.is_caught_up(3)


def test_a_replica_never_counts_as_caught_up_by_a_clock_that_began_lately() -> None:
    lab = Lab(record(isr=(1,)), now=0)
    lab.fetch(2, 10, after=0)
    assert not lab.leading.is_caught_up(2)


def test_one_rule_decides_who_leaves_and_who_joins() -> None:
    """A member that reaches the high watermark, and nothing else, would leave and join for ever."""
    lab = Lab(record(isr=(1, 3)), epoch_start=0)
    lab.fetch(3, 90)
    lab.leading.on_append(10_000)
    lab.fetch(2, 95, after=LAG_MS)
    lab.fetch(2, 100, after=LAG_MS)
    assert lab.leading.high_watermark == 90
    assert lab.proposed(after=1).isr == (1,)


# --- who joins ------------------------------------------------------------------------------


def test_a_replica_joins_at_the_end_of_the_log() -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 99)
    assert lab.propose() is None
    lab.now += 1
    assert lab.leading.on_fetch(2, 200, 100, 0, 100, lab.now).may_join
    proposal = lab.proposed()
    assert [tuple(member) for member in proposal.members] == [(1, 100), (2, 200)]
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 10)


def test_a_replica_about_to_join_holds_the_high_watermark_back() -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100)
    assert lab.leading.on_append(110) is None
    assert lab.leading.on_append(120) is None


@pytest.mark.parametrize(
    "view",
    [
        BrokerView(200, is_fenced=True),
        BrokerView(200, is_shutting_down=True),
        BrokerView(199),
        None,
    ],
    ids=["fenced", "shutting down", "ahead of our metadata", "not registered"],
)
def test_a_replica_that_cannot_join_does_not_hold_it_back(view: BrokerView | None) -> None:
    """KAFKA-15021, KAFKA-13916."""
    lab = Lab(record(isr=(1,)))
    if view is None:
        del lab.brokers[2]
    else:
        lab.brokers[2] = view
    lab.fetch(2, 100)
    assert lab.propose() is None
    assert lab.leading.on_append(110) == 110


def test_a_replica_that_was_fenced_stops_holding_it_back() -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100)
    assert lab.leading.on_append(110) is None
    lab.brokers[2] = BrokerView(200, is_fenced=True)
    assert lab.leading.on_brokers() == 110


def test_a_replica_that_went_silent_stops_holding_it_back() -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100)
    assert lab.leading.on_append(110) is None
    assert lab.leading.tick(lab.now + LAG_MS) is None
    assert lab.leading.tick(lab.now + LAG_MS + 1) == 110


def test_a_replica_joins_only_with_the_records_before_the_leaders_epoch() -> None:
    """Those may be committed, although this leader does not know it yet."""
    lab = Lab(record(isr=(1, 3)))
    lab.leading.on_append(110)
    lab.fetch(2, 99)
    lab.leading.replicas[2].caught_up_ms = lab.now  # as it may be by time alone
    assert lab.propose() is None
    lab.fetch(2, 100)
    assert lab.proposed().isr == (1, 3, 2)


def test_a_fetch_of_an_older_registration_changes_nothing() -> None:
    """KAFKA-15221."""
    lab = Lab(record(isr=(1,)))
    with pytest.raises(RequestRefused) as refused:
        lab.fetch(2, 100, epoch=199)
    assert refused.value.code == ErrorCode.not_leader_or_follower
    assert lab.leading.replicas[2].end == -1


def test_a_replica_registered_anew_since_its_fetch_does_not_join() -> None:
    """KAFKA-15221: check and proposal see one state."""
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100)
    lab.brokers[2] = BrokerView(201)
    assert lab.propose() is None
    lab.fetch(2, 100, epoch=201)
    assert lab.proposed().members[1].broker_epoch == 201


def test_a_replica_that_does_not_tell_its_epoch_joins() -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100, epoch=-1)
    assert lab.proposed().members[1].broker_epoch == -1


@pytest.mark.parametrize("replica", [1, 4, -1])
def test_only_other_replicas_of_the_partition_fetch(replica: int) -> None:
    lab = Lab()
    with pytest.raises(RequestRefused) as refused:
        lab.fetch(replica, 100, epoch=-1)
    assert refused.value.code == ErrorCode.unknown_leader_epoch


@pytest.mark.parametrize("offset", [-1, 101])
def test_an_offset_that_the_log_does_not_have_is_no_progress(offset: int) -> None:
    lab = Lab(record(isr=(1, 2)))
    with pytest.raises(RequestRefused) as refused:
        lab.fetch(2, offset)
    assert refused.value.code == ErrorCode.offset_out_of_range
    assert lab.leading.high_watermark == 80


# --- proposals ------------------------------------------------------------------------------


def test_one_proposal_is_under_way_at_a_time() -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100)
    first = lab.proposed()
    lab.fetch(3, 100)
    assert lab.propose() is None
    lab.answer(first)
    second = lab.proposed()
    assert (second.isr, second.partition_epoch) == ((1, 2, 3), 11)


@pytest.mark.parametrize("error", [ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted])
def test_a_refused_proposal_is_dropped_and_made_again_after_a_pause(error: ErrorCode) -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100)
    lab.answer(lab.proposed(), error)
    assert lab.leading.maximal_isr == {1}
    assert not lab.leading.is_proposing
    lab.fetch(2, 100)
    assert lab.propose() is None  # no storm of requests
    assert lab.proposed(after=RETRY_MS).isr == (1, 2)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    ],
)
def test_an_error_of_old_metadata_keeps_the_maximal_isr(error: ErrorCode) -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100)
    proposal = lab.proposed()
    lab.answer(proposal, error)
    lab.leading.on_append(110)
    assert lab.leading.maximal_isr == {1, 2}
    assert lab.leading.high_watermark == 100
    assert lab.propose(after=UNDECIDED_MS - 1) is None
    assert lab.propose(after=1) is proposal  # the metadata may never say it


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.not_controller,
        ErrorCode.unknown_server_error,
        ErrorCode.stale_broker_epoch,
        ErrorCode.request_timed_out,
        -12_345,
    ],
)
def test_any_other_error_is_tried_again_with_the_same_proposal(error: int) -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100)
    proposal = lab.proposed()
    lab.answer(proposal, error)
    assert lab.leading.maximal_isr == {1, 2}
    assert lab.propose() is None
    assert lab.propose(after=RETRY_MS) is proposal


@pytest.mark.parametrize(
    "answer",
    [
        IsrAnswer(0, 2, 5, (1, 2), 0, 11),
        IsrAnswer(0, 1, 6, (1, 2), 0, 11),
        IsrAnswer(0, 1, 5, (1, 2), 0, 9),
        IsrAnswer(0, 1, 5, (1, 2), 0, 10),
        IsrAnswer(0, 1, 5, (2,), 0, 11),
        IsrAnswer(0, 1, 5, (1, 9), 0, 11),
        IsrAnswer(0, 1, 5, (), 0, 11),
        IsrAnswer(0, 1, 5, (1, 2), 0, 12),
        IsrAnswer(0, 1, 5, (1, 2), 0, (1 << 31) - 1),
        IsrAnswer(0, 1, 5, (1, 2, 3), 0, 11),
    ],
    ids=[
        "leader",
        "epoch",
        "old",
        "unchanged",
        "without us",
        "stranger",
        "empty",
        "ahead",
        "far ahead",
        "not proposed",
    ],
)
def test_an_answer_that_cannot_be_changes_nothing(answer: IsrAnswer) -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100)
    proposal = lab.proposed()
    lab.leading.on_answer(proposal, answer, lab.now)
    assert (lab.leading.isr, lab.leading.maximal_isr) == ((1,), {1, 2})
    assert lab.propose(after=RETRY_MS) is proposal


def test_metadata_decides_a_proposal_before_its_answer() -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100)
    proposal = lab.proposed()
    lab.leading.on_state(record(isr=(1, 2), partition_epoch=11), lab.now)
    assert not lab.leading.is_proposing
    lab.fetch(3, 100)
    later = lab.proposed()
    lab.answer(proposal, ErrorCode.ineligible_replica)  # too late to say anything
    assert lab.leading.maximal_isr == {1, 2, 3}
    lab.answer(later)
    assert lab.leading.isr == (1, 2, 3)


def test_an_answer_comes_before_the_metadata() -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100)
    lab.answer(lab.proposed())
    lab.leading.on_state(record(isr=(1,)), lab.now)  # late
    assert (lab.leading.isr, lab.leading.partition.partition_epoch) == ((1, 2), 11)


def test_metadata_of_the_same_epoch_brings_replicas_and_keeps_a_later_proposal() -> None:
    """The answer does not say that the controllers have completed a reassignment with it."""
    moving = record(isr=(1, 3), replicas=(1, 2, 3))._replace(adding=(2,), removing=(3,))
    lab = Lab(moving)
    lab.fetch(2, 100)
    lab.fetch(3, 100)
    proposal = lab.proposed()
    lab.leading.on_answer(proposal, IsrAnswer(0, 1, 5, (1, 2), 0, 11), lab.now)
    lab.leading.on_state(record(isr=(1, 2), replicas=(1, 2, 4), partition_epoch=11), lab.now)
    assert list(lab.leading.replicas) == [2, 4]

    lab.fetch(4, 100)
    later = lab.proposed()
    lab.leading.on_state(record(isr=(1, 2), replicas=(1, 2, 4), partition_epoch=11), lab.now)
    assert lab.leading.maximal_isr == {1, 2, 4}
    lab.answer(later)
    assert lab.leading.isr == (1, 2, 4)


def test_a_proposal_with_a_removed_replica_is_void() -> None:
    lab = Lab(record(isr=(1, 2)))
    lab.fetch(2, 100)
    lab.fetch(3, 100)
    assert lab.proposed().isr == (1, 2, 3)
    lab.leading.on_state(record(isr=(1, 2), replicas=(1, 2)), lab.now)
    assert not lab.leading.is_proposing


def test_an_unclean_election_is_over_with_the_next_proposal() -> None:
    lab = Lab(record(isr=(1,), recovery_state=1))
    assert lab.propose() is None
    lab.fetch(2, 100)
    assert lab.proposed().recovery_state == 0


def test_nobody_is_taken_in_while_the_controllers_are_unreachable() -> None:
    lab = Lab(record(isr=(1,)))
    lab.fetch(2, 100)
    proposal = lab.proposed()
    for _ in range(10):
        lab.answer(proposal, ErrorCode.request_timed_out)
        lab.now += RETRY_MS
        assert lab.propose() is proposal
    assert lab.leading.on_append(110) is None


# --- elections, other replicas --------------------------------------------------------------


def test_a_new_leader_epoch_of_the_same_leader_keeps_ends() -> None:
    lab = Lab(record(isr=(1, 2)))
    lab.fetch(2, 95)
    lab.fetch(3, 70)
    lab.now += LAG_MS * 2
    state = record(isr=(1, 2), leader_epoch=6, partition_epoch=11)
    lab.leading.on_state(state, lab.now, epoch_start=100)
    assert {id_: replica.end for id_, replica in lab.leading.replicas.items()} == {2: 95, 3: 70}
    assert lab.leading.is_caught_up(2)  # its time begins again
    assert not lab.leading.is_caught_up(3)


def test_a_new_partition_epoch_resets_no_replica() -> None:
    """KAFKA-13790."""
    lab = Lab(record(isr=(1, 2)))
    lab.fetch(2, 95)
    lab.now += LAG_MS
    lab.leading.on_state(record(isr=(1, 2), replicas=(1, 2, 4), partition_epoch=11), lab.now)
    assert lab.leading.replicas[2].end == 95
    assert lab.leading.replicas[4].end == -1
    assert lab.proposed(after=2).isr == (1,)


def test_fewer_members_commit_what_the_rest_has() -> None:
    lab = Lab(record(isr=(1, 2)))
    assert lab.leading.on_state(record(isr=(1,), partition_epoch=11), lab.now) == 100


def test_an_older_state_is_ignored() -> None:
    lab = Lab(record(isr=(1, 2)))
    for late in record(isr=(1,), partition_epoch=9), record(isr=(1,), leader_epoch=4):
        assert lab.leading.on_state(late, lab.now) is None
        assert lab.leading.isr == (1, 2)


def test_consumers_get_no_latest_offset_before_the_epoch_is_committed() -> None:
    """KIP-207."""
    lab = Lab(record(isr=(1, 2)))
    assert not lab.leading.shows_latest
    lab.fetch(2, 99)
    assert not lab.leading.shows_latest
    lab.fetch(2, 100)
    assert lab.leading.shows_latest


def test_the_low_watermark_is_that_of_live_replicas() -> None:
    lab = Lab()
    assert lab.leading.low_watermark(50) == -1
    lab.fetch(2, 100, start=40)
    lab.fetch(3, 100, start=60)
    assert lab.leading.low_watermark(50) == 40
    lab.brokers[2] = BrokerView(200, is_fenced=True)
    assert lab.leading.low_watermark(50) == 50


def test_a_moved_start_is_reported_once() -> None:
    lab = Lab()
    moved = [
        lab.leading.on_fetch(2, 200, 100, start, 100, lab.now).start_moved for start in (0, 0, 7, 7)
    ]
    assert moved == [True, False, True, False]


def test_ends_are_forgotten_where_another_leader_may_have_been_in_between() -> None:
    """Replicas may have followed it, and have truncated what this leader saw them have."""
    lab = Lab(record(isr=(1, 2)))
    lab.leading.on_append(110)
    lab.fetch(2, 95)
    state = record(isr=(1, 2), leader_epoch=7, partition_epoch=12)
    assert lab.leading.on_state(state, lab.now, epoch_start=110) is None
    assert lab.leading.replicas[2].end == -1
    assert lab.leading.is_caught_up(2)


def test_a_late_fetch_of_a_process_that_is_gone_changes_nothing() -> None:
    lab = Lab(record(isr=(1, 2)))
    lab.fetch(2, 20, epoch=201)  # our metadata does not have this registration yet
    with pytest.raises(RequestRefused):
        lab.fetch(2, 100, epoch=200)
    assert lab.leading.high_watermark == 80
