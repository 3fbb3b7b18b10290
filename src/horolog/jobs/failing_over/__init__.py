"""From one cluster to another without the loss of a record (KIP-33, use case 3).

Producers write each record to both clusters; it arrives when it does, so that the two logs differ
in order, in offsets and, without keys, in partitions. What both have is the create time.

    record    while both clusters live, again and again: until when each group has read
    plan      needs the survivor and what was recorded: where each group starts there
    apply     commits that

**What a group has not read.** A recording looks at the time tau (the source's clock), then at the
committed offsets, then at the log ends. A record that the group has not read is

- in the source's log at or after the committed offset: the recording reads its create time; or
- not in the source's log at tau. If a record takes at most L from its producer to the source's
  log, its create time is after tau - L, whether it arrives there later or never.

So every unread record was created at or after T, the earliest of those create times or tau - L.
The survivor's first record at or after T in each partition, and all that follows, has every one of
them, whatever the order there is. What the group has read since the recording it reads again.

**L** is the largest latency that was ever recorded (append time minus create time; of a log that
keeps one time, what a reader of it measures), and no less than the largest lateness (by how much a
create time is before the largest one before it in its partition). Of partitions where no record
that was read tells its latency, as all were deleted, it is the upper bound of the highest class in
which the source has counted one (KIP-33, use case 5). Lateness alone bounds nothing:
where producers write seldom, the records of one with a slow way may never have been out of order.
KIP-33's proposal, the consumed create time minus the largest latency, is the same where a group
has read all that has arrived.

    marks       sums of the records before and after each committed offset, in one scan
    recorded    results of all recordings, and T
    looking     answers of the source before its records are read
    needed      which records are read
    recording, planning, applying      the three steps
"""
