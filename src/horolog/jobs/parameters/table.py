"""All jobs with commands, by the command's name."""

from typing import Final

from horolog.jobs.parameters import (
    archive,
    bootstrap,
    failover,
    files,
    mirror,
    questions,
    replay,
)
from horolog.jobs.parameters.option import JOB_ROWS, JobRow

DECLARED_IN: Final = (archive, bootstrap, failover, files, mirror, questions, replay)
JOB_TABLE: Final[dict[str, JobRow]] = dict(sorted(JOB_ROWS.items()))
