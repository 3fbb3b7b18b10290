"""Checks that the metadata can be read, and that stored topics match the partition directories.

Nothing in the log directory is written or locked. The batches of `__cluster_metadata-0` are checked
as those of any log (storage/verify). What their records say, and the snapshots, is checked here.
"""

import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from horolog.config.tables import topic_setting
from horolog.errors import CorruptBatch, CorruptFile, StorageFailed, listed
from horolog.metadata.forms import KafkaForm
from horolog.metadata.opening import read_stored, state_dir_of
from horolog.metadata.reconcile import TopicOnDisk, reconcile, topics_on_disk
from horolog.metadata.replay import Damage, MetadataReplay
from horolog.metadata.replicated import CommittedEnds, replicas_among, replicas_in
from horolog.metadata.rows import TOPIC_SCOPE, Stored, TopicRow
from horolog.metadata.snapshots import SnapshotReader, snapshots_in
from horolog.storage import names
from horolog.storage.directory.checkpoints import read_topic_id, topic_id_in
from horolog.storage.directory.contents import contents_of, earlier_files
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition
from horolog.storage.offline.partition_reader import log_end
from horolog.storage.scan.findings import Checked, Finding, Findings, Steps, damage, fault, note
from horolog.storage.verify import Verification, VerifyTarget


def verification_of(target: VerifyTarget, files: Files | None = None) -> Verification:
    """Return the check of files that knows which of the partitions have other replicas."""
    replicas: list[TopicPartition] = []
    if files is None or files.is_local:
        with suppress(StorageFailed):  # reported with the log
            replicas = replicas_among(target.log_dir, target.partitions)
    return Verification(target, files, replicas)


def check_store(log_dir: Path, *, is_live: bool = False, is_clean: bool = False) -> Findings:
    """Report the actions of a start on stored topics, settings and directories.

    Args:
        is_live: a broker is running, so rows and directories may differ.
        is_clean: the last broker was stopped, not killed.
    """
    for name in earlier_files(log_dir):
        yield fault(
            str(log_dir / name),
            "It is in the form of an earlier development version",
            "a broker does not start with it; move it elsewhere to serve the records without",
        )
    try:
        stored = read_stored(log_dir)
        replicas = replicas_in(log_dir, contents_of(log_dir, reserved=()).partitions)
    except StorageFailed:
        return  # reported with the log
    if replicas:
        yield from _uncommitted(log_dir, replicas)
        return
    if stored is None:
        if any(log_dir.glob(f"*/*{names.COMPANION}")):
            yield note(
                str(log_dir),
                "There is no metadata, although horolog has used this directory: a start adopts "
                "all topics, without settings and committed offsets",
            )
        return
    path = str(state_dir_of(log_dir) / f"{names.CLUSTER_METADATA}-0")
    yield from _settings(path, stored)
    yield from _lost_rows(path, stored)
    if not is_live and not stored.is_salvaged:
        yield from _directories(log_dir, path, stored.topics, is_clean=is_clean)


def _uncommitted(log_dir: Path, replicas: Collection[TopicPartition]) -> Findings:
    """Report what replicas have behind their high watermarks; it is normal."""
    files = Files(read_only=True)
    ends = CommittedEnds(files, str(log_dir), is_local=True)
    try:
        for replica in replicas:
            directory = str(log_dir / str(replica))
            with suppress(StorageFailed, CorruptBatch):  # reported with the log
                end = log_end(files, directory)
                committed = ends.of(replica, topic_id_in(files, directory, []), end)
                if committed < end:
                    yield note(
                        directory,
                        f"Offsets {committed} to {end - 1} are not yet committed, as far as its "
                        "broker has written down: they may be taken back, and are read with "
                        "--uncommitted alone",
                    )
    finally:
        files.close()


def _settings(path: str, stored: Stored) -> Findings:
    for row in stored.settings:
        if row.scope == TOPIC_SCOPE:
            try:
                topic_setting(row.name).read(row.value, row.name)
            except ValueError as error:
                yield fault(
                    path,
                    f"The setting {row.name} of {row.resource} cannot be: {error}",
                    "set it to a value; until then no record of the topic expires",
                )


