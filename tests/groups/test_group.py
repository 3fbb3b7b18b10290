"""Groups decide by themselves: requests and time in, answers out, no socket, no loop."""

import itertools
import struct
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.groups import (
    Capacity,
    Committer,
    Completed,
    Group,
    GroupChange,
    GroupLimits,
    GroupReplay,
    GroupRow,
    GroupState,
    Join,
    Joined,
    Protocol,
    Storing,
    Sync,
    Synced,
    records_of,
)
from horolog.record import build_batch
from horolog.schemas.offsets import MemberValue

RANGE = Protocol("range", b"r")
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 1, len(topics)) + names


class Story:
    """A group, a moment, and who has been answered what."""

    def __init__(self, delay_ms: int = 0, capacity: Capacity | None = None, **limits: int) -> None:
        self.capacity = capacity or Capacity()
        ids = itertools.count(1)
        self.group = Group(
            "g",
            GroupLimits(initial_rebalance_delay_ms=delay_ms, **limits),
            self.capacity,
            new_id=lambda: str(next(ids)),
        )
        self.now = 1_000
        self.store: Callable[[Storing], ErrorCode] = lambda _: ErrorCode.none
        self.rows: list[GroupRow] = []
        self.answered: dict[object, Joined | Synced | list[ErrorCode]] = {}
        self.waiting: set[object] = set()

    def _take(self, answers: list[Completed]) -> None:
        for waiter, value in answers:
            assert waiter is not None
            assert waiter not in self.answered, "answered twice"
            self.answered[waiter] = value
            self.waiting.discard(waiter)

    def join(self, waiter: str, member_id: str = "", **fields: object) -> Joined | None:
        given = Join(
            member_id=member_id,
            protocol_type="consumer",
            protocols=(RANGE,),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            client_id="c",
        )
        answers = self.group.join(replace(given, **fields), waiter, self.now)
        self.waiting.add(waiter)
        self._take(answers)
        self._store_what_is_due()
        answer = self.answered.get(waiter)
        assert answer is None or isinstance(answer, Joined)
        return answer

    def sync(self, waiter: str, joined: Joined, **assignments: bytes) -> Synced | None:
        sync = Sync(
            member_id=joined.member_id,
            generation=joined.generation,
            assignments=tuple(assignments.items()),
        )
        answers = self.group.sync(sync, waiter, self.now)
        self.waiting.add(waiter)
        self._take(answers)
        self._store_what_is_due()
        answer = self.answered.get(waiter)
        assert answer is None or isinstance(answer, Synced)
        return answer

    def _store_what_is_due(self) -> None:
        storing = self.group.take_storing()
        if storing is None:
            return
        error = self.store(storing)
        if error is ErrorCode.none:
            self.rows.append(storing.row)
            self._take(self.group.stored(storing, self.now))
        else:
            self._take(self.group.not_stored(storing, error, self.now))

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        waiter = f"leave {len(self.answered)}"
        self._take(self.group.leave(members, waiter, self.now))
        errors = self.answered.pop(waiter)
        assert isinstance(errors, list)
        return errors

    def wait(self, ms: int) -> None:
        """Let time pass, calling tick at every deadline, as the loop does."""
        until = self.now + ms
        while (at := self.group.next_deadline_ms()) is not None and at <= until:
            self.now = max(at, self.now)
            self._take(self.group.tick(self.now))
        self.now = until

    def joined(self, waiter: str) -> Joined:
        answer = self.answered[waiter]
        assert isinstance(answer, Joined)
        return answer

    def stable(self, *waiters: str, **fields: object) -> list[Joined]:
        """Bring a group of these members to Stable; several need a delay to gather."""
        for waiter in waiters:
            self.join(waiter, **fields)
        self.wait(20)
        members = [self.joined(waiter) for waiter in waiters]
        leader = next(m for m in members if m.member_id == m.leader)
        self.sync("sync-leader", leader, **{m.member_id: m.member_id.encode() for m in members})
        for member in members:
            if member is not leader:
                assert self.sync(f"sync-{member.member_id}", member) is not None
        assert self.group.state is GroupState.STABLE
        return members


def refused(code: ErrorCode) -> "pytest.RaisesExc[RequestRefused]":
    return pytest.raises(RequestRefused, check=lambda error: error.code is code)


def test_the_first_members_gather_for_the_initial_delay_and_the_first_leads() -> None:
    story = Story(delay_ms=3_000)
    story.join("a")
    story.join("b")
    assert not story.answered
    story.wait(2_999)
    assert not story.answered
    story.wait(3_001)  # another came while gathering: one extension
    a, b = story.joined("a"), story.joined("b")
    assert a.generation == b.generation == 1
    assert a.leader == b.leader == a.member_id
    assert {m.member_id for m in a.members} == {a.member_id, b.member_id}
    assert b.members == ()


