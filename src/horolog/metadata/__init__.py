"""Topics, their settings, and the SQLite file that keeps them over a restart.

`topics` and `reconcile` are pure: arguments in, values out. `store` is the broker's way
to the file; sockets and timers belong to `horolog.broker`. `log` keeps what is to take its place:
records of Kafka's metadata log, and their `image`. So does `group_file` for groups and offsets,
beside another's `__consumer_offsets`.

One file, so that creating or deleting a topic is atomic, for settings, committed offsets and
producer ids too. Each row has a checksum, because records expire and topics are deleted by what
a row says. The sound rows of a damaged file go into a new one (`damaged`, `salvage`); `verify`
checks it on a copy, without a lock.
"""
