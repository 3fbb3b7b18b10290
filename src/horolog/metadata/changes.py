"""Every change of the metadata that is still known, with the time when it was written.

A metadata log is kept for a year (`forms.HISTORY_MS`), beside another's log since its last
snapshot. What was before comes as the records of a snapshot, all at the time of the last of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from horolog.metadata.forms import Form, KafkaForm, OneFile
from horolog.metadata.replay import Replay
from horolog.record.batch import parse_header
from horolog.schemas.metadata import Record
from horolog.storage.files import Files


class Change(NamedTuple):
    """A record that counts."""

    timestamp: int
    """When it was written, by the clock of the node that led; milliseconds."""
    leader_epoch: int
    record: Record


def changes(files: Files, log_dir: str, *, in_one_file: bool = False) -> Iterator[Change]:
    """The changes in order; those of a transaction at the time of its end.

    What cannot be read is left out. Applied to an `Image`, those before a time give what was known
    then.

    Args:
        files: the way to the disk; nothing is written.
        log_dir: the log directory, of a broker that runs or not.
        in_one_file: as of `MetadataLog.open`.

    Raises:
        StorageFailed: the log cannot be read at all.
    """
    form: Form = OneFile(files, log_dir) if in_one_file else KafkaForm(files, log_dir)
    replay = Replay(log_dir)
    for batch in form.kept():
        header = parse_header(batch)
        for _, record in replay.counted(batch):
            yield Change(header.max_timestamp, header.leader_epoch, record)
