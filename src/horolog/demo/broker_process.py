"""A broker of horolog as a child process, on a free port."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from horolog.errors import Misconfigured

READY = re.compile(r"^ready\b.*?(\S+:\d+)")
STOP_SECONDS = 30


@contextmanager
def running_broker(log_dir: Path, log_file: Path) -> Iterator[str]:
    """Serve a log directory; yield the bootstrap address as host:port.

    Raises:
        Misconfigured: the broker ended before it was ready; its last output is in the message.
    """
    command = [sys.executable, "-m", "horolog", "serve", "--port", "0", "--log-dir", str(log_dir)]
    with (
        log_file.open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            yield _wait_until_ready(process, log_file)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(process: subprocess.Popen[str], log_file: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if ready := READY.match(line):
            return ready.group(1)
    last_words = log_file.read_text(errors="replace").strip()[-2_000:]
    raise Misconfigured(f"the broker ended before it was ready: {last_words}")
