"""Work on log directories without a broker: reading, reindexing, converting, copying.

partition_reader   a partition's segments, read only
inspecting         every batch header, for `horolog log inspect`
reindex            writes what the headers ask for, under the directory's lock
converting         rewrites segments in another record format, safe against a kill at any step
copied_log         a log that grows by the batches of another, at their offsets
transactions       which transactions were aborted, and up to where all have ended
work               the locks of what changes files
simulation         what a log would have deleted under other settings
"""
