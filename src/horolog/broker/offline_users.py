"""Sets the password of a user in the log directory of a stopped broker.

A new directory is formatted as a start of the broker does: its `meta.properties` come before its
metadata. In a directory that Apache Kafka 4.4 has formatted, and no broker has served, the user
joins those of `kafka-storage format --add-scram`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from horolog.broker.opening import open_storage
from horolog.clock import SystemClock
from horolog.config import Settings
from horolog.errors import Misconfigured
from horolog.metadata.home import signs_in
from horolog.metadata.log import MetadataLog
from horolog.metadata.opening import open_store
from horolog.schemas.metadata import ScramCredential
from horolog.security.scram import Credential, ScramMechanism, new_credential
from horolog.storage import names
from horolog.storage.directory.checkpoints import read_meta_properties
from horolog.storage.directory.contents import contents_of
from horolog.storage.directory.lock import lock_log_dir
from horolog.storage.files import Files

_OPEN_FILES: Final = 1_000

_Users = Mapping[tuple[str, int], Credential]


def set_password(
    log_dir: Path,
    settings: Mapping[str, str],
    name: str,
    mechanism: ScramMechanism,
    password: str,
) -> None:
    """Set the password of a user in a directory that no broker serves.

    Args:
        settings: of the broker; a new directory is formatted by them.

    Raises:
        Misconfigured: a broker serves the directory, another user of the machine owns it, or it has
            no metadata to which a user can be added.
        RequestRefused: an Apache Kafka owns it, and has served it.
        StorageFailed: the disk refused.
    """
    if not name:
        raise Misconfigured("A user needs a name")
    changed = {(name, mechanism.value): new_credential(mechanism, password)}
    path = Path(os.path.realpath(log_dir))
    if path.exists() and path.stat().st_uid != os.geteuid():
        raise Misconfigured(
            f"{path} belongs to another user of this machine, whose broker could not read what is "
            "written here: run this as that user"
        )
    lock = lock_log_dir(path)
    try:
        is_new = _is_new(path)
        if not is_new:
            _change(path, changed)
    finally:
        lock.close()
    if is_new:
        _format(Settings(static={**settings, "log.dirs": str(path)}), changed)


def _is_new(path: Path) -> bool:
    """Return True if no broker has ever had a directory, or a start was killed early."""
    contents = contents_of(path, reserved=())
    meta = read_meta_properties(Files(read_only=True), str(path / names.META_PROPERTIES), [])
    is_ours = meta is None or signs_in(Files(read_only=True), path, None).is_made_here
    return is_ours and not (contents.partitions or contents.blocked)


def _format(settings: Settings, changed: _Users) -> None:
    """Begin a directory as a start of the broker does, and stop cleanly."""
    opened = open_storage(settings, SystemClock(), _OPEN_FILES)
    try:
        opened.store.change_credentials(changed, ())
    except BaseException:
        opened.close()
        raise
    opened.store.close()
    opened.log_dir.close()


def _change(path: Path, changed: _Users) -> None:
    """Change users of a directory that has metadata."""
    files = Files()
    meta = read_meta_properties(files, str(path / names.META_PROPERTIES), [])
    log_path = path / f"{names.CLUSTER_METADATA}-0"
    if meta is None or meta.node_id is None or not log_path.is_dir():
        what = names.META_PROPERTIES if meta is None or meta.node_id is None else log_path.name
        raise Misconfigured(
            f"{path} has no {what}: start a broker on it once, and add users to that"
        )
    log = MetadataLog.open(files, str(path), node_id=meta.node_id)
    if log.add_to_format(
        [
            ScramCredential(name, number, *credential)
            for (name, number), credential in changed.items()
        ]
    ):
        return
    store = open_store(
        files,
        path,
        meta.node_id,
        SystemClock().now_ms,
        obeys_entries=True,
        asks_logins=True,
        has_users=True,
    )
    try:
        store.change_credentials(changed, ())
    finally:
        store.close()
