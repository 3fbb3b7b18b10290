"""A test that writes or shows a password of the lab fails."""

import base64
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from secrets_kept import Kept, password, shows_a_password

SECRET = password("alice")


@pytest.mark.parametrize("before", ["", "a", "ab", "\0alice\0"])
def test_a_password_is_found_as_it_is_and_in_base64(before: str) -> None:
    text = f"{before}{SECRET} and more"
    assert shows_a_password(text)
    assert shows_a_password(base64.b64encode(text.encode()))
    assert not shows_a_password(SECRET[: len(SECRET) // 2])


def test_files_are_looked_into_but_for_configuration(tmp_path: Path) -> None:
    (tmp_path / "log" / "t-0").mkdir(parents=True)
    (tmp_path / "log" / "t-0" / "0.log").write_bytes(b"\0" + SECRET.encode())
    (tmp_path / "client.properties").write_text(SECRET)
    kept = Kept()
    kept.look_into(tmp_path)
    assert [Path(leak).name for leak in kept.leaks] == ["0.log"]
    kept = Kept()
    kept.exempt.add("t-0")
    kept.look_into(tmp_path)
    assert kept.leaks == []
    (tmp_path / "log" / "t-0" / "0.log").unlink()


def test_every_level_of_the_log_is_looked_at_with_its_tracebacks(
    secrets_stay: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("horolog"), "propagate", False)  # to pytest
    kept = Kept()
    kept.listen()
    logger = logging.getLogger("horolog.of.a.test")
    try:
        logger.debug("nothing")
        assert kept.leaks == []
        logger.debug("%s", {"password": SECRET})
        try:
            raise ValueError(SECRET)
        except ValueError:
            logger.exception("a bug")
    finally:
        kept.stop()
        current = logging.getLogger("horolog")
        assert kept not in current.handlers
    assert kept.leaks == ["the log of horolog.of.a.test"] * 2
    assert secrets_stay.leaks == kept.leaks
    secrets_stay.leaks.clear()


LEAKS = {
    "file": "(tmp_path / 'a.txt').write_text(SECRET)",
    "output": "print(SECRET)",
    "log": "logging.getLogger('horolog').debug(SECRET)",
    "nothing": "(tmp_path / 'a.properties').write_text(SECRET)",
}


@pytest.mark.parametrize("where", LEAKS)
def test_a_test_that_shows_a_password_fails(where: str, tmp_path: Path) -> None:
    lab = Path(__file__).parent
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(lab)!r})\nsys.path.insert(0, {str(lab / 'lab')!r})\n"
        "from conftest_of_all import secrets_stay, pytest_runtest_makereport\n"
    )
    (tmp_path / "conftest_of_all.py").write_text((lab / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(
        "import logging\nimport secrets_kept\n"
        "SECRET = secrets_kept.password('x')\n"
        f"def test_it(tmp_path):\n    {LEAKS[where]}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{lab / 'lab'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (where == "nothing"), done.stdout
    if where != "nothing":
        assert "a password of this test is" in done.stdout
