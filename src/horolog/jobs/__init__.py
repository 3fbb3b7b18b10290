"""Jobs on Spark: questions about the times of a log, and moves of its records.

    from horolog import jobs, spark

    session = spark.session()
    jobs.audit(session, source="127.0.0.1:9092", topics="clicks", from_="-7d").show()

A job is one value: a dataclass in `parameters` whose fields are its options. Of it are made the
function here, `horolog spark JOB` on the command line and for `spark-submit` (`submit`), the
reference (`docs/jobs.md`) and the fingerprint of its state. All have the same keyword arguments:

    source             host:port of a broker (horolog or Apache Kafka), or a path of segment files
    topics             names, with commas or as a list; or `topics_pattern`, of RE2's syntax
    from_, to          a range of time, [from_, to): ISO 8601 with a zone, milliseconds, or -15m
    settings           client and store options by name: {"kafka.security.protocol": "SSL", ...}
    target, archive, table, state, dry_run, once      where a job writes

    location ──> selection ──> format("horolog")     jobs that answer questions: DataFrames
                     └───────> spread ──> tasks      jobs that move or check bytes: units of work
                                 └──> state          what is done; one run at a time, resumable

Jobs that answer questions return DataFrames. Jobs that move records return what they did; each
task of theirs moves whole batches, and a killed job is run again with the same state directory.

No module of this package has the name of a job: once imported, it would hide the function.
"""

from typing import Any

from horolog.extras import lazy_names

# The function of each job, by the module that has it; a module is imported when it is used.
_JOBS: dict[str, str] = {
    "audit": "horolog.jobs.questions.audit",
    "bootstrap": "horolog.jobs.loading",
    "convert": "horolog.jobs.files.convert",
    "index": "horolog.jobs.files.index",
    "archive": "horolog.jobs.archives.archiving",
    "latency": "horolog.jobs.questions.latency",
    "restore": "horolog.jobs.archives.restoring",
    "failover": "horolog.jobs.failing_over.failover",
    "reprocess": "horolog.jobs.reprocessing",
    "mirror": "horolog.jobs.mirroring",
    "compare": "horolog.jobs.comparing",
    "replay": "horolog.jobs.replaying",
}

# Functions without a command of that name.
_BESIDE: dict[str, str] = {
    "archived": "horolog.jobs.archives.view",
    "follow_audit": "horolog.jobs.questions.following",
    "check_archive": "horolog.jobs.archives.checking",
    "merge_archive": "horolog.jobs.archives.merging",
}

__all__ = list(_JOBS | _BESIDE)


# Spark's packages are needed by all but one.
_value, _listed = lazy_names(
    __name__, _JOBS | _BESIDE, dict.fromkeys({*_JOBS, *_BESIDE} - {"replay"}, "spark")
)


def __getattr__(name: str) -> Any:
    return _value(name)


def __dir__() -> list[str]:
    return _listed([*globals()])
