"""Jobs on segment files, offline: verify and rebuild indexes, convert record formats.

parts     partitions and segments below the paths, as units of work
work      runs the work on parts: skips finished parts, spreads, records results
offline   keeps brokers away from directories that are changed
index     verifies or rebuilds indexes
convert   rewrites segments in another record format
"""
