"""Loading kernels in a broker, and the memory of their compiler."""

import subprocess
import sys

import pytest

pytest.importorskip("numba")

_CHECK = """
import re
from pathlib import Path

import numba

from horolog.broker.kernels import let_go_of_compiler
from horolog.record.scan import load_kernels


def resident_kb():
    maps = re.split(r"^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(), flags=re.M)
    code = [one for one in maps if "libllvmlite" in one and " r-xp " in one]
    return sum(int(size) for one in code for size in re.findall(r"^Rss: +(\\d+)", one, re.M))


load_kernels()
before = resident_kb()
spanned = let_go_of_compiler()
after = resident_kb()
assert spanned >= 1024 * before
assert after < before / 10 < before - 10_000, (before, after)
assert numba.njit("int64(int64)")(lambda number: number + 1)(41) == 42
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pages are released on Linux only")
def test_the_compilers_code_does_not_stay_resident_and_still_compiles() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHECK], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


_PEAK = """
import re
import threading
from pathlib import Path

from horolog.broker.kernels import load_in_background
from horolog.record.scan import load_kernels


def status_mb(name):
    return int(re.search(rf"{{name}}:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024


if {in_background}:
    load_in_background()
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
else:
    load_kernels()
print(status_mb("VmHWM"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pages are released on Linux only")
def test_the_compilers_code_does_not_make_the_peak_of_a_broker() -> None:
    with_all, peak = (
        float(
            subprocess.run(
                [sys.executable, "-c", _PEAK.format(in_background=in_background)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for in_background in (False, True)
    )
    assert peak < with_all - 15


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
