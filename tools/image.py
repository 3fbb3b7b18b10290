"""Build the image of `Containerfile` and try it, as root, without an engine: `make image`.

    base       a Debian root from this machine's own mirror, in the place of debian:trixie-slim
    build      the image, with this machine's certificates and settings of pip mounted
    try        a broker in it: records in and out, the health check, a stop, and a second start on
               a read-only root with the same volume

Everything is under build/image, the storage of images too. Containers share the network of the
machine. `--keep` leaves the trial's container for a look.
"""

import argparse
import configparser
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "image"
SUITE = "trixie"
BASE = "localhost/horolog-base"
IMAGE = "localhost/horolog"
TRIAL = "horolog-trial"
VOLUME = "/var/lib/horolog"
CERTIFICATES = "/run/machine-certificates.pem"
NEEDED = ("buildah", "debootstrap")
PATIENCE_S = 300

ALL_KERNELS = """
from numba.core.event import install_recorder
from horolog.record.kernels.loading import load_all
with install_recorder("numba:compile") as compiled:
    load_all()
print(len(compiled.buffer))
"""


class Refused(Exception):
    """Raised with a sentence that says what is wrong or missing."""


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def check_machine() -> None:
    if os.geteuid() != 0:
        raise Refused(
            "make image needs root, for the files and users of the image: sudo make image"
        )
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise Refused(
            f"make image needs {' and '.join(missing)}: apt-get install {' '.join(NEEDED)}"
        )


