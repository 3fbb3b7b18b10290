"""The memory limit for the members of all groups."""

from horolog.errors import ErrorCode, RequestRefused


class Capacity:
    """Bytes in use, and their limit."""

    def __init__(self, max_bytes: int = 128 << 20) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0

    def check(self, growth_bytes: int) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE, which clients retry, if the growth does not fit."""
        if self.used_bytes + growth_bytes > self.max_bytes:
            raise RequestRefused(
                ErrorCode.coordinator_not_available,
                f"the members of all groups occupy {self.used_bytes} bytes, and "
                f"{growth_bytes} more exceed horolog.groups.max.bytes={self.max_bytes}",
            )
