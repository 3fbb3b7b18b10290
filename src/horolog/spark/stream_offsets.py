"""How far a stream has been read: what Spark keeps in a checkpoint. Pure: no Spark, no broker.

One offset of a stream, as JSON on one line:

    {"version": 1, "offsets": {"orders": {"0": 120, "1": 7}}, "starts": {"orders": {"1": 0}}}

    version   1. Others are refused
    offsets   by topic and partition, the offset after the last one that was read
    starts    where reading starts in partitions that a micro-batch is the first to read: all in
              the first one, later those found while running, and those that start again
              after data was lost

`starts` are there because Spark asks anew where a stream starts until its first
micro-batch is done: without them a query whose first batch failed would start again at
the "latest" of that later moment, and lose what lies between.

A checkpoint that Spark's own Kafka source wrote holds the `offsets` alone,
`{"orders": {"0": 120, "1": 7}}`, and is read as well.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from horolog.errors import Misconfigured
from horolog.spark.plan import OffsetRange
from horolog.storage.names import TopicPartition

VERSION = 1

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Where a micro-batch ends, and where it starts in partitions that are new to it."""

    offsets: Offsets
    starts: Offsets = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As Spark takes it."""
        written: dict[str, Any] = {"version": VERSION, "offsets": _by_topic(self.offsets)}
        if self.starts:
            written["starts"] = _by_topic(self.starts)
        return written

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """What `to_json` gave, or Spark's Kafka source.

        Raises:
            Misconfigured: it is neither.
        """
        try:
            if "version" not in value:
                return cls(_by_partition(value))
            if value["version"] == VERSION:
                offsets, starts = value["offsets"], value.get("starts", {})
                return cls(_by_partition(offsets), _by_partition(starts))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Misconfigured(
                f"The checkpoint holds an offset that is not horolog's: {json.dumps(value)}"
            ) from None
        raise Misconfigured(
            f"The checkpoint holds an offset of version {value['version']}; this horolog knows "
            f"version {VERSION}"
        )

    def ranges_from(self, start: "StreamOffset") -> list[OffsetRange]:
        """What the micro-batch that ends here reads, if the one before it ended at `start`.

        Raises:
            Misconfigured: neither of them says where a partition starts.
        """
        ranges = []
        for partition, end in sorted(self.offsets.items()):
            first = self.starts.get(partition, start.offsets.get(partition))
            if first is None:
                raise Misconfigured(
                    f"The checkpoint does not say where {partition} starts: "
                    f"{json.dumps(start.to_json())} to {json.dumps(self.to_json())}"
                )
            if first < end:
                ranges.append(OffsetRange(partition, first, end))
        return ranges


def limited(positions: Offsets, ends: Offsets, most: int) -> dict[TopicPartition, int]:
    """Ends that are `most` offsets ahead in all, shared by what each partition has left.

    As Spark's Kafka source does: a partition with anything left gets at least one offset,
    so that it may be a few more.
    """
    left = {partition: ends[partition] - positions[partition] for partition in ends}
    total = sum(left.values())
    if total <= most:
        return dict(ends)
    shared = {}
    for partition, size in left.items():
        share = max(1, most * size // total) if size else 0
        shared[partition] = positions[partition] + min(share, size)
    return shared


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    written: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        written.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return written


def _by_partition(written: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    offsets = {}
    for topic, numbers in written.items():
        for partition, offset in numbers.items():
            if type(offset) is not int or offset < 0:
                raise ValueError(offset)
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets
