"""What each producer wrote last: retries, transactions, and the attempts of exactly-once sinks.

states     the state of idempotent producers (KIP-98), and Kafka's snapshots of it
attempts   what attempts of exactly-once sinks have written (docs/exactly-once.md)
replay     both, from the batches after the last snapshot
"""
