"""Orders that Apache Kafka's coordinator takes from Java: of strings, of ids, of hash tables.

They decide which member gets which partition, so they have to be the same for a group that moves
between brokers not to be assigned anew. Entries of a hash table come by bucket, and in a bucket as
they were put in. Java reorders buckets of nine entries and more; only ids made for it collide so.
"""

from collections.abc import Callable, Collection, Iterable
from struct import unpack
from typing import Final, TypeVar
from uuid import UUID

T = TypeVar("T")

_SMALLEST: Final = 16
_LOAD_FACTOR: Final = 0.75
_U32: Final = 0xFFFFFFFF
_U64: Final = 0xFFFFFFFFFFFFFFFF
_SIGN: Final = 1 << 63


def text_key(text: str) -> bytes:
    """Return the key by which `String.compareTo` sorts: units of UTF-16, not code points."""
    return text.encode("utf-16-be", "surrogatepass")


def uuid_key(topic_id: UUID) -> tuple[int, int]:
    """Return the key by which Kafka's `Uuid.compareTo` sorts: two signed halves."""
    number = topic_id.int
    return (number >> 64 ^ _SIGN, number & _U64 ^ _SIGN)


def text_hash(text: str) -> int:
    """Return `String.hashCode`, as an unsigned number."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in unpack(f"<{len(encoded) // 2}H", encoded):
        value = value * 31 + unit & _U32
    return value


def uuid_hash(topic_id: UUID) -> int:
    """Return Kafka's `Uuid.hashCode`, as an unsigned number."""
    halves = topic_id.int >> 64 ^ topic_id.int & _U64
    return halves >> 32 ^ halves & _U32


def map_order(entries: Collection[T], hash_of: Callable[[T], int]) -> list[T]:
    """Sort entries as a `HashMap` has them into which they were put one by one."""
    buckets = _SMALLEST
    while len(entries) > buckets * _LOAD_FACTOR:
        buckets *= 2
    return _by_bucket(entries, hash_of, buckets)


def set_order(entries: Collection[T], hash_of: Callable[[T], int]) -> list[T]:
    """Sort entries as a `HashSet` has them that was made from them."""
    buckets = _SMALLEST
    while buckets < int(len(entries) / _LOAD_FACTOR) + 1:
        buckets *= 2
    return _by_bucket(entries, hash_of, buckets)


def _by_bucket(entries: Iterable[T], hash_of: Callable[[T], int], buckets: int) -> list[T]:
    def bucket(entry: T) -> int:
        value = hash_of(entry)
        return (value ^ value >> 16) & buckets - 1

    return sorted(entries, key=bucket)
