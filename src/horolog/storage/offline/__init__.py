"""Work on directories without a broker: read, reindexed, converted, copied."""
