"""Options of each job, declared once as the fields of a dataclass.

    option     declarations of fields, and the fingerprint of a job for its state
    function   the function of `horolog.jobs` for a job
    shared     options of many jobs
    table      all jobs, by their commands
    others     the jobs, with the help of their commands

To add a job, write a dataclass here under `option.command(name, module, summary, counts=...)`, and
its function in that module of `horolog.jobs`. The function returns a `horolog.results.Outcome`. The
command, the page and the function of `horolog.jobs` follow from the dataclass.

`horolog.cli.jobs.command` makes the command and its TOML file. Nothing here imports Spark: `--help`
would take seconds.
"""