def _lost_rows(path: str, stored: Stored) -> Findings:
    """Report followed topics whose source is not known any more."""
    known = {row.topic for row in stored.followed if not row.led}
    lost = sorted(row.name for row in stored.topics if row.followed and not row.deleting)
    for name in (name for name in lost if name not in known):
        yield fault(
            path,
            f"{name} is followed, and its source is not known any more: it is not led here",
            "start the broker with horolog.follow, or promote the topic",
        )


def _directories(
    log_dir: Path, path: str, rows: list[TopicRow], *, is_clean: bool
) -> Iterator[Finding]:
    """Report rows and directories that do not match, with the action of a start."""
    reserved, state_dir = names.INTERNAL_TOPICS - names.SERVED_INTERNAL, state_dir_of(log_dir)
    found = _found(log_dir, names.INTERNAL_TOPICS)
    if state_dir.is_dir():
        internal = _found(state_dir, reserved)
        found |= {name: internal[name] for name in names.SERVED_INTERNAL & internal.keys()}
    plan = reconcile(rows, found, new_id=uuid.uuid4, reserved=reserved)
    missing: dict[str, list[int]] = {}
    for topic, index in plan.create:
        missing.setdefault(topic, []).append(index)
    for topic, indexes in missing.items():
        shown = listed([f"{topic}-{index}" for index in indexes], 3)
        is_lost = is_clean or bool(found.get(topic))
        report = damage if is_lost else fault
        why = "" if is_lost else ", unless a kill interrupted their creation"
        yield report(
            path,
            f"{topic} is stored with {len(plan.partitions[topic])} partitions, and the directories "
            f"of {shown} are gone{why}: a start creates them empty",
            "restore the directories from a backup before a broker starts",
        )
    for warning in plan.warnings:
        if not any(f"{topic} lacked the directories" in warning for topic in missing):
            yield fault(path, f"A start would log: {warning}", "restore rows or directories before")
    for row in rows:
        if row.deleting:
            yield note(
                path, f"The deletion of {row.name} is incomplete: the next start continues it"
            )
    for (topic, index), why in plan.left_alone.items():
        yield note(str(log_dir / f"{topic}-{index}"), f"It is not served: {why}")
    if plan.adopted:
        yield note(
            path,
            f"{len(plan.adopted)} topics have directories and are not stored, {plan.adopted[0]} "
            "for example: a start adopts them, and their records do not expire",
        )


def _found(log_dir: Path, reserved: Collection[str]) -> dict[str, TopicOnDisk]:
    files, contents = Files(read_only=True), contents_of(log_dir, reserved)
    ids: dict[TopicPartition, uuid.UUID | None] = dict.fromkeys(contents.partitions)
    for partition in ids:
        with suppress(CorruptFile, StorageFailed):  # reported with the partition
            path = f"{log_dir}/{partition}/{names.PARTITION_METADATA}"
            ids[partition] = read_topic_id(files, path)
    return topics_on_disk(ids, contents.blocked)


_MEND = (
    "restore the directory from a backup; else the next start continues without it, and adopts the "
    "topics that are not known any more"
)
_MEND_SNAPSHOT = "the next start reads the snapshot before it, and the log behind that"


def check_metadata(log_dir: Path) -> Steps[None]:
    """Check the records of a metadata log, and all snapshots."""
    files = Files(read_only=True)
    log = KafkaForm(files, str(log_dir))
    if Path(log.directory).is_dir() and not Path(log.directory).is_symlink():
        yield from _check_snapshots(files, log.directory)
    try:
        found = log.replay().damage
    except StorageFailed as error:
        yield damage(log.directory, f"It cannot be read: {error}", _MEND)
        return
    for lost in found:
        # The others are found by who checks batches.
        if not lost.is_of_segment and lost.offset is not None:
            yield _finding(lost)


def _check_snapshots(files: Files, directory: str) -> Steps[None]:
    for snapshot in snapshots_in(files.names_in(directory)):
        path = f"{directory}/{snapshot.name}"
        reader, replay = SnapshotReader(files, path), MetadataReplay(path)
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
        for lost in replay.damage:
            yield _finding(lost)
        yield Checked(bytes=files.size(path), batches=batches)


def _finding(lost: Damage) -> Finding:
    what = lost.what[:1].upper() + lost.what[1:]
    return damage(lost.path, what, _MEND, offset=lost.offset)
