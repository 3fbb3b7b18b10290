"""What leaves a log: retention, deleted files, what recovery set aside, leftovers of a kill."""
