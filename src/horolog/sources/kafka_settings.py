"""Settings of Kafka's Java clients, given as `kafka.*` options, and their check.

A setting that could change which rows are read or written is obeyed or refused. One that
only tunes the Java client is accepted, so that moving a query from Spark's Kafka source or
sink is a change of its format and nothing else.
"""

import difflib
from collections.abc import Collection, Mapping

from horolog.client import Security
from horolog.client.security import SECURITY_SETTINGS
from horolog.errors import Misconfigured

PREFIX = "kafka."

TUNING = (
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "config.providers",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "security.providers",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
)
"""Settings that tune a consumer as well as a producer."""


def security_of(options: Mapping[str, str]) -> Security:
    """Read `kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*`.

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


def check_settings(
    options: Mapping[str, str], client: str, forbidden: Mapping[str, str], known: Collection[str]
) -> None:
    """Refuse forbidden settings, and names that a `client` of Kafka does not have.

    `options` are by lower-case name, others than `kafka.*` too.

    Raises:
        Misconfigured: names the setting.
    """
    for option in options:
        if not option.startswith(PREFIX):
            continue
        name = option.removeprefix(PREFIX)
        if name in forbidden:
            raise Misconfigured(f"Kafka option '{name}' is not supported: {forbidden[name]}")
        if name.startswith(("ssl.", "sasl.")):
            continue  # `security_of` refuses what is not supported
        if name not in known and name not in SECURITY_SETTINGS:
            close = difflib.get_close_matches(name, [*known, *SECURITY_SETTINGS], n=1)
            hint = f"; did you mean '{PREFIX}{close[0]}'?" if close else ""
            raise Misconfigured(f"'{name}' is no setting of Kafka's {client}{hint}")
