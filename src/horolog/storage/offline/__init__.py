"""Work on log directories without a broker: reading, reindexing, converting, copying.

partition_reader   segments of a partition, read only
inspecting         every batch header, for `horolog log inspect`
reindex            rebuilds indexes from the batches
converting         rewrites segments in another record format, safe against a kill at any step
compacting         compacts logs, for `horolog log compact`
copied_log         a log that receives the batches of another, at their offsets
transactions       aborted transactions, and the last stable offset
work               locks of work that changes files
simulation         deletions of a log under other settings
"""
