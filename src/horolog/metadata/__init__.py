"""Topics, their settings, and the SQLite file that keeps them over a restart.

`topics` and `reconcile` are pure: arguments in, values out. `store` is the only module
that touches the file; sockets and timers belong to `horolog.broker`.
"""
