"""When records were appended: a segment's companion file of times, and a partition's floor.

file      `<base>.appendtimes`, open for reading and appending; start here
format    its bytes
proof     what of it is true of the log
marker    what a kill while it is appended to leaves
excerpt   a part of it, kept beside records that recovery sets aside
floor     append times never go back in a partition, except where they were reset

docs/append-times.md is the operator's side.
"""
