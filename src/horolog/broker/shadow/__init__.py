"""A broker that follows another cluster: it has the same topics, offsets, epochs and bytes.

source      a snapshot of the source: its brokers, topics, leaders and settings
topics      creates, grows, alters and deletes topics here as the source has them
follower    looks at the source each second, and gives partitions to the fetcher of their leader
access      copies access control entries and quotas, and names what cannot be copied
groups      commits here what groups have committed at the source
offsets     reads that from the source's `__consumer_offsets`
promotion   leads topics here
demotion    chooses the topics that another cluster leads
shadow      starts and stops all of it, and reports how far it is
"""