def test_gathering_ends_at_the_rebalance_timeout_however_many_keep_coming() -> None:
    story = Story(delay_ms=3_000)
    for n in range(10):
        if n and story.answered:
            break
        story.join(f"m{n}", rebalance_timeout_ms=7_000)
        story.wait(1_000)
    story.wait(1_000)
    assert story.answered
    assert story.now - 1_000 <= 8_000


def test_the_leaders_assignment_completes_all_waiting_syncs() -> None:
    story = Story(delay_ms=10)
    story.join("a")
    story.join("b")
    story.wait(20)
    a, b = story.joined("a"), story.joined("b")
    assert story.sync("sb", b) is None
    answer = story.sync("sa", a, **{a.member_id: b"A", b.member_id: b"B"})
    assert answer == Synced(ErrorCode.none, "consumer", "range", b"A")
    assert story.answered["sb"] == Synced(ErrorCode.none, "consumer", "range", b"B")
    # Asked again when stable, a member hears the same again.
    again = story.sync("sb2", b)
    assert again is not None
    assert again.assignment == b"B"


def test_a_client_that_expects_it_first_gets_its_member_id() -> None:
    story = Story()
    first = story.join("a", expects_member_id=True)
    assert first is not None
    assert first.error is ErrorCode.member_id_required
    assert first.member_id == "c-1"
    second = story.join("a2", first.member_id, expects_member_id=True)
    assert second is not None
    assert second.error is ErrorCode.none
    assert second.member_id == first.member_id


def test_an_unused_pending_member_id_expires_with_its_session() -> None:
    story = Story()
    first = story.join("a", expects_member_id=True)
    assert first is not None
    assert not story.group.is_idle
    story.wait(SESSION_MS)
    assert story.group.is_idle
    with refused(ErrorCode.unknown_member_id):
        story.join("a2", first.member_id)


def test_a_newcomer_makes_the_others_rejoin_and_is_answered_with_them() -> None:
    story = Story()
    (a,) = story.stable("a")
    assert story.join("b") is None
    assert story.group.state is GroupState.PREPARING_REBALANCE
    with refused(ErrorCode.rebalance_in_progress):
        story.group.heartbeat(a.member_id, None, a.generation, story.now)
    with refused(ErrorCode.rebalance_in_progress):
        story.sync("late", a)
    again = story.join("a2", a.member_id)
    assert again is not None
    assert again.generation == story.joined("b").generation == a.generation + 1


def test_a_member_that_does_not_rejoin_in_the_rebalance_timeout_is_out() -> None:
    story = Story()
    (a,) = story.stable("a", session_timeout_ms=100_000)
    story.join("b", session_timeout_ms=100_000)
    story.wait(REBALANCE_MS)
    b = story.joined("b")
    assert b.leader == b.member_id
    with refused(ErrorCode.unknown_member_id):
        story.group.heartbeat(a.member_id, None, a.generation, story.now)


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    story = Story(delay_ms=5)
    a, b = story.stable("a", "b")
    story.wait(SESSION_MS - 1)
    story.group.heartbeat(a.member_id, None, a.generation, story.now)
    story.wait(1)
    assert story.group.state is GroupState.PREPARING_REBALANCE
    with refused(ErrorCode.unknown_member_id):
        story.group.heartbeat(b.member_id, None, b.generation, story.now)
    again = story.join("a2", a.member_id)
    assert again is not None
    assert [m.member_id for m in again.members] == [a.member_id]


def test_a_member_whose_request_waits_here_is_alive() -> None:
    story = Story()
    (a,) = story.stable("a", session_timeout_ms=100_000)
    story.join("b")
    story.wait(SESSION_MS * 2)  # b says nothing, but its join lies here
    assert "b" not in story.answered
    story.join("a2", a.member_id)
    assert story.joined("b").error is ErrorCode.none


def test_a_newcomer_whose_client_vanished_is_given_up_after_a_while() -> None:
    story = Story(new_member_timeout_ms=30_000)
    (a,) = story.stable("a", session_timeout_ms=1_000_000, rebalance_timeout_ms=1_000_000)
    story.join("b")
    story.wait(30_000)
    assert story.joined("b").error is ErrorCode.unknown_member_id
    again = story.join("a2", a.member_id)
    assert again is not None
    assert len(again.members) == 1


