"""The companion of a `.log`: one file of ours beside it, which Apache Kafka ignores.

    file.py          `<base>.companion`, drawn byte by byte: append times, seal, block map
    marker.py        the file beside a segment that is appended to
    proof.py         how much of all this is true of the log
    seal.py          what the indexes of a finished segment must look like

    append_times.py  when each record was appended
    time_entries.py  the entries of append times; `time_columns.py`, many of them as columns
    kept_times.py    append times of records that recovery has set aside

    blocks.py        the entries of the block map: `Block`, and which may contain a time
    block_map.py     the blocks of one segment: read, proved, completed, put into the companion
    block_writer.py  adds to the block map of the segment that is appended to
    folding.py       sums batches up to blocks; `block_messages.py`, messages of v0 and v1
    counts.py        sums blocks up to counters
    block_cache.py   keeps maps of logs whose directories are not written to

`record/time_stats.py` has the value that blocks add up.
"""
