"""The companion of a `.log`: one file of ours beside it, which Apache Kafka ignores.

    file.py          format of `<base>.companion`: append times, seal, block map
    marker.py        the file beside a segment that is appended to
    proof.py         proof of the contents by the batches of the log
    seal.py          checksums of a finished segment's indexes

    append_times.py  append times of one segment
    time_entries.py  their entries; `time_columns.py`, many entries as arrays
    kept_times.py    append times of records that recovery has set aside

    blocks.py        entries of the block map, and which may contain a time
    block_map.py     block map of one segment: read, proved, completed, written
    block_writer.py  block map of the segment that is appended to
    folding.py       sums of batches; `block_messages.py`, of messages of v0 and v1
    counts.py        totals of blocks, for the broker's counters
    block_cache.py   block maps of logs in read-only directories

Blocks add up the values of `record/time_stats.py`.
"""
