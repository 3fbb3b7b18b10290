"""One scan of a segment.

Recovery cuts by it, verify prints its findings, reindex repairs by them.

walk           every batch of a log, judged: a start cuts a log at the first fault
findings       what a check yields
segment        one segment, batch by batch, and meanwhile
    entries    its two indexes
    blocks     its block map
    companions its other files: seal, append times, aborted transactions
"""
