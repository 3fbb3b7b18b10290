"""Committed offsets of consumer groups, carried over to the target."""

from collections.abc import Mapping
from dataclasses import dataclass

from horolog.client import Client, CommittedOffset
from horolog.errors import RequestRefused
from horolog.jobs.mirroring.ledger import Ledger
from horolog.storage.names import TopicPartition


@dataclass(frozen=True, slots=True)
class CarriedGroup:
    """Result of carrying over one consumer group."""

    group: str
    partitions: int
    note: str | None = None
    """Offsets that were not committed, with the reason."""


def carry_over(
    group: str, source: Client, target: Client, ledger: Ledger, targets: Mapping[str, str]
) -> CarriedGroup:
    """Translate the committed offsets of a group, and commit them at the target.

    A committed offset never goes back. An offset beyond the mirrored records becomes their end. A
    group that has members at the target is refused by it.

    Args:
        targets: the target's topic names by those of the source.
    """
    committed: dict[tuple[str, int], CommittedOffset] = {}
    left_out: list[TopicPartition] = []
    for (topic, number), at_source in source.offset_fetch(group).items():
        partition = TopicPartition(topic, number)
        place = ledger.place(partition)
        if at_source is None or topic not in targets:
            continue
        offset = None
        if place is not None:
            offset = ledger.offsets(partition).translate(
                min(at_source.offset, place.offset), place.target_offset
            )
        if offset is None:
            left_out.append(partition)
            continue
        committed[targets[topic], number] = CommittedOffset(offset, at_source.metadata)
    note = None if committed else "it has committed nothing of these topics"
    if left_out:
        note = (
            "offsets that it has committed are left out, as no record of the partition was "
            f"mirrored: {', '.join(map(str, sorted(left_out)))}"
        )
    if not committed:
        return CarriedGroup(group, 0, note)
    try:
        there = target.offset_fetch(group, committed)
        news = {
            partition: offset
            for partition, offset in committed.items()
            if (known := there.get(partition)) is None or known.offset < offset.offset
        }
        if news:
            target.offset_commit(group, news)
    except RequestRefused as error:
        if error.code.retriable:
            raise
        return CarriedGroup(group, 0, f"the target refuses: {error}")
    return CarriedGroup(group, len(committed), note)
