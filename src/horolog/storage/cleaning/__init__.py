"""Compaction: the latest record of each key remains, at its offset.

choosing      what of a log may be cleaned, and whether it is worth it
key_map       the latest offset of each key, in memory of fixed size
parts         batches as a pass reads them, small ones some at a time
rules         what stays besides: tombstones, markers, the last batches of producers
transactions  which transactions batches belong to, and what of them may go
passes        one pass over segments: their keys, then what becomes of them
latest        a log read for the latest value of each key
"""
