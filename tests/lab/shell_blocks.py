"""Blocks of pages and scripts, run by bash or Python as they are written.

    sh       commands of bash, in one directory; `sh exit=1` where the last one ends so
    python   in one namespace
    text     lines that the block before printed, in this order; `...` is anything

Brokers run in processes of their own, every other `horolog` in that of the tests and its session.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from command_runner import run_command
from patience import PATIENCE_S

PORTS = ("9092", "9192", "9292")
"""Ports that pages name; each stands for a free one."""

_BLOCK = re.compile(r"^```(sh|python|text)(?: exit=(\d+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHIM = """\
#!{python}
import json, os, socket, sys
if sys.argv[1:2] == ["serve"]:
    os.execv({python!r}, [{python!r}, "-m", "horolog", *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as pipe:
    pipe.connect({path!r})
    chosen = {{name: value for name, value in os.environ.items() if name.startswith("HOROLOG_")}}
    pipe.sendall(json.dumps([sys.argv[1:], sys.stdin.read(), chosen]).encode() + b"\\n")
    code, out, err = json.load(pipe.makefile())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


class Block(NamedTuple):
    language: str
    exit_code: int
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    return [
        Block(match[1], int(match[2] or 0), match[3], page.count("\n", 0, match.start()) + 1)
        for match in _BLOCK.finditer(page)
    ]


def missing_lines(expected: str, output: str) -> list[str]:
    """The first line that was not printed, in the order of the lines; empty if all were."""
    printed = iter(" ".join(line.split()) for line in output.splitlines())
    for line in expected.splitlines():
        pattern = re.escape(" ".join(line.split())).replace(r"\.\.\.", ".*")
        if not any(re.fullmatch(pattern, each) for each in printed):
            return [line]
    return []


class Shell:
    """Runs blocks in a directory; what they leave running ends with it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.names: dict[str, Any] = {}
        self._ports = dict(zip(PORTS, _free_ports(len(PORTS)), strict=True))
        tools = directory / ".tools"
        tools.mkdir()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(tools / "s"))
        self._listener.listen()
        shim = tools / "horolog"
        shim.write_text(_SHIM.format(python=sys.executable, path=str(tools / "s")))
        shim.chmod(0o755)
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        bootstrap = f"127.0.0.1:{self._ports['9092']}"
        self._environment = {**os.environ, "PATH": path, "HOROLOG_BOOTSTRAP": bootstrap}
        self._groups: list[int] = []

    def close(self) -> None:
        self._listener.close()
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def run(self, block: Block, **environment: str) -> str:
        """What the block printed; the environment stays for later ones.

        Raises:
            AssertionError: it ended with another exit code.
        """
        self._environment |= environment
        text = block.text
        for port, free in self._ports.items():
            text = re.sub(rf"\b{port}\b", str(free), text)
        output = self._python(text) if block.language == "python" else self._bash(text, block)
        for port, free in self._ports.items():
            output = output.replace(str(free), port)
        return output

    def _python(self, text: str) -> str:
        with redirect_stdout(StringIO()) as printed:
            exec(compile(text, "<page>", "exec"), self.names)
        return printed.getvalue()

    def _bash(self, text: str, block: Block) -> str:
        said = self.directory / f".said-{block.line}"
        with said.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-e", "-o", "pipefail", "-c", text],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._groups.append(process.pid)
        ended = threading.Event()
        threading.Thread(target=self._wait, args=(process, ended), daemon=True).start()
        self._listener.settimeout(0.05)
        while not ended.is_set():
            with suppress(TimeoutError):
                asking, _ = self._listener.accept()
                self._answer(asking)
        output = said.read_text()
        assert process.returncode == block.exit_code, (
            f"line {block.line}: exit code {process.returncode}\n{text}\n{output}"
        )
        return output

    @staticmethod
    def _wait(process: subprocess.Popen[bytes], ended: threading.Event) -> None:
        try:
            process.wait(2 * PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        ended.set()

    def _answer(self, asking: socket.socket) -> None:
        asking.settimeout(PATIENCE_S)
        with asking, asking.makefile("rw") as pipe:
            arguments, stdin, environment = json.loads(pipe.readline())
            ran = run_command(*arguments, stdin=stdin, **environment)
            with suppress(BrokenPipeError):  # the command was stopped
                json.dump(ran, pipe)
                pipe.flush()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
