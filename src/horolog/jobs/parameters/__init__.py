"""What each job is asked for, as one value: every option is declared once, in a dataclass.

    option     what is said of a field, and the state's fingerprint of a job
    function   the function of `horolog.jobs` that is made of a job
    shared     the options that many jobs have
    page       `docs/jobs.md`, the reference
    others     the jobs themselves, with the help of their commands

`horolog.cli.jobs.command` makes the command and its TOML file. Nothing here imports Spark: `--help`
would take seconds.
"""
