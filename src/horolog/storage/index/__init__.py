"""The indexes of a segment and its block map: their files, how they are built and trusted.

indexes        both of Kafka's indexes of a segment, and whether they are trusted: begin here
offset, time   the two; `entries` is a file of either, searched without being held
builder        makes both from batch headers; `growing` adds to those that are appended to
seal           what both must look like once a segment is finished
proofs         whether a batch is where an entry says
abort          Kafka's index of aborted transactions
segment_end    how far a segment goes, for one reader

block_map      which stretches of a segment may hold a time; read and completed: begin here
blocks         its entries, byte by byte
block_writer   that of the segment that is appended to, from what the checks have counted
folding, block_messages   entries of batches, and of plain messages of v0 and v1
block_cache    maps of directories that are not written to
counts         what blocks add up to, for metrics

An index without a matching seal is compared with all batch headers of its segment, once, and
sealed. By which rule a seal, a block and append times are believed is in
`storage/batches/proof.py`; the value that blocks add up is in `record/time_stats.py`.

Kafka's time index only has the largest times, and a v2 header no smallest one, so that both leave a
range of time open at its end; the block map has both, also of times below zero.

Every file here can be deleted and is made again from the log. What no proved entry covers may hold
anything and is read: a file that is missing or wrong costs time, never a record.
"""
