"""What another Kafka wrote down in this log directory; read, never written.

transaction_state   which open transactions it had decided to commit, from `__transaction_state`
records             the records of its own topics, and their fields

A partition directory that the metadata store does not know is *adopted*: served, and exempt from
retention, time rolling and deletion until its topic gets settings. Until then it has those that
its Kafka gave it (metadata/adopted.py); what its groups had committed is in
metadata/adopted_offsets.py. A transaction that was open counts as aborted, unless its commit was
decided. Kafka's internal topics are never opened as logs. The user's side is
docs/moving-in-and-out.md.
"""
