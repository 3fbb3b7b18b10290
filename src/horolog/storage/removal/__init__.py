"""Removal from a log: retention, deleted files, set-aside bytes, and what a kill left behind.

retention          a verdict on each segment; deletion follows them up to the first that stays
retention_report   the same verdicts, for `horolog retention explain`
removed_files      deleted segments, until their files may go
set_aside          what recovery or a truncation took off, until it expires
leftovers          what a kill left half done
"""
