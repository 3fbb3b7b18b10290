"""What is beside a `.log`: Kafka's indexes, and one companion of ours; how far each is believed.

Open first, of Kafka's files:
    indexes.py       both indexes of a segment as one: written, used, distrusted, rebuilt
    offset.py time.py   their entries: from offsets to positions, from moments to offsets
    builder.py       the one rule by which batches become entries
and of ours:
    companion.py     the file `<base>.companion`, drawn byte by byte: append times, seal, block map
    seal.py          what the indexes of a finished segment must look like
    blocks.py        what a stretch of a log holds, by time: `Block`, and which may hold a moment
    block_map.py     the blocks of one segment: read, proved, completed, put into the companion

The rest serves these. `entries.py` searches entries of fixed width in a file; `growing.py` adds to
the indexes, `block_writer.py` to the block map, of the segment that is appended to, beside which is
`marker.py`; `folding.py` makes blocks of batches, `block_messages.py` of messages of v0 and v1;
`block_cache.py` keeps maps of logs that are not ours; `counts.py` is for counters; `proofs.py`
compares entries of Kafka's indexes with their batches; `abort.py` is `.txnindex`.

Append times have a room of their own, `storage/append_times`, on top of this one. By which rule
what is in a companion is believed is in `storage/batches/proof.py`, and the value that blocks add
up is in `record/time_stats.py`.
"""
