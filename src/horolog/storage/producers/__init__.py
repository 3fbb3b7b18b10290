"""What each producer wrote last: retries, transactions, and the attempts of exactly-once sinks."""
