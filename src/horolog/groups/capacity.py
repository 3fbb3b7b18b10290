"""The memory limit for the members of all groups."""

from horolog.errors import ErrorCode, RequestRefused


class Capacity:
    """Bytes in use, and their limit."""

    def __init__(self, max_bytes: int = 128 << 20) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0

    def share(self) -> "Share":
        """Return the share of one more group."""
        return Share(self)

    def check(self, growth_bytes: int) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE, which clients retry, if the growth does not fit."""
        if self.used_bytes + growth_bytes > self.max_bytes:
            raise RequestRefused(
                ErrorCode.coordinator_not_available,
                f"the members of all groups occupy {self.used_bytes} bytes, and "
                f"{growth_bytes} more exceed horolog.groups.max.bytes={self.max_bytes}",
            )


class Share:
    """The bytes of the capacity that one group is charged for."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._charged_bytes = 0

    def charge(self, held_bytes: int) -> None:
        """Charge the group for what it holds now, instead of what it held before."""
        self._capacity.used_bytes += held_bytes - self._charged_bytes
        self._charged_bytes = held_bytes

    def check(self, held_bytes: int) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE if the group cannot grow to this many bytes."""
        growth_bytes = held_bytes - self._charged_bytes
        if growth_bytes > 0:
            self._capacity.check(growth_bytes)
