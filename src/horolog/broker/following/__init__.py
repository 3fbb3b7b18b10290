"""A broker that follows another cluster: same topics, offsets, epochs and bytes.

source      what the source has: brokers, topics, leaders, settings, as one snapshot
topics      topics here as they are there: made, grown, altered, deleted
follower    looks at the source each second, and gives partitions to the fetcher of their leader
fetching    asks one leader, over one connection, in a thread of its own; decides on the event loop
appending   what a leader gave, into the log
groups      what groups have committed there, committed here
promotion   leads topics here
demotion    which topics another cluster leads
shadow      all of it, started and stopped; what the broker says of it
"""
