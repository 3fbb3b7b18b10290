"""What works on the base install, which has no pyarrow."""

import subprocess
import sys
import textwrap


def run_without_pyarrow(code: str) -> str:
    """What a process prints in which pyarrow cannot be imported."""
    blocked = "import sys\nsys.modules['pyarrow'] = None\n" + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", blocked], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_and_its_planners_are_imported_without_pyarrow() -> None:
    run_without_pyarrow("import horolog.sources, horolog.sources.planning")


def test_a_path_in_an_object_store_says_what_to_install() -> None:
    said = run_without_pyarrow(
        """
        from horolog.errors import Misconfigured
        from horolog.sources.file_systems import Root
        try:
            Root("s3://a:secret@logs/kafka")
        except Misconfigured as error:
            print(error)
        """
    )
    assert "pip install 'horolog[arrow]'" in said
    assert "secret" not in said
