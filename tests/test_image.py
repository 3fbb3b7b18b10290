"""`make image` where a tool is missing. Where none is, the target itself is the test."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_machine_without_the_tools_is_told_how_to_install_them(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "image.py")]
    without = {**os.environ, "PATH": str(tmp_path)}
    ran = subprocess.run(command, env=without, capture_output=True, text=True, check=False)
    needs = "apt-get install buildah debootstrap" if os.geteuid() == 0 else "sudo make image"
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert needs in ran.stderr
