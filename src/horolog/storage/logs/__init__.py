"""The log of one partition: read, appended to, rolled, flushed, truncated.

    ReadableLog      state, and what readers see of it, from any thread
    AppendableLog    the one way in: checks, offsets, stamps, whoever appends
    Log              its role, truncation, cleaning and deletion, each in one turn of the writer

truncating truncated as its source is: set aside, and right after a kill at any step
cleaning   one run of the cleaner over a log that compacts, under its readers
incoming   batches on their way in, and whom they come from
writer     the one way to make a log grow: numbered batches, segment by segment
replacing  new segments in the place of old ones, whole or not at all after a kill
flusher    what the disk is known to have
epochs     which leader wrote which offsets

A reader sees what was published when it began, and keeps the files that it reads, even if
retention removes them meanwhile. A clean shutdown keeps the leader epoch. An unclean one bumps it,
so that consumers validate their position (KIP-320). An adopted log keeps its Kafka's epoch: only
its controller may raise it. So does a log that follows keep its source's.
"""
