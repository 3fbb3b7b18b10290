"""One segment and its companion files: read, appended to, finished, deleted."""
