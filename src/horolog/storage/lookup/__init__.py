"""Questions about times, put to the segments of a log."""