def run(*command: str, **options: Any) -> str:
    """Run a command to its end; return its output."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if ran.returncode != 0:
        last = "\n".join((ran.stdout + ran.stderr).splitlines()[-30:])
        raise Refused(f"{' '.join(command[:4])} ... ended with {ran.returncode}:\n{last}")
    return ran.stdout.strip()


def buildah_command(*arguments: str) -> list[str]:
    places = ["--root", str(WORK / "storage"), "--runroot", str(WORK / "run")]
    return ["buildah", *places, "--storage-driver", "vfs", *arguments]


def buildah(*arguments: str, **options: Any) -> str:
    return run(*buildah_command(*arguments), **options)


def steps(*arguments: str) -> None:
    """Run buildah to its end, and show its steps while it runs."""
    last: deque[str] = deque(maxlen=30)
    with subprocess.Popen(
        buildah_command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line)
            if line.startswith(("STEP", "[")) and "STEP" in line:
                say(line.strip()[:100])
    if process.returncode != 0:
        raise Refused(f"buildah ended with {process.returncode}:\n{''.join(last)}")


# --- base and build


def make_base() -> None:
    """Make the image that `Containerfile` starts from; the root is kept for the next time."""
    root = WORK / "base"
    if not root.exists():
        say(f"debootstrap lays a root of {SUITE}: one to five minutes")
        partial = WORK / "base.partial"
        shutil.rmtree(partial, ignore_errors=True)
        run("debootstrap", "--variant=minbase", SUITE, str(partial), mirror())
        for package in (partial / "var/cache/apt/archives").glob("*.deb"):
            package.unlink()
        partial.rename(root)
    container = buildah("from", "scratch")
    run("cp", "--archive", f"{root}/.", buildah("mount", container))
    buildah("umount", container)
    buildah("commit", "--rm", container, BASE)


def mirror() -> str:
    """Return the mirror of Debian that this machine installs from."""
    targets = run(
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
    ).split()
    if not targets:
        raise Refused("this machine has no mirror of Debian: see /etc/apt, then apt-get update")
    return targets[0]


def build() -> None:
    say("buildah builds the image, and numba compiles the kernels: one to five minutes")
    steps(
        "build",
        "--isolation=chroot",
        "--format=docker",
        "--network=host",
        f"--build-arg=BASE={BASE}",
        *machine_settings(),
        f"--tag={IMAGE}",
        str(ROOT),
    )


def machine_settings() -> list[str]:
    """Return mounts for the build: what this machine tells pip and apt, certificates among it."""
    settings: dict[str, str] = {}
    pip = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(pip, capture_output=True, text=True, check=False)  # there may be no pip
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        settings[name.removeprefix("global.").removeprefix(":env:.")] = value.strip("'")
    mounts = {place: place for place in settings.get("find-links", "").split()}
    certificates = settings.get("cert") or ssl.get_default_verify_paths().cafile
    if certificates is not None:
        mounts[certificates], settings["cert"] = CERTIFICATES, CERTIFICATES
        apt = WORK / "apt.conf"
        apt.write_text(f'Acquire::https::CAInfo "{CERTIFICATES}";\n')
        mounts[str(apt)] = "/etc/apt/apt.conf.d/90machine"
    file = WORK / "pip.conf"
    with file.open("w") as out:
        parser = configparser.RawConfigParser()
        parser["global"] = {name: value for name, value in settings.items() if "." not in name}
        parser.write(out)
    mounts[str(file)] = "/etc/pip.conf"
    return [f"--volume={a}:{b}:ro" for a, b in mounts.items() if os.path.exists(a)]


# --- the trial


class Trial:
    """Containers of the image, with one volume."""

    def __init__(self) -> None:
        config = json.loads(buildah("inspect", "--type", "image", IMAGE))["Docker"]["config"]
        self.user = int(config["User"].partition(":")[0])
        self.command = [*config["Entrypoint"], *config["Cmd"]]
        self.health = [*config["Healthcheck"]["Test"][1:]]
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.volume = WORK / "volume"
        shutil.rmtree(self.volume, ignore_errors=True)
        self.volume.mkdir()
        os.chown(self.volume, self.user, self.user)
        buildah("from", f"--name={TRIAL}", IMAGE)
        self.root = Path(buildah("mount", TRIAL))

    def command_inside(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command in the container."""
        return buildah_command(
            "run",
            "--isolation=chroot",
            "--network=host",
            f"--volume={self.volume}:{VOLUME}",
            f"--env=HOROLOG_BOOTSTRAP=127.0.0.1:{self.port}",
            TRIAL,
            "--",
            *command,
        )

    def inside(self, *command: str, **options: Any) -> str:
        """Run a command in the container to its end; return its output."""
        return run(*self.command_inside(command), **options)

    @contextmanager
    def broker(self) -> Iterator[list[str]]:
        """Run the image's own command until the block ends, then SIGTERM; yield its log."""
        served = [part.replace("9092", str(self.port)) for part in self.command]
        lines: list[str] = []
        process = subprocess.Popen(
            self.command_inside(served), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        reader = threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            wait_for(lambda: any(line.startswith("ready ") for line in lines), lines, process)
            pid = self.pid(served)
            yield lines
            os.kill(pid, signal.SIGTERM)
            expect(process.wait(PATIENCE_S) == 0, "SIGTERM stops the broker with 0", lines)
        finally:
            if process.poll() is None:
                for pid in self.pids(served):
                    os.kill(pid, signal.SIGKILL)
                process.wait(PATIENCE_S)
            reader.join(PATIENCE_S)

    def pids(self, served: Sequence[str]) -> list[int]:
        """Return the processes whose last arguments are those of the broker."""
        tail = "".join(f"{part}\0" for part in served[1:]).encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes()
                owner = entry.stat().st_uid
            except OSError:
                continue  # it has ended
            if command.endswith(tail) and b"python" in command and owner == self.user:
                found.append(int(entry.name))
        return found

    def pid(self, served: Sequence[str]) -> int:
        """Return the process of the broker."""
        found = self.pids(served)
        expect(len(found) == 1, f"one process of user {self.user} is the broker", found)
        return found[0]

    def written(self, since: float) -> list[str]:
        """Return files of the container that were written since a time of its file system."""
        found = []
        for directory, names, files in os.walk(self.root):
            for place in (Path(directory, name) for name in (*names, *files)):
                status = place.lstat()
                # Of directories only those of the broker's user: buildah adds files to /run.
                its_own = place.is_file() or status.st_uid == self.user
                if status.st_mtime > since and its_own:
                    found.append(str(place.relative_to(self.root)))
        return found


def wait_for(done: Callable[[], bool], lines: list[str], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if process.poll() is not None or time.monotonic() > deadline:
            raise Refused(f"the broker did not get ready:\n{''.join(lines)}")
        time.sleep(0.1)


def expect(holds: bool, what: str, seen: object) -> None:
    if not holds:
        raise Refused(f"not so: {what}. Seen: {seen}")
    say(f"ok: {what}")


def try_image() -> None:
    trial = Trial()
    expect(trial.user != 0, f"the image's user is {trial.user}, not root", trial.user)
    begun = time.monotonic()
    trial.volume.touch()
    last_write = trial.volume.stat().st_mtime
    with trial.broker() as log:
        say(f"ready after {time.monotonic() - begun:.1f} s")
        trial.inside("horolog", "produce", "greetings", input="hello\nagain\n")
        expect(read(trial) == ["hello", "again"], "records come back", read(trial))
        healthy = trial.inside(*trial.health)
        expect("answers" in healthy, f"{' '.join(trial.health)} succeeds", healthy)
    gone = subprocess.run(
        trial.command_inside(trial.health), capture_output=True, text=True, check=False
    )
    expect(gone.returncode != 0, "after the stop the health check fails", gone)
    marker = trial.volume / ".kafka_cleanshutdown"
    expect(marker.exists(), "the stop was clean", sorted(trial.volume.iterdir()))
    written = [path for path in trial.written(last_write) if not path.startswith(VOLUME[1:])]
    expect(not written, "nothing was written outside of the volume", written)
    expect(trial.inside("python", "-c", ALL_KERNELS) == "0", "no kernel is compiled again", "")
    with read_only(trial.root), trial.broker() as log:
        expect(
            read(trial) == ["hello", "again"], "a second start has them, on a read-only root", ""
        )
        refused = subprocess.run(
            trial.command_inside(["touch", "/tmp/written"]), capture_output=True, check=False
        )
        expect(refused.returncode != 0, "the root is read-only", refused)
        expect(trial.inside("python", "-c", ALL_KERNELS) == "0", "nothing is compiled there", "")
    expect(not any("WARNING" in line for line in log), "it has no warning to log", log)


def read(trial: Trial) -> list[str]:
    return trial.inside("horolog", "consume", "greetings", "--format", "value").splitlines()


@contextmanager
def read_only(root: Path) -> Iterator[None]:
    """Make a container's root read-only, but for /run, where buildah has a file of its own."""
    run("mount", "--bind", str(root), str(root))
    try:
        run("mount", "-o", "remount,bind,ro", str(root))
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(root / "run"))
        yield
    finally:
        run("umount", "--recursive", str(root))


def size_of(image: str) -> str:
    return str(json.loads(buildah("images", "--json", image))[0]["size"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Build and try the container image.")
    parser.add_argument("--keep", action="store_true", help="keep the container of the trial")
    asked = parser.parse_args()
    try:
        check_machine()
        WORK.mkdir(parents=True, exist_ok=True)
        subprocess.run(buildah_command("rm", TRIAL), capture_output=True, check=False)
        make_base()
        build()
        try_image()
        buildah("rmi", "--prune")  # of earlier runs
        say(f"the image has {size_of(IMAGE)}, of which its base has {size_of(BASE)}")
        if not asked.keep:
            buildah("rm", TRIAL)
    except Refused as refused:
        sys.exit(str(refused))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
