"""Jobs on Spark: questions about the times of a log, and moves of its records.

    from horolog import jobs, spark

A job is one value: a dataclass in `parameters` whose fields are its options. From it follow the
function here, `horolog spark JOB` on the command line and for `spark-submit` (`submit`), the
reference (`docs/jobs.md`) and the fingerprint of its state. All have the same keyword arguments:

    source             host:port of a broker (horolog or Apache Kafka), or a path of segment files
    topics             names, with commas or as a list; or `topics_pattern`, of RE2's syntax
    from_, to          a range of time, [from_, to): ISO 8601 with a zone, milliseconds, or -15m
    settings           client and store options by name: {"kafka.security.protocol": "SSL", ...}
    target, archive, table, state, dry_run, once      where a job writes

Jobs that answer questions return DataFrames. Jobs that move records return an outcome. Their tasks
move whole batches, and a killed job is run again with the same state directory.

No module of this package has the name of a job: once imported, it would hide the function.
"""

from horolog.extras import lazy_names
from horolog.jobs.parameters.table import JOB_TABLE

# The function of each job, by the module that has it; a module is imported when it is used.
_JOBS = {row.module: name.partition(" ")[0] for name, row in JOB_TABLE.items()}

# Functions without a command of that name.
_BESIDE = {
    "archives.view": "archived",
    "questions.following": "follow_audit",
    "archives.checking": "check_archive",
    "archives.merging": "merge_archive",
}

__all__ = list((_JOBS | _BESIDE).values())


# Spark's packages are needed by all but one.
__getattr__, __dir__ = lazy_names(
    __name__, _JOBS | _BESIDE, dict.fromkeys({*_JOBS, *_BESIDE} - {"replaying"}, "spark")
)
