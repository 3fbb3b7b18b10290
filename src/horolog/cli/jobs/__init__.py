"""Command lines of the jobs: options, progress and summaries.

command    the command of a job: its options, those of all jobs, the session, the config file
stopping   what ends a job that runs on
JOB        one module for each job, with a `typer.Typer` called `app`
"""
