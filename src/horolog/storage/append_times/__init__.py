"""When records were appended: a segment's companion file of times, and a partition's floor."""
