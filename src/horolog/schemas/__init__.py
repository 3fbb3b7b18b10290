"""Records of Kafka's internal topics: fields in, fields out; no I/O.

fields      primitive types of Kafka's protocol, decoded with bounds checks, and encoded
declared    records of Kafka's protocol generator, declared as classes
metadata    records of the metadata log, `__cluster_metadata`
control     control records of that log and of its snapshots
offsets     committed offsets and classic groups, `__consumer_offsets`
group_records  consumer groups (KIP-848), in the same topic
transactions  transactional ids, `__transaction_state`
"""
