from __future__ import annotations

import threading
from pathlib import Path

from patience import PATIENCE_S
from storelogs import NOW, append, new_log

from horolog.storage import Files


class _SlowDisk(Files):
    """Syncs nothing before it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = threading.Event()
        self.released = threading.Event()
        self.is_slow = False

    def os_fsync(self, fd: int) -> None:
        if self.is_slow:
            self.has_begun.set()
            assert self.released.wait(PATIENCE_S)
        super().os_fsync(fd)


def test_a_flush_under_way_leaves_no_recovery_point_beyond_a_truncated_log(tmp_path: Path) -> None:
    """What is appended after the cut would count as flushed, and not be checked after a crash."""
    disk = _SlowDisk()
    with new_log(tmp_path, files=disk) as log:
        for number in range(6):
            append(log, NOW + number)
        disk.is_slow = True
        flush = threading.Thread(target=log.flush)
        flush.start()
        assert disk.has_begun.wait(PATIENCE_S)
        cut = threading.Thread(target=log.truncate_to, args=(2, NOW))
        cut.start()
        cut.join(0.2)  # it waits for the flush, or has been done
        disk.released.set()
        flush.join(PATIENCE_S)
        cut.join(PATIENCE_S)
        assert log.log_end_offset == 2
        assert log.recovery_point <= 2
        append(log, NOW + 9)
        log.flush()
        assert log.recovery_point == 3
