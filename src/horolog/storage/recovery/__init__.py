"""From the files of a partition to an open log, whatever the last shutdown left."""
