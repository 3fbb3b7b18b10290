"""The state machine of a consumer group in the classic protocol.

    Empty ──join──> PreparingRebalance ──all joined, or timeout──> CompletingRebalance
      ^                    ^    ^                                       │
      │ no members         │    └─────── member joins or leaves ────────┤ leader assigns, stored
      └────────────────────┘                                            v
                           └─────────── member joins or leaves ────── Stable

Pure: no sockets and no timers. A request that must wait leaves its waiter in the group, and a
later call returns the waiter with its result. `next_deadline_ms` is when to call `tick`. Where a
row has to be in the log before members are answered, `take_storing` has it after `join` and
`sync`. Times are milliseconds of the event loop's clock, not record time. Invalid requests raise
RequestRefused.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.groups.capacity import Capacity
from horolog.groups.deadlines import Deadlines
from horolog.groups.members import CONSUMER_PROTOCOL_TYPE, Member, Members, unknown_member
from horolog.groups.rows import GroupRow
from horolog.groups.values import (
    Committer,
    Completed,
    GroupLimits,
    GroupSnapshot,
    GroupState,
    Join,
    Joined,
    Renamed,
    Storing,
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
_MAX_ID_PREFIX: Final = 255  # of the client id that starts a member id

# The approximate memory of a group and of a pending member id.
_GROUP_BYTES: Final = 1024
_PENDING_ID_BYTES: Final = 512


class Group:
    """The state of one group. Public methods return the waiters that they complete."""

    kind: Final = "classic"

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
        self._share = capacity.share()
        self._new_id = new_id
        self._members = Members()
        self._pending_ids: dict[str, int] = {}  # generated member ids not used yet -> deadline
        self._unsynced: set[str] = set()  # members without a SyncGroup in this generation
        self._deadlines = Deadlines(limits.initial_rebalance_delay_ms)
        self._completed: list[Completed] = []
        self._to_store: Storing | None = None
        self._assigning: Storing | None = None  # the leader's assignments until they are stored

    def restore(self, row: GroupRow, now_ms: int) -> None:
        """Restore a stored group; member sessions start now.

        Raises:
            RequestRefused: its members exceed the limits. The group then has none.
            CorruptBatch: no group can have such members. The group then has none.
        """
        self.protocol_type = row.protocol_type or None
        self.generation = max(row.generation, 0)
        if not row.members:
            return
        try:
            self._restore_members(row, now_ms)
        except HorologError:
            self._members = Members()
            raise
        self.protocol_name = row.protocol
        self.state = GroupState.STABLE
        self._share.charge(self.held_bytes)
        self._deadlines.wake_at_ms = self.earliest_deadline_ms()

    def _restore_members(self, row: GroupRow, now_ms: int) -> None:
        if len(row.members) > self._limits.max_size:
            raise RequestRefused(
                ErrorCode.group_max_size_reached,
                f"{len(row.members)} members are more than group.max.size={self._limits.max_size}",
            )
        for _ in self._members.restore(row, now_ms):
            if self.held_bytes > self._limits.max_bytes:
                raise RequestRefused(
                    ErrorCode.group_max_size_reached,
                    "its members occupy more than "
                    f"horolog.group.max.bytes={self._limits.max_bytes}",
                )
        self._share.check(self.held_bytes)

    # --- requests of members ----------------------------------------------------------

    def join(self, join: Join, waiter: Waiter, now_ms: int) -> list[Completed]:
        """Add a member, or let it rejoin (JoinGroup)."""
        self._check_joinable(join)
        if join.member_id:
            self._join_again(join, waiter, now_ms)
        else:
            self._join_first(join, waiter, now_ms)
        return self.tick(now_ms)

    def sync(self, sync: Sync, waiter: Waiter, now_ms: int) -> list[Completed]:
        """Give a member its assignment, now or when the leader sends it (SyncGroup)."""
        member = self._members.known(sync.member_id, sync.instance_id)
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
                    assignments = dict(sync.assignments)
                    self._to_store = self._assigning = Storing(self._assigned_row(assignments))
            case GroupState.STABLE:
                self._unsynced.discard(member.member_id)
                member.sync_waiter = waiter
                self._complete_sync(member, now_ms)
            case _:
                raise unknown_member(sync.member_id)
        return self.tick(now_ms)

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> None:
        """Extend a session; raises REBALANCE_IN_PROGRESS if the member must rejoin."""
        if self.state in (_EMPTY, _DEAD):
            raise unknown_member(member_id)
        member = self._members.known(member_id, instance_id)
        self._check_generation(generation)
        self._extend_session(member, now_ms)
        if self.state is _PREPARING:
            raise _rebalancing()

    def leave(
        self, members: Sequence[tuple[str, str | None]], waiter: Waiter, now_ms: int
    ) -> list[Completed]:
        """Remove members, each by its member id or by its instance id alone (LeaveGroup).

        The waiter gets the error of each member. The group rebalances once all are removed, so that
        no generation begins with some of them. It also rebalances if only pending member ids have
        left, as in Apache Kafka.
        """
        errors = [self._leave(*member) for member in members]
        self._completed.append(Completed(waiter, errors))
        if self.state in (_STABLE, _COMPLETING) and ErrorCode.none in errors:
            self._rebalance(now_ms)
        return self.tick(now_ms)

    def _leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if self._pending_ids.pop(member_id, None) is not None:
            return ErrorCode.none
        if instance_id is not None and not member_id:
            static = self._members.of_instance(instance_id)
            member = ErrorCode.unknown_member_id if static is None else static
        else:
            member = self._members.find(member_id, instance_id)
        if isinstance(member, Member):
            self._drop(member)
            return ErrorCode.none
        return member

    def check_commit(self, by: Committer, now_ms: int) -> None:
        """Refuse an offset commit of a member without an assignment in this generation."""
        if by.generation < 0 and self.state is _EMPTY:
            return  # a client that assigns its own partitions
        member_id, instance_id, generation, _ = by
        if generation < 0 and not member_id and instance_id is None:
            raise unknown_member(member_id)
        member = self._members.known(member_id, instance_id)
        self._check_generation(generation)
        if self.state is _COMPLETING:
            raise _rebalancing()  # partitions are being reassigned
        self._extend_session(member, now_ms)

    def check_transactional_commit(self, by: Committer) -> None:
        """Refuse offsets that a producer commits for a member of another generation (KIP-447).

        A producer that names no member is older than KIP-447, and is not checked. A rebalance does
        not matter: a member of the generation was assigned the partitions in it.
        """
        member_id, instance_id, generation, _ = by
        if generation < 0 and (self.state is _EMPTY or (not member_id and instance_id is None)):
            return
        self._members.known(member_id, instance_id)
        self._check_generation(generation)

    # --- what is stored ---------------------------------------------------------------

    def row(self, empty_since_ms: int | None) -> GroupRow:
        """Return the row of the group without members."""
        return GroupRow(self.group_id, self.protocol_type or "", empty_since_ms, self.generation)

    def _assigned_row(self, assignments: Mapping[str, bytes | memoryview]) -> GroupRow:
        return self.row(None)._replace(
            protocol=self.protocol_name,
            leader=self._members.leader,
            members=self._members.values(self.protocol_name, assignments),
        )

    def take_storing(self) -> Storing | None:
        """Return the row to store, once; no other row of this group is to be stored before it."""
        storing, self._to_store = self._to_store, None
        if storing is None or storing.renamed is not None or storing is self._assigning:
            return storing
        return None  # the group rebalances again

    def stored(self, storing: Storing, now_ms: int) -> list[Completed]:
        """Answer the members whose row is in the log now."""
        if storing.renamed is not None:
            self._completed.append(Completed(storing.renamed.waiter, storing.renamed.joined))
        elif storing is self._assigning:  # else members have come or gone since
            self._assign(storing.row, now_ms)
        return self.tick(now_ms)

    def not_stored(self, storing: Storing, error: ErrorCode, now_ms: int) -> list[Completed]:
        """Answer members with the error of the log that refused the row, and rebalance."""
        if storing.renamed is not None:
            self._put_back_static(storing.renamed, error, now_ms)
        elif storing is self._assigning:
            for member in self._members:
                if member.sync_waiter is not None:
                    self._complete_sync(member, now_ms, error)
            self._rebalance(now_ms)
        return self.tick(now_ms)

    # --- timeouts ---------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Return when to call `tick` unless something happens before; may be too early."""
        return self._deadlines.wake_at_ms

    def tick(self, now_ms: int) -> list[Completed]:
        """Expire sessions, pending member ids and rebalances that are due."""
        wake_at_ms = self._deadlines.wake_at_ms
        is_due = wake_at_ms is not None and now_ms >= wake_at_ms
        if is_due:
            self._end_sessions(now_ms)
        if self.state is _PREPARING:
            self._advance_rebalance(now_ms)
        if is_due:
            self._deadlines.wake_at_ms = self.earliest_deadline_ms()
        self._share.charge(self.held_bytes)
        completed, self._completed = self._completed, []
        return completed

    def _end_sessions(self, now_ms: int) -> None:
        for member_id, deadline in list(self._pending_ids.items()):
            if now_ms >= deadline:
                del self._pending_ids[member_id]
        for member in self._members:
            if member.session_is_over(now_ms):
                self._remove(member, now_ms)
        if self._deadlines.syncing_is_over(now_ms):
            self._drop_unsynced(now_ms)

    def earliest_deadline_ms(self) -> int | None:
        """Return the earliest deadline; `next_deadline_ms` may be earlier, never later."""
        own = (self._deadlines.joins_until_ms, self._deadlines.syncs_until_ms)
        deadlines = [at for at in own if at is not None]
        deadlines.extend(self._pending_ids.values())
        deadlines.extend(self._members.session_deadlines_ms())
        return min(deadlines, default=None)

    # --- queries ----------------------------------------------------------------------

    @property
    def member_count(self) -> int:
        """Number of members."""
        return len(self._members)

    @property
    def is_idle(self) -> bool:
        """True if the group has no members and no pending member ids."""
        return self.state in (_EMPTY, _DEAD) and not self._pending_ids

    @property
    def is_unused(self) -> bool:
        """True if the group is idle and never had members."""
        return self.is_idle and not self.generation and self.protocol_type is None

    def describe(self) -> GroupSnapshot:
        """Return the group for DescribeGroups; with metadata only in state Stable."""
        settled = self.protocol_name if self.state is _STABLE else None
        return GroupSnapshot(
            self.group_id,
            self.state,
            self.protocol_type or "",
            settled or "",
            self._members.described(settled),
        )

    def subscriptions(self) -> Callable[[str], bool]:
        """Return a predicate: is a topic subscribed? True for all topics if that is unknown."""
        if self.state is _EMPTY:
            return lambda topic: False
        topics = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.protocol_name is not None:
            topics = self._members.subscribed_topics(self.protocol_name)
        if topics is None:
            return lambda topic: True
        return topics.__contains__

    def kill(self) -> None:
        """Mark the group, which has no members, as deleted; drop its unused member ids."""
        assert not self.member_count
        self._pending_ids.clear()
        self.state = GroupState.DEAD
        self._share.charge(0)

    # --- change of the protocol -------------------------------------------------------

    @property
    def members(self) -> tuple[Member, ...]:
        """The members, to be read only."""
        return tuple(self._members)

    def dissolve(self, why: ErrorCode) -> list[Completed]:
        """Remove all members, whose waiting requests are completed with an error."""
        for member in tuple(self._members):
            self._drop(member, why)
        self.kill()
        completed, self._completed = self._completed, []
        return completed

    def rebalance(self, now_ms: int) -> list[Completed]:
        """Require all members to join again."""
        self._rebalance(now_ms)
        return self.tick(now_ms)

    # --- memory -----------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the group, without committed offsets."""
        pending = len(self._pending_ids) * _PENDING_ID_BYTES
        return (
            _GROUP_BYTES
            + len(self.group_id)
            + pending
            + self._members.held_bytes
            + self._assigning_bytes
        )

    @property
    def _assigning_bytes(self) -> int:
        if self._assigning is None:
            return 0
        return sum(len(member.assignment) for member in self._assigning.row.members)

    def _check_room(self, growth_bytes: int) -> None:
        held_bytes = self.held_bytes
        if growth_bytes > 0 and held_bytes + growth_bytes > self._limits.max_bytes:
            raise RequestRefused(
                ErrorCode.group_max_size_reached,
                f"the members of the group occupy {held_bytes} bytes, and {growth_bytes} more "
                f"exceed horolog.group.max.bytes={self._limits.max_bytes}",
            )
        self._share.check(held_bytes + growth_bytes)

    def _check_assignments(self, assignments: tuple[tuple[str, bytes | memoryview], ...]) -> None:
        before = sum(len(member.assignment) for member in self._members) + self._assigning_bytes
        self._check_room(sum(len(assignment) for _, assignment in assignments) - before)

    # --- joining ----------------------------------------------------------------------

    def _check_joinable(self, join: Join) -> None:
        self._limits.check(join)
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
        """Handle a Join without a member id: a new member, or a static member after a restart."""
        static = None if join.instance_id is None else self._members.of_instance(join.instance_id)
        prefix = join.client_id if join.instance_id is None else join.instance_id
        member_id = f"{prefix[:_MAX_ID_PREFIX]}-{self._new_id()}"
        if static is not None:
            self._replace_static(static, member_id, join, waiter, now_ms)
            return
        if len(self._members) + len(self._pending_ids) >= self._limits.max_size:
            raise RequestRefused(
                ErrorCode.group_max_size_reached,
                f"the group may have {self._limits.max_size} members",
            )
        if join.instance_id is None and join.expects_member_id:
            self._pending_ids[member_id] = self._deadlines.wake_by(now_ms + join.session_timeout_ms)
            self._completed.append(
                Completed(waiter, Joined(ErrorCode.member_id_required, member_id))
            )
            return
        self._add(member_id, join, waiter, now_ms)

    def _join_again(self, join: Join, waiter: Waiter, now_ms: int) -> None:
        """Handle a Join with a member id: the first use of a pending one, or a rejoin."""
        if join.member_id in self._pending_ids and join.instance_id is None:
            del self._pending_ids[join.member_id]
            self._add(join.member_id, join, waiter, now_ms)
            return
        member = self._members.known(join.member_id, join.instance_id)
        changed = member.join.protocols != join.protocols
        leads = member.member_id == self._members.leader
        must_rebalance = changed or (self.state is _STABLE and leads)
        if self.state is not _PREPARING and not must_rebalance:
            # The last response was lost, or nothing changed: the generation is kept.
            self._members.rejoin(member, join)
            self._complete_join(member, waiter, now_ms, self._joined_result(member))
            return
        self._members.rejoin(member, join)
        # A second Join follows a lost connection: it replaces the waiting one.
        self._dismiss(member, ErrorCode.rebalance_in_progress)
        self._members.wait_for_join(member, waiter)
        self._rebalance(now_ms)

    def _replace_static(
        self, member: Member, member_id: str, join: Join, waiter: Waiter, now_ms: int
    ) -> None:
        """Replace a static member that joins without its member id; fence the old one (KIP-345)."""
        old_id, was = member.member_id, member.join
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
        result = self._joined_result(member)
        if led and join.may_skip_assignment:
            result = result._replace(
                skip_assignment=True, members=self._members.for_leader(self.protocol_name)
            )
        elif led:
            # An older client that is named leader would assign again, and the members of a
            # stable group would not receive that assignment.
            result = result._replace(leader=old_id, members=())
        self._extend_session(member, now_ms)
        assignments = {
            member_of_group.member_id: member_of_group.assignment
            for member_of_group in self._members
        }
        row = self._assigned_row(assignments)
        self._to_store = Storing(row, Renamed(waiter, result, old_id, was))

    def _put_back_static(self, renamed: Renamed, error: ErrorCode, now_ms: int) -> None:
        """Give a static member its former id again, because the new id is not in the log.

        During a rebalance the member keeps the new id until it joins again.
        """
        member = self._members.get(renamed.joined.member_id)
        if member is not None and self.state is _STABLE:
            self._members.rename(member, renamed.former_id)
            self._members.rejoin(member, renamed.former)
            self._extend_session(member, now_ms)
        self._completed.append(Completed(renamed.waiter, Joined(error, "")))

    def _add(self, member_id: str, join: Join, waiter: Waiter, now_ms: int) -> None:
        deadline_ms = self._deadlines.wake_by(now_ms + self._limits.new_member_timeout_ms)
        member = Member.joining(member_id, join, deadline_ms)
        if self.state is _EMPTY:
            self.protocol_type = join.protocol_type
        if self.state is _PREPARING and self.generation == 0:
            self._deadlines.note_newcomer()
        self._members.add(member)
        self._members.wait_for_join(member, waiter)
        self._rebalance(now_ms)

    def _joined_result(self, member: Member) -> Joined:
        """Return the JoinGroup result for a member of this generation."""
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
        """Require all members to rejoin; does nothing during a rebalance."""
        if self.state is _PREPARING:
            return
        for member in self._members:
            if member.sync_waiter is not None:
                self._complete_sync(member, now_ms, ErrorCode.rebalance_in_progress)
        begin = self._deadlines.begin_first if self.state is _EMPTY else self._deadlines.begin
        begin(now_ms, self._members.rebalance_timeout_ms())
        self._unsynced.clear()
        self._assigning = None
        self.state = GroupState.PREPARING_REBALANCE

    def _advance_rebalance(self, now_ms: int) -> None:
        """Complete the rebalance when all members joined or its timeout elapsed."""
        all_joined = not self._pending_ids and self._members.joined == len(self._members)
        if self._deadlines.joining_is_over(now_ms, all_joined=all_joined):
            self._complete_rebalance(now_ms)

    def _complete_rebalance(self, now_ms: int) -> None:
        for member in self._members:
            if member.join_waiter is None and member.join.instance_id is None:
                self._members.remove(member)
        if not self._members.elect_among_joined() and len(self._members):
            # Only static members, none of which joined: they leave when their sessions expire.
            self._deadlines.wait_on(now_ms, max(self._members.rebalance_timeout_ms(), 1))
            return
        self._deadlines.end_joining()
        self.generation = 1 if self.generation == _MAX_GENERATION else self.generation + 1
        if not len(self._members):
            self.protocol_name = None
            self.state = GroupState.EMPTY
            return
        self.protocol_name = self._members.favourite_protocol()
        self.state = GroupState.COMPLETING_REBALANCE
        self._deadlines.begin_syncing(now_ms, max(self._members.rebalance_timeout_ms(), 1))
        for member in self._members:
            self._unsynced.add(member.member_id)
            waiter = self._members.take_join_waiter(member)
            if waiter is None:
                self._extend_session(member, now_ms)
            else:
                self._complete_join(member, waiter, now_ms, self._joined_result(member))

    def _assign(self, row: GroupRow, now_ms: int) -> None:
        """Hand out the leader's assignments, and complete all waiting SyncGroups."""
        self._assigning = None
        self.state = GroupState.STABLE
        for member, value in zip(self._members, row.members, strict=True):
            self._members.assign(member, value.assignment)
            if member.sync_waiter is not None:
                self._complete_sync(member, now_ms)

    def _drop_unsynced(self, now_ms: int) -> None:
        """Remove members that sent no SyncGroup before the timeout."""
        self._deadlines.syncs_until_ms = None
        silent = [m for m in self._members if m.member_id in self._unsynced]
        self._unsynced.clear()
        for member in silent:
            self._remove(member, now_ms)

    # --- members ----------------------------------------------------------------------

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise RequestRefused(
                ErrorCode.illegal_generation,
                f"the group is in generation {self.generation}, the member in {generation}",
            )

    def _extend_session(self, member: Member, now_ms: int) -> None:
        member.is_new = False
        member.deadline_ms = self._deadlines.wake_by(now_ms + member.join.session_timeout_ms)

    def _remove(self, member: Member, now_ms: int) -> None:
        self._drop(member)
        self._rebalance(now_ms)

    def _drop(self, member: Member, why: ErrorCode = ErrorCode.unknown_member_id) -> None:
        self._dismiss(member, why)
        self._unsynced.discard(member.member_id)
        self._members.remove(member)

    def _dismiss(self, member: Member, why: ErrorCode) -> None:
        """Complete the waiting requests of the member with an error."""
        join_waiter = self._members.take_join_waiter(member)
        if join_waiter is not None:
            self._completed.append(Completed(join_waiter, Joined(why, member.member_id)))
        if member.sync_waiter is not None:
            self._completed.append(Completed(member.sync_waiter, Synced(why)))
            member.sync_waiter = None

    def _complete_join(self, member: Member, waiter: Waiter, now_ms: int, result: Joined) -> None:
        self._extend_session(member, now_ms)
        self._completed.append(Completed(waiter, result))

    def _complete_sync(
        self, member: Member, now_ms: int, error: ErrorCode = ErrorCode.none
    ) -> None:
        self._extend_session(member, now_ms)
        result = Synced(error)
        if error is ErrorCode.none:
            result = Synced(error, self.protocol_type, self.protocol_name, member.assignment)
        self._completed.append(Completed(member.sync_waiter, result))
        member.sync_waiter = None


def _rebalancing() -> RequestRefused:
    return RequestRefused(ErrorCode.rebalance_in_progress, "the group is rebalancing")
