"""Questions about times, put to the segments of a log.

by_timestamp     the first record at or after a create time (KIP-79)
by_append_time   the same of append times
cuts             where a log parts at an append time, and which transactions that would cut in two
time_ranges      the stretches of a log that may hold a range of time, and what is in them
index_checks     indexes of another broker, checked before they are used
unread           what lies between two offsets, for who has not read it

Every answer is exact, whatever the indexes say. Indexes without a seal are checked first where
64 MiB of log or less are concerned. In larger logs a lookup goes by entries that their batches
prove, and the broker checks the rest in the background: until then a wrong entry may hide an
earlier, later-stamped batch. Retention deletes nothing before that check.
"""