def test_members_that_never_ask_for_their_assignment_are_removed() -> None:
    story = Story(delay_ms=5)
    story.join("a", session_timeout_ms=100_000)
    story.join("b", session_timeout_ms=100_000)
    story.wait(10)
    a, b = story.joined("a"), story.joined("b")
    story.sync("sb", b)
    story.wait(REBALANCE_MS)  # the leader stays silent
    assert story.answered["sb"] == Synced(ErrorCode.rebalance_in_progress)
    again = story.join("b2", b.member_id)
    assert again is not None
    assert again.leader == b.member_id
    with refused(ErrorCode.unknown_member_id):
        story.group.heartbeat(a.member_id, None, again.generation, story.now)


def test_the_last_to_leave_empties_the_group() -> None:
    story = Story()
    (a,) = story.stable("a")
    story.leave((a.member_id, None))
    assert story.group.state is GroupState.EMPTY
    assert story.group.generation == a.generation + 1
    assert story.leave((a.member_id, None)) == [ErrorCode.unknown_member_id]


def test_leaving_while_others_wait_completes_their_rebalance() -> None:
    story = Story()
    (a,) = story.stable("a")
    story.join("b")
    story.leave((a.member_id, None))
    assert story.joined("b").leader == story.joined("b").member_id


def test_members_that_leave_together_are_in_no_generation_that_begins_with_some_of_them() -> None:
    story = Story(delay_ms=10)
    a, b, c = story.stable("a", "b", "c")
    story.join("a2", a.member_id)  # leads: all have to join again
    story.join("c2", c.member_id)
    assert story.leave((b.member_id, None), (c.member_id, None)) == [ErrorCode.none] * 2
    assert story.joined("c2").error is ErrorCode.unknown_member_id
    again = story.joined("a2")
    assert again.generation == a.generation + 1
    assert [member.member_id for member in again.members] == [a.member_id]


def test_members_that_leave_a_stable_group_together_leave_none_of_their_timeouts() -> None:
    story = Story(delay_ms=10)
    story.join("a", session_timeout_ms=10 * REBALANCE_MS)
    story.join("b", rebalance_timeout_ms=10 * REBALANCE_MS)
    story.join("c")
    story.wait(20)
    a, b, c = map(story.joined, "abc")
    story.sync("sa", a)
    story.leave((c.member_id, None), (b.member_id, None))
    story.join("d", session_timeout_ms=10 * REBALANCE_MS)
    story.wait(REBALANCE_MS)
    assert story.joined("d").error is ErrorCode.none


def test_each_of_those_that_leave_together_gets_its_own_error() -> None:
    story = Story()
    story.join("a", instance_id="i-a")
    a = story.joined("a")
    pending = story.join("p", expects_member_id=True)
    assert pending is not None
    asked = [("x", "i-a"), (pending.member_id, "i-b"), ("", "i-b"), ("", "i-a"), ("x", "i-a")]
    asked += [(a.member_id, None), (pending.member_id, None)]
    none, unknown = ErrorCode.none, ErrorCode.unknown_member_id
    found = story.leave(*asked)
    assert found == [ErrorCode.fenced_instance_id, none, unknown, none, *[unknown] * 3]
    assert story.group.is_idle


def test_a_member_may_rejoin_unchanged_without_disturbing_a_stable_group() -> None:
    story = Story(delay_ms=5)
    a, b = story.stable("a", "b")
    again = story.join("b2", b.member_id)
    assert again is not None
    assert again.generation == b.generation
    assert story.group.state is GroupState.STABLE
    # The leader's return, or changed metadata, does disturb it.
    assert story.join("a2", a.member_id) is None
    assert story.group.state is GroupState.PREPARING_REBALANCE


def test_changed_metadata_rebalances() -> None:
    story = Story(delay_ms=5)
    _, b = story.stable("a", "b")
    assert story.join("b2", b.member_id, protocols=(Protocol("range", b"other"),)) is None
    assert story.group.state is GroupState.PREPARING_REBALANCE


def test_a_repeated_join_ends_the_older_wait_of_the_same_member() -> None:
    story = Story()
    (a,) = story.stable("a")
    story.join("b")
    story.leave((a.member_id, None))
    b = story.joined("b")
    story.sync("sb", b)
    story.join("b2", b.member_id)  # leads: rebalances, waits only for itself
    story.join("c")
    story.join("b3", story.joined("b2").member_id)
    story.join("b4", b.member_id)
    assert story.joined("b4").error is ErrorCode.none


def test_the_protocol_is_the_one_that_all_speak_and_most_prefer() -> None:
    story = Story(delay_ms=5)
    sticky, range_ = Protocol("sticky", b"s"), RANGE
    story.join("a", protocols=(sticky, range_))
    story.join("b", protocols=(range_, sticky))
    story.join("c", protocols=(Protocol("own", b"o"), range_, sticky))
    story.wait(100)
    assert story.joined("a").protocol_name == "range"


