"""A wall clock that a test steps while a process runs: `stepped_clock.py FILE MODULE ARGUMENTS...`

The file holds a number of milliseconds, of eight bytes, that horolog in that process adds to the
machine's wall clock; its monotonic clock stays what it is. That is what an operator does who sets
a machine's clock.
"""

import mmap
import runpy
import struct
import sys
from pathlib import Path

from horolog.clock import SystemClock

_FORM = struct.Struct("<q")


class SteppedClock:
    """The file that a process' wall clock is stepped by."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.by_ms = 0
        path.write_bytes(_FORM.pack(0))
        self.launcher = (__file__, str(path))
        """Arguments of Python before the module that is to have this clock."""

    def step(self, by_ms: int) -> None:
        """Be so many milliseconds before the machine's clock, from now on."""
        self.by_ms = by_ms
        with self._path.open("r+b") as file:
            file.write(_FORM.pack(by_ms))


def main() -> None:
    """Run a module as `python -m` does, by the clock of a file."""
    path, module, *arguments = sys.argv[1:]
    with Path(path).open("rb") as file:
        step = mmap.mmap(file.fileno(), _FORM.size, prot=mmap.PROT_READ)
    machine_ms = SystemClock.now_ms

    def now_ms(clock: SystemClock) -> int:
        return machine_ms(clock) + int(_FORM.unpack(step[:])[0])

    SystemClock.now_ms = now_ms  # type: ignore[assignment, method-assign]
    sys.path[0] = ""  # as `python -m`; not the modules beside this one
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
