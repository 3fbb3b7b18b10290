"""The records that Kafka keeps in logs of its own: keys and values as bytes, and what they say.

Fields in, fields out; no I/O. The logs are read and written by the layers above.

fields      the primitive types of Kafka's protocol, decoded with bounds checks, and encoded
declared    records of Kafka's protocol generator, declared as classes
metadata    the records of the metadata log, `__cluster_metadata`
offsets     committed offsets and groups, `__consumer_offsets`
transactions  transactional ids, `__transaction_state`
"""