def test_a_member_without_a_common_protocol_is_refused() -> None:
    story = Story()
    story.stable("a")
    with refused(ErrorCode.inconsistent_group_protocol):
        story.join("b", protocols=(Protocol("own", b""),))
    with refused(ErrorCode.inconsistent_group_protocol):
        story.join("c", protocol_type="connect")
    with refused(ErrorCode.inconsistent_group_protocol):
        story.join("d", protocols=())


def test_a_session_timeout_out_of_bounds_is_refused() -> None:
    story = Story()
    with refused(ErrorCode.invalid_session_timeout):
        story.join("a", session_timeout_ms=5_999)
    with refused(ErrorCode.invalid_session_timeout):
        story.join("a", session_timeout_ms=1_800_001)


def test_a_full_group_refuses_newcomers() -> None:
    story = Story(max_size=1)
    story.stable("a")
    with refused(ErrorCode.group_max_size_reached):
        story.join("b")


def test_another_generation_is_refused() -> None:
    story = Story()
    (a,) = story.stable("a")
    with refused(ErrorCode.illegal_generation):
        story.group.heartbeat(a.member_id, None, a.generation + 1, story.now)
    with refused(ErrorCode.illegal_generation):
        story.group.check_commit(Committer(a.member_id, None, a.generation - 1), story.now)
    story.group.check_commit(Committer(a.member_id, None, a.generation), story.now)


def test_offsets_are_committed_without_membership_only_to_an_empty_group() -> None:
    story = Story()
    story.group.check_commit(Committer("", None, -1), story.now)
    story.stable("a")
    with refused(ErrorCode.unknown_member_id):
        story.group.check_commit(Committer("", None, -1), story.now)


def test_a_commit_while_the_assignment_is_being_made_must_wait() -> None:
    story = Story()
    story.join("a")
    story.wait(0)
    a = story.joined("a")
    assert story.group.state is GroupState.COMPLETING_REBALANCE
    with refused(ErrorCode.rebalance_in_progress):
        story.group.check_commit(Committer(a.member_id, None, a.generation), story.now)


# --- static members (KIP-345) ---------------------------------------------------------


def test_a_restarted_static_member_keeps_its_assignment_and_fences_its_old_self() -> None:
    story = Story(delay_ms=5)
    story.join("a", instance_id="i-a")
    story.join("b", instance_id="i-b")
    story.wait(20)
    a, b = story.joined("a"), story.joined("b")
    story.sync("sb", b)
    story.sync("sa", a, **{b.member_id: b"B"})
    back = story.join("b2", instance_id="i-b")
    assert back is not None
    assert (back.error, back.generation) == (ErrorCode.none, b.generation)
    assert back.member_id != b.member_id
    assert story.group.state is GroupState.STABLE
    again = story.sync("sb2", back)
    assert again is not None
    assert again.assignment == b"B"
    with refused(ErrorCode.fenced_instance_id):
        story.group.heartbeat(b.member_id, "i-b", b.generation, story.now)
    with refused(ErrorCode.fenced_instance_id):
        story.group.check_commit(Committer(b.member_id, "i-b", b.generation), story.now)


def test_a_static_member_that_rejoins_by_its_member_id_alone_stays_static() -> None:
    story = Story(delay_ms=5)
    story.join("a", instance_id="i-a")
    story.wait(10)
    a = story.joined("a")
    story.sync("sa", a, **{a.member_id: b"A"})
    story.join("again", a.member_id)
    (member,) = story.group.describe().members
    assert member.instance_id == "i-a"
    assert story.leave(("", "i-a")) == [ErrorCode.none]
    assert story.group.member_count == 0


def test_a_restarted_static_leader_need_not_assign_again() -> None:
    story = Story(delay_ms=5)
    story.join("a", instance_id="i-a")
    story.wait(10)
    a = story.joined("a")
    story.sync("sa", a, **{a.member_id: b"A"})
    old_client = story.join("a2", instance_id="i-a")
    assert old_client is not None
    assert old_client.leader == a.member_id  # its former self: it does not assign
    assert old_client.members == ()
    new_client = story.join("a3", instance_id="i-a", may_skip_assignment=True)
    assert new_client is not None
    assert new_client.leader == new_client.member_id
    assert new_client.skip_assignment
    assert len(new_client.members) == 1


