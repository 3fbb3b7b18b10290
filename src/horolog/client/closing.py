"""Base of objects that a `with` block closes."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closeable(ABC):
    """Object that a `with` block closes."""

    @abstractmethod
    def close(self) -> None:
        """Free the resources of the object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
