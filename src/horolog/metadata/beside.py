"""Reads state that was kept beside another product's logs, so that it can be taken over once.

Two places can have it: the files of an earlier development version, in the log directory, and the
state directory of a log directory that horolog has taken over since.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from horolog.buffers import Buffer
from horolog.groups import replay as groups
from horolog.groups.rows import StoredGroups
from horolog.metadata.home import state_dir_beside
from horolog.metadata.internal_topics import replay_topic
from horolog.storage import names
from horolog.storage.directory.checkpoints import read_meta_properties
from horolog.storage.directory.identity import STATE
from horolog.storage.files import Files
from horolog.storage.record_file import RecordFile
from horolog.transactions import replay as transactions
from horolog.transactions.values import CoordinatedTransaction

_LOG = logging.getLogger(__name__)


class StateBeside:
    """State that an earlier start kept elsewhere.

    Methods raise StorageFailed where the disk refuses.
    """

    def __init__(self, files: Files, log_dir: Path, state_dir: Path) -> None:
        self._files = files
        self._log_dir = log_dir
        self._state_dir = state_dir
        left = [names.METADATA_FILE, names.GROUPS_FILE, names.TRANSACTIONS_FILE]
        if state_dir != log_dir:
            left.append(names.RESERVE)  # the state directory has its own
        self._paths = [path for name in left if files.exists(path := str(log_dir / name))]
        former = state_dir_beside(log_dir)
        self._former = former if state_dir == log_dir and self._is_of(former) else None

    def __bool__(self) -> bool:
        return bool(self._paths or self._former)

    def __str__(self) -> str:
        return ", ".join([*self._paths, *([str(self._former)] if self._former else ())])

    def _is_of(self, state_dir: Path) -> bool:
        """True if a state directory is this log directory's, not one of the same name."""
        mine, its = (
            read_meta_properties(self._files, str(path / names.META_PROPERTIES), [])
            for path in (self._log_dir, state_dir)
        )
        if mine is None or its is None or its.others != STATE:
            return False
        return mine.cluster_id == its.cluster_id

    def groups(self, topic_id: groups.TopicId) -> StoredGroups:
        """Return groups, committed offsets, and the offsets of open transactions."""
        replay = groups.GroupReplay()
        self._replay(replay.take, names.GROUPS_FILE, names.CONSUMER_OFFSETS)
        return replay.stored(topic_id)

    def transactions(self) -> dict[str, CoordinatedTransaction]:
        """Return the state of each transactional id; empty if the log directory was taken over."""
        replay = transactions.TransactionReplay()
        if self._state_dir != self._log_dir:
            self._replay(replay.take, names.TRANSACTIONS_FILE, names.TRANSACTION_STATE)
        return replay.states

    def _replay(self, take: Callable[[Buffer], None], file: str, topic: str) -> None:
        for batch in RecordFile(self._files, str(self._log_dir / file)).read():
            take(batch)
        if self._former is not None:
            for replayed in replay_topic(self._files, self._former, topic, take):
                if replayed.error is not None:
                    raise replayed.error
                for damage in replayed.damage:
                    _LOG.error("%s: some of its state may be lost: %s", replayed.directory, damage)

    def remove(self) -> None:
        """Remove the files and the directory, once their state has been taken over."""
        for path in self._paths:
            self._files.remove(path)
        if self._former is not None:
            self._files.remove_tree(str(self._former))
