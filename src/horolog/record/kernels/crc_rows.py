"""CRC-32C without the processor's own: its tables, and of many short rows at once."""

from typing import Final

import numpy as np
import numpy.typing as npt

_POLYNOMIAL: Final = 0x82F63B78


def _table() -> npt.NDArray[np.uint32]:
    """A byte at a time: larger ones would be out of the caches each time."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


def _tables() -> npt.NDArray[np.uint32]:
    """Eight of them, one behind the other: of a byte with so many zero bytes behind it."""
    found = [TABLE]
    for _ in range(7):
        found.append(found[-1] >> 8 ^ TABLE[found[-1] & 0xFF])
    return np.concatenate(found)


TABLE: Final = _table()
TABLES: Final = _tables()


def crc32c_of_rows(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The checksum of each row of bytes."""
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = TABLE[(crc ^ column) & 0xFF] ^ (crc >> 8)
    return ~crc
