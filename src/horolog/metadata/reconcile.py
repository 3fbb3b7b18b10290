"""Reconciliation at start: compares the stored topics with the directories on disk.

A kill may leave rows and directories inconsistent, and operators copy directories in and out.
Pure: rows and directories in, a plan out. A plan deletes a directory, or opens it for writing,
only if a row confirms its topic.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from horolog.metadata.rows import AS_FOUND, TopicRow
from horolog.storage.names import INTERNAL_TOPICS, TopicPartition

# From partition index to the topic id in its partition.metadata; None if it has none.
FoundPartitions = Mapping[int, UUID | None]

# Kafka's limit of new partitions per request: an interrupted creation lacks no more than that.
MAX_CREATED: Final = 10_000


@dataclass(frozen=True, slots=True)
class TopicOnDisk:
    """Partitions of one topic on disk.

    `partitions` are directories; `blocked` maps a partition whose path is not a directory to what
    it is.
    """

    partitions: FoundPartitions = field(default_factory=dict)
    blocked: Mapping[int, str] = field(default_factory=dict)


def topics_on_disk(
    ids: Mapping[TopicPartition, UUID | None], blocked: Mapping[TopicPartition, str]
) -> dict[str, TopicOnDisk]:
    """Group directories, with their topic ids, and blocked partitions by topic."""
    partitions: dict[str, dict[int, UUID | None]] = {}
    others: dict[str, dict[int, str]] = {}
    for (topic, index), topic_id in ids.items():
        partitions.setdefault(topic, {})[index] = topic_id
    for (topic, index), why in blocked.items():
        others.setdefault(topic, {})[index] = why
    return {
        topic: TopicOnDisk(partitions.get(topic, {}), others.get(topic, {}))
        for topic in {**partitions, **others}
    }


@dataclass(slots=True)
class StartPlan:
    """The partitions to serve, and the changes to make first.

    `partitions` lists those of every served topic, ascending; `create` and `delete` are
    directories; `put` and `forget` are rows; `adopted` are topics without a row; `left_alone` maps
    partitions whose directories are not opened to the reason; `warnings` go to the broker's log.
    """

    rows: list[TopicRow] = field(default_factory=list)
    partitions: dict[str, tuple[int, ...]] = field(default_factory=dict)
    create: list[tuple[str, int]] = field(default_factory=list)
    delete: list[tuple[str, int]] = field(default_factory=list)
    put: list[TopicRow] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    left_alone: dict[tuple[str, int], str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def serve(self, row: TopicRow, partitions: Iterable[int]) -> None:
        """Add a topic to those served."""
        self.rows.append(row)
        self.partitions[row.name] = tuple(sorted(partitions))


def reconcile(
    rows: Iterable[TopicRow],
    found: Mapping[str, TopicOnDisk],
    *,
    new_id: Callable[[], UUID],
    adopt_defaults: bool = False,
    compacted: Container[str] = (),
    internal: Collection[str] = (),
    is_salvaged: bool = False,
    followed: Collection[str] = (),
    reserved: Collection[str] = INTERNAL_TOPICS,
) -> StartPlan:
    """Compare rows with directories and return a plan.

    Missing directories of a stored topic are created up to its number of partitions; directories
    beyond it are left alone. An interrupted deletion is completed. A topic without a row is
    adopted with the partitions on disk, and so is a topic whose directories have another topic id:
    they may be the only copy of their records.

    Args:
        found: the partitions on disk, by topic.
        adopt_defaults: adopted topics get the broker's defaults, so that their records expire.
        compacted: topics that Kafka compacted. `adopt_defaults` does not apply to them: the
            latest record of a key must not expire.
        internal: Kafka's internal topics that have directories.
        is_salvaged: rows may be lost, so `adopt_defaults` does not apply to topics without one.
        followed: topics that are another cluster's, also where their rows are lost.
        reserved: Kafka's internal topics that are not served.
    """
    plan = StartPlan()
    rows = list(rows)
    staying = [row for row in reversed(rows) if _stays(row, found.get(row.name), reserved)]
    owners = {row.topic_id: row.name for row in staying}  # of duplicates the first row wins
    of_topic = partial(
        _Reconciliation,
        plan,
        owners=owners,
        new_id=new_id,
        adopt_defaults=adopt_defaults,
        compacted=compacted,
    )
    for row in rows:
        here = found.get(row.name, TopicOnDisk())
        if row.name in reserved:
            _refuse_internal(plan, row, row.name in internal)
            continue
        if owners.get(row.topic_id, row.name) != row.name and not row.deleting:
            plan.warnings.append(
                f"{row.name} and {owners[row.topic_id]} are stored with the same topic id "
                f"{row.topic_id}: {row.name} is given another and adopted"
            )
            row = row._replace(topic_id=new_id(), adopted=True)
            plan.put.append(row)
        of_topic(row, here).run()
    stored = {row.name for row in rows}
    for name, here in found.items():
        if name not in stored:
            unknown = TopicRow(
                name, UUID(int=0), AS_FOUND, True, False, is_salvaged, name in followed
            )
            of_topic(unknown, here).adopt_new()
    return plan


def _stays(row: TopicRow, found: TopicOnDisk | None, reserved: Collection[str]) -> bool:
    """True if the row remains after this start."""
    if row.deleting:
        return False
    is_by_directories = row.adopted or row.partitions == AS_FOUND or row.name in reserved
    return found is not None or not is_by_directories


def _refuse_internal(plan: StartPlan, row: TopicRow, has_directories: bool) -> None:
    if has_directories:
        plan.warnings.append(
            f"{row.name} is stored as a topic, but the name is one of Kafka's internal topics: its "
            "directories are left alone and it is not served"
        )
    else:
        plan.forget.append(row.name)


@dataclass(frozen=True, slots=True)
class _Reconciliation:
    """The comparison for one topic."""

    plan: StartPlan
    row: TopicRow
    found: TopicOnDisk
    owners: dict[UUID, str]
    new_id: Callable[[], UUID]
    adopt_defaults: bool
    compacted: Container[str]

    def run(self) -> None:
        if self.row.deleting:
            self._delete()
        elif self.row.adopted:
            self._adopted()
        else:
            self._own()

    def adopt_new(self) -> None:
        """Adopt a topic that has no row."""
        self._leave_blocked()
        if self.found.partitions:
            self.plan.adopted.append(self.row.name)
            self._adopt_as_new(self.found.partitions)

    def _delete(self) -> None:
        foreign: dict[int, UUID | None] = {}
        for index, topic_id in self.found.partitions.items():
            if topic_id not in (None, self.row.topic_id) or not self._counts(index):
                foreign[index] = topic_id
            else:
                self.plan.delete.append((self.row.name, index))
        self.plan.forget.append(self.row.name)
        if foreign:
            self._adopt_as_new(foreign)

    def _adopted(self) -> None:
        partitions, row = self.found.partitions, self.row
        self._leave_blocked()
        if not partitions:
            if self.found.blocked:
                return
            self.plan.warnings.append(f"the adopted topic {row.name} is gone from the disk")
            self.plan.forget.append(row.name)
        elif all(self._is_foreign(id_) for id_ in partitions.values()):
            self._replace_id(partitions)
        else:
            self._adopt(row, {*partitions, *self._blocked()})

    def _is_foreign(self, topic_id: UUID | None) -> bool:
        """True if a directory has a topic id that no stored topic has."""
        return topic_id not in (None, self.row.topic_id) and topic_id not in self.owners

    def _own(self) -> None:
        row = self.row
        within = {i: id_ for i, id_ in self.found.partitions.items() if self._counts(i)}
        foreign = {i: id_ for i, id_ in within.items() if id_ not in (None, row.topic_id)}
        if row.topic_id not in within.values() and any(map(self._is_foreign, foreign.values())):
            self._replace_id(self.found.partitions)
            return
        self._leave_beyond()
        self._leave_blocked()
        for index, topic_id in foreign.items():
            self.plan.left_alone[row.name, index] = (
                f"its partition.metadata has the topic id {topic_id}, and {row.name} has "
                f"{row.topic_id}; remove that file if the directory belongs to the topic"
            )
        self._serve_own(row, {*within, *self._blocked()})

    def _serve_own(self, row: TopicRow, there: Collection[int]) -> None:
        """Serve a stored topic; create its missing directories."""
        if row.partitions == AS_FOUND:
            if there:
                self.plan.serve(row, there)
            elif not self.found.blocked:
                self.plan.warnings.append(f"the topic {row.name} is gone from the disk")
                self.plan.forget.append(row.name)
            return
        lacking = row.partitions - len(there)
        if lacking > MAX_CREATED:
            self.plan.warnings.append(
                f"{row.name} is stored with {row.partitions} partitions, of which {lacking} have "
                f"no directory: none is created, and those on disk are served"
            )
            if there:
                self.plan.serve(row, there)
            return
        missing = [index for index in range(row.partitions) if index not in there]
        if missing and there:
            self.plan.warnings.append(
                f"{row.name} lacked the directories of partitions {missing}: created empty"
            )
        self.plan.create += [(row.name, index) for index in missing]
        self.plan.serve(row, range(row.partitions))

    def _replace_id(self, partitions: FoundPartitions) -> None:
        """Adopt a stored topic under the topic id of its directories."""
        topic_id = self._unused_id(partitions)
        if self.owners.get(self.row.topic_id) == self.row.name:
            del self.owners[self.row.topic_id]
        self.plan.warnings.append(
            f"{self.row.name} is on disk with the topic id {topic_id} and was stored with "
            f"{self.row.topic_id}: adopted as it is on disk"
        )
        self._leave_blocked()
        row = self.row._replace(topic_id=topic_id, adopted=True)
        self._adopt(row, {*partitions, *self._blocked()}, is_new=True)

    def _adopt_as_new(self, partitions: FoundPartitions) -> None:
        topic_id = self._unused_id(partitions)
        before = self.row
        followed = before.followed and not before.deleting
        row = TopicRow(before.name, topic_id, AS_FOUND, True, False, before.is_salvaged, followed)
        self._adopt(row, partitions, is_new=True)

    def _adopt(self, row: TopicRow, partitions: Collection[int], *, is_new: bool = False) -> None:
        indexes = tuple(sorted(partitions))
        count = stored_count(indexes)
        row = row._replace(partitions=count, indexes=indexes if count == AS_FOUND else ())
        ids = {self.found.partitions.get(index) for index in partitions}
        is_one_topic = ids <= {None, row.topic_id}
        may_expire = is_one_topic and not row.is_salvaged and row.name not in self.compacted
        if self.adopt_defaults and may_expire:
            row = row._replace(adopted=False)
            is_new = True
        if is_new:
            self.plan.put.append(row)
        self.plan.serve(row, partitions)

    def _unused_id(self, partitions: FoundPartitions) -> UUID:
        """Return the first topic id of the partitions that no other topic has, or a new id."""
        for index in sorted(partitions):
            topic_id = partitions[index]
            if topic_id is not None and self.owners.setdefault(topic_id, self.row.name) == (
                self.row.name
            ):
                return topic_id
        return self.new_id()

    def _counts(self, index: int) -> bool:
        """True if the stored number of partitions includes this one."""
        return self.row.partitions == AS_FOUND or self.row.adopted or index < self.row.partitions

    def _leave_beyond(self) -> None:
        for index in self.found.partitions:
            if not self._counts(index):
                self.plan.left_alone[self.row.name, index] = (
                    f"{self.row.name} has {self.row.partitions} partition(s); the directory is not "
                    "part of it and is left alone"
                )

    def _leave_blocked(self) -> None:
        for index, why in self.found.blocked.items():
            self.plan.left_alone[self.row.name, index] = why

    def _blocked(self) -> set[int]:
        """Return the partitions whose paths are not directories."""
        return {index for index in self.found.blocked if index < self.row.partitions}


def stored_count(partitions: Collection[int]) -> int:
    """Return the number to store for these partitions; `AS_FOUND` if they have gaps."""
    is_dense = bool(partitions) and max(partitions) == len(partitions) - 1
    return len(partitions) if is_dense else AS_FOUND
