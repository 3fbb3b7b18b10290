"""Partitions that another broker leads: fetched from it, and appended to the logs here.

fetching    asks one leader, over one connection, in a thread of its own; decides on the event loop
appending   appends what a leader gave to the log
"""
