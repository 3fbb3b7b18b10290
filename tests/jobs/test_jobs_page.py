import subprocess
import sys
from pathlib import Path

from tools.jobs_page import jobs_page

from horolog.cli.lazy import COMMANDS as ALL_COMMANDS
from horolog.cli.lazy import load_command
from horolog.cli.spark import JOBS as COMMANDS
from horolog.jobs.parameters.table import JOB_TABLE

PAGE = Path(__file__).parents[2] / "docs" / "jobs.md"


def test_the_page_of_jobs_is_fresh() -> None:
    assert PAGE.read_text() == jobs_page(), "run: python -m tools.jobs_page > docs/jobs.md"


def test_the_page_has_every_option_of_every_command() -> None:
    sections = dict(part.split("\n", 1) for part in jobs_page().split("\n## ")[1:] if "\n" in part)
    del sections["Shared options"]
    assert [each.split()[0] for each in JOB_TABLE if each in COMMANDS] == [
        each for each in COMMANDS if each not in ("failover", "script")
    ]
    for name, section in sections.items():
        table = ALL_COMMANDS if name == "replay" else COMMANDS
        command = load_command(name.split()[0], table)
        for step in name.split()[1:]:
            command = command.commands[step]
        for parameter in command.params:
            for option in parameter.opts:
                if option not in ("--json", "--config", "--master", "--conf", "--help"):
                    assert f"`{option}" in section or parameter.param_type_name == "argument", (
                        option
                    )


def test_what_a_job_is_asked_for_and_a_replay_need_no_spark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from horolog import jobs\n"
        "from horolog.jobs.parameters.table import JOB_TABLE\n"
        "print(jobs.replay.__name__, len(JOB_TABLE) > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "replay True\n"
