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

from horolog.errors import ErrorCode, RequestRefused
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
)

_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
    GroupState.DEAD,
)


class Group:
    """The state of one group. Every public call that can free a waiter returns answers."""

    def __init__(
        self,
        group_id: str,
        limits: GroupLimits,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self._limits = limits
        self._new_id = new_id
        self._members = Members()
        self._promised: dict[str, int] = {}  # ids handed out, not yet used -> deadline
        self._unsynced: set[str] = set()  # members that have not asked for this assignment
        self._rebalance_at_ms: int | None = None
        self._sync_until_ms: int | None = None
        self._extension_left_ms: int | None = None  # set while a first rebalance gathers
        self._more_came = False
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
                self._unsynced.discard(member.member_id)
                self._dismiss(member, ErrorCode.rebalance_in_progress)
                member.sync_waiter = waiter
                if member.member_id == self._members.leader:
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
        """When `tick` has something to do, if nothing else happens before."""
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

    def tick(self, now_ms: int) -> list[Answer]:
        """End sessions, promises and rebalances whose time is up."""
        for member_id, deadline in list(self._promised.items()):
            if now_ms >= deadline:
                del self._promised[member_id]
        for member in self._members:
            if member.session_is_over(now_ms):
                self._remove(member, now_ms)
        if self._sync_until_ms is not None and now_ms >= self._sync_until_ms:
            self._drop_unsynced(now_ms)
        if self.state is _PREPARING:
            self._advance_rebalance(now_ms)
        answers, self._answers = self._answers, []
        return answers

    # --- what others want to know -----------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Nobody belongs and nobody is about to."""
        return self.state in (_EMPTY, _DEAD) and not self._promised

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

    def reads(self, topic: str) -> bool:
        """Whether a member subscribes to a topic; True when that cannot be told."""
        if self.state is _EMPTY:
            return False
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.protocol_name is None:
            return True
        topics = self._members.subscribed_topics(self.protocol_name)
        return topics is None or topic in topics

    def kill(self) -> None:
        """The group is deleted; only an empty one can be."""
        assert self.is_idle
        self.state = GroupState.DEAD

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
        if not join.protocol_type or not join.protocols:
            raise RequestRefused(
                ErrorCode.inconsistent_group_protocol, "a member must bring a protocol"
            )
        if self.state is _EMPTY:
            return
        names = {protocol.name for protocol in join.protocols}
        if join.protocol_type != self.protocol_type or not names & self._protocols_besides(join):
            raise RequestRefused(
                ErrorCode.inconsistent_group_protocol,
                f"no protocol in common with the group: {sorted(names)}",
            )

    def _protocols_besides(self, join: Join) -> set[str]:
        """What all members speak; one that is alone may change to whatever it likes."""
        mine = self._members.get(join.member_id)
        if mine is None and join.instance_id is not None:
            mine = self._members.of_instance(join.instance_id)
        others = [m for m in self._members if m is not mine]
        if not others:
            return {protocol.name for protocol in join.protocols}
        return set.intersection(*({p.name for p in m.protocols} for m in others))

    def _join_first(self, join: Join, waiter: Waiter, now_ms: int) -> None:
        """A Join without a member id: a newcomer, or a static member after a restart."""
        static = None if join.instance_id is None else self._members.of_instance(join.instance_id)
        prefix = join.client_id if join.instance_id is None else join.instance_id
        member_id = f"{prefix}-{self._new_id()}"
        if static is not None:
            self._replace_static(static, member_id, join, waiter, now_ms)
            return
        if len(self._members) + len(self._promised) >= self._limits.max_size:
            raise RequestRefused(
                ErrorCode.group_max_size_reached,
                f"the group may have {self._limits.max_size} members",
            )
        if join.instance_id is None and join.expects_member_id:
            self._promised[member_id] = now_ms + join.session_timeout_ms
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
            member.rejoin(join)
            self._answer_join(member, waiter, now_ms, self._settled(member))
            return
        member.rejoin(join)
        # One that asks again has lost its connection: the older wait is over.
        self._dismiss(member, ErrorCode.rebalance_in_progress)
        member.join_waiter = waiter
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
        member.rejoin(join)
        unchanged = (
            self._members.favourite_protocol() == self.protocol_name
            and member.metadata(self.protocol_name) == before
        )
        if self.state is not _STABLE or not unchanged:
            member.join_waiter = waiter
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
        member = Member.joining(member_id, join, now_ms + self._limits.new_member_timeout_ms)
        member.join_waiter = waiter
        if self.state is _EMPTY:
            self.protocol_type = join.protocol_type
        if self.state is _PREPARING and self.generation == 0:
            self._more_came = True
        self._members.add(member)
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
            self._rebalance_at_ms = now_ms + delay_ms
            self._more_came = False
        else:
            self._extension_left_ms = None
            self._rebalance_at_ms = now_ms + timeout_ms
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
                self._rebalance_at_ms = now_ms + delay_ms
                self._more_came = False
                return
        all_joined = not self._promised and all(
            member.join_waiter is not None for member in self._members
        )
        if all_joined or time_is_up:
            self._complete_rebalance(now_ms)

    def _complete_rebalance(self, now_ms: int) -> None:
        for member in self._members:
            if member.join_waiter is None and member.instance_id is None:
                self._members.remove(member)
        if not self._members.elect_among_joined() and len(self._members):
            # Only static members, all silent: their sessions decide, not this rebalance.
            self._rebalance_at_ms = now_ms + max(self._members.rebalance_timeout_ms(), 1)
            return
        self._rebalance_at_ms = None
        self._extension_left_ms = None
        self.generation += 1
        if not len(self._members):
            self.protocol_name = None
            self.state = GroupState.EMPTY
            return
        self.protocol_name = self._members.favourite_protocol()
        self.state = GroupState.COMPLETING_REBALANCE
        self._sync_until_ms = now_ms + max(self._members.rebalance_timeout_ms(), 1)
        for member in self._members:
            self._unsynced.add(member.member_id)
            waiter, member.join_waiter = member.join_waiter, None
            if waiter is None:
                self._extend_session(member, now_ms)
            else:
                self._answer_join(member, waiter, now_ms, self._settled(member))

    def _assign(self, assignments: dict[str, bytes], now_ms: int) -> None:
        """The leader has spoken: everyone who waits gets its part."""
        self.state = GroupState.STABLE
        for member in self._members:
            member.assignment = assignments.get(member.member_id, b"")
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
        member.deadline_ms = now_ms + member.session_timeout_ms

    def _remove(self, member: Member, now_ms: int) -> None:
        self._dismiss(member, ErrorCode.unknown_member_id)
        self._unsynced.discard(member.member_id)
        self._members.remove(member)
        self._rebalance(now_ms)

    def _dismiss(self, member: Member, why: ErrorCode) -> None:
        """Answer whatever the member waits for with an error."""
        if member.join_waiter is not None:
            self._answers.append(Answer(member.join_waiter, Joined(why, member.member_id)))
            member.join_waiter = None
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
