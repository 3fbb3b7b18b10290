"""Decisions of replicas: no I/O, no clock, no waiting.

leading      a leader's replicas: who is in sync, what is committed, what controllers are asked
proposals    what a leader proposes to the controllers, and their answers
roles        the role of a broker for a partition, and the step that leads to it
truncation   the offset at which a log and its leader's part (KIP-101, KIP-279, KIP-320)
asked        the next question about one partition, and the effect of an answer on its log:
followed     the rules for partitions of another cluster
replica      the rules for partitions of this cluster
"""
