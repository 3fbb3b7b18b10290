"""The clean-shutdown marker of a log directory: `.kafka_cleanshutdown`."""

import json
from typing import Final

from horolog.storage import names
from horolog.storage.files import Files

_OURS: Final = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
_MAX_BYTES: Final = 4096


class CleanShutdownMarker:
    """File that exists while the directory is closed, if every log was closed cleanly.

    Kafka's marker names the epoch in which its broker stopped cleanly (KIP-966). Its controller
    takes from it that the logs are as they were then. So its content is written back only if they
    are; otherwise the marker names no epoch.

    Methods raise StorageFailed where the disk refuses.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{names.CLEAN_SHUTDOWN}"
        self._content = _OURS

    def take(self) -> bool:
        """Read and remove the marker; return whether it was there.

        A crash after this counts as unclean.
        """
        was_clean = self._files.exists(self._path)
        if was_clean and self._files.size(self._path) <= _MAX_BYTES:
            self._content = self._files.read_whole(self._path, _MAX_BYTES) or b""
        self._files.remove(self._path)
        return was_clean

    def write(self, *, has_changed: bool) -> None:
        """Write the marker, after everything else is closed.

        Args:
            has_changed: whether records were appended or truncated since `take`.
        """
        self._files.replace(self._path, _OURS if has_changed else self._content)
