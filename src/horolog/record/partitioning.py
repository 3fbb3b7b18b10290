"""The partition of a key by Kafka's default partitioner (murmur2)."""

import numpy as np
import numpy.typing as npt

__all__ = ["murmur2", "partition_of_key", "partitions_of_keys"]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_FEW = 64  # keys for which a loop in Python is quicker than numpy's calls


def partition_of_key(key: bytes, count: int) -> int:
    """Return the partition, 0 to `count` - 1, of records with this key."""
    return (murmur2(key) & _POSITIVE) % count


def murmur2(data: bytes) -> int:
    """Return Austin Appleby's hash, in the 32 bits that Kafka's default partitioner uses."""
    length = len(data)
    value = _SEED ^ length
    for start in range(0, length & ~3, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        value = value * _M & _MASK ^ word
    rest = data[length & ~3 :]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partitions_of_keys(
    ends: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], count: int
) -> npt.NDArray[np.int32]:
    """Return the partitions of many keys at once.

    Args:
        ends: Arrow's offsets of n keys, n + 1 numbers: key i is `data[ends[i]:ends[i + 1]]`.
        data: the bytes of the keys.
        count: the number of partitions.
    """
    hashes = _murmur2_of_keys(ends, data)
    return ((hashes & np.uint32(_POSITIVE)) % np.uint32(count)).astype(np.int32)


def _murmur2_of_keys(
    ends: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint32]:
    """Hash all keys word by word; the few longest are hashed one by one."""
    starts, sizes = ends[:-1], np.diff(ends)
    words = sizes >> 2
    m = np.uint32(_M)
    values = np.uint32(_SEED) ^ sizes.astype(np.uint32)
    # A word at each byte, aligned or not.
    anywhere = np.ndarray((max(0, len(data) - 3),), "<u4", buffer=data, strides=(1,))
    rows: npt.NDArray[np.intp] | slice = slice(None)
    longest = int(words.max(initial=0))
    one_by_one = np.empty(0, np.intp)
    for index in range(longest):
        if index >= int(words.min()):
            rows = np.flatnonzero(words > index)
            if len(rows) <= _FEW:
                one_by_one = rows
                break
        word = anywhere[starts[rows] + 4 * index]
        word *= m
        word ^= word >> np.uint32(24)
        word *= m
        values[rows] = values[rows] * m ^ word
    rest = sizes & 3
    for left in (3, 2, 1):
        rows = np.flatnonzero(rest >= left)
        byte = data[starts[rows] + (words[rows] << 2) + left - 1].astype(np.uint32)
        values[rows] ^= byte << np.uint32(8 * (left - 1))
    rows = np.flatnonzero(rest)
    values[rows] *= m
    values ^= values >> np.uint32(13)
    values *= m
    values ^= values >> np.uint32(15)
    for row in one_by_one:
        values[row] = murmur2(data[ends[row] : ends[row + 1]].tobytes())
    return values
