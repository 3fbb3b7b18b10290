"""The data source of `format("horolog")`, and what sessions change in Spark.

log_source     what Spark asks for readers and writers
session        sessions that know the format; `java` says what is missing before Spark does
scans_apart    what `load()` gives: each scan with a plan of its own, by `apart_table`
saves          what `save()` and `start()` do in the user's process
adapting       replaces methods of Spark's readers and writers
"""
