"""The commands of the image, and `make image` where a tool is missing.

Where no tool is missing, `make image` is the test of the image.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
HOROLOG = [sys.executable, "-m", "horolog"]


def commands_of(instruction: str) -> list[str]:
    """The arguments of an instruction of `Containerfile`, which are a list in JSON."""
    (found,) = re.findall(
        rf"^{instruction}\b.*?(\[.*\])$", (ROOT / "Containerfile").read_text(), re.MULTILINE
    )
    return list(json.loads(found))


def test_the_commands_of_the_image_serve_and_check(tmp_path: Path) -> None:
    assert commands_of("ENTRYPOINT") == ["horolog"]
    horolog, *check = commands_of("HEALTHCHECK")
    assert horolog == "horolog"
    local = {"9092": "0", "/var/lib/horolog": str(tmp_path / "log")}
    serve = commands_of("CMD")
    for name, value in local.items():
        serve = [argument.replace(name, value) for argument in serve]
    with subprocess.Popen([*HOROLOG, *serve], stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready = broker.stdout.readline()
            assert ready.startswith("ready localhost:")
            environment = {**os.environ, "HOROLOG_BOOTSTRAP": ready.split()[1]}
            healthy = subprocess.run([*HOROLOG, *check], env=environment, check=False)
            assert healthy.returncode == 0
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(PATIENCE_S) == 0
        finally:
            broker.kill()
    assert subprocess.run([*HOROLOG, *check], env=environment, check=False).returncode == 1


def test_a_machine_without_the_tools_is_told_how_to_install_them(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "image.py")]
    without = {**os.environ, "PATH": str(tmp_path)}
    ran = subprocess.run(command, env=without, capture_output=True, text=True, check=False)
    needs = "apt-get install buildah debootstrap" if os.geteuid() == 0 else "sudo make image"
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert needs in ran.stderr
