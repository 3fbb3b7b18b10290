"""docs/pipeline.md: its commands, in order, against the brokers that its first ones start.

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
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_runner import run_command
from in_process_spark import InProcessSpark, NeedsJvm
from patience import PATIENCE_S

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"
BLOCK = re.compile(r"^```(sh|python|text)(?: exit=(\d+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PORTS = ("9092", "9192", "9292")
_SHIM = """\
#!{python}
import json, os, socket, sys
if sys.argv[1:2] == ["serve"]:
    os.execv({python!r}, [{python!r}, "-m", "horolog", *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as pipe:
    pipe.connect({path!r})
    pipe.sendall(json.dumps([sys.argv[1:], sys.stdin.read()]).encode() + b"\\n")
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
        for match in BLOCK.finditer(page)
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
    """Runs the page's blocks in a directory; what they leave running ends with it."""

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
        self._environment = {**os.environ, "PATH": path}
        self._bootstrap = f"127.0.0.1:{self._ports['9092']}"
        self._groups: list[int] = []

    def close(self) -> None:
        self._listener.close()
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def run(self, block: Block) -> str:
        """What the block printed.

        Raises:
            AssertionError: it ended with another exit code.
        """
        text = block.text
        for port, free in self._ports.items():
            text = re.sub(rf"\b{port}\b", str(free), text)
        output = self._python(text) if block.language == "python" else self._bash(text, block)
        for port, free in self._ports.items():
            output = output.replace(str(free), port)
        return output

    def _python(self, text: str) -> str:
        with redirect_stdout(StringIO()) as printed:
            exec(compile(text, str(PAGE), "exec"), self.names)
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
            f"{PAGE.name}, line {block.line}: exit code {process.returncode}\n{text}\n{output}"
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
            arguments, stdin = json.loads(pipe.readline())
            ran = run_command(*arguments, stdin=stdin, HOROLOG_BOOTSTRAP=self._bootstrap)
            with suppress(BrokenPipeError):  # the command was stopped
                json.dump(ran, pipe)
                pipe.flush()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.chdir(tmp_path)
    running = Shell(tmp_path)
    yield running
    running.close()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def run_page(shell: Shell) -> int:
    """Number of blocks that ran; those that need a JVM are left out where the session has none."""
    ran, output = 0, None
    for block in blocks(PAGE.read_text()):
        if block.language != "text":
            try:
                output = shell.run(block)
                ran += 1
            except NeedsJvm:
                output = None
        elif output is not None:
            missing = missing_lines(block.text, output)
            assert not missing, f"line {block.line}: {missing[0]!r} was not printed:\n{output}"
    return ran


@pytest.mark.slow
@pytest.mark.spark
def test_the_commands_of_the_page_do_what_it_says(spark: object, shell: Shell) -> None:
    found = blocks(PAGE.read_text())
    assert run_page(shell) == sum(block.language != "text" for block in found)


def test_commands_of_the_page_that_need_no_jvm_do_what_it_says(
    in_process_spark: InProcessSpark, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horolog.spark.session", lambda: in_process_spark)
    assert run_page(shell) >= 19  # questions and copies that need no data frame


def test_every_block_of_the_page_is_run() -> None:
    page = PAGE.read_text()
    assert 2 * len(blocks(page)) == len(re.findall(r"^\s*```", page, re.MULTILINE))


def test_a_block_with_another_exit_code_or_output_fails(shell: Shell) -> None:
    page = "```sh exit=3\necho one; echo two; exit 3\n```\n```text\no...\ntwo\n```\n"
    ran, said = blocks(page)
    assert missing_lines(said.text, shell.run(ran)) == []
    assert missing_lines("two\none\n", shell.run(ran)) == ["one"]
    with pytest.raises(AssertionError, match="exit code 3"):
        shell.run(ran._replace(exit_code=0))
