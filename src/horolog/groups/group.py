"""One consumer group of the classic protocol: requests and time in, answers out.

    Empty ──join──> PreparingRebalance ──all joined, or time up──> CompletingRebalance
      ^                    ^    ^                                       │
      │ nobody left        │    └──────── someone joins or goes ────────┤ leader assigns
      └────────────────────┘                                            v
                           └──────────── someone joins or goes ───── Stable

Pure: it knows no socket and no timer. A request that must wait leaves its waiter here,
and some later call hands it back with its answer. `next_deadline_ms` says when `tick`
wants to be called. Times are milliseconds of the event loop's own clock, not record
time. What a caller got wrong is raised as RequestRefused.
"""

import uuid
from collections.abc import Callable
from typing import Final

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups.capacity import Capacity
from horolog.groups.members import CONSUMER_PROTOCOL_TYPE, Member, Members
from horolog.groups.values import (
    Answer,
    GroupDescription,
    GroupLimits,
    GroupState,
    Join,
    Joined,
    Sync,
    Synced,
    Waiter,
    member_bytes,
)

_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
    GroupState.DEAD,
)

_MAX_GENERATION: Final = (1 << 31) - 1
_MAX_ID_PREFIX: Final = 255  # of a member id that begins with what the client calls itself

# What a group and an id that is not used yet occupy, roughly.
_GROUP_BYTES: Final = 1024
_PROMISED_BYTES: Final = 512


