"""A log directory without its logs: lock, identity, small text files.

lock             one process at a time, and whether the directory is still mounted
identity         `meta.properties`, `partition.metadata`
clean_shutdown   whether the last stop was clean, and what a failed sync left in doubt
checkpoints      Kafka's text files of offsets and epochs
checkpoint_ids   which topic their lines were written for
contents         what else is there
uptime           whether the directory is the one that a broker writes, and no copy
syncing          many files in one commit of the file system

Kafka's checkpoints name a topic, not its id, and would count for a later topic of the same name.
So the lines of a partition are removed when it is deleted, at the latest before one of its name
is created; lines of absent partitions at every start. Readers of files go by the same rule.
"""