def test_a_static_member_whose_new_id_is_not_stored_keeps_its_former_id() -> None:
    story = Story(delay_ms=5)
    story.join("a", instance_id="i-a", client_id="before")
    story.wait(10)
    a = story.joined("a")
    story.sync("sa", a, **{a.member_id: b"A"})
    story.store = lambda _: ErrorCode.not_coordinator
    refused_join = story.join("a2", instance_id="i-a", client_id="after")
    assert refused_join == Joined(ErrorCode.not_coordinator, "")
    story.group.heartbeat(a.member_id, "i-a", a.generation, story.now)
    (member,) = story.group.describe().members
    assert (member.member_id, member.client_id, member.assignment) == (a.member_id, "before", b"A")
    story.store = lambda _: ErrorCode.none
    again = story.join("a3", instance_id="i-a", client_id="after")
    assert again is not None
    assert (again.error, again.generation) == (ErrorCode.none, a.generation)
    assert [m.member_id for m in story.rows[-1].members] == [again.member_id]
    assert story.rows[-1].leader == again.member_id


def test_a_static_member_is_answered_though_the_group_rebalances_before_its_id_is_stored() -> None:
    for error in (ErrorCode.none, ErrorCode.not_coordinator):
        story = Story(delay_ms=5)
        story.join("a", instance_id="i-a")
        story.wait(10)
        a = story.joined("a")
        story.sync("sa", a)

        def meanwhile(_: Storing, story: Story = story, error: ErrorCode = error) -> ErrorCode:
            story.store = lambda _: ErrorCode.none
            story.join("b")
            return error

        story.store = meanwhile
        answer = story.join("a2", instance_id="i-a")
        assert answer is not None
        assert answer.error is error
        story.join("a3", instance_id="i-a")
        assert story.joined("a3").generation == a.generation + 1
        assert story.joined("b").generation == a.generation + 1


def test_a_static_member_with_other_metadata_rebalances() -> None:
    story = Story(delay_ms=5)
    story.join("a", instance_id="i-a")
    story.wait(10)
    a = story.joined("a")
    story.sync("sa", a)
    story.join("a2", instance_id="i-a", protocols=(Protocol("range", b"new"),))
    assert story.joined("a2").generation == a.generation + 1


def test_a_static_member_still_waiting_is_fenced_by_its_successor() -> None:
    story = Story(delay_ms=100)
    story.join("a", instance_id="i-a")
    story.join("a2", instance_id="i-a")
    assert story.joined("a").error is ErrorCode.fenced_instance_id
    story.wait(300)
    assert story.joined("a2").error is ErrorCode.none


def test_a_silent_static_member_stays_until_its_session_ends() -> None:
    story = Story(delay_ms=5)
    story.join("a", instance_id="i-a", session_timeout_ms=200_000)
    story.join("b", session_timeout_ms=200_000)
    story.wait(20)
    a, b = story.joined("a"), story.joined("b")
    story.sync("sb", b)
    story.sync("sa", a)
    story.join("c", session_timeout_ms=200_000)
    story.join("b2", b.member_id, session_timeout_ms=200_000)
    story.wait(REBALANCE_MS)
    b2 = story.joined("b2")
    assert b2.leader in {b2.member_id, story.joined("c").member_id}
    members = {m.member_id for m in (*b2.members, *story.joined("c").members)}
    assert a.member_id in members


def test_a_static_member_leaves_by_its_instance_id_alone() -> None:
    story = Story(delay_ms=5)
    story.join("a", instance_id="i-a")
    story.wait(10)
    story.leave(("", "i-a"))
    assert story.group.state is GroupState.EMPTY
    assert story.leave(("", "i-a")) == [ErrorCode.unknown_member_id]


# --- what others see ------------------------------------------------------------------


def test_a_stable_group_has_the_topics_its_members_read() -> None:
    story = Story(delay_ms=5)
    story.stable("a", protocols=(Protocol("range", subscription("t1", "t2")),))
    assert story.group.subscriptions()("t1")
    assert not story.group.subscriptions()("t3")
    described = story.group.describe()
    assert (described.state, described.protocol_name) == (GroupState.STABLE, "range")
    assert described.members[0].metadata == subscription("t1", "t2")
    assert described.members[0].assignment == described.members[0].member_id.encode()


@pytest.mark.parametrize(
    "metadata", [b"", b"\0\1", subscription("t1")[:-1], b"\0\1\0\0\0\1\xff\xff"]
)
def test_a_group_with_an_illegible_subscription_may_read_anything(metadata: bytes) -> None:
    story = Story(delay_ms=5)
    story.stable("a", protocols=(Protocol("range", metadata),))
    assert story.group.subscriptions()("t3")


def test_what_members_bring_is_bounded_for_each_group() -> None:
    story = Story(max_bytes=20_000)
    story.stable("a", protocols=(Protocol("range", bytes(10_000)),))
    for metadata in (bytes(10_000), bytes(50_000_000)):
        with refused(ErrorCode.group_max_size_reached):
            story.join("b", protocols=(Protocol("range", metadata),))
    assert story.group.state is GroupState.STABLE
    story.join("c", protocols=(Protocol("range", bytes(1_000)),))
    a = story.joined("a").member_id
    with refused(ErrorCode.group_max_size_reached):
        story.join("a2", a, protocols=(Protocol("range", bytes(19_000)),))
    story.join("a3", a, protocols=(Protocol("range", bytes(11_000)),))
    assert story.joined("a3").error is story.joined("c").error is ErrorCode.none


