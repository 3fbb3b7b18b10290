"""CRC-32C without the processor's own: its tables, and of many short rows at once."""

from typing import Final

import numpy as np
import numpy.typing as npt


def crc_tables(polynomial: int) -> npt.NDArray[np.uint32]:
    """Return eight tables, one behind the other, for eight bytes of a CRC at a time.

    The first table is that of a byte. Each further one is that of a byte followed by one more zero
    byte.
    """
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, (first >> 1) ^ np.uint32(polynomial), first >> 1)
    tables = [first]
    for _ in range(7):
        tables.append(tables[-1] >> np.uint32(8) ^ first[tables[-1] & 0xFF])
    return np.concatenate(tables).astype(np.uint32)


CRC32_TABLES: Final = crc_tables(0xEDB88320)
CRC32C_TABLES: Final = crc_tables(0x82F63B78)
_TABLE: Final = CRC32C_TABLES[:256].copy()


def crc32c_of_rows(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the checksum of each row of bytes."""
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> 8)
    return ~crc
