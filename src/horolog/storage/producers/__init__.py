"""Last batches of each producer: for retries and transactions.

states     the state of idempotent producers (KIP-98), and Kafka's snapshots of it
replay     the same, from the batches after the last snapshot
"""
