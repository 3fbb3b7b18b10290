"""Jobs that answer questions about the times of a log, as DataFrames.

audit       which times are wrong, and what bounds would reject (KIP-937)
following   the same of what is being appended, in windows
latency     append time minus create time (KIP-33, use case 5)

    scan      tasks that read time columns and give sums, not rows
    groups    sums of many records by key, without a Python object per record

Spark reads the sums, a row per group, and adds them up; no record leaves the task that reads it.
"""
