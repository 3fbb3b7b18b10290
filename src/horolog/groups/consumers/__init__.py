"""Groups that the broker assigns (KIP-848), as pure decisions.

assignors   divides partitions among members: `range` and `uniform`
java_order  orders that Apache Kafka takes from Java's strings and hash tables
topic_hash  hashes by which a group sees that its topics have changed
"""
