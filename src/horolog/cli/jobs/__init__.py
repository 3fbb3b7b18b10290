"""Command lines of the jobs: options, progress and summaries.

command    the command of a job from its dataclass: options, session, config file, outcome
stopping   ends of continuous jobs
tables     rows of Spark as tables and as JSON
JOB        a job whose command does more than run it, with a `typer.Typer` called `app`
"""