def test_only_the_group_keeps_the_type_of_protocols_which_may_be_long() -> None:
    class Text(str):
        """Text that can be looked for."""

    story = Story(delay_ms=10)
    a, b = story.stable("a", "b", protocol_type="long" * 8_000)
    for number, member_id in enumerate((b.member_id, a.member_id, "")):
        given = Text("long" * 8_000)
        kept = weakref.ref(given)
        story.join(f"again {number}", member_id, protocol_type=given)
        del given
        assert kept() is None


def test_an_assignment_that_is_too_large_is_refused_and_another_taken() -> None:
    story = Story(max_bytes=20_000)
    story.join("a")
    a = story.joined("a")
    with refused(ErrorCode.group_max_size_reached):
        story.sync("sync", a, **{a.member_id: bytes(20_000)})
    synced = story.sync("sync", a, **{a.member_id: bytes(10_000)})
    assert synced is not None
    assert synced.assignment == bytes(10_000)


def test_all_groups_share_a_capacity_and_give_back_what_they_held() -> None:
    capacity = Capacity(30_000)
    one, other = Story(capacity=capacity), Story(capacity=capacity)
    (a,) = one.stable("a", protocols=(Protocol("range", bytes(20_000)),))
    with refused(ErrorCode.coordinator_not_available):
        other.join("b", protocols=(Protocol("range", bytes(10_000)),))
    one.join("again", a.member_id, protocols=(Protocol("range", bytes(20_000)),))
    assert one.joined("again").error is ErrorCode.none
    one.leave((a.member_id, None))
    other.join("b", protocols=(Protocol("range", bytes(10_000)),))
    assert other.joined("b").error is ErrorCode.none
    one.group.kill()
    other.leave((other.joined("b").member_id, None))
    other.group.kill()
    assert capacity.used_bytes == 0


def test_a_member_brings_a_hundred_protocols_at_most() -> None:
    story = Story()
    many = tuple(Protocol(f"p{n}", b"") for n in range(101))
    with refused(ErrorCode.inconsistent_group_protocol):
        story.join("a", protocols=many)
    story.join("a", protocols=many[1:])
    assert story.joined("a").protocol_name == "p1"


def test_what_came_in_a_view_of_a_request_is_kept_without_the_request() -> None:
    story = Story()
    request = bytearray(b"....subscription....assignment....")
    view = memoryview(request)
    story.join("a", protocols=(Protocol("range", view[4:16]),))
    a = story.joined("a")
    story.sync("s", a, **{a.member_id: view[20:30]})
    request[:] = bytes(len(request))
    (member,) = story.group.describe().members
    assert (member.metadata, member.assignment) == (b"subscription", b"assignment")


@pytest.mark.parametrize("client_id", ["c" * 32_767, "\U0010ffff" * 8_000])
def test_a_member_id_fits_the_protocol_whatever_the_client_calls_itself(client_id: str) -> None:
    story = Story()
    story.join("a", client_id=client_id)
    assert len(story.joined("a").member_id.encode()) < 32_767


def test_subscriptions_that_take_long_to_read_count_as_all_topics() -> None:
    for topics in (("t",) * 50_001, ("t", "\udcff")):
        story = Story()
        names = b"".join(struct.pack(">h", 1) + t.encode(errors="surrogateescape") for t in topics)
        metadata = struct.pack(">hi", 1, len(topics)) + names
        story.stable("a", protocols=(Protocol("range", metadata),))
        assert story.group.subscriptions()("other")


def test_generations_begin_again_after_the_last() -> None:
    story = Story()
    story.group.generation = 2**31 - 2
    story.join("a")
    a = story.joined("a")
    assert a.generation == 2**31 - 1
    story.sync("s", a)
    story.join("again", a.member_id, protocols=(Protocol("other", b""),))
    again = story.joined("again")
    assert again.generation == 1
    story.sync("s2", again)
    story.group.heartbeat(again.member_id, None, 1, story.now)


@pytest.mark.parametrize("timeout_ms", [0, 1, 2**31 - 1])
def test_rebalances_end_whatever_time_their_members_allow(timeout_ms: int) -> None:
    story = Story(delay_ms=3_000)
    story.join("a", rebalance_timeout_ms=timeout_ms)
    story.join("b", rebalance_timeout_ms=timeout_ms)
    story.wait(7_000)
    a, b = story.joined("a"), story.joined("b")
    assert a.generation == b.generation == 1
    story.join("c", rebalance_timeout_ms=timeout_ms)
    story.wait(SESSION_MS + 1)  # the others say nothing any more
    assert [m.member_id for m in story.joined("c").members] == [story.joined("c").member_id]


