"""Numbers, bytes and checksums for kernels that run as plain Python.

`compiled` has the same functions for numba: 64-bit numbers that wrap as Java's do, numbers in
bytes, copies and checksums. The types of a kernel's arguments are defined here as well.
"""

import zlib
from array import array
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import crc32c as _crc32c

Bytes = Annotated[Any, "bytes to read"]
Room = Annotated[Any, "bytes to write"]
Int64s = Annotated[Any, "signed numbers of 64 bits"]
FixedInt64s = Annotated[Any, "signed numbers of 64 bits to read"]
UInt64s = Annotated[Any, "unsigned numbers of 64 bits"]
Int32s = Annotated[Any, "signed numbers of 32 bits"]

_MASK32: Final = (1 << 32) - 1
_MASK64: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63

_Text = TypeVar("_Text", bound=Callable[..., Any])


def kernel(function: _Text) -> _Text:
    """Mark a kernel: a function with annotated arguments that other code than kernels calls."""
    function.is_kernel = True  # type: ignore[attr-defined]
    return function


def inlined(function: _Text) -> _Text:
    """Mark a function of the innermost loops, where a call would cost a fifth of the time."""
    function.is_inlined = True  # type: ignore[attr-defined]
    return function


def is_kernel(value: object) -> bool:
    """Return True if a function is marked as a kernel."""
    return getattr(value, "is_kernel", False)


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel as plain Python, with the arguments of the compiled one."""
    *kinds, _ = function.__annotations__.values()
    if all(kind in (int, bool) for kind in kinds):
        return function

    def call(*arguments: Any) -> Any:
        return function(*map(_readable, arguments))

    return call


def _readable(argument: Any) -> Any:
    """Return an argument with Python's own numbers as elements: numpy's have 8 bits, or warn."""
    if isinstance(argument, (int, bytes, array, memoryview)):
        return argument
    if isinstance(argument, tuple):
        return tuple(map(_readable, argument))
    return memoryview(argument)


def int64(value: int) -> int:
    """Wrap a number to 64 bits."""
    if -_SIGN <= value < _SIGN:
        return value
    return (value + _SIGN & _MASK64) - _SIGN


def uint64(value: int) -> int:
    """Wrap a number to 64 bits without a sign."""
    return value & _MASK64


def byte_at(data: Bytes, position: int) -> int:
    """Return the byte at a position."""
    byte: int = data[position]
    return byte


def i32(data: Bytes, position: int) -> int:
    """Return a signed number of 32 bits."""
    return int.from_bytes(data[position : position + 4], "big", signed=True)


def i64(data: Bytes, position: int) -> int:
    """Return a signed number of 64 bits."""
    return int.from_bytes(data[position : position + 8], "big", signed=True)


def word_at(data: Bytes, position: int) -> int:
    """Return eight bytes as a number without a sign, the first byte lowest."""
    return int.from_bytes(data[position : position + 8], "little")


def put_i32(out: Room, position: int, value: int) -> None:
    """Write the lowest 32 bits of a number."""
    out[position : position + 4] = (value & _MASK32).to_bytes(4, "big")


def put_i64(out: Room, position: int, value: int) -> None:
    """Write a number of 64 bits."""
    out[position : position + 8] = (value & _MASK64).to_bytes(8, "big")


def copy_bytes(data: Bytes, start: int, size: int, out: Room, at: int) -> None:
    """Copy bytes; the caller has checked both ends."""
    out[at : at + size] = data[start : start + size]


def is_ascii(data: Bytes, start: int, end: int) -> bool:
    """Return True if no byte has its highest bit set."""
    return bytes(data[start:end]).isascii()


def crc32(data: Bytes, start: int, end: int) -> int:
    """Return the CRC-32 of some bytes."""
    return zlib.crc32(data[start:end])


def crc32c(data: Bytes, start: int, end: int) -> int:
    """Return the CRC-32C of some bytes."""
    return _crc32c.crc32c(data[start:end])
