"""What another Kafka wrote down in this log directory; read, never written.

cluster_metadata    the settings that its topics had, from `__cluster_metadata`
transaction_state   which open transactions it had decided to commit, from `__transaction_state`
records             the records of its own topics, and their fields
"""
