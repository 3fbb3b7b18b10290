"""Settings of Kafka's Java consumer, given as `kafka.*` options: obeyed, forbidden, or tuning.

A setting that could change which rows a read returns is obeyed or refused. One that
only tunes the Java consumer is accepted, so that moving a query from Spark's Kafka
source is a change of its format and nothing else.
"""

import difflib
from collections.abc import Mapping

from horolog.client import Security
from horolog.client.security import NAMES as SECURITY_SETTINGS
from horolog.errors import Misconfigured

PREFIX = "kafka."

OBEYED = (
    "bootstrap.servers",
    "isolation.level",
    "client.id",
    "check.crcs",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "request.timeout.ms",
)

# Spark's Kafka source refuses the same five.
FORBIDDEN = {
    "auto.offset.reset": "set 'startingOffsets' instead; Spark keeps track of what was read",
    "key.deserializer": "keys are binary; use DataFrame functions to read them",
    "value.deserializer": "values are binary; use DataFrame functions to read them",
    "enable.auto.commit": "a read commits no offsets",
    "interceptor.classes": "interceptors could change the records",
}

TUNING = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "client.rack",
    "config.providers",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "enable.metrics.push",
    "exclude.internal.topics",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "security.providers",
    "send.buffer.bytes",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)


def security_of(options: Mapping[str, str]) -> Security:
    """What `kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*` say.

    Raises:
        Misconfigured: a setting or value that no connection could be made with.
    """
    return Security.of(
        {
            name.removeprefix(PREFIX): value
            for name, value in options.items()
            if name.startswith(PREFIX)
        }
    )


def check(options: Mapping[str, str]) -> None:
    """Refuse what a read cannot obey; `options` by lower-case name, others than `kafka.*` too.

    Raises:
        Misconfigured: forbidden, or no setting of Kafka's consumer.
    """
    for option in options:
        if not option.startswith(PREFIX):
            continue
        name = option.removeprefix(PREFIX)
        if name in FORBIDDEN:
            raise Misconfigured(f"Kafka option '{name}' is not supported: {FORBIDDEN[name]}")
        if name.startswith(("ssl.", "sasl.")):
            continue  # `security_of` refuses what is not supported
        known = (*OBEYED, *TUNING, *SECURITY_SETTINGS)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{PREFIX}{close[0]}'?" if close else ""
            raise Misconfigured(f"'{name}' is no setting of Kafka's consumer{hint}")
