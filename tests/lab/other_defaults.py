"""Broker settings whose default is not Kafka's, which would be wrong for a single process."""

OTHER_DEFAULTS = frozenset(
    {
        "listeners",  # Kafka's wildcard address needs a host name that clients can use
        "log.dir",  # not below /tmp, where data is lost at the next boot
        "node.id",  # Kafka has none
        "process.roles",  # Kafka has none
        # Each time a small one is empty, or full, wakes the one event loop:
        "socket.send.buffer.bytes",
        "socket.receive.buffer.bytes",
    }
)
