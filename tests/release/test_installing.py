"""The wheel of `dist/`, as users get it: by uv and pipx, on every Python here that it is for.

`make release-test` builds the wheel and has both tools. The packages that horolog needs are
fetched once for each Python, into a directory that is the only index of the installations.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from first_look import first_look
from patience import PATIENCE_S

from horolog import __version__

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".venv-release" / "bin"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
README = (ROOT / "README.md").read_text()

pytestmark = pytest.mark.timeout(1200)


@cache
def interpreter(python: str) -> str | None:
    """Return the path of a Python that runs: on the path, of pyenv, or of uv."""
    pyenv = Path.home().glob(f".pyenv/versions/{python}.*/bin/python")
    uv = Path.home().glob(f".local/share/uv/python/cpython-{python}.*/bin/python")
    for path in (sys.executable, f"python{python}", *map(str, [*pyenv, *uv])):
        command = [path, "-c", "import sys, venv; print(sys._base_executable, sys.version)"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):  # a shim of pyenv, for instance
            continue
        found, _, version = done.stdout.partition(" ")
        if version.startswith(f"{python}."):
            return found
    return None


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    if interpreter(request.param) is None:
        pytest.skip(f"there is no Python {request.param} on this machine")
    return str(request.param)


@pytest.fixture(scope="session")
def wheel() -> Path:
    wheels = list((ROOT / "dist").glob("horolog-*.whl"))
    if len(wheels) != 1 or not (TOOLS / "uv").exists():
        pytest.fail("these tests need the wheel and the tools of `make release-test`")
    return wheels[0]


class Place:
    """An empty directory of a user with `dist/` in it, whose tools keep to it."""

    def __init__(self, path: Path, index: Path, python: str) -> None:
        self.path = path
        self.bin = path / "bin"
        self.env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
            "PATH": os.pathsep.join([str(self.bin), str(TOOLS), os.environ["PATH"]]),
            "UV_NO_INDEX": "1",
            "UV_FIND_LINKS": str(index),
            "UV_PYTHON": str(interpreter(python)),
            "UV_CACHE_DIR": str(index.with_name("uv-cache")),
            "UV_TOOL_DIR": str(path / "tools"),
            "UV_TOOL_BIN_DIR": str(self.bin),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(index),
            "PIPX_DEFAULT_PYTHON": str(interpreter(python)),
            "PIPX_HOME": str(path / "pipx"),
            "PIPX_BIN_DIR": str(self.bin),
            "PIPX_MAN_DIR": str(path / "man"),
            "XDG_CACHE_HOME": str(path / "cache"),
        }
        shutil.copytree(ROOT / "dist", path / "dist")

    def run(self, line: str, stdin: str = "") -> str:
        """Run a line of a shell; return what it printed on standard output."""
        done = subprocess.run(
            line,
            shell=True,
            cwd=self.path,
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S * 3,
        )
        assert done.returncode == 0, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def serving(self, line: str) -> Iterator[str]:
        """Yield the address of a broker that a line of a shell starts; it must stop cleanly."""
        said = self.path / "said"
        with (
            said.open("w") as errors,
            subprocess.Popen(
                f"exec {line} --port 0 --log-dir log",
                shell=True,
                cwd=self.path,
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            ) as process,
        ):
            try:
                assert process.stdout is not None
                ready = process.stdout.readline()
                assert ready.startswith("ready 127.0.0.1:"), said.read_text()
                yield ready.split()[1]
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE_S) == 0, said.read_text()
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        assert "Traceback" not in said.read_text()

    def produces_and_consumes(self, horolog: str, address: str) -> None:
        """Check that records come back in the order of their times, and by a range of it."""
        at = f"-b {address}"
        for time, text in ("-30m", "half an hour ago"), ("-3h", "three hours ago"):
            self.run(f"{horolog} produce greetings --timestamp {time} {at}", f"{text}\n")
        lines = self.run(f"{horolog} consume greetings --from-time -1h {at}").splitlines()
        assert [line.split("\t")[-1] for line in lines] == ["half an hour ago"]
        lines = self.run(f"{horolog} consume log/greetings-0").splitlines()
        assert [line.split("\t")[-1] for line in lines] == ["half an hour ago", "three hours ago"]


@pytest.fixture(scope="session")
def indexes(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Indexes:
    return Indexes(wheel, tmp_path_factory)


class Indexes:
    """A directory of wheels for each Python, fetched when it is first asked for."""

    def __init__(self, wheel: Path, places: pytest.TempPathFactory) -> None:
        self._wheel = wheel
        self._places = places
        self._made: dict[tuple[str, str], Path] = {}

    def of(self, python: str, extras: str = "") -> Path:
        if (python, extras) not in self._made:
            index = self._places.mktemp("index")
            fetch = [str(TOOLS / "python"), "-m", "pip", "download", "--quiet", "--dest", index]
            chosen = ["--only-binary=:all:", "--python-version", python, f"{self._wheel}{extras}"]
            subprocess.run([*fetch, *chosen], check=True)
            self._made[python, extras] = index
        return self._made[python, extras]


INSTALL = {"uv": "uv tool install --no-progress", "pipx": "pipx install"}


@pytest.mark.parametrize("tool", INSTALL)
def test_command_that_is_installed_by_name_does_each_line_of_the_first_look(
    tool: str, python: str, indexes: Indexes, tmp_path: Path
) -> None:
    user = Place(tmp_path, indexes.of(python), python)
    user.run(f"{INSTALL[tool]} horolog")
    shown = user.run("horolog --version")
    assert shown.startswith(f"horolog {__version__}\npython  {python}.")
    assert re.search(r"^numba +not installed: .*'horolog\[fast\]'$", shown, re.MULTILINE)
    with socket.create_server(("", 0)) as one, socket.create_server(("", 0)) as other:
        ports = {"9092": str(one.getsockname()[1]), "9192": str(other.getsockname()[1])}
    script = re.sub("|".join(ports), lambda found: ports[found[0]], first_look())
    user.env["HOROLOG_BOOTSTRAP"] = f"127.0.0.1:{ports['9092']}"
    (user.path / "first-look").write_text(script)
    assert "nothing is wrong" in user.run("bash -e -o pipefail first-look")


def test_extras_are_installed_with_the_command(indexes: Indexes, tmp_path: Path) -> None:
    python = next(python for python in PYTHONS if interpreter(python))
    user = Place(tmp_path, indexes.of(python, "[fast,uvloop]"), python)
    user.run(f"{INSTALL['uv']} 'horolog[fast,uvloop]'")
    rows = dict(line.split(maxsplit=1) for line in user.run("horolog --version").splitlines())
    assert re.fullmatch(r"\d+\.\d+.*", rows["numba"])
    assert re.fullmatch(r"\d+\.\d+.*", rows["uvloop"])
    with user.serving("horolog serve") as address:
        user.produces_and_consumes("horolog", address)
        assert user.run(f"horolog health -b {address}").count("\n") == 1


@pytest.mark.parametrize("tool", ["uvx", "pipx run"])
def test_one_line_of_the_readme_tries_it(
    tool: str, python: str, indexes: Indexes, tmp_path: Path
) -> None:
    (line,) = re.findall(rf"^\$ ({tool} .*?) *(?:#.*)?$", README, re.MULTILINE)
    assert line.endswith(" horolog serve")
    user = Place(tmp_path, indexes.of(python), python)
    with user.serving(line) as address:
        user.produces_and_consumes(line.removesuffix(" serve"), address)
