"""One segment and its companion files: read, appended to, finished, deleted.

reader     a segment for any reader: broker, recovery, tools, Spark; lists its files
segment    in a log that is open: also synced, repaired, deleted
active     the last one, which is appended to
numbered   what is appended: batches that have their offsets and append times
runs       many small ones of them at once, as columns
"""
