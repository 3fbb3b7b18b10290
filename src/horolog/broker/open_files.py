"""Divides the limit of open files between logs, responses, connections and the rest.

Kafka fails at the limit, or takes the disk for broken. Here a connection beyond the limit is closed
before it takes the handle of a log, and a response without a free handle is shorter.
"""

import resource
from contextlib import suppress
from typing import Final, NamedTuple

from horolog.config.listeners import INT_MAX
from horolog.errors import Misconfigured

# The interpreter with its libraries, the loop, the listeners, the connections of the metrics page,
# the metadata, and what is open for a moment: a checkpoint, a segment being made.
RESERVED: Final = 64
LEAST: Final = 128
# A log that is not open is appended to in a thread, at several times the cost. So this is enough
# for KIP-33's 3,500 partitions to be written to in turn: each has its records, its append times
# and two indexes open. With fewer, the one that is closed is the one that is needed next.
MOST_OF_LOGS: Final = 16_384
MOST_OF_ANSWERS: Final = 2048  # more does not help
# What is left to all others before logs get more than a quarter.
ENOUGH_FOR_OTHERS: Final = 8192


class OpenFiles(NamedTuple):
    """Limits of open files."""

    logs: int
    """Files of segments that stay open for later requests."""
    answers: int
    """Slices of segments in unsent responses; each may keep a file open."""
    connections: int


def share_out() -> OpenFiles:
    """Divide the process's present limit of open files.

    Raises:
        Misconfigured: the limit is too low for a broker.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return OpenFiles(MOST_OF_LOGS, MOST_OF_ANSWERS, INT_MAX)
    if soft < LEAST:
        raise Misconfigured(
            f"this process may have {soft} files open, and a broker needs {LEAST} at least; raise "
            "the limit (ulimit -n)"
        )
    logs = min(max(soft // 4, soft - ENOUGH_FOR_OTHERS), MOST_OF_LOGS)
    answers = min(soft // 8, MOST_OF_ANSWERS)
    return OpenFiles(logs, answers, soft - logs - answers - RESERVED)


def raise_limit() -> None:
    """Raise the soft limit to the hard limit, as the JVM does for Kafka."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS allows less than it says; what there is will do
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
