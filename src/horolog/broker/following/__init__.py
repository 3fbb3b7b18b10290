"""Partitions that another broker leads: fetched from it, and appended to the logs here.

followed        followed partitions, and the requests to their leader
fetching        asks one leader, over one connection; decides on the event loop
source_leader   the requests to a leader of another cluster
appending       appends what a leader gave to the log
"""
