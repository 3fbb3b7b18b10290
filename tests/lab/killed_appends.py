"""A process that appends until it is killed, and what it was told before that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time


def run_until_killed(script: str, count: int, *, more_s: float = 0) -> list[tuple[int, int, int]]:
    """Run a program that writes a line of three numbers for each answer; its whole lines.

    It is killed once it has written `count` of them, after `more_s` more.
    """
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        got = b""
        while got.count(b"\n") < count:
            part = os.read(process.stdout.fileno(), 1 << 16)
            assert part, "the appender died by itself"
            got += part
        time.sleep(more_s)
        process.send_signal(signal.SIGKILL)
        got += process.stdout.read()
    lines = got[: got.rindex(b"\n")].decode().splitlines()
    return [(int(a), int(b), int(c)) for a, b, c in map(str.split, lines)]
