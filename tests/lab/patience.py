"""How long a test waits for what must come.

So long that only a failing test waits to the end: a shared machine may be twenty times slower than
an idle one, and stop for seconds. A test of what must *not* happen says its own, short time.
"""

import time
from collections.abc import Callable

PATIENCE_S = 180.0


def eventually(holds: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
    """Whether it comes to hold within that time; it is asked less often the longer it takes.

    What is dear to ask for, a command for instance, leaves most of the processor to what comes.
    """
    begun = asked = time.monotonic()
    while not holds():
        now = time.monotonic()
        if now - begun > seconds:
            return False
        time.sleep(min(max((now - begun) / 10, 2 * (now - asked), 0.005), 0.2))
        asked = time.monotonic()
    return True
