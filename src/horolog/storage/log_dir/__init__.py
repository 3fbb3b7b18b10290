"""A log directory as a whole: all its logs, opened, checkpointed and closed.

A log start offset beyond the log's end is ignored with a warning, unless `checkpoint_ids` shows
that it was written here for this topic. Then the partition's directory is older than its
checkpoint (a restored backup): its segments are set aside and the log begins at that offset, so
that deleted records stay deleted and no offset is given out twice.
"""
