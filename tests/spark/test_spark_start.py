import stat
import subprocess
import sys

import pytest

from horolog.errors import Misconfigured
from horolog.spark.masters import is_local, parallelism
from horolog.spark.source.java import require_java


def java(tmp_path, says: str, code: int = 0) -> dict[str, str]:
    """An environment with a Java that answers so."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"JAVA_HOME": str(tmp_path)}


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_new_java_is_taken(tmp_path, version) -> None:
    require_java(java(tmp_path, f'openjdk version "{version}" 2025-04-15'))


@pytest.mark.parametrize(("version", "said"), [("1.8.0_292", "Java 8"), ("11.0.2", "Java 11")])
def test_an_old_java_is_named_with_what_to_install(tmp_path, version, said) -> None:
    with pytest.raises(Misconfigured, match=f"{said}. Spark needs Java 17 or newer. Debian"):
        require_java(java(tmp_path, f'java version "{version}"'))


def test_a_java_that_does_not_run_is_named(tmp_path) -> None:
    with pytest.raises(Misconfigured, match=r"Java does not run\. Spark needs Java 17"):
        require_java(java(tmp_path, "Unable to locate a Java Runtime.", code=1))
    with pytest.raises(Misconfigured, match="JAVA_HOME is /nowhere, and Java does not run"):
        require_java({"JAVA_HOME": "/nowhere"})


def test_no_java_at_all_is_one_clear_sentence(tmp_path) -> None:
    with pytest.raises(Misconfigured, match=r"There is no Java: .*Spark needs Java 17"):
        require_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("settings", "tasks"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "local[3,5]"}, 3),
        ({"spark.master": "local-cluster[2,4,1024]"}, 8),
        ({"spark.master": "spark://h:7077", "spark.cores.max": "40"}, 40),
        (
            {"spark.master": "yarn", "spark.executor.instances": "5", "spark.executor.cores": "8"},
            40,
        ),
        ({"spark.master": "k8s://h", "spark.default.parallelism": "64"}, 64),
        ({"spark.master": "yarn"}, None),
        ({}, None),
    ],
)
def test_settings_tell_how_many_tasks_run_at_a_time(settings, tasks) -> None:
    assert parallelism(settings.get) == tasks


def test_only_a_local_master_runs_in_this_python() -> None:
    assert is_local("local")
    assert is_local("local[*]")
    assert not is_local("local-cluster[1,1,1024]")
    assert not is_local("spark://h:7077")


def test_processes_of_a_query_do_not_wait_for_what_only_brokers_use() -> None:
    code = (
        "import sys, horolog.spark.read.stream, horolog.spark.write.sink\n"
        "print([name for name in ('horolog.storage.log_dir', 'horolog.broker', 'numba') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
