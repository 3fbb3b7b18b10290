"""`python -m horolog` is `horolog`."""

from horolog.cli import main

main()
