"""The log of one partition: read, appended to, rolled, flushed, truncated."""
