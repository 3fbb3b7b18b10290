"""Compaction: the latest record of each key remains, at its offset.

choosing      selection of the part of a log to clean
key_map       latest offset of each key, in memory of fixed size
parts         batches as a pass reads them, small ones several at a time
rules         batches and records that remain: tombstones, markers, last batches of producers
transactions  transactions of batches, and which batches may go
passes        one pass over segments: first their keys, then their new contents
latest        replay of the latest value of each key
"""
