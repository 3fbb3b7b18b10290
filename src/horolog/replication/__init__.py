"""Decisions of a follower: no I/O, no clock, no waiting.

truncation   where a log and its leader's part, by leader epochs (KIP-101, KIP-279, KIP-320)
followed     what is asked next about one partition, and what an answer means for its log
"""
