"""How the files that a process may have open are shared out: logs, connections, the rest.

Kafka runs into the limit and dies of it, or of a disk that it then takes for broken.
Here a connection too many is closed before it takes the handle of a log.
"""

import resource
from contextlib import suppress
from typing import Final

from horolog.config.broker import INT_MAX
from horolog.errors import Misconfigured
from horolog.storage.files import default_max_open

# The interpreter with its libraries, the loop, the listeners, the metadata, and what is open for
# a moment: a checkpoint, a segment being made, a file that is still being sent.
RESERVED: Final = 48
LEAST: Final = 128


def most_connections() -> int:
    """How many connections leave enough handles for everything else.

    Raises:
        Misconfigured: a broker cannot work with so few.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return INT_MAX
    if soft < LEAST:
        raise Misconfigured(
            f"this process may have {soft} files open, and a broker needs {LEAST} at least; raise "
            "the limit (ulimit -n)"
        )
    return int(soft) - default_max_open() - RESERVED


def raise_limit() -> None:
    """Take as many as the system allows, as the JVM does for Kafka."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS allows less than it says; what there is will do
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
