"""Leaders of partitions, live brokers and coordinators: one question, three answers.

    placement    the protocol, and its values
    alone        this broker leads everything
    shadow       a cluster that is followed leads some topics (docs/following.md)

In a cluster `broker.cluster.placement` answers from the controllers' metadata. No handler compares
ids of brokers, or looks whether a log is here, to learn who leads.
"""
