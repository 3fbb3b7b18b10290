"""The clean-shutdown marker of a log directory: `.kafka_cleanshutdown`."""

import json
from typing import Final

from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.names import MAX_OFFSET

NO_BROKER_EPOCH: Final = -1
_MAX_BYTES: Final = 4096


class CleanShutdownMarker:
    """File that exists while the directory is closed, if every log was closed cleanly.

    It names the epoch of the registration in which a broker of a cluster stopped cleanly (KIP-966).
    The controllers take from it that the logs are as they were then. So a node alone writes the
    content of another broker back only if they are; otherwise the marker names no epoch.

    Methods raise StorageFailed where the disk refuses.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{names.CLEAN_SHUTDOWN}"
        self._content = _content(NO_BROKER_EPOCH)

    @property
    def broker_epoch(self) -> int:
        """Epoch that the marker named when it was taken; -1 if it named none."""
        try:
            epoch = json.loads(self._content)["brokerEpoch"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return NO_BROKER_EPOCH
        return epoch if type(epoch) is int and 0 <= epoch <= MAX_OFFSET else NO_BROKER_EPOCH

    def take(self) -> bool:
        """Read and remove the marker; return whether it was there.

        A crash after this counts as unclean.
        """
        was_clean = self._files.exists(self._path)
        if was_clean and self._files.size(self._path) <= _MAX_BYTES:
            self._content = self._files.read_whole(self._path, _MAX_BYTES) or b""
        self._files.remove(self._path)
        return was_clean

    def write(self, broker_epoch: int | None = None) -> None:
        """Write the marker, after everything else is closed.

        Args:
            broker_epoch: the epoch that it names, or -1; None for what it named when it was taken.
        """
        content = self._content if broker_epoch is None else _content(broker_epoch)
        self._files.replace(self._path, content)


def _content(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode()
