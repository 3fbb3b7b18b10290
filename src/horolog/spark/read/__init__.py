"""Readers of Spark queries, on top of `horolog.sources`.

batch      the reader of a batch query
filters    what Spark pushes down; `pushes` keeps queries exact whose scans share one plan
stream     the reader of a streaming query; `stream_looks` says what there is to read
progress   what a streaming query reports of itself; `lag`, how far behind it is
"""
