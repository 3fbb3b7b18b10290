"""The command lines of the jobs: options, progress, summaries; what they do is in `horolog.jobs`.

options    what the jobs share: where to read and write, times, the session, the config file
JOB        one module for each job, with a `typer.Typer` called `app`
"""
