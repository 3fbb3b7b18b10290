"""Removal from a log: retention, deleted files, set-aside bytes, and what a kill left behind.

retention          decision on each segment
retention_report   the same decisions, for `horolog retention explain`
removed_files      deleted segments, until their files are removed
set_aside          files of recovery and truncation, until they expire
replacement        record of a replacement of segments
leftovers          interrupted work, finished or removed by a start
"""
