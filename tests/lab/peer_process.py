"""A program of a peer that runs beside a test, to be killed and started again."""

import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from patience import PATIENCE_S, eventually
from tools.peers.kafka import NEWEST, PEERS, SHORT_LIVED, jars


def class_path(*behind: str, classes: Path | None = None, newest: str = NEWEST) -> str:
    """A Kafka, further peers behind it, and what a test has compiled before them."""
    for peer in (newest, *behind):
        jars(peer)
    found = [str(PEERS / peer / "*") for peer in (newest, *behind)]
    return os.pathsep.join([*([] if classes is None else [str(classes)]), *found])


def compiled(source: Path, classes: Path, *behind: str, newest: str = NEWEST) -> Path:
    """The directory of classes, with those of one source file in it."""
    path = class_path(*behind, newest=newest)
    subprocess.run(["javac", "-cp", path, "-d", str(classes), str(source)], check=True)
    return classes


def java_command(
    main_class: str,
    *arguments: str,
    behind: Sequence[str] = (),
    classes: Path | None = None,
    newest: str = NEWEST,
    heap: str = "192m",
    debugged: str = "",
) -> list[str]:
    """The command that runs a class of a peer, or one that a test has compiled.

    The class `debugged` of the peer logs all that it does.
    """
    return [
        *("java", f"-Xmx{heap}", *SHORT_LIVED),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        *([f"-Dorg.slf4j.simpleLogger.log.{debugged}=debug"] if debugged else []),
        *("-cp", class_path(*behind, classes=classes, newest=newest), main_class, *arguments),
    ]


class PeerProcess:
    """One program; what it says is kept over its lives. It ends when its input does."""

    def __init__(self, command: Sequence[str], said: Path) -> None:
        self._command = command
        self._said = said
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it (again)."""
        assert self._process is None
        with self._said.open("ab") as said:
            self._begun = said.tell()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT
            )

    @property
    def said(self) -> str:
        """Of all its lives."""
        return self._said.read_text(errors="replace")

    def find(self, pattern: str) -> list[str]:
        """What its latest life has said so far."""
        of_this_life = self._said.read_bytes()[self._begun :].decode(errors="replace")
        return re.findall(pattern, of_this_life, re.MULTILINE)

    def await_said(self, pattern: str) -> list[str]:
        """Return once its latest life has said it."""
        eventually(lambda: bool(self.find(pattern)) or not self.lives)
        found = self.find(pattern)
        assert found, f"not said: {pattern}; {self.said[-6000:]}"
        return found

    def tell(self, line: str) -> None:
        """Give it a line of input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def ask(self, line: str, pattern: str) -> str:
        """Give it a line of input, and return what it says next that fits the pattern."""
        before = len(self.find(pattern))
        self.tell(line)
        eventually(lambda: len(self.find(pattern)) > before or not self.lives)
        found = self.find(pattern)
        assert len(found) > before, f"not said: {pattern}; {self.said[-6000:]}"
        return found[before]

    @property
    def lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs, and after it was killed."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """End it as a crash does; nothing if it has ended."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process = None

    def close(self) -> None:
        """End its input, and wait until it has ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            code = self._process.wait(PATIENCE_S)
        finally:
            self.kill()
        assert code == 0, self.said[-6000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