# --- what is stored ---------------------------------------------------------------------


def restored(story: Story, row: GroupRow, **limits: int) -> Group:
    """The group that a start makes of a row."""
    group = Group("g", GroupLimits(**limits), Capacity())
    group.restore(row, story.now)
    return group


def test_assignments_that_are_not_stored_are_not_given_and_the_group_rebalances() -> None:
    story = Story(delay_ms=5)
    story.join("a")
    story.join("b")
    story.wait(20)
    a, b = story.joined("a"), story.joined("b")
    story.sync("sb", b)
    story.store = lambda _: ErrorCode.coordinator_not_available
    assert story.sync("sa", a) == Synced(ErrorCode.coordinator_not_available)
    assert story.answered["sb"] == Synced(ErrorCode.coordinator_not_available)
    assert story.group.state is GroupState.PREPARING_REBALANCE
    story.store = lambda _: ErrorCode.none
    for waiter, member in (("a2", a), ("b2", b)):
        story.join(waiter, member.member_id)
    assert story.joined("a2").generation == story.joined("b2").generation == 2


def test_assignments_of_a_leader_that_sends_them_twice_are_given_as_they_were_stored_last() -> None:
    story = Story()
    a = story.join("a")
    assert a is not None

    def again(_: Storing) -> ErrorCode:
        story.store = lambda _: ErrorCode.none
        story.sync("second", a, **{a.member_id: b"second"})
        return ErrorCode.none

    story.store = again
    assert story.sync("first", a, **{a.member_id: b"first"}) is not None
    assert story.answered["first"] == Synced(ErrorCode.rebalance_in_progress)
    assert story.answered["second"].error is ErrorCode.none
    (member,) = story.group.describe().members
    assert member.assignment == b"second"


def test_a_restored_group_goes_on_and_members_that_have_gone_time_out() -> None:
    story = Story(delay_ms=5)
    stays, goes = story.stable("stays", "goes")
    group = restored(story, story.rows[-1])
    assert group.describe() == story.group.describe()
    for later in (SESSION_MS - 1, 2 * SESSION_MS - 2):
        group.tick(story.now + later)
        assert group.state is (
            GroupState.STABLE if later < SESSION_MS else GroupState.PREPARING_REBALANCE
        )
        with suppress(RequestRefused):
            group.heartbeat(stays.member_id, None, stays.generation, story.now + later)
    assert [m.member_id for m in group.describe().members] == [stays.member_id]
    with refused(ErrorCode.unknown_member_id):
        group.heartbeat(goes.member_id, None, goes.generation, story.now)


def test_a_restored_group_fences_commits_of_a_former_generation() -> None:
    story = Story()
    (a,) = story.stable("a")
    group = restored(story, story.rows[-1])
    with refused(ErrorCode.illegal_generation):
        group.check_commit(Committer(a.member_id, None, a.generation - 1), story.now)
    group.check_commit(Committer(a.member_id, None, a.generation), story.now)


def test_a_restored_empty_group_counts_its_generations_on() -> None:
    story = Story()
    (a,) = story.stable("a")
    story.leave((a.member_id, None))
    group = restored(story, story.group.row(7))
    assert (group.state, group.generation) == (GroupState.EMPTY, 2)


MEMBER = MemberValue("m", "i", "c", "/h", 100, 200, b"s", b"a" * 100)
ROW = GroupRow("g", "consumer", None, 3, "range", "m", (MEMBER,))


@pytest.mark.parametrize(
    "row",
    [
        ROW._replace(protocol=None),
        ROW._replace(protocol_type=""),
        ROW._replace(members=(MEMBER, MEMBER._replace(instance_id=None))),
        ROW._replace(members=(MEMBER, MEMBER._replace(member_id="n"))),
        ROW._replace(members=(MEMBER._replace(member_id=""),)),
    ],
)
def test_members_that_no_group_can_have_are_left_out(row: GroupRow) -> None:
    group = Group("g", GroupLimits(), Capacity())
    with pytest.raises(CorruptBatch):
        group.restore(row, 0)
    assert (group.state, group.generation, group.member_count) == (GroupState.EMPTY, 3, 0)
    assert group.next_deadline_ms() is None


@pytest.mark.parametrize("limits", [{"max_size": 1}, {"max_bytes": 3_000}])
def test_members_that_exceed_the_limits_are_left_out(limits: dict[str, int]) -> None:
    group = Group("g", GroupLimits(**limits), Capacity())
    both = (MEMBER, MEMBER._replace(member_id="n", instance_id=None))
    with refused(ErrorCode.group_max_size_reached):
        group.restore(ROW._replace(members=both), 0)
    assert (group.state, group.member_count) == (GroupState.EMPTY, 0)


