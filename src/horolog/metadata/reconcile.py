"""At start: do the topics we remember and the directories on disk agree? What to do if not.

A kill can come between a row and its directories, and people copy directories in and
out. Pure: rows and directories in, a plan out.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from horolog.metadata.store import TopicRow
from horolog.metadata.topics import INTERNAL_TOPICS

# Partition to the topic id in its partition.metadata, None where there is none.
FoundPartitions = Mapping[int, UUID | None]


@dataclass(slots=True)
class Plan:
    """What is to be served, and what has to be done before.

    `partitions` are those of every topic served; `create` and `delete` are directories;
    `put` and `forget` are rows; `adopted` are topics that nobody remembered; `remarks` are
    for the log.
    """

    rows: list[TopicRow] = field(default_factory=list)
    partitions: dict[str, tuple[int, ...]] = field(default_factory=dict)
    create: list[tuple[str, int]] = field(default_factory=list)
    delete: list[tuple[str, int]] = field(default_factory=list)
    put: list[TopicRow] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def serve(self, row: TopicRow, partitions: Iterable[int]) -> None:
        """Have a topic served."""
        self.rows.append(row)
        self.partitions[row.name] = tuple(sorted(partitions))


def reconcile(
    rows: Iterable[TopicRow],
    found: Mapping[str, FoundPartitions],
    *,
    new_id: Callable[[], UUID],
    adopt_defaults: bool = False,
    compacted: Container[str] = (),
) -> Plan:
    """Compare both ways.

    A remembered topic gets the directories it lacks. A topic whose deletion was begun is
    deleted. A directory that nobody remembers is adopted, and so is one that carries
    another topic's id: it may be the only copy of something. With `adopt_defaults` an
    adopted topic becomes one like all others, and expires; but not one of those that were
    `compacted`, whose old records are as good as its new ones.
    """
    plan = Plan()
    remembered = set()
    for row in rows:
        remembered.add(row.name)
        takes_over = adopt_defaults and row.name not in compacted
        _reconcile_row(plan, row, found.get(row.name, {}), takes_over)
    for name, partitions in found.items():
        if name not in remembered:
            topic_id = _common_id(partitions) or new_id()
            row = TopicRow(name, topic_id, max(partitions) + 1, adopted=True)
            plan.adopted.append(name)
            takes_over = adopt_defaults and name not in compacted
            _adopt(plan, row, partitions, takes_over, is_new=True)
    return plan


def _reconcile_row(
    plan: Plan, row: TopicRow, partitions: FoundPartitions, adopt_defaults: bool
) -> None:
    strangers = {index: id_ for index, id_ in partitions.items() if id_ not in (None, row.topic_id)}
    if row.deleting:
        plan.delete += [(row.name, index) for index in partitions if index not in strangers]
        plan.forget.append(row.name)
        if strangers:
            topic_id = _common_id(strangers)
            assert topic_id is not None
            adopted = TopicRow(row.name, topic_id, max(strangers) + 1, adopted=True)
            _adopt(plan, adopted, strangers, adopt_defaults, is_new=True)
        return
    if strangers:
        topic_id = _common_id(strangers)
        assert topic_id is not None
        plan.remarks.append(
            f"{row.name} is on disk with the topic id {topic_id} and was remembered with "
            f"{row.topic_id}: adopted as it lies on disk"
        )
        adopted = row._replace(topic_id=topic_id, adopted=True)
        _adopt(plan, adopted, partitions, adopt_defaults, is_new=True)
    elif row.adopted:
        if partitions:
            _adopt(plan, row, partitions, adopt_defaults, is_new=False)
        else:
            plan.remarks.append(f"the adopted topic {row.name} is gone from the disk")
            plan.forget.append(row.name)
    else:
        _own(plan, row, partitions, is_new=False)


def _adopt(
    plan: Plan, row: TopicRow, partitions: FoundPartitions, adopt_defaults: bool, *, is_new: bool
) -> None:
    row = row._replace(partitions=max(partitions) + 1)
    if adopt_defaults and row.name not in INTERNAL_TOPICS:
        _own(plan, row._replace(adopted=False), partitions, is_new=True)
        return
    if is_new:
        plan.put.append(row)
    plan.serve(row, partitions)


def _own(plan: Plan, row: TopicRow, partitions: FoundPartitions, *, is_new: bool) -> None:
    count = max([row.partitions, *(index + 1 for index in partitions)])
    missing = [index for index in range(count) if index not in partitions]
    if missing and partitions:
        plan.remarks.append(
            f"{row.name} lacked the directories of partitions {missing}: made empty"
        )
    plan.create += [(row.name, index) for index in missing]
    if is_new or count != row.partitions:
        row = row._replace(partitions=count)
        plan.put.append(row)
    plan.serve(row, range(count))


def _common_id(partitions: FoundPartitions) -> UUID | None:
    """The id of the lowest partition that has one."""
    return next((partitions[index] for index in sorted(partitions) if partitions[index]), None)
