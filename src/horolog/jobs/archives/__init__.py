"""Archives: topics as Parquet files by date and hour, from which the same logs can be restored.

    manifest/<number>.json          what is in the archive; the newest one decides (manifest.py)
    records/<topic>/date=2026-11-17/hour=09/*.parquet       records, by their times (hours.py)
    batches/<topic>/*.parquet       the headers of their batches (facts.py)

    archiving ─┬> planning                                       a topic into an archive, in units
               └> sources ──> reading ──> parts                  ... which are tasks
    restoring ──> segments ──> rows ──> rebuilding               an archive into logs, in segments
                      └──────> sources ──> reading               ... which are read back
    view ──────> rows                                            an archive and its log as rows
    checking, merging                                            its files against the manifest

`reading` takes whole batches apart and computes the checksums (digests.py) that the manifest has
of each range of offsets.
"""
