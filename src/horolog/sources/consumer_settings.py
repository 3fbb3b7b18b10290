"""Settings of Kafka's Java consumer, given as `kafka.*` options: obeyed, forbidden, or tuning."""

from collections.abc import Mapping

from horolog.sources import kafka_settings
from horolog.sources.kafka_settings import check_settings

OBEYED = {
    "bootstrap.servers": "the brokers, `host:port` with commas; or else a path, not both",
    "isolation.level": "`read_uncommitted` (default) or `read_committed`: no records of aborted "
    "transactions, and none behind an open one",
    "client.id": "the client's name at the broker; `horolog-spark`",
    "check.crcs": "`true` (default) or `false`",
    "fetch.max.bytes": "the smaller one of this and `kafka.max.partition.fetch.bytes`, up to 8 MiB",
    "max.partition.fetch.bytes": "see `kafka.fetch.max.bytes`",
    "fetch.max.wait.ms": "how long a broker may wait for `kafka.fetch.min.bytes`; 500",
    "fetch.min.bytes": "1",
    "request.timeout.ms": "how long a call may take, retries included; 30000",
}

# Spark's Kafka source refuses the same five.
FORBIDDEN = {
    "auto.offset.reset": "set 'startingOffsets' instead; Spark keeps track of what was read",
    "key.deserializer": "keys are binary; use DataFrame functions to read them",
    "value.deserializer": "values are binary; use DataFrame functions to read them",
    "enable.auto.commit": "a read commits no offsets",
    "interceptor.classes": "interceptors could change the records",
}

TUNING = (
    *kafka_settings.TUNING,
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "client.rack",
    "default.api.timeout.ms",
    "exclude.internal.topics",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "socket.connection.setup.timeout.ms",
)


def check(options: Mapping[str, str]) -> None:
    """Refuse consumer settings that a read cannot obey; `options` have lower-case names.

    Raises:
        Misconfigured: forbidden, or no setting of Kafka's consumer.
    """
    check_settings(options, "consumer", FORBIDDEN, (*OBEYED, *TUNING))