class Group:
    """The state of one group. Every public call that can free a waiter returns answers."""

    def __init__(
        self,
        group_id: str,
        limits: GroupLimits,
        capacity: Capacity,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self._limits = limits
        self._capacity = capacity
        self._charged_bytes = 0  # of the capacity, for this group
        self._new_id = new_id
        self._members = Members()
        self._promised: dict[str, int] = {}  # ids handed out, not yet used -> deadline
        self._unsynced: set[str] = set()  # members that have not asked for this assignment
        self._rebalance_at_ms: int | None = None
        self._sync_until_ms: int | None = None
        self._extension_left_ms: int | None = None  # set while a first rebalance gathers
        self._more_came = False
        self._wake_at_ms: int | None = None  # never later than the earliest deadline
        self._answers: list[Answer] = []

    # --- what members ask -------------------------------------------------------------

    def join(self, join: Join, waiter: Waiter, now_ms: int) -> list[Answer]:
        """Take a member in, or back in."""
        self._check_joinable(join)
        if join.member_id:
            self._join_again(join, waiter, now_ms)
        else:
            self._join_first(join, waiter, now_ms)
        return self.tick(now_ms)

    def sync(self, sync: Sync, waiter: Waiter, now_ms: int) -> list[Answer]:
        """Give a member its assignment, at once or when the leader has brought it."""
        member = self._known(sync.member_id, sync.instance_id)
        self._check_generation(sync.generation)
        for given, ours in (
            (sync.protocol_type, self.protocol_type),
            (sync.protocol_name, self.protocol_name),
        ):
            if given is not None and given != ours:
                raise RequestRefused(
                    ErrorCode.inconsistent_group_protocol,
                    f"the group settled on {ours!r}, the member says {given!r}",
                )
        match self.state:
            case GroupState.PREPARING_REBALANCE:
                raise _rebalancing()
            case GroupState.COMPLETING_REBALANCE:
                leads = member.member_id == self._members.leader
                if leads:
                    self._check_assignments(sync.assignments)
                self._unsynced.discard(member.member_id)
                self._dismiss(member, ErrorCode.rebalance_in_progress)
                member.sync_waiter = waiter
                if leads:
                    self._assign(dict(sync.assignments), now_ms)
            case GroupState.STABLE:
                self._unsynced.discard(member.member_id)
                member.sync_waiter = waiter
                self._answer_sync(member, now_ms)
            case _:
                raise _unknown_member(sync.member_id)
        return self.tick(now_ms)

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> None:
        """A sign of life; refused with REBALANCE_IN_PROGRESS when the member must rejoin."""
        if self.state in (_EMPTY, _DEAD):
            raise _unknown_member(member_id)
        member = self._known(member_id, instance_id)
        self._check_generation(generation)
        self._extend_session(member, now_ms)
        if self.state is _PREPARING:
            raise _rebalancing()

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> list[Answer]:
        """Let one member go, named by its id, or by its instance id alone."""
        if instance_id is not None and not member_id:
            static = self._members.of_instance(instance_id)
            if static is None:
                raise _unknown_member(instance_id)
            member_id = static.member_id
        if member_id in self._promised and instance_id is None:
            del self._promised[member_id]
        else:
            self._remove(self._known(member_id, instance_id), now_ms)
        return self.tick(now_ms)

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> None:
        """Refuse a commit of offsets by one who does not hold this generation's assignment."""
        if generation < 0 and self.state is _EMPTY:
            return  # offsets kept without a membership
        if generation < 0 and not member_id and instance_id is None:
            raise _unknown_member(member_id)
        member = self._known(member_id, instance_id)
        self._check_generation(generation)
        if self.state is _COMPLETING:
            raise _rebalancing()  # whose partitions these are is being decided
        self._extend_session(member, now_ms)

    # --- what time does ---------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When to call `tick`, if nothing else happens before; it may be too early."""
        return self._wake_at_ms

    def tick(self, now_ms: int) -> list[Answer]:
        """End sessions, promises and rebalances whose time is up."""
        is_due = self._wake_at_ms is not None and now_ms >= self._wake_at_ms
        if is_due:
            self._end_sessions(now_ms)
        if self.state is _PREPARING:
            self._advance_rebalance(now_ms)
        if is_due:
            self._wake_at_ms = self._earliest_deadline_ms()
        self._charge()
        answers, self._answers = self._answers, []
        return answers

    def _end_sessions(self, now_ms: int) -> None:
        for member_id, deadline in list(self._promised.items()):
            if now_ms >= deadline:
                del self._promised[member_id]
        for member in self._members:
            if member.session_is_over(now_ms):
                self._remove(member, now_ms)
        if self._sync_until_ms is not None and now_ms >= self._sync_until_ms:
            self._drop_unsynced(now_ms)

    def _earliest_deadline_ms(self) -> int | None:
        deadlines = [
            member.deadline_ms
            for member in self._members
            if member.is_new or (member.join_waiter is None and member.sync_waiter is None)
        ]
        deadlines.extend(self._promised.values())
        deadlines.extend(
            at for at in (self._rebalance_at_ms, self._sync_until_ms) if at is not None
        )
        return min(deadlines, default=None)

    def _wake_by(self, deadline_ms: int) -> int:
        """A new deadline: have `tick` called by then."""
        if self._wake_at_ms is None or deadline_ms < self._wake_at_ms:
            self._wake_at_ms = deadline_ms
        return deadline_ms

    # --- what others want to know -----------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether it has no members and no member id is promised."""
        return self.state in (_EMPTY, _DEAD) and not self._promised

    @property
    def is_unused(self) -> bool:
        """Whether it is idle and has never had members."""
        return self.is_idle and not self.generation and self.protocol_type is None

    def describe(self) -> GroupDescription:
        """The group as DescribeGroups shows it; metadata only once it is settled."""
        settled = self.protocol_name if self.state is _STABLE else None
        return GroupDescription(
            self.group_id,
            self.state,
            self.protocol_type or "",
            settled or "",
            self._members.described(settled),
        )

    def subscriptions(self) -> Callable[[str], bool]:
        """A predicate: is the topic subscribed to? True for all topics if that is unknown."""
        if self.state is _EMPTY:
            return lambda topic: False
        topics = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.protocol_name is not None:
            topics = self._members.subscribed_topics(self.protocol_name)
        if topics is None:
            return lambda topic: True
        return topics.__contains__

    def kill(self) -> None:
        """The group is deleted; only an idle one can be."""
        assert self.is_idle
        self.state = GroupState.DEAD
        self._capacity.used_bytes -= self._charged_bytes
        self._charged_bytes = 0

    # --- memory -----------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """What the group occupies in memory, roughly; committed offsets apart."""
        promised = len(self._promised) * _PROMISED_BYTES
        return _GROUP_BYTES + len(self.group_id) + promised + self._members.held_bytes

    def _charge(self) -> None:
        """Charge the capacity what the group occupies now."""
        held_bytes = self.held_bytes
        self._capacity.used_bytes += held_bytes - self._charged_bytes
        self._charged_bytes = held_bytes

    def _check_room(self, growth_bytes: int) -> None:
        held_bytes = self.held_bytes
        if growth_bytes > 0 and held_bytes + growth_bytes > self._limits.max_bytes:
            raise RequestRefused(
                ErrorCode.group_max_size_reached,
                f"the members of the group occupy {held_bytes} bytes, and {growth_bytes} more "
                f"exceed horolog.group.max.bytes={self._limits.max_bytes}",
            )
        growth_bytes += held_bytes - self._charged_bytes
        if growth_bytes > 0:
            self._capacity.check(growth_bytes)

    def _check_assignments(self, assignments: tuple[tuple[str, bytes | memoryview], ...]) -> None:
        before = sum(len(member.assignment) for member in self._members)
        self._check_room(sum(len(assignment) for _, assignment in assignments) - before)

    # --- joining ----------------------------------------------------------------------

    def _check_joinable(self, join: Join) -> None:
        limits = self._limits
        if not (
            limits.min_session_timeout_ms
            <= join.session_timeout_ms
            <= limits.max_session_timeout_ms
        ):
            raise RequestRefused(
                ErrorCode.invalid_session_timeout,
                f"session timeout of {join.session_timeout_ms} ms, allowed "
                f"{limits.min_session_timeout_ms} to {limits.max_session_timeout_ms}",
            )
        if not join.protocol_type or not 0 < len(join.protocols) <= limits.max_protocols:
            raise RequestRefused(
                ErrorCode.inconsistent_group_protocol,
                f"a member must bring 1 to {limits.max_protocols} protocols of one type",
            )
        known = self._members.get(join.member_id)
        if known is None and join.instance_id is not None:
            known = self._members.of_instance(join.instance_id)
        before_bytes = 0 if known is None else known.held_bytes - len(known.assignment)
        self._check_room(member_bytes(join) - before_bytes)
        if self.state is _EMPTY:
            return
        names = {protocol.name for protocol in join.protocols}
        if join.protocol_type != self.protocol_type or not self._members.speak_in_common(
            names, besides=known
        ):
            raise RequestRefused(
                ErrorCode.inconsistent_group_protocol, "no protocol in common with the group"
            )

    def _join_first(self, join: Join, waiter: Waiter, now_ms: int) -> None:
        """A Join without a member id: a newcomer, or a static member after a restart."""
        static = None if join.instance_id is None else self._members.of_instance(join.instance_id)
        prefix = join.client_id if join.instance_id is None else join.instance_id
        member_id = f"{prefix[:_MAX_ID_PREFIX]}-{self._new_id()}"
        if static is not None:
            self._replace_static(static, member_id, join, waiter, now_ms)
            return
        if len(self._members) + len(self._promised) >= self._limits.max_size:
            raise RequestRefused(
                ErrorCode.group_max_size_reached,
                f"the group may have {self._limits.max_size} members",
            )
        if join.instance_id is None and join.expects_member_id:
            self._promised[member_id] = self._wake_by(now_ms + join.session_timeout_ms)
            self._answers.append(Answer(waiter, Joined(ErrorCode.member_id_required, member_id)))
            return
        self._add(member_id, join, waiter, now_ms)

    def _join_again(self, join: Join, waiter: Waiter, now_ms: int) -> None:
        """A Join with a member id: the first use of a promised one, or a member's return."""
        if join.member_id in self._promised and join.instance_id is None:
            del self._promised[join.member_id]
            self._add(join.member_id, join, waiter, now_ms)
            return
        member = self._known(join.member_id, join.instance_id)
        changed = member.protocols != join.protocols
        leads = member.member_id == self._members.leader
        must_rebalance = changed or (self.state is _STABLE and leads)
        if self.state is not _PREPARING and not must_rebalance:
            # Its last answer was lost, or it only checks: the generation stands.
            self._members.rejoin(member, join)
            self._answer_join(member, waiter, now_ms, self._settled(member))
            return
        self._members.rejoin(member, join)
        # One that asks again has lost its connection: the older wait is over.
        self._dismiss(member, ErrorCode.rebalance_in_progress)
        self._members.wait_for_join(member, waiter)
        self._rebalance(now_ms)

    def _replace_static(
        self, member: Member, member_id: str, join: Join, waiter: Waiter, now_ms: int
    ) -> None:
        """The same instance came back without its id: the old holder is fenced (KIP-345)."""
        old_id = member.member_id
        led = old_id == self._members.leader
        self._dismiss(member, ErrorCode.fenced_instance_id)
        self._unsynced.discard(old_id)
        self._members.rename(member, member_id)
        before = member.metadata(self.protocol_name)
        self._members.rejoin(member, join)
        unchanged = (
            self._members.favourite_protocol() == self.protocol_name
            and member.metadata(self.protocol_name) == before
        )
        if self.state is not _STABLE or not unchanged:
            self._members.wait_for_join(member, waiter)
            self._rebalance(now_ms)
            return
        answer = self._settled(member)
        if led and join.may_skip_assignment:
            answer = answer._replace(
                skip_assignment=True, members=self._members.for_leader(self.protocol_name)
            )
        elif led:
            # An older client that believed it leads would assign anew, and in a stable
            # group nobody would hear of it.
            answer = answer._replace(leader=old_id, members=())
        self._answer_join(member, waiter, now_ms, answer)

    def _add(self, member_id: str, join: Join, waiter: Waiter, now_ms: int) -> None:
        deadline_ms = self._wake_by(now_ms + self._limits.new_member_timeout_ms)
        member = Member.joining(member_id, join, deadline_ms)
        if self.state is _EMPTY:
            self.protocol_type = join.protocol_type
        if self.state is _PREPARING and self.generation == 0:
            self._more_came = True
        self._members.add(member)
        self._members.wait_for_join(member, waiter)
        self._rebalance(now_ms)

    def _settled(self, member: Member) -> Joined:
        """The answer to a member of the present generation."""
        leads = member.member_id == self._members.leader
        return Joined(
            ErrorCode.none,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self._members.leader or "",
            self._members.for_leader(self.protocol_name) if leads else (),
        )

    # --- rebalancing ------------------------------------------------------------------

    def _rebalance(self, now_ms: int) -> None:
        """Everybody must join again; does nothing while they are about it."""
        if self.state is _PREPARING:
            return
        for member in self._members:
            if member.sync_waiter is not None:
                self._answer_sync(member, now_ms, ErrorCode.rebalance_in_progress)
        timeout_ms = self._members.rebalance_timeout_ms()
        if self.state is _EMPTY:
            # Wait a little for others who are starting at the same time (KIP-134).
            delay_ms = self._limits.initial_rebalance_delay_ms
            self._extension_left_ms = max(timeout_ms - delay_ms, 0)
            self._rebalance_at_ms = self._wake_by(now_ms + delay_ms)
            self._more_came = False
        else:
            self._extension_left_ms = None
            self._rebalance_at_ms = self._wake_by(now_ms + timeout_ms)
        self._sync_until_ms = None
        self._unsynced.clear()
        self.state = GroupState.PREPARING_REBALANCE

    def _advance_rebalance(self, now_ms: int) -> None:
        """Complete the rebalance when all are here, or the time for it has passed."""
        assert self._rebalance_at_ms is not None
        time_is_up = now_ms >= self._rebalance_at_ms
        if self._extension_left_ms is not None:
            if not time_is_up:
                return
            if self._more_came and self._extension_left_ms > 0:
                delay_ms = min(self._limits.initial_rebalance_delay_ms, self._extension_left_ms)
                self._extension_left_ms -= delay_ms
                self._rebalance_at_ms = self._wake_by(now_ms + delay_ms)
                self._more_came = False
                return
        all_joined = not self._promised and self._members.joined == len(self._members)
        if all_joined or time_is_up:
            self._complete_rebalance(now_ms)

    def _complete_rebalance(self, now_ms: int) -> None:
        for member in self._members:
            if member.join_waiter is None and member.instance_id is None:
                self._members.remove(member)
        if not self._members.elect_among_joined() and len(self._members):
            # Only static members, all silent: their sessions decide, not this rebalance.
            timeout_ms = max(self._members.rebalance_timeout_ms(), 1)
            self._rebalance_at_ms = self._wake_by(now_ms + timeout_ms)
            return
        self._rebalance_at_ms = None
        self._extension_left_ms = None
        self.generation = 1 if self.generation == _MAX_GENERATION else self.generation + 1
        if not len(self._members):
            self.protocol_name = None
            self.state = GroupState.EMPTY
            return
        self.protocol_name = self._members.favourite_protocol()
        self.state = GroupState.COMPLETING_REBALANCE
        timeout_ms = max(self._members.rebalance_timeout_ms(), 1)
        self._sync_until_ms = self._wake_by(now_ms + timeout_ms)
        for member in self._members:
            self._unsynced.add(member.member_id)
            waiter = self._members.take_join_waiter(member)
            if waiter is None:
                self._extend_session(member, now_ms)
            else:
                self._answer_join(member, waiter, now_ms, self._settled(member))

    def _assign(self, assignments: dict[str, bytes | memoryview], now_ms: int) -> None:
        """The leader has spoken: everyone who waits gets its part."""
        self.state = GroupState.STABLE
        for member in self._members:
            self._members.assign(member, assignments.get(member.member_id, b""))
            if member.sync_waiter is not None:
                self._answer_sync(member, now_ms)

    def _drop_unsynced(self, now_ms: int) -> None:
        """Members that took the join answer and never asked for their part are gone."""
        self._sync_until_ms = None
        silent = [m for m in self._members if m.member_id in self._unsynced]
        self._unsynced.clear()
        for member in silent:
            self._remove(member, now_ms)

    # --- members ----------------------------------------------------------------------

    def _known(self, member_id: str, instance_id: str | None) -> Member:
        """The member that speaks, or its refusal."""
        if instance_id is not None:
            static = self._members.of_instance(instance_id)
            if static is None:
                raise _unknown_member(instance_id)
            if static.member_id != member_id:
                raise RequestRefused(
                    ErrorCode.fenced_instance_id,
                    f"another member now holds the instance id {instance_id!r}",
                )
            return static
        member = self._members.get(member_id)
        if member is None:
            raise _unknown_member(member_id)
        return member

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise RequestRefused(
                ErrorCode.illegal_generation,
                f"the group is in generation {self.generation}, the member in {generation}",
            )

    def _extend_session(self, member: Member, now_ms: int) -> None:
        member.is_new = False
        member.deadline_ms = self._wake_by(now_ms + member.session_timeout_ms)

    def _remove(self, member: Member, now_ms: int) -> None:
        self._dismiss(member, ErrorCode.unknown_member_id)
        self._unsynced.discard(member.member_id)
        self._members.remove(member)
        self._rebalance(now_ms)

    def _dismiss(self, member: Member, why: ErrorCode) -> None:
        """Answer whatever the member waits for with an error."""
        join_waiter = self._members.take_join_waiter(member)
        if join_waiter is not None:
            self._answers.append(Answer(join_waiter, Joined(why, member.member_id)))
        if member.sync_waiter is not None:
            self._answers.append(Answer(member.sync_waiter, Synced(why)))
            member.sync_waiter = None

    def _answer_join(self, member: Member, waiter: Waiter, now_ms: int, answer: Joined) -> None:
        self._extend_session(member, now_ms)
        self._answers.append(Answer(waiter, answer))

    def _answer_sync(self, member: Member, now_ms: int, error: ErrorCode = ErrorCode.none) -> None:
        self._extend_session(member, now_ms)
        answer = Synced(error)
        if error is ErrorCode.none:
            answer = Synced(error, self.protocol_type, self.protocol_name, member.assignment)
        self._answers.append(Answer(member.sync_waiter, answer))
        member.sync_waiter = None


def _unknown_member(who: str) -> RequestRefused:
    return RequestRefused(ErrorCode.unknown_member_id, f"{who!r} is not a member of the group")


def _rebalancing() -> RequestRefused:
    return RequestRefused(ErrorCode.rebalance_in_progress, "the group is rebalancing")
