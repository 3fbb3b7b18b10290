"""The code of kernels' compiler leaves memory while they are loaded, and can still compile."""

import subprocess
import sys

import pytest

pytest.importorskip("numba")

_CHECK = """
import re
from pathlib import Path

import numba

from horolog.record.kernels.compiler_pages import let_go_of_compiler
from horolog.record.scan import load_kernels


def resident_kb():
    maps = re.split(r"^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(), flags=re.M)
    code = [one for one in maps if "libllvmlite" in one and " r-xp " in one]
    return sum(int(size) for one in code for size in re.findall(r"^Rss: +(\\d+)", one, re.M))


load_kernels()
loaded = resident_kb()
assert numba.njit("int64(int64)")(lambda number: number + 1)(41) == 42
before = resident_kb()
spanned = let_go_of_compiler()
after = resident_kb()
assert spanned >= 1024 * before
assert max(loaded, after) < before / 10 < before - 10_000, (loaded, before, after)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pages are released on Linux only")
def test_the_compilers_code_does_not_stay_resident_and_still_compiles() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHECK], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


_PEAK = """
import re
from pathlib import Path

from horolog.record.kernels import compiler_pages
from horolog.record.scan import load_kernels


def status_mb(name):
    return int(re.search(rf"{{name}}:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024


if {keeps}:
    compiler_pages._drop = lambda pages: 0
load_kernels()
print(status_mb("VmHWM"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pages are released on Linux only")
def test_the_compilers_code_does_not_make_the_peak_of_a_process() -> None:
    with_all, peak = (
        float(
            subprocess.run(
                [sys.executable, "-c", _PEAK.format(keeps=keeps)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for keeps in (True, False)
    )
    assert peak < with_all - 15
