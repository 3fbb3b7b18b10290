"""Templates of answers that differ in a few numbers alone, packed in one step."""

from collections.abc import Callable
from struct import Struct
from typing import Final

from horolog.wire.api import ApiKey
from horolog.wire.frame import response_prefix

__all__ = ["AnswerTemplate"]

_LENGTH: Final = slice(0, 4)
_AFTER_ID: Final = 8


class AnswerTemplate:
    """Template of an API's answers in one version, without correlation id and some numbers."""

    __slots__ = ("_end", "_head", "_length", "_pack")

    def __init__(
        self, api_key: ApiKey, version: int, body: bytes, numbers: Struct, sample: tuple[int, ...]
    ) -> None:
        """Make a template of an answer that was encoded by its schema.

        Args:
            body: an answer with the numbers of `sample`.
            numbers: layout of the numbers, which follow one another.
            sample: numbers that occur nowhere else in the body.
        """
        head, found, self._end = body.rpartition(numbers.pack(*sample))
        assert found, "the version has other numbers"
        prefix = response_prefix(api_key, version, 0, len(body))
        self._length, self._head = prefix[_LENGTH], prefix[_AFTER_ID:] + head
        layout = f">4si{len(self._head)}s{numbers.format[1:]}{len(self._end)}s"
        self._pack: Callable[..., bytes] = Struct(layout).pack

    def pack(self, correlation_id: int, *numbers: int) -> bytes:
        """Return the whole response, its length and header included."""
        return self._pack(self._length, correlation_id, self._head, *numbers, self._end)
