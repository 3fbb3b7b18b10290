"""Which partition a key belongs to, as Kafka's own producers have it (murmur2)."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of_key(key: bytes, count: int) -> int:
    """The partition, among `count`, that records of this key go to."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def murmur2(data: bytes) -> int:
    """Austin Appleby's hash, in the 32 bits that Kafka's default partitioner takes of it."""
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
