"""Running `horolog ARGS...` in the test's own process."""

import json
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from secrets_kept import note
from typer.testing import CliRunner

from horolog.cli import app


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


def run_command(*args: object, stdin: str | bytes | None = None, **env: str) -> Ran:
    """Run `horolog ARGS...`; a bug that escapes fails the test with its traceback."""
    done = CliRunner().invoke(app, [str(arg) for arg in args], input=stdin, env=env)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    note(done.stdout + done.stderr, f"the output of {args[0] if args else 'horolog'}")
    return Ran(done.exit_code, done.stdout, done.stderr)


def heed_interrupts() -> None:
    """For a child process: one of a job in the background would inherit that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
