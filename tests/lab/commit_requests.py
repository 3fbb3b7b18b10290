"""OffsetCommit requests of all kinds, and what a broker makes of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st
from raw_connection import encoded
from running_broker import RunningBroker

from horolog.record import HEADER_SIZE
from horolog.wire import SUPPORTED, ApiKey, request_prefix

VERSIONS = range(2, SUPPORTED[ApiKey.OFFSET_COMMIT].max + 1)


Partition = tuple[int, int, str | None]
"""Index, offset, metadata."""


class Asked(NamedTuple):
    """One request."""

    version: int
    topics: tuple[tuple[str, tuple[Partition, ...]], ...]
    group: str = "alone"
    generation: int = -1
    member: str = ""
    instance: str | None = None
    retention_ms: int = -1
    trailing: bytes = b""

    def frame(self, broker: RunningBroker, correlation_id: int = 5) -> bytes:
        """The request without its length."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member,
            "group_instance_id": self.instance,
            "retention_time_ms": self.retention_ms,
            "topics": [_topic(broker, *topic) for topic in self.topics],
        }
        key = ApiKey.OFFSET_COMMIT
        body = encoded(key, self.version, fields) + self.trailing
        return request_prefix(key, self.version, correlation_id, "me", len(body))[4:] + body


def _topic(broker: RunningBroker, name: str, partitions: tuple[Partition, ...]) -> dict[str, Any]:
    known = broker.broker.topics.find(name)
    asked = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 3,
            "committed_metadata": metadata,
        }
        for index, offset, metadata in partitions
    ]
    return {"name": name, "topic_id": known and known.topic_id, "partitions": asked}


def single(
    version: int, partition: int = 0, offset: int = 7, metadata: str | None = "m", **others: Any
) -> Asked:
    return Asked(version, (("t", ((partition, offset, metadata),)),), **others)


int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.sampled_from([None, "", "", "x", "x" * 4096, "x" * 4097])
indices = st.sampled_from([0, 0, 1, 79, 80, -1, 2**31 - 1])


@st.composite
def topics(draw: st.DrawFn) -> tuple[str, tuple[Partition, ...]]:
    """One partition of any kind, several without metadata, or a mixture of these."""
    name = draw(st.sampled_from(["t", "t", "u", "missing", "__consumer_offsets"]))
    if draw(st.booleans()):
        count = draw(st.sampled_from([1, 3, 4, 80, 80, 81]))
        first, metadata = draw(int64), draw(st.sampled_from([None, ""]))
        offsets = [min(first + at, 2**63 - 1) for at in range(count)]
        return name, tuple((at, offset, metadata) for at, offset in enumerate(offsets))
    few = st.lists(st.tuples(indices, int64, texts), min_size=1, max_size=6)
    return name, tuple(draw(few))


requests = st.builds(
    Asked,
    st.sampled_from(VERSIONS),
    st.lists(topics(), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["alone", "other", "", "ï" * 200]),
    st.sampled_from([-1, -1, 0, 1]),
    st.sampled_from(["", "", "somebody"]),
    st.sampled_from([None, None, "static"]),
    st.sampled_from([-1, 0, 5, 2**63 - 1]),
    st.sampled_from([b"", b"", b"\0"]),
)


def stored(broker: RunningBroker, asked: Asked) -> list[Any]:
    """What is committed of the partitions of a request."""
    get = broker.broker.groups.offsets.get
    return [get(asked.group, name, each[0]) for name, its in asked.topics for each in its]


def logged(broker: RunningBroker, group: str) -> list[bytes]:
    """The records of the last batch of a group's partition of `__consumer_offsets`."""
    index = broker.broker.groups.transactions.partition_of(group)
    found = broker.broker.partitions.find("__consumer_offsets", index)
    batches: list[bytes] = []
    if found is not None:
        list(found.log.replay(lambda batch: batches.append(bytes(batch))))
    return [batch[HEADER_SIZE:] for batch in batches[-1:]]
