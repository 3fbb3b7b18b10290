"""horolog: the log that tells time. A Kafka-compatible log, found and kept by timestamp."""

__version__ = "0.1.0"
