"""Loading kernels in a broker."""

import subprocess
import sys

import pytest

pytest.importorskip("numba")

_FREEZE = """
import gc, threading

from horolog.broker.kernels import load_in_background

before = gc.get_freeze_count()
load_in_background(owns_process={owns})
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join()
assert gc.isenabled()
print(gc.get_freeze_count() - before, len(gc.get_objects()))
"""


@pytest.mark.parametrize("owns", [True, False])
def test_only_a_process_of_its_own_collects_no_garbage_among_the_kernels(owns: bool) -> None:
    """A full collection that looks at them stops every thread for a tenth of a second."""
    done = subprocess.run(
        [sys.executable, "-c", _FREEZE.format(owns=owns)],
        capture_output=True,
        text=True,
        check=True,
    )
    frozen, looked_at = map(int, done.stdout.split())
    assert (frozen > 10 * looked_at) if owns else (frozen == 0)


_LACKS_ROOM = """
import logging, threading

from horolog.broker.kernels import load_in_background
from horolog.record.kernels.loading import note_not_kept

logging.basicConfig()
note_not_kept(["/read-only"])
load_in_background()
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join()
"""


def test_a_broker_that_compiles_at_each_start_logs_what_to_do() -> None:
    command = [sys.executable, "-c", _LACKS_ROOM]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "WARNING" in said
    assert "no directory takes them: /read-only. Set XDG_CACHE_HOME" in said
