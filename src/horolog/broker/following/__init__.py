"""A broker that follows another cluster: same topics, offsets, epochs and bytes.

source      what the source has: brokers, topics, leaders, settings, as one snapshot
topics      topics here as they are there: made, grown, altered, deleted
"""
