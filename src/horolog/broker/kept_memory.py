"""Limits the memory for objects that are kept from one request of a client to the next."""

import weakref


class KeptMemory:
    """Memory that is used, and may be used.

    An object without room is made again for each request.
    """

    def __init__(self) -> None:
        self.most_bytes = 16 << 20
        self.used_bytes = 0

    def keep(self, kept: object, size: int) -> bool:
        """Count an object of `size` bytes while it exists; return False without room."""
        if self.used_bytes + size > self.most_bytes:
            return False
        self.used_bytes += size
        weakref.finalize(kept, self._give, size).atexit = False
        return True

    def _give(self, size: int) -> None:
        self.used_bytes -= size
