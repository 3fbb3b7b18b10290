"""Hashes of topics, by which a group sees that something of its topics has changed.

Apache Kafka 4.1 and newer store a group's hash with its epoch. An equal hash here is what lets a
group that moves between brokers keep its assignment.

Source: KIP-1101.
"""

from collections.abc import Collection, Mapping, Sequence
from struct import pack
from typing import Final
from uuid import UUID

from horolog.groups.consumers.java_order import text_key

_MAGIC: Final = b"\0"
_LENGTH_BYTES: Final = 4
_LOWER_HALF: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63


def topic_hash(
    topic_id: UUID, name: str, partitions: int, racks: Sequence[Collection[str]] = ()
) -> int:
    """Return the hash of a topic, signed.

    Args:
        topic_id: id of the topic.
        name: name of the topic.
        partitions: how many it has.
        racks: racks of the replicas of each partition; empty where no broker has one.
    """
    halves = pack("<QQ", topic_id.int >> 64, topic_id.int & _LOWER_HALF)
    parts = [_MAGIC, halves, _text(name), pack("<i", partitions)]
    for partition, of_partition in enumerate(racks or ((),) * partitions):
        parts.append(pack("<i", partition))
        for rack in sorted(of_partition, key=text_key):
            text = _text(rack)
            parts += text[-_LENGTH_BYTES:], text
    return _hash(b"".join(parts))


def metadata_hash(topics: Mapping[str, int]) -> int:
    """Return the hash of a group's topics, signed: of their hashes, by name; 0 without topics."""
    if not topics:
        return 0
    return _hash(b"".join(pack("<q", topics[name]) for name in sorted(topics)))


def _text(text: str) -> bytes:
    """Return a text's units of UTF-16, then how many there are."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    return encoded + pack("<i", len(encoded) // 2)


def _hash(data: bytes) -> int:
    import xxhash  # noqa: PLC0415 - only a broker with groups of this kind needs it

    return (xxhash.xxh3_64_intdigest(data) ^ _SIGN) - _SIGN
