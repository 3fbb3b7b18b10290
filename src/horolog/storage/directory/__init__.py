"""What a log directory holds besides logs: its lock, its identity, its small text files."""