def test_members_beyond_the_memory_of_all_groups_are_left_out() -> None:
    capacity = Capacity(1_000)
    group = Group("g", GroupLimits(), capacity)
    with refused(ErrorCode.coordinator_not_available):
        group.restore(ROW, 0)
    assert (group.member_count, capacity.used_bytes) == (0, 0)


@pytest.mark.parametrize("leader", [None, "gone"])
def test_the_first_member_leads_a_group_that_was_stored_without_a_leader(
    leader: str | None,
) -> None:
    story = Story()
    group = restored(story, ROW._replace(leader=leader))
    (answer,) = group.join(
        Join(
            member_id="m",
            protocol_type="consumer",
            protocols=(Protocol("range", b"s"),),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            instance_id="i",
        ),
        "w",
        story.now,
    )
    assert isinstance(answer.value, Joined)
    assert (answer.value.leader, answer.value.generation) == ("m", 4)


def test_sessions_of_any_length_are_restored() -> None:
    for timeout_ms in (-(1 << 31), 0, (1 << 31) - 1):
        members = (MEMBER._replace(session_timeout_ms=timeout_ms, rebalance_timeout_ms=timeout_ms),)
        group = restored(Story(), ROW._replace(members=members, generation=-5))
        assert group.generation == 0
        group.tick(2_000)
        assert (group.state is GroupState.STABLE) is (timeout_ms > 1_000)


MOMENTS = st.lists(
    st.tuples(
        st.sampled_from(["join", "rejoin", "sync", "heartbeat", "leave", "static", "wait"]),
        st.integers(0, 5),
    ),
    max_size=40,
)


def check_restored(story: Story) -> None:
    """The log has the group as it is in memory."""
    replay = GroupReplay()
    replay.take(build_batch(records_of(GroupChange([story.rows[-1]]), 5)))
    (row,) = replay.stored(lambda _: None).groups
    assert row == story.rows[-1]
    group = restored(story, row)
    was, found = story.group.describe(), group.describe()
    assert (found.state, found.protocol_type, found.protocol_name) == (
        (was.state, was.protocol_type, was.protocol_name)
    )
    # A member that joins again with nothing changed is not stored again, as in Kafka.
    assert [(m.member_id, m.instance_id, m.metadata, m.assignment) for m in found.members] == [
        (m.member_id, m.instance_id, m.metadata, m.assignment) for m in was.members
    ]
    assert group.generation == story.group.generation
    assert group.row(None) == story.group.row(None)
    assert group.earliest_deadline_ms() == group.next_deadline_ms()


@examples(10)
@given(MOMENTS, st.sampled_from([0, 500]))
def test_everybody_is_answered_and_everything_ends_in_time(
    moments: list[tuple[str, int]], delay_ms: int
) -> None:
    """The group asks to be ticked in time, and keeps nothing of those who have gone."""
    story = Story(delay_ms)
    for count, (what, number) in enumerate(moments):
        waiter = f"w{count}"
        known = [a for a in story.answered.values() if isinstance(a, Joined) and a.generation > 0]
        joined = known[-1 - number % len(known)] if known else None
        metadata = (Protocol("range", bytes(number * 100)),)
        with suppress(RequestRefused):
            match what:
                case "join":
                    story.join(waiter, expects_member_id=number == 5, protocols=metadata)
                case "static":
                    story.join(waiter, instance_id=f"i{number % 2}", protocols=metadata)
                case "rejoin" if joined:
                    story.join(waiter, joined.member_id, protocols=metadata)
                case "sync" if joined:
                    story.sync(waiter, joined, **{joined.member_id: bytes(number)})
                case "heartbeat" if joined:
                    story.group.heartbeat(joined.member_id, None, joined.generation, story.now)
                case "leave" if joined:
                    story.leave((joined.member_id, None))
                case "wait":
                    story.wait((1, 600, SESSION_MS // 2, SESSION_MS, REBALANCE_MS, 7)[number])
        if story.rows and story.group.state is GroupState.STABLE:
            check_restored(story)
        earliest_ms, wakes_ms = story.group.earliest_deadline_ms(), story.group.next_deadline_ms()
        assert earliest_ms is None or (wakes_ms is not None and wakes_ms <= earliest_ms)
    story.wait(400_000 + 2 * REBALANCE_MS)
    assert story.group.is_idle
    assert story.group.next_deadline_ms() is None
    assert story.group.describe().members == ()
    assert story.capacity.used_bytes in (0, 1_025)
    assert not story.waiting
