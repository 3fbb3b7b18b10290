"""When records were appended: the append times in a segment's companion, and a partition's floor.

Open `file.py` first: append times of one segment, read and written; `format.py` has their entries,
`proof.py` says how much of them is true of a log, and `floor.py` is below which a partition gives
none. `columns.py` has those of many batches at once. `kept_times.py` reads those of records that
were set aside.
"""
