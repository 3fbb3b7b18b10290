"""Locks and refusals of work that changes a log directory without a broker."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar

from horolog.errors import CorruptBatch
from horolog.storage.directory.lock import lock_against_others, lock_offline, share_offline
from horolog.storage.files import Files
from horolog.storage.verify import VerifyTarget


@dataclass(frozen=True, slots=True)
class OfflineWork:
    """Work at one target. It may run only within `locked` or `shared`."""

    REASON: ClassVar[str]
    """Reason why no broker may run meanwhile."""

    target: VerifyTarget
    dry_run: bool = field(default=False, kw_only=True)
    """Write nothing; report what would be done or refused."""
    files: Files = field(default_factory=Files, kw_only=True)

    def locked(self) -> AbstractContextManager[None]:
        """Lock the log directory against brokers; a target outside of one needs no lock.

        Raises:
            Misconfigured: a broker is at work there.
        """
        return lock_offline(self.target.log_dir, self.REASON)

    def shared(self) -> AbstractContextManager[None]:
        """Lock the log directory for one of several processes (`share_offline`)."""
        return share_offline(self.target.log_dir, self.REASON)

    def alone(self, path: str) -> AbstractContextManager[None]:
        """Lock a file or directory against other processes, unless nothing is written."""
        return nullcontext() if self.dry_run else lock_against_others(path)


def refusal(error: Exception) -> str:
    """Return the reason why a log was left unchanged, for its outcome."""
    if isinstance(error, CorruptBatch):
        return f"its log is damaged: {error.reason}. `horolog log verify` says where"
    return str(error)
