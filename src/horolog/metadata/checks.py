"""Whether the metadata of a log directory can be read, in either form; changes nothing.

The batches of `__cluster_metadata-0` are checked as those of any log, and the batches of
`horolog-metadata.log` with the other files of the directory (storage/verify). What their records
say, and the snapshots, is checked here.
"""

from pathlib import Path

from horolog.errors import StorageFailed
from horolog.metadata.forms import KafkaForm, OneFile
from horolog.metadata.replay import Damage, Replay
from horolog.metadata.snapshots import SnapshotReader, snapshots_in
from horolog.storage.files import Files
from horolog.storage.verify.findings import Checked, Finding, Steps, damage

_MEND = (
    "restore the directory from a backup; else the next start continues without it, and adopts the "
    "topics that are not known any more"
)
_MEND_SNAPSHOT = "the next start reads the snapshot before it, and the log behind that"


def check_metadata(log_dir: Path) -> Steps[None]:
    """Check what the records of both forms say, and all snapshots."""
    files = Files(read_only=True)
    kafkas = KafkaForm(files, str(log_dir))
    if Path(kafkas.directory).is_dir() and not Path(kafkas.directory).is_symlink():
        yield from _check_snapshots(files, kafkas.directory)
    for form, path in ((kafkas, kafkas.directory), (OneFile(files, str(log_dir)), str(log_dir))):
        try:
            found = form.replay().damage
        except StorageFailed as error:
            yield damage(path, f"It cannot be read: {error}", _MEND)
            continue
        for each in found:
            # The others are found by who checks batches.
            if not each.is_of_segment and each.offset is not None:
                yield _finding(each)


def _check_snapshots(files: Files, directory: str) -> Steps[None]:
    for snapshot in snapshots_in(files.names_in(directory)):
        path = f"{directory}/{snapshot.name}"
        reader, replay = SnapshotReader(files, path), Replay(path)
        batches = 0
        try:
            for batch in reader.read():
                replay.take(batch)
                batches += 1
        except StorageFailed as error:
            yield damage(path, f"It cannot be read: {error}", _MEND_SNAPSHOT)
            continue
        if not files.exists(path):
            continue  # a broker has just removed it
        if reader.damage is not None:
            yield damage(path, f"{reader.damage}", _MEND_SNAPSHOT)
        for each in replay.damage:
            yield _finding(each)
        yield Checked(bytes=files.size(path), batches=batches)


def _finding(each: Damage) -> Finding:
    what = each.what[:1].upper() + each.what[1:]
    return damage(each.path, what, _MEND, offset=each.offset)
