"""Every change of the metadata that is still known, with the time when it was written.

A metadata log is kept for a year (`forms.HISTORY_MS`), beside another's log since its last
snapshot. What was before comes as the records of a snapshot, all at the time of the last of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from horolog.metadata.forms import Form, KafkaForm, OneFile
from horolog.metadata.replay import Damage, Replay
from horolog.record.batch import parse_header
from horolog.schemas.metadata import Record
from horolog.storage.files import Files


class Change(NamedTuple):
    """Records that count together: a batch, a transaction, or a part of a snapshot."""

    timestamp: int
    """When they were written, by the clock of the node that led; milliseconds."""
    leader_epoch: int
    records: list[Record]
    is_snapshot: bool
    """It was so by then; when it changed is not known."""


def changes(
    files: Files, log_dir: str, *, in_one_file: bool = False, damage: list[Damage] | None = None
) -> Iterator[Change]:
    """The changes in order; those of a transaction at the time of its end.

    What cannot be read is left out. Applied to an `Image`, those before a time give what was known
    then.

    Args:
        files: the way to the disk; nothing is written.
        log_dir: the log directory, of a broker that runs or not.
        in_one_file: as of `MetadataLog.open`.
        damage: what cannot be read is added to it.

    Raises:
        StorageFailed: the log cannot be read at all.
    """
    form: Form = OneFile(files, log_dir) if in_one_file else KafkaForm(files, log_dir)
    replay = Replay(log_dir)
    if damage is not None:
        replay.damage = damage
    for batch in form.kept(replay.damage):
        header = parse_header(batch)
        records = [record for _, record in replay.counted(batch)]
        if records:
            snapshot_ms = replay.snapshot_ms
            time_ms = header.max_timestamp if snapshot_ms is None else snapshot_ms
            yield Change(time_ms, header.leader_epoch, records, snapshot_ms is not None)
