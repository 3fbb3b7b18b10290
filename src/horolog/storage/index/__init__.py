"""Kafka's indexes of a segment, and how far they are trusted.

indexes.py   both indexes of a segment as one: written, used, distrusted, rebuilt
sparse.py    their entries: from offsets to positions, from times to offsets
builder.py   the one rule by which batches become entries
growing.py   adds entries while the segment is appended to
proofs.py    compares an entry with its batch
abort.py     `.txnindex`: the aborted transactions
"""
