"""Check for a Java that Spark can use, before Spark fails with a traceback."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from horolog.errors import Misconfigured

LEAST_VERSION = 17

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ADVICE = (
    f"Spark needs Java {LEAST_VERSION} or newer. Debian/Ubuntu: apt-get install "
    f"openjdk-{LEAST_VERSION}-jre-headless; macOS: brew install openjdk@{LEAST_VERSION} (and "
    "follow its note on linking)"
)


def require_java(environment: Mapping[str, str]) -> None:
    """Check that the Java which Spark would start runs and is new enough.

    Raises:
        Misconfigured: says the fault in one sentence, and the remedy in another.
    """
    home = environment.get("JAVA_HOME")
    if home:
        java = str(Path(home) / "bin" / "java")
        where = f"JAVA_HOME is {home}"
    else:
        java = shutil.which("java", path=environment.get("PATH")) or ""
        where = f"'java' is {java}"
    if not java:
        raise Misconfigured(f"There is no Java: JAVA_HOME is not set, PATH has none. {_ADVICE}.")
    try:
        run = subprocess.run(  # noqa: S603 - the very program that Spark starts next
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Misconfigured(f"{where}, and Java does not run: {error}. {_ADVICE}.") from None
    version = _VERSION.search(run.stderr + run.stdout)
    if run.returncode != 0 or version is None:
        raise Misconfigured(f"{where}, and Java does not run. {_ADVICE}.")
    if int(version[1]) < LEAST_VERSION:
        raise Misconfigured(f"{where}, which is Java {version[1]}. {_ADVICE}.")
